"""Replicas of `tfjob-controller run` as deployed: processes with a host name each."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import urllib3

from chaos.outages import holder_of
from chaos.supervised import SupervisedProgram
from localcluster.api import Api, RefusedError
from localcluster.controlplane import ControlPlane
from localcluster.faultproxy import FaultProxy
from localcluster.ourprogram import DEBUG, PROBES, OurProgram

LEASE_NAMESPACE, LEASE = "kube-system", "tfjob-controller"
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases/{LEASE}"
# The default: on a busy machine a shorter Lease expires without any fault.
LEASE_SECONDS = 15.0
FLAGS = (
    "--leader-elect",
    f"--leader-elect-lease-namespace={LEASE_NAMESPACE}",
    f"--leader-elect-lease-name={LEASE}",
    f"--leader-elect-lease-duration={LEASE_SECONDS:g}s",
    "--autoscaling=on",
    "--qps=0",
)


def controller_program(
    plane: ControlPlane, name: str, served: Sequence[int], kubeconfig: Path, log: Path, env: Mapping[str, str]
) -> OurProgram:
    """Returns a controller; without a `name` it has this machine's. `served` are the ports of probes and /debug/."""
    ports_of = dict(zip((PROBES, DEBUG), served, strict=True))
    flags = ("--namespace=", *FLAGS)
    return OurProgram("run", kubeconfig, ports_of, *flags, log=log, mark=plane.folder, replica=name, env=env)


@dataclass(frozen=True, slots=True)
class Controller:
    """A replica; `name` is the host name by which the Lease names it. All its requests go through `proxy`."""

    name: str
    supervised: SupervisedProgram
    program: OurProgram
    proxy: FaultProxy

    def threads(self) -> list[str]:
        """Returns the names of its threads, as reported at /debug/threads. Raises urllib3's HTTPError."""
        return names_in(self.program.page(DEBUG, "/debug/threads"))

    @property
    def files(self) -> int:
        """The number of open file descriptors, most of them sockets."""
        return len(_entries(self, "fd"))


def names_in(stacks: str) -> list[str]:
    """Returns the names of threads in the output of /debug/threads.

    A line "name (number)" precedes each stack, whose lines are indented.
    """
    return re.findall(r"^(\S.*) \(\d+\)$", stacks, re.MULTILINE)


def leader_of(api: Api, controllers: Sequence[Controller]) -> Controller | None:
    """Returns the controller that holds the Lease; None if there is none or the server does not respond."""
    try:
        name = holder_of((api.find(LEASE_PATH) or {}).get("spec") or {})
    except (RefusedError, urllib3.exceptions.HTTPError):
        return None
    return next((each for each in controllers if each.name == name), None)


class LeaseMonitor:
    """Checks that a leader renews the Lease, with its own clock, since the controllers' clocks may jump."""

    def __init__(self, api: Api, controllers: Sequence[Controller]) -> None:
        self._api = api
        self._controllers = controllers
        self._renewed = ""
        self._at = time.monotonic()

    def is_renewed(self) -> bool:
        """Reports whether a leader renews the Lease. Raises RefusedError and urllib3's HTTPError. Not thread-safe."""
        spec = (self._api.find(LEASE_PATH) or {}).get("spec") or {}
        if spec.get("renewTime") != self._renewed:
            self._renewed, self._at = str(spec.get("renewTime")), time.monotonic()
        leader = next((each for each in self._controllers if each.name == holder_of(spec)), None)
        return leader is not None and leader.supervised.is_alive and time.monotonic() - self._at < LEASE_SECONDS


def _entries(controller: Controller, folder: str) -> list[str]:
    """Returns the entries of a folder in /proc; none if the process does not run."""
    identity = controller.program.identity
    try:
        return os.listdir(f"/proc/{identity.pid}/{folder}") if identity else []
    except OSError:
        return []
