"""The test environment of `make bench-gang`: control planes with fake nodes, and the programs of the gang scheduler.

`ours` has default flags, `native` the feature gates of Kubernetes' own gangs.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bench import usage
from bench.report import progress
from bench.stage import create_namespace, in_parallel, rest, wait
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
_NODE: Mapping[str, str] = {"cpu": "8", "memory": "32Gi", "pods": "110"}
_GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"
_NATIVE = Options(
    apiserver_flags=(_GATES, "--runtime-config=scheduling.k8s.io/v1alpha2=true"),
    controller_manager_flags=(_GATES,),
    scheduler_flags=(_GATES,),
)
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Plane:
    """A running control plane. `pids` are the processes whose CPU counts, by name."""

    control: ControlPlane
    api: Api
    pids: dict[str, int]

    def set_nodes(self, count: int) -> None:
        """Creates and deletes nodes so that exactly these exist."""
        wanted = [f"node-{number:04d}" for number in range(count)]
        names = {node["metadata"]["name"] for node in self.api.list("/api/v1/nodes")}
        in_parallel(lambda name: self.api.delete(f"/api/v1/nodes/{name}"), names.difference(wanted))
        in_parallel(lambda name: make_node(self.api, name, _NODE), wanted)

    def cpu_seconds(self) -> dict[str, float]:
        """Returns the CPU time of each process since its start."""
        return {name: usage.cpu_seconds(pid) for name, pid in self.pids.items()}

    @contextlib.contextmanager
    def namespace(self, *paths: str, name: str = "") -> Iterator[str]:
        """Yields a new namespace; deletes the objects of these paths at the end, and waits until nothing is written."""
        name = name or f"bench-gang-{next(_numbers)}"
        create_namespace(self.api, name)
        yield name
        inside = [path.format(name) for path in paths]
        for path in inside:
            self._delete_all(path)
        for path in inside:
            wait(functools.partial(self._is_empty, path), f"{path} are not deleted")
        rest(self.api)

    def _delete_all(self, path: str) -> None:
        """Deletes concurrently. Deleting a collection is sequential and may exceed the timeout of a request."""
        names = [obj["metadata"]["name"] for obj in self.api.list(path)]
        in_parallel(lambda name: self.api.delete(f"{path}/{name}", gracePeriodSeconds=0), names)

    def _is_empty(self, path: str) -> bool:
        return not self.api.list(path)


@contextlib.contextmanager
def native_plane() -> Iterator[Plane]:
    with running_plane("native", _NATIVE) as plane:
        yield plane


@contextlib.contextmanager
def our_plane() -> Iterator[Plane]:
    """Runs the programs that gang scheduling adds to a cluster as well."""
    with running_plane("ours", Options()) as plane, contextlib.ExitStack() as open_:
        install_crds(plane.api)
        port, probes_port = open_.enter_context(ports.reserve(2, LOOPBACK))
        extender = extender_beside(plane.control, port, probes_port)
        open_.callback(extender.kill)
        extender.start()
        extender.wait_ready()
        scheduler = open_.enter_context(GangScheduler(plane.control, extender.urls[EXTENDER]))
        plane.pids.update({"extender": extender.pid, "gang-scheduler": scheduler.pid})
        yield plane


@contextlib.contextmanager
def running_plane(name: str, options: Options) -> Iterator[Plane]:
    """Runs a control plane without nodes."""
    with stack.throwaway(f"bench-{name}", options, progress) as control:
        programs = control.state().programs
        pids = {name: record.identity.pid for name, record in programs.items() if record.identity and name != GUARD}
        yield Plane(control, Api.from_kubeconfig(control.kubeconfig, pool_size=THREADS + 4), pids)
