"""Programs that are started again whenever they have ended, as a kubelet does it; and two replicas of them.

Theory of operation. A thread for each program looks whether it lives, and starts it when it does not: because it was
killed here (then not before its time away is over), or because it has ended by itself, as both programs of a gang
scheduler do that does not lead any more.

Threads: `kill` may be called from any. What cannot be started again is tried once more, for ever.
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
# A program that ends at once is not started a hundred times in a second.
_REST_SECONDS = 1.0
_JOIN_SECONDS = 70.0

LEASE_NAMESPACE, LEASE = "kube-system", "gang-scheduler"
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases/{LEASE}"
# As the shipped configuration has it: kube-scheduler's defaults for all but the Lease's name.
LEADER_ELECTION: Mapping[str, Any] = {
    "leaderElect": True,
    "resourceNamespace": LEASE_NAMESPACE,
    "resourceName": LEASE,
}


class Program(Protocol):
    """`localcluster.ourprogram.OurProgram` and `localcluster.gangscheduler.GangScheduler`."""

    @property
    def identity(self) -> process.Identity | None: ...
    def start(self) -> None: ...


class Kept:
    """One program, which `start` starts."""

    def __init__(self, program: Program) -> None:
        self.ended_by_itself = 0
        self._program = program
        self._back_at = 0.0
        self._is_killed = False
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kept", daemon=True)

    def start(self) -> None:
        """Raises LocalClusterError."""
        self._program.start()
        self._thread.start()

    def stop(self) -> None:
        """Kill it, for good."""
        self._stopping.set()
        self._thread.join(_JOIN_SECONDS)
        self.kill(0.0)

    def kill(self, away_seconds: float, *, grace_seconds: float = 0.0) -> None:
        """SIGKILL, or SIGTERM if it has a grace; back after so long."""
        with self._lock:
            self._is_killed = True
            self._back_at = time.monotonic() + away_seconds
            identity = self._program.identity
        if identity is not None:
            process.end([identity], grace_seconds=grace_seconds)

    @property
    def identity(self) -> process.Identity | None:
        """Of the process that was started last."""
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
                    self._is_killed, self._back_at = True, time.monotonic() + _REST_SECONDS
                if time.monotonic() < self._back_at:
                    continue
                self._is_killed = False
            # It ended while it was starting: the next round sees that.
            with contextlib.suppress(LocalClusterError):
                self._program.start()


@dataclass(frozen=True, slots=True)
class Replica:
    """A gang scheduler: `name` is its machine's name, by which the Lease knows it."""

    name: str
    extender: Kept
    scheduler: Kept
    is_answering: Callable[[], bool]
    """The extender says that it is ready."""

    @property
    def programs(self) -> tuple[Kept, Kept]:
        return self.extender, self.scheduler

    @property
    def is_ready(self) -> bool:
        return self.scheduler.is_alive and self.is_answering()
