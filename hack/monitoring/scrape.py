"""What to scrape: PodMonitors for the operator, and a whole configuration for a Prometheus without it.

Both find pods by their label app.kubernetes.io/name and the container port `metrics`, and both give a target the labels
job (that label's value), namespace, pod and container. A series' own labels win over these: `namespace` of `tfjob_jobs`
is the job's, and `job` of `tfjob_training_metric` is a training job.
"""

from __future__ import annotations

from typing import Any

from monitoring.alert import CONTROLLER, GANG_SCHEDULER
from monitoring.text import LABELS, to_yaml

_SOURCE = "hack/monitoring"
_NAME_LABEL = "app.kubernetes.io/name"
_INTERVAL, _TIMEOUT = "30s", "10s"
# Where the overlays put both programs.
_NAMESPACE = "tfjob-system"
RULES_FILE = "rules.yaml"
# Whom the right to discover pods is given to; the docs say where to change it.
PROMETHEUS, PROMETHEUS_NAMESPACE = "prometheus", "monitoring"


def render_pod_monitors() -> str:
    return to_yaml(_SOURCE, *(_pod_monitor(name) for name in (CONTROLLER, GANG_SCHEDULER)))


def _pod_monitor(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {"name": name, "labels": LABELS},
        "spec": {
            "jobLabel": _NAME_LABEL,
            "selector": {"matchLabels": {_NAME_LABEL: name}},
            "podMetricsEndpoints": [
                {
                    "port": "metrics",
                    "path": "/metrics",
                    "interval": _INTERVAL,
                    "scrapeTimeout": _TIMEOUT,
                    "honorLabels": True,
                }
            ],
        },
    }


def render_prometheus() -> str:
    """A whole configuration: also what stands in it can be put into one that is there."""
    config = {
        "global": {"scrape_interval": _INTERVAL, "scrape_timeout": _TIMEOUT, "evaluation_interval": _INTERVAL},
        "rule_files": [RULES_FILE],
        "scrape_configs": [
            {
                "job_name": "tfjob-controller",
                "honor_labels": True,
                "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [_NAMESPACE]}}],
                "relabel_configs": [*_relabelings()],
            }
        ],
    }
    return to_yaml(_SOURCE, config)


def render_rights() -> str:
    """The right to discover the programs' pods, for the ServiceAccount of a Prometheus without the operator."""
    group = "rbac.authorization.k8s.io"
    metadata = {"name": "tfjob-controller-discovery", "namespace": _NAMESPACE, "labels": LABELS}
    role = {
        "apiVersion": f"{group}/v1",
        "kind": "Role",
        "metadata": metadata,
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}],
    }
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": metadata["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": PROMETHEUS, "namespace": PROMETHEUS_NAMESPACE}],
    }
    return to_yaml(_SOURCE, role, binding)


def _relabelings() -> list[dict[str, Any]]:
    meta = "__meta_kubernetes_pod"
    return [
        {
            "source_labels": [f"{meta}_label_app_kubernetes_io_name"],
            "regex": f"{CONTROLLER}|{GANG_SCHEDULER}",
            "action": "keep",
        },
        {"source_labels": [f"{meta}_container_port_name"], "regex": "metrics", "action": "keep"},
        # A pod that has ended keeps its object for a while.
        {"source_labels": [f"{meta}_phase"], "regex": "Succeeded|Failed", "action": "drop"},
        {"source_labels": [f"{meta}_label_app_kubernetes_io_name"], "target_label": "job"},
        {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
        {"source_labels": [f"{meta}_name"], "target_label": "pod"},
        {"source_labels": [f"{meta}_container_name"], "target_label": "container"},
    ]
