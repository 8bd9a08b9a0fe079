"""Which of several gang schedulers works: the one whose kube-scheduler does.

Theory of operation. Each replica is a kube-scheduler and an extender in one pod. The kube-schedulers elect one of
themselves, by a Lease whose holder's name begins with its host's, which is the pod's. So the extender reads that Lease,
and works while the holder is of its own pod. It never writes it.

It must not work beside another: two would each reserve room that the other does not know of. kube-scheduler itself ends
once it has not renewed for 10 s, and no other takes over before 15 s. Here the end comes sooner: as soon as the Lease
names another, or could not be read for `BLIND_SECONDS`. The end is for good: the process exits, its container starts
again and waits in line.

Threads: one. Source: client-go tools/leaderelection, kube-scheduler cmd/kube-scheduler/app/server.go (the identity).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from tfjob_controller.kube.clock import Clock
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.lease import LeaseLock
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kube.threads import SupervisedThread

log = structlog.get_logger(__name__)

POLL_SECONDS = 1.0
# kube-scheduler's own renewDeadline; and so 5 s before another may hold the Lease.
BLIND_SECONDS = 10.0
_REQUEST_SECONDS = 4.0


class LeaseFollower:
    """Watches one Lease. `held` is set once our pod holds it; `on_lost` is called, once, when it does not any more."""

    def __init__(
        self, requester: Requester, clock: Clock, namespace: str, name: str, host: str, on_lost: Callable[[], None]
    ) -> None:
        self.held = threading.Event()
        self._lock = LeaseLock(requester, namespace, name)
        self._clock = clock
        self._host = host
        self._on_lost = on_lost
        self._seen_at = 0.0
        self._holder = ""
        self._stop = threading.Event()
        self._thread = SupervisedThread("lease-follower", self._run, stop=self._stop, clock=clock)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        self._stop.set()
        return self._thread.join(timeout_seconds)

    @property
    def holder(self) -> str:
        """Who holds the Lease, as last read; empty for nobody."""
        return self._holder

    def look(self) -> bool:
        """Read the Lease once; False once it was lost."""
        asked_at = self._clock.monotonic()
        try:
            record = self._lock.get(_REQUEST_SECONDS)
        except ApiError as error:
            log.info("lease not read", error=str(error))
            return not self._is_lost(self._clock.monotonic() - self._seen_at >= BLIND_SECONDS)
        self._holder = record.holder_identity or "" if record is not None else ""
        if not self._is_ours():
            return not self._is_lost(True)
        # What was read is as old as the question.
        self._seen_at = asked_at
        if not self.held.is_set():
            log.info("kube-scheduler beside us leads: working", holder=self._holder)
            self.held.set()
        return True

    def _is_ours(self) -> bool:
        return self._holder == self._host or self._holder.startswith(f"{self._host}_")

    def _is_lost(self, is_over: bool) -> bool:
        if not (is_over and self.held.is_set()):
            return False
        log.error("the kube-scheduler beside us does not lead any more", holder=self._holder)
        self._on_lost()
        return True

    def _run(self) -> None:
        while self.look():
            if self._clock.sleep(POLL_SECONDS, self._stop):
                return
