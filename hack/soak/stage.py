"""Where it plays: a control plane with fake nodes, and both programs as processes, as a user starts them.

The pods' logs have lines with metrics (soak.podlogs), so that logs are followed too. Everything ends with the block;
the programs' own logs stay where a run was not good (`keep_logs`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from localcluster import ports, process, stack, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.crds import install_crds
from localcluster.errors import LocalClusterError
from localcluster.extender import Extender
from localcluster.fakekubelet import Behaviour, FakeKubelet
from localcluster.gangscheduler import GangScheduler
from localcluster.podstatus import Outcome
from localcluster.programs import LOOPBACK, Options
from localcluster.report import Report
from soak.podlogs import PodLogs
from soak.samples import Watched

NAMESPACE = "soak"
NODES = tuple(f"node-{number}" for number in range(4))
NODE: Mapping[str, str] = {"cpu": "8", "memory": "64Gi", "ephemeral-storage": "64Gi", "pods": "110"}
# An hour of Events, as is the default, would be most of what etcd holds.
_OPTIONS = Options(apiserver_flags=("--event-ttl=5m",), unsafe_no_fsync=True)
_READY_SECONDS = 60.0
_POLL_SECONDS = 0.1
_STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Stage:
    api: Api
    plane: ControlPlane
    programs: Mapping[str, Watched]


@contextlib.contextmanager
def open_stage(behaviour: Behaviour, report: Report) -> Iterator[Stage]:
    """Everything at work. Raises LocalClusterError."""
    folder = state.stack_dir(f"{stack.TEST_PREFIX}{os.getpid()}-soak")
    try:
        with (
            ControlPlane(folder, _OPTIONS, owner=process.identify(os.getpid()), report=report) as plane,
            contextlib.ExitStack() as open_,
        ):
            api = Api.from_kubeconfig(plane.kubeconfig)
            install_crds(api)
            api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            logs_folder = Path(open_.enter_context(tempfile.TemporaryDirectory()))
            logs = open_.enter_context(PodLogs(logs_folder))
            kubelet_api = Api.from_kubeconfig(plane.kubeconfig)
            kubelet = FakeKubelet(kubelet_api, nodes=NODES, resources=NODE, behaviour=_logging(behaviour, logs))
            open_.enter_context(kubelet)
            _lead_to(api, logs)
            programs = (open_.enter_context(_extender(plane)), open_.enter_context(_controller(plane)))
            yield Stage(api, plane, {each.name: each for each in programs})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep_logs(stage: Stage) -> Path:
    """A copy of the logs, which otherwise end with the stage."""
    return shutil.copytree(stage.plane.logs, Path(tempfile.mkdtemp(prefix="soak-")) / "logs")


def _logging(behaviour: Behaviour, logs: PodLogs) -> Behaviour:
    """The same; a pod's log ends when the pod does."""

    def found(pod: dict[str, Any], attempt: int) -> Outcome:
        outcome = behaviour(pod, attempt)
        logs.expect(pod["metadata"]["name"], outcome.after_seconds or 0.0)
        return outcome

    return found


def _lead_to(api: Api, logs: PodLogs) -> None:
    """The API server asks this server for the logs of all nodes."""
    endpoints = {"kubeletEndpoint": {"Port": logs.port}}
    status = {"addresses": [{"type": "InternalIP", "address": LOOPBACK}], "daemonEndpoints": endpoints}
    for node in NODES:
        api.patch(f"/api/v1/nodes/{node}/status", {"status": status})


@contextlib.contextmanager
def _extender(plane: ControlPlane) -> Iterator[Watched]:
    """With its kube-scheduler."""
    with ports.reserve(3, LOOPBACK) as (port, probes, metrics):
        extender = Extender(plane, port, probes, f"--metrics-bind-address={LOOPBACK}:{metrics}", "--qps=1000")
        extender.start()
        try:
            extender.wait_ready()
            with GangScheduler(plane, extender.url):
                yield Watched("extender", lambda: extender.pid, _url(metrics, "metrics"))
        finally:
            extender.kill()


@contextlib.contextmanager
def _controller(plane: ControlPlane) -> Iterator[Watched]:
    with ports.reserve(3, LOOPBACK) as (probes, metrics, debug):
        argv = [sys.executable, "-m", "tfjob_controller", "run", f"--kubeconfig={plane.kubeconfig}"]
        addresses = {"health-probe": probes, "metrics": metrics, "debug": debug}
        argv += [f"--{name}-bind-address={LOOPBACK}:{port}" for name, port in addresses.items()]
        identity = process.spawn(argv, log=plane.logs / "controller.log", mark=plane.folder)
        try:
            _wait_ready(identity, _url(probes, "readyz"), plane.logs)
            yield Watched("controller", lambda: identity.pid, _url(metrics, "metrics"), _url(debug, "debug/syncs"))
        finally:
            process.end([identity], grace_seconds=_STOP_SECONDS)


def _wait_ready(identity: process.Identity, url: str, logs: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            if urllib3.request("GET", url, retries=False, timeout=1.0).status == 200:
                return
        if not process.is_alive(identity) or time.monotonic() > deadline:
            raise LocalClusterError(f"the controller does not become ready: see {logs}")
        time.sleep(_POLL_SECONDS)


def _url(port: int, page: str) -> str:
    return f"http://{LOOPBACK}:{port}/{page}"
