"""The test environment: a control plane with fake nodes, and both programs as processes with default flags.

The logs of pods have lines with metrics (soak.podlogs), so that logs are followed too. Everything ends with the block.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.jobs.podoutcomes import PodOutcomes
from chaos.jobs.submitted import SubmittedJobs
from localcluster import ports, stack
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.crds import install_crds
from localcluster.extender import extender_beside
from localcluster.fakekubelet import Behaviour, FakeKubelet
from localcluster.gangscheduler import GangScheduler
from localcluster.ourprogram import DEBUG, EXTENDER, METRICS, PROBES, OurProgram
from localcluster.podstatus import Outcome
from localcluster.programs import LOOPBACK, Options
from localcluster.report import Report
from soak.podlogs import PodLogs
from soak.samples import Watched

NAMESPACE = "soak"
NODES = tuple(f"node-{number}" for number in range(4))
NODE: Mapping[str, str] = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "64Gi", "pods": "110"}
# With the default of an hour, Events would be most of what etcd holds.
_OPTIONS = Options(apiserver_flags=("--event-ttl=5m",), unsafe_no_fsync=True)
_STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Stage:
    api: Api
    plane: ControlPlane
    jobs: SubmittedJobs
    programs: Mapping[str, Watched]


@contextlib.contextmanager
def open_stage(report: Report) -> Iterator[Stage]:
    """Starts everything. Raises LocalClusterError."""
    with stack.throwaway("soak", _OPTIONS, report) as plane, contextlib.ExitStack() as open_:
        api = Api.from_kubeconfig(plane.kubeconfig)
        install_crds(api)
        api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        jobs = SubmittedJobs(api, NAMESPACE)
        logs_folder = Path(open_.enter_context(tempfile.TemporaryDirectory()))
        logs = open_.enter_context(PodLogs(logs_folder))
        kubelet_api = Api.from_kubeconfig(plane.kubeconfig)
        kubelet = FakeKubelet(
            kubelet_api, nodes=NODES, resources=NODE, behaviour=_logging(PodOutcomes(jobs.plan_of), logs)
        )
        open_.enter_context(kubelet)
        _serve_logs_of_nodes(api, logs)
        programs = (open_.enter_context(_extender(plane)), open_.enter_context(_controller(plane)))
        jobs.start()
        open_.callback(jobs.stop)
        yield Stage(api, plane, jobs, {each.name: each for each in programs})


def _logging(behaviour: Behaviour, logs: PodLogs) -> Behaviour:
    """Returns the same behaviour, which also ends a pod's log with the pod."""

    def found(pod: dict[str, Any], attempt: int) -> Outcome:
        outcome = behaviour(pod, attempt)
        logs.expect(pod["metadata"]["name"], outcome.after_seconds or 0.0)
        return outcome

    return found


def _serve_logs_of_nodes(api: Api, logs: PodLogs) -> None:
    """Makes the API server request the logs of all nodes from this server."""
    endpoints = {"kubeletEndpoint": {"Port": logs.port}}
    status = {"addresses": [{"type": "InternalIP", "address": LOOPBACK}], "daemonEndpoints": endpoints}
    for node in NODES:
        api.patch(f"/api/v1/nodes/{node}/status", {"status": status})


@contextlib.contextmanager
def _extender(plane: ControlPlane) -> Iterator[Watched]:
    """Runs the extender with its kube-scheduler."""
    with ports.reserve(3, LOOPBACK) as (port, probes, metrics):
        extender = extender_beside(plane, port, probes, "--qps=1000", more_served={METRICS: metrics})
        try:
            extender.start()
            extender.wait_ready()
            with GangScheduler(plane, extender.urls[EXTENDER]):
                yield Watched("extender", extender)
        finally:
            extender.kill()


@contextlib.contextmanager
def _controller(plane: ControlPlane) -> Iterator[Watched]:
    with ports.reserve(3, LOOPBACK) as (probes, metrics, debug):
        served = {PROBES: probes, METRICS: metrics, DEBUG: debug}
        log = plane.logs / "controller.log"
        controller = OurProgram("run", plane.kubeconfig, served, log=log, mark=plane.folder)
        try:
            controller.start()
            controller.wait_ready()
            yield Watched("controller", controller, remembers=True)
        finally:
            controller.end(grace_seconds=_STOP_SECONDS)
