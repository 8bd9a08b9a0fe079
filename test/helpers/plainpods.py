"""Plain pods on real nodes, without a job."""

from __future__ import annotations

from typing import Any

from helpers.cluster import Cluster, pod_path

# The program listens on port 8000.
SERVER = ["python3", "-m", "http.server", "8000"]
SLEEP = ["sleep", "infinity"]


def pod(name: str, command: list[str], node_name: str = "", **container: Any) -> dict[str, Any]:
    main = {
        "name": "main",
        "image": "localhost/base",
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        **container,
    }
    spec = {"containers": [main], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    if node_name:
        spec["nodeName"] = node_name
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def create_pod(cluster: Cluster, space: str, body: dict[str, Any]) -> None:
    cluster.api.create(f"/api/v1/namespaces/{space}/pods", body)


def phase(cluster: Cluster, space: str, name: str) -> str:
    return str(cluster.api.get(pod_path(space, name))["status"]["phase"])


def condition(cluster: Cluster, name: str) -> str:
    """Returns the status of the node's Ready condition: True, False or Unknown."""
    reported = cluster.api.get(f"/api/v1/nodes/{name}")["status"]["conditions"]
    return next(str(one["status"]) for one in reported if one["type"] == "Ready")
