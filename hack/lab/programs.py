"""The programs under test as deployed: replicas with a host name each, which are restarted whenever they end.

Theory of operation. A thread for each program polls whether the program runs and starts it again if it does not: after
`kill`, once the given time has passed, or after the program has ended by itself, as both programs of a gang scheduler
do when they lose the leadership.

Threads: `kill` is thread-safe. If a start fails, it is repeated until it succeeds.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lab.command import wait
from lab.leases import LEASE_NAMESPACE
from localcluster import ports, process, state
from localcluster.controlplane import ControlPlane
from localcluster.errors import LocalClusterError
from localcluster.extender import extender_beside
from localcluster.faultproxy import Choose, FaultProxy
from localcluster.gangscheduler import GangScheduler
from localcluster.ourprogram import DEBUG, EXTENDER, PROBES, OurProgram
from localcluster.programs import LOOPBACK

_POLL_SECONDS = 0.1
# Limits how often a program that ends at once is started.
_RESTART_SECONDS = 1.0
_JOIN_SECONDS, _STOP_SECONDS = 70.0, 30.0
_HTTP_TIMEOUT = "30s"
# The default: on a busy machine a shorter Lease expires without any fault.
CONTROLLER_LEASE, CONTROLLER_LEASE_SECONDS = "tfjob-controller", 15.0
GANG_LEASE = "gang-scheduler"
# As in the shipped configuration: kube-scheduler's defaults except for the name of the Lease.
LEADER_ELECTION: Mapping[str, Any] = {
    "leaderElect": True,
    "resourceNamespace": LEASE_NAMESPACE,
    "resourceName": GANG_LEASE,
}
GANG_LEASE_FLAGS = (f"--leader-lease-namespace={LEASE_NAMESPACE}", f"--leader-lease-name={GANG_LEASE}")
_CONTROLLER_FLAGS = (
    "--namespace=",
    "--leader-elect",
    f"--leader-elect-lease-namespace={LEASE_NAMESPACE}",
    f"--leader-elect-lease-name={CONTROLLER_LEASE}",
    f"--leader-elect-lease-duration={CONTROLLER_LEASE_SECONDS:g}s",
    "--autoscaling=on",
    "--qps=0",
)


def replica_names() -> tuple[str, ...]:
    """Returns the host names of two replicas; only that of this machine if the user may not set host names."""
    return ("replica-a", "replica-b") if process.may_name_hosts() else ("",)


@contextlib.contextmanager
def running(program: OurProgram) -> Iterator[None]:
    """Runs a program once, from when it is ready until the end of the block. Raises LocalClusterError."""
    program.start()
    try:
        program.wait_ready()
        yield
    finally:
        program.end(grace_seconds=_STOP_SECONDS)


class Program(Protocol):
    """Implemented by `localcluster.ourprogram.OurProgram` and `localcluster.gangscheduler.GangScheduler`."""

    @property
    def identity(self) -> process.Identity | None: ...
    def start(self) -> None: ...


class SupervisedProgram:
    """One program, which `start` starts and which is restarted until `stop`."""

    def __init__(self, program: Program) -> None:
        self.ended_by_itself = 0
        self._program = program
        self._start_at = 0.0
        self._is_killed = False
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        """Starts the program. Raises LocalClusterError."""
        self._program.start()
        self._thread.start()

    def stop(self) -> None:
        """Kills the program permanently."""
        self._stopping.set()
        self._thread.join(_JOIN_SECONDS)
        self.kill(0.0)

    def kill(self, away_seconds: float, *, grace_seconds: float = 0.0) -> None:
        """Kills the program (SIGTERM first if it has a grace period); it starts again after `away_seconds`."""
        with self._lock:
            self._is_killed = True
            self._start_at = time.monotonic() + away_seconds
            identity = self._program.identity
        if identity is not None:
            process.end([identity], grace_seconds=grace_seconds)

    @property
    def identity(self) -> process.Identity | None:
        """The process that was started last."""
        return self._program.identity

    @property
    def is_alive(self) -> bool:
        identity = self._program.identity
        return identity is not None and process.is_alive(identity)

    def _run(self) -> None:
        while not self._stopping.wait(_POLL_SECONDS):
            if self.is_alive:
                continue
            with self._lock:
                if not self._is_killed:
                    self.ended_by_itself += 1
                    self._is_killed, self._start_at = True, time.monotonic() + _RESTART_SECONDS
                if time.monotonic() < self._start_at:
                    continue
                self._is_killed = False
            # The program ended during its start; the next iteration detects that.
            with contextlib.suppress(LocalClusterError):
                self._program.start()


@dataclass(frozen=True, slots=True)
class GangReplica:
    """A gang scheduler; `name` is the host name by which the Lease names it. `is_answering`: the extender is ready."""

    name: str
    extender: SupervisedProgram
    scheduler: SupervisedProgram
    is_answering: Callable[[], bool]

    @property
    def programs(self) -> tuple[SupervisedProgram, SupervisedProgram]:
        return self.extender, self.scheduler

    @property
    def is_ready(self) -> bool:
        return self.scheduler.is_alive and self.is_answering()


@contextlib.contextmanager
def gang_replica(
    plane: ControlPlane, name: str, kubeconfig: Path, flags: Sequence[str], env: Mapping[str, str]
) -> Iterator[GangReplica]:
    """Runs both programs of a gang scheduler; without a `name` it has this machine's."""
    with ports.reserve(2, LOOPBACK) as (port, probes_port), contextlib.ExitStack() as open_:
        flags = (f"--extender-http-timeout={_HTTP_TIMEOUT}", *GANG_LEASE_FLAGS, *flags)
        extender = extender_beside(plane, port, probes_port, *flags, kubeconfig=kubeconfig, replica=name, env=env)
        url, election = extender.urls[EXTENDER], LEADER_ELECTION
        scheduler = GangScheduler(plane, url, http_timeout=_HTTP_TIMEOUT, leader_election=election, replica=name)
        programs = SupervisedProgram(extender), SupervisedProgram(scheduler)
        for program in programs:
            program.start()
            open_.callback(program.stop)
        extender.wait_ready()
        yield GangReplica(name or os.uname().nodename, *programs, extender.is_ready)


