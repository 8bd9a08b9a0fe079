"""The whole gang scheduler in this process, on a real cluster; and requests to it as kube-scheduler sends them."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from helpers.cluster import Cluster
from helpers.controller import ANY_PORT, running
from helpers.poll import PATIENCE_SECONDS
from localcluster.api import Api
from localcluster.gangscheduler import GangScheduler as KubeScheduler
from tfjob_controller.kube.config.kubeconfig import load_config
from tfjob_controller.options import ExtenderOptions
from tfjob_controller.programs.gangscheduler import GangScheduler
from tfjob_controller.util.clock import Clock, RealClock
from tfjob_controller.util.timestamps import format_micro_time

Object = dict[str, Any]


@contextlib.contextmanager
def running_gang_scheduler(
    kubeconfig: Path,
    *,
    ready: bool = True,
    exit_process: Callable[[int], object] | None = None,
    clock: Clock | None = None,
    **options: Any,
) -> Iterator[GangScheduler]:
    """Starts a gang scheduler, and waits by default until it is ready; stops it at the end."""
    given: dict[str, Any] = {
        "kubeconfig": str(kubeconfig),
        "qps": 0.0,
        "extender_bind_address": ANY_PORT,
        "metrics_bind_address": ANY_PORT,
        "health_probe_bind_address": ANY_PORT,
    }
    stop = threading.Event()
    exits: list[int] = []
    scheduler = GangScheduler(
        ExtenderOptions(**{**given, **options}),
        load_config(str(kubeconfig)),
        stop=stop,
        clock=clock,
        exit_process=exit_process or exits.append,
    )
    with running(scheduler, stop, ready=ready):
        yield scheduler


@contextlib.contextmanager
def running_schedulers(cluster: Cluster, kubeconfig: Path | None = None, **options: Any) -> Iterator[GangScheduler]:
    """Starts a gang scheduler and its kube-scheduler; `kubeconfig` replaces the cluster's for the gang scheduler."""
    with (
        running_gang_scheduler(kubeconfig or cluster.kubeconfig, **options) as scheduler,
        KubeScheduler(cluster.own, extender_url(scheduler)),
    ):
        yield scheduler


# Long enough that no test loses a Lease because a busy machine renews it late.
_LEASE_SECONDS = 3600


def hold_lease(api: Api, namespace: str, name: str, holder: str) -> None:
    """Acquires or renews the Lease, as the kube-scheduler of the pod `holder` does.

    The gang scheduler ignores the renewal that it reads first, so a test repeats this until it works.
    """
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    moment = format_micro_time(RealClock().now())
    spec = {"holderIdentity": f"{holder}_play", "leaseDurationSeconds": _LEASE_SECONDS, "renewTime": moment}
    if not api.create_if_missing(path, {"metadata": {"name": name}, "spec": spec}):
        api.patch(f"{path}/{name}", {"spec": spec})


def extender_url(scheduler: GangScheduler) -> str:
    assert scheduler.extender is not None
    return f"http://127.0.0.1:{scheduler.extender.port}"


def ask_filter(scheduler: GangScheduler, pod: Object, nodes: Sequence[str]) -> Sequence[str]:
    """Sends a filter call for a pod; returns the remaining nodes, none if there is no response."""
    return _ask(scheduler, "filter", {"Pod": pod, "NodeNames": list(nodes)}).get("NodeNames") or ()


def ask_bind(scheduler: GangScheduler, pod: Object, node: str) -> Object:
    """Sends a bind call for the pod; returns the response."""
    meta = pod["metadata"]
    names = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
    return _ask(scheduler, "bind", names)


def _ask(scheduler: GangScheduler, verb: str, body: Object) -> Object:
    request = urllib.request.Request(f"{extender_url(scheduler)}/{verb}", json.dumps(body).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            decoded: Object = json.load(answer)
            return decoded
    except urllib.error.HTTPError:
        return {}
