"""A Prometheus in a pod, with the shipped configuration, rules and account; `rbac.yaml` gives that its rights.

It needs no image of its own: nodes see this machine's files, so the program is mounted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from helpers.monitoringfiles import FILES
from localcluster.images import BASE

Object = dict[str, Any]

PROMETHEUS, PROMETHEUS_NAMESPACE = "prometheus", "monitoring"
PORT = 9090
POD_PATH = f"/api/v1/namespaces/{PROMETHEUS_NAMESPACE}/pods/{PROMETHEUS}"
# A user's Prometheus scrapes each half minute.
INTERVAL = "2s"
_CONFIG_FILE, _RULES_FILE = "prometheus.yaml", "rules.yaml"
_CONFIG, _PROGRAM = "/etc/prometheus", "/usr/local/bin/prometheus"
# "nobody": the program needs no rights on the machine.
_USER = 65534


def objects(program: Path) -> list[Object]:
    """Returns the namespace, the account, the configuration and the pod. `program` is a path on this machine."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PROMETHEUS_NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata()},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(), "data": _files()},
        _pod(program),
    ]


def _metadata() -> Object:
    return {"name": PROMETHEUS, "namespace": PROMETHEUS_NAMESPACE}


def _files() -> dict[str, str]:
    """The shipped files; only the intervals are others."""
    shipped = FILES / "prometheus"
    config = yaml.safe_load((shipped / _CONFIG_FILE).read_text(encoding="utf-8"))
    config["global"] = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), INTERVAL)
    return {_CONFIG_FILE: yaml.safe_dump(config), _RULES_FILE: (shipped / _RULES_FILE).read_text(encoding="utf-8")}


def _pod(program: Path) -> Object:
    volumes = [
        {"name": "config", "configMap": {"name": PROMETHEUS}},
        {"name": "data", "emptyDir": {}},
        {"name": "program", "hostPath": {"path": str(program), "type": "File"}},
    ]
    mounts = [
        {"name": "config", "mountPath": _CONFIG},
        {"name": "data", "mountPath": "/data"},
        {"name": "program", "mountPath": _PROGRAM, "readOnly": True},
    ]
    container = {
        "name": PROMETHEUS,
        "image": BASE,
        "imagePullPolicy": "Never",
        "command": [
            _PROGRAM,
            f"--config.file={_CONFIG}/{_CONFIG_FILE}",
            "--storage.tsdb.path=/data",
            f"--web.listen-address=:{PORT}",
        ],
        "ports": [{"name": "web", "containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": "web"}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "securityContext": {"runAsUser": _USER, "allowPrivilegeEscalation": False},
        "volumeMounts": mounts,
    }
    spec = {
        "serviceAccountName": PROMETHEUS,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": volumes,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(), "spec": spec}
