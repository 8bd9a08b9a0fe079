"""The alerts for the Prometheus operator: a PrometheusRule with the groups of the rule file."""

from __future__ import annotations

from pathlib import Path

import yaml

_FOLDER = "manifests/components/monitoring"
SOURCE = f"{_FOLDER}/prometheus/rules.yaml"
PATH = f"{_FOLDER}/prometheusrule.yaml"


def render_prometheus_rule(root: Path) -> str:
    """Returns the PrometheusRule of the rule file under `root`."""
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "tfjob-controller", "labels": {"app.kubernetes.io/part-of": "tfjob-controller"}},
        "spec": yaml.safe_load((root / SOURCE).read_text(encoding="utf-8")),
    }
    body = yaml.safe_dump(rule, sort_keys=False, width=120, allow_unicode=True)
    return f"# Generated from {SOURCE} by `make generate`.\n{body}"
