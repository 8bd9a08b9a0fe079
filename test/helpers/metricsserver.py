"""A real metrics-server beside a control plane, and what a kubelet serves to it.

The API server reaches it on loopback, through a Service of type ExternalName. It does not prove to metrics-server who
the user is, because control planes here have no certificate for that: metrics-server answers anybody. The API server
has then decided already, by the rights of the user.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from helpers.cluster import Cluster
from helpers.poll import eventually
from localcluster import binaries, ports
from localcluster.api import Api, RefusedError

_SERVICE = "/api/v1/namespaces/kube-system/services"
_API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_NAME, _API = "metrics-server", "v1beta1.metrics.k8s.io"
# The shortest that it accepts.
_RESOLUTION = "10s"


@contextlib.contextmanager
def running_metrics_server(cluster: Cluster, folder: Path) -> Iterator[None]:
    """Serves `metrics.k8s.io` on the cluster until the end of the block."""
    program, api = binaries.ensure("metrics-server"), cluster.api
    with ports.reserve(1) as (port,), (folder / "metrics-server.log").open("wb") as log:
        argv = [
            str(program),
            *(f"--{prefix}kubeconfig={cluster.kubeconfig}" for prefix in ("", "authentication-", "authorization-")),
            "--authentication-tolerate-lookup-failure",
            "--authorization-always-allow-paths=/apis/metrics.k8s.io,/apis/metrics.k8s.io/*",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={folder}",
            "--kubelet-insecure-tls",
            "--kubelet-use-node-status-port",
            "--kubelet-preferred-address-types=InternalIP",
            f"--metric-resolution={_RESOLUTION}",
            "--kubelet-request-timeout=5s",
        ]
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process:
            try:
                with _registered(api, port):
                    eventually(lambda: process.poll() is not None or _is_served(api))
                    assert process.poll() is None, (folder / "metrics-server.log").read_text()
                    yield
            finally:
                process.kill()


@contextlib.contextmanager
def _registered(api: Api, port: int) -> Iterator[None]:
    role = {
        "metadata": {"name": _NAME},
        "rules": [{"apiGroups": ["metrics.k8s.io"], "resources": ["*"], "verbs": ["*"]}],
    }
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _NAME}
    anybody = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous"}
    service = {"metadata": {"name": _NAME}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    spec = {
        "group": "metrics.k8s.io",
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"name": _NAME, "namespace": "kube-system", "port": port},
    }
    created = (
        (f"{_RBAC}/clusterroles", role),
        (f"{_RBAC}/clusterrolebindings", {"metadata": {"name": _NAME}, "roleRef": reference, "subjects": [anybody]}),
        (_SERVICE, service),
        (_API_SERVICES, {"metadata": {"name": _API}, "spec": spec}),
    )
    try:
        for path, body in created:
            api.create(path, body)
        yield
    finally:
        for path, body in reversed(created):
            api.delete(f"{path}/{body['metadata']['name']}")


def _is_served(api: Api) -> bool:
    with contextlib.suppress(RefusedError):
        return bool(api.get("/apis/metrics.k8s.io/v1beta1")["resources"])
    return False


def resource_metrics(namespace: str, pod: str, container: str, cores: float, memory: int) -> Callable[[], str]:
    """What a kubelet serves of a container that uses so much all the time, as bytes and seconds of CPU.

    Source: kubernetes pkg/kubelet/metrics/collectors/resource_metrics.go.
    """
    started = time.time()

    def text() -> str:
        now = time.time()
        labels, stamp = f'{{container="{container}",namespace="{namespace}",pod="{pod}"}}', int(now * 1000)
        used = cores * (now - started) + 100
        return (
            "# TYPE container_cpu_usage_seconds_total counter\n"
            f"container_cpu_usage_seconds_total{labels} {used} {stamp}\n"
            "# TYPE container_memory_working_set_bytes gauge\n"
            f"container_memory_working_set_bytes{labels} {memory} {stamp}\n"
            "# TYPE container_start_time_seconds gauge\n"
            f"container_start_time_seconds{labels} {started - 3600}\n"
            "# TYPE node_cpu_usage_seconds_total counter\n"
            f"node_cpu_usage_seconds_total {used} {stamp}\n"
            "# TYPE node_memory_working_set_bytes gauge\n"
            f"node_memory_working_set_bytes {memory} {stamp}\n"
        )

    return text
