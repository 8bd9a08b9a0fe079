"""The test environment of `make bench-gang`: control planes with fake nodes, and the programs of the gang scheduler.

    with planes("ours") as running:
        running["ours"].set_nodes(200)
        with gang_scheduler(running["ours"]) as pids:
            ...

`ours` and `stock` are equal, so that none of our programs runs beside the stock scheduler; `native` has the feature
gates of Kubernetes' own gangs; `audited` logs every request.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import usage
from bench.auditlog import audit_log
from bench.report import progress
from bench.stage import in_parallel
from localcluster import ports, stack
from localcluster.api import Api
from localcluster.controlplane import GUARD, ControlPlane
from localcluster.crds import install_crds
from localcluster.extender import extender_beside
from localcluster.fakekubelet import make_node
from localcluster.gangscheduler import GangScheduler
from localcluster.ourprogram import EXTENDER
from localcluster.programs import LOOPBACK, Options

THREADS = 16
NODE: Mapping[str, str] = {"cpu": "8", "memory": "32Gi", "pods": "110"}
_GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"
_NATIVE = Options(
    apiserver_flags=(_GATES, "--runtime-config=scheduling.k8s.io/v1alpha2=true"),
    controller_manager_flags=(_GATES,),
    scheduler_flags=(_GATES,),
)
_WITHOUT_GANGS = ("native", "stock")


@dataclass(frozen=True, slots=True)
class Plane:
    """A running control plane. `audit` is the API server's log of requests, if it writes one."""

    control: ControlPlane
    api: Api
    audit: Path | None = None

    def set_nodes(self, count: int, resources: Mapping[str, str] = NODE) -> None:
        """Creates and deletes nodes so that exactly these exist."""
        wanted = [f"node-{number:04d}" for number in range(count)]
        names = {node["metadata"]["name"] for node in self.api.list("/api/v1/nodes")}
        in_parallel(lambda name: self.api.delete(f"/api/v1/nodes/{name}"), names.difference(wanted))
        in_parallel(lambda name: make_node(self.api, name, resources), wanted)

    def pids(self) -> dict[str, int]:
        """Returns the process IDs of the programs of Kubernetes, by name."""
        programs = self.control.state().programs
        return {name: record.identity.pid for name, record in programs.items() if record.identity and name != GUARD}


@contextlib.contextmanager
def planes(*kinds: str) -> Iterator[dict[str, Plane]]:
    """Runs control planes of these kinds (see the module), by kind."""
    with contextlib.ExitStack() as open_:
        yield {kind: open_.enter_context(_plane(kind)) for kind in kinds}


@contextlib.contextmanager
def _plane(kind: str) -> Iterator[Plane]:
    """Runs a control plane without nodes."""
    audit: Path | None = None
    with contextlib.ExitStack() as open_:
        options = _NATIVE if kind == "native" else Options()
        if kind == "audited":
            audit, flags = open_.enter_context(audit_log())
            options = Options(apiserver_flags=flags)
        control = open_.enter_context(stack.throwaway(f"bench-{kind}", options, progress))
        api = Api.from_kubeconfig(control.kubeconfig, pool_size=THREADS + 4)
        if kind not in _WITHOUT_GANGS:
            install_crds(api)
        yield Plane(control, api, audit)


@contextlib.contextmanager
def gang_scheduler(plane: Plane) -> Iterator[dict[str, int]]:
    """Runs the programs that gang scheduling adds to a cluster; yields their process IDs by name."""
    with contextlib.ExitStack() as open_, ports.reserve(2, LOOPBACK) as (port, probes_port):
        extender = extender_beside(plane.control, port, probes_port)
        open_.callback(extender.kill)
        extender.start()
        extender.wait_ready()
        with GangScheduler(plane.control, extender.urls[EXTENDER]) as scheduler:
            yield {"extender": extender.pid, "gang-scheduler": scheduler.pid}


def cpu_seconds(pids: Mapping[str, int]) -> dict[str, float]:
    """Returns the CPU time of each process since its start."""
    return {name: usage.cpu_seconds(pid) for name, pid in pids.items()}