@dataclass(frozen=True, slots=True)
class Controller:
    """A controller; `name` is the host name by which the Lease names it. All its requests go through `proxy`."""

    name: str
    supervised: SupervisedProgram
    program: OurProgram
    proxy: FaultProxy

    @property
    def is_ready(self) -> bool:
        return self.supervised.is_alive

    def threads(self) -> list[str]:
        """Returns the names of its threads, as reported at /debug/threads. Raises urllib3's HTTPError."""
        return names_in(self.program.page(DEBUG, "/debug/threads"))

    @property
    def files(self) -> int:
        """The number of open file descriptors, most of them sockets; 0 if the process does not run."""
        with contextlib.suppress(OSError, LocalClusterError):
            return len(os.listdir(f"/proc/{self.program.pid}/fd"))
        return 0


def names_in(stacks: str) -> list[str]:
    """Returns the names of threads in the output of /debug/threads.

    A line "name (number)" precedes each stack, whose lines are indented.
    """
    return re.findall(r"^(\S.*) \(\d+\)$", stacks, re.MULTILINE)


@contextlib.contextmanager
def controller_replica(
    plane: ControlPlane, name: str, logs: Path, env: Mapping[str, str] | None = None, choose: Choose | None = None
) -> Iterator[Controller]:
    """Runs a controller behind a proxy of its own; without a `name` it has this machine's."""
    with FaultProxy(plane.server) as proxy, ports.reserve(2, LOOPBACK) as (probes, debug):
        proxy.choose = choose
        folder, log = plane.folder / f"controller-{name}", logs / f"controller-{name}.log"
        state.make_private(folder)
        kubeconfig, served = proxy.kubeconfig(folder, plane.token), {PROBES: probes, DEBUG: debug}
        program = OurProgram(
            "run", kubeconfig, served, *_CONTROLLER_FLAGS, log=log, mark=plane.folder, replica=name, env=env
        )
        supervised = SupervisedProgram(program)
        supervised.start()
        try:
            wait(program.is_ready, f"the controller did not become ready: see {log}")
            yield Controller(name or os.uname().nodename, supervised, program, proxy)
        finally:
            supervised.stop()
