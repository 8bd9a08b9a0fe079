"""All files of manifests/components/monitoring, and the runbooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monitoring import runbooks
from monitoring.dashboards import DASHBOARDS
from monitoring.panel import render_dashboard
from monitoring.rules import render_prometheus_rule, render_rules
from monitoring.scrape import RULES_FILE, render_pod_monitors, render_prometheus, render_rights
from monitoring.text import LABELS, to_yaml

COMPONENT = "manifests/components/monitoring"
# By which the sidecar of Grafana's chart finds dashboards.
GRAFANA_LABEL = {"grafana_dashboard": "1"}
_SOURCE = "hack/monitoring"


def files() -> Mapping[str, str]:
    """Path from the project's root → text."""
    inside = {
        "kustomization.yaml": to_yaml(_SOURCE, _kustomization()),
        "podmonitor.yaml": render_pod_monitors(),
        "prometheusrule.yaml": render_prometheus_rule(),
        "prometheus/prometheus.yaml": render_prometheus(),
        "prometheus/rbac.yaml": render_rights(),
        f"prometheus/{RULES_FILE}": render_rules(),
        **{f"dashboards/{each.uid}.json": render_dashboard(each) for each in DASHBOARDS},
    }
    return {f"{COMPONENT}/{name}": text for name, text in inside.items()} | dict(runbooks.pages())


def _kustomization() -> dict[str, Any]:
    return {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "resources": ["podmonitor.yaml", "prometheusrule.yaml"],
        "configMapGenerator": [
            {
                "name": "tfjob-controller-dashboards",
                "files": [f"dashboards/{each.uid}.json" for each in DASHBOARDS],
                "options": {"labels": GRAFANA_LABEL | LABELS, "disableNameSuffixHash": True},
            }
        ],
    }
