"""`tfjob-controller run` as it is deployed, several replicas of it: processes with a machine's name each."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import urllib3

from chaos.kept import Kept
from chaos.watchman import holder_of
from localcluster.api import Api, RefusedError
from localcluster.controlplane import ControlPlane
from localcluster.faultproxy import FaultProxy
from localcluster.ourprogram import DEBUG, PROBES, OurProgram

LEASE_NAMESPACE, LEASE = "kube-system", "tfjob-controller"
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases/{LEASE}"
# As shipped: on a busy machine a shorter one is lost again and again without any fault.
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
    """Without a `name` it has that of this machine. `served` are the ports of its probes and of /debug/."""
    ports_of = dict(zip((PROBES, DEBUG), served, strict=True))
    flags = ("--namespace=", *FLAGS)
    return OurProgram("run", kubeconfig, ports_of, *flags, log=log, mark=plane.folder, replica=name, env=env)


@dataclass(frozen=True, slots=True)
class Controller:
    """A replica: `name` is its machine's name, by which the Lease knows it; all its requests go through `proxy`."""

    name: str
    kept: Kept
    program: OurProgram
    proxy: FaultProxy

    def threads(self) -> list[str]:
        """Their names, as it says itself. Raises urllib3's HTTPError."""
        return names_in(self.program.page(DEBUG, "/debug/threads"))

    @property
    def files(self) -> int:
        """Open file descriptors: sockets are most of them."""
        return len(_entries(self, "fd"))


def names_in(stacks: str) -> list[str]:
    """Of threads, as /debug/threads says them: a line "name (number)" before each stack, whose lines are set in."""
    return re.findall(r"^(\S.*) \(\d+\)$", stacks, re.MULTILINE)


def leader_of(api: Api, controllers: Sequence[Controller]) -> Controller | None:
    """Who holds the Lease, as far as the server tells."""
    try:
        name = holder_of((api.find(LEASE_PATH) or {}).get("spec") or {})
    except (RefusedError, urllib3.exceptions.HTTPError):
        return None
    return next((each for each in controllers if each.name == name), None)


class Pulse:
    """Whether one of them leads and says so again and again, by a clock of its own: theirs may jump."""

    def __init__(self, api: Api, controllers: Sequence[Controller]) -> None:
        self._api = api
        self._controllers = controllers
        self._renewed = ""
        self._at = time.monotonic()

    def beats(self) -> bool:
        """Raises RefusedError and urllib3's HTTPError. One thread at a time."""
        spec = (self._api.find(LEASE_PATH) or {}).get("spec") or {}
        if spec.get("renewTime") != self._renewed:
            self._renewed, self._at = str(spec.get("renewTime")), time.monotonic()
        leader = next((each for each in self._controllers if each.name == holder_of(spec)), None)
        return leader is not None and leader.kept.is_alive and time.monotonic() - self._at < LEASE_SECONDS


def _entries(controller: Controller, folder: str) -> list[str]:
    """Empty for one that does not live."""
    identity = controller.program.identity
    try:
        return os.listdir(f"/proc/{identity.pid}/{folder}") if identity else []
    except OSError:
        return []
