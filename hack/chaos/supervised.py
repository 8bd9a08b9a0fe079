"""Programs that are restarted whenever they end, as a kubelet does it, and the two replicas of the gang scheduler.

Theory of operation. A thread for each program polls whether the program runs and starts it again if it does not: after
`kill`, once the given time has passed, or after the program has ended by itself, as both programs of a gang scheduler
do when they lose the leadership.

Threads: `kill` is thread-safe. If a start fails, it is repeated until it succeeds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from localcluster import process
from localcluster.errors import LocalClusterError

_POLL_SECONDS = 0.1
# Limits how often a program that ends at once is started.
_RESTART_SECONDS = 1.0
_JOIN_SECONDS = 70.0

LEASE_NAMESPACE, LEASE = "kube-system", "gang-scheduler"
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases/{LEASE}"
# As in the shipped configuration: kube-scheduler's defaults except for the name of the Lease.
LEADER_ELECTION: Mapping[str, Any] = {
    "leaderElect": True,
    "resourceNamespace": LEASE_NAMESPACE,
    "resourceName": LEASE,
}


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
class Replica:
    """A gang scheduler; `name` is the host name by which the Lease names it."""

    name: str
    extender: SupervisedProgram
    scheduler: SupervisedProgram
    is_answering: Callable[[], bool]
    """Reports whether the extender is ready."""

    @property
    def programs(self) -> tuple[SupervisedProgram, SupervisedProgram]:
        return self.extender, self.scheduler

    @property
    def is_ready(self) -> bool:
        return self.scheduler.is_alive and self.is_answering()
