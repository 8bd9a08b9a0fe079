"""Which of several gang schedulers works: the one whose kube-scheduler does.

Theory of operation. Each replica is a kube-scheduler and an extender in one pod. The kube-schedulers elect one of
themselves, by a Lease whose holder's name begins with its host's, which is the pod's. So the extender reads that Lease,
and works while the holder is of its own pod. It never writes it.

It must not work beside another: two would each reserve room that the other does not know of. So the holder's name
alone does not count, for it stays after a kube-scheduler has died; what counts is that the Lease is being renewed, seen
by its change. Others wait for its whole duration after the last renewal; here work ends after two thirds of it (which
is kube-scheduler's own renewDeadline), or as soon as the Lease names another. Only durations on the own clock count.
The end is for good: the process exits, its container starts again and waits in line.

Threads: one. Source: client-go tools/leaderelection, kube-scheduler cmd/kube-scheduler/app/server.go (the identity).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.leaderelection.lease import LeaseLock, LeaseRecord
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.threads import SupervisedThread

log = structlog.get_logger(__name__)

POLL_SECONDS = 1.0
# Of the Lease's duration: how long one renewal is believed in.
BELIEVED = 2 / 3
# What kube-scheduler asks for by default, where the Lease does not say.
_DURATION_SECONDS = 15
_REQUEST_SECONDS = 4.0
# A request needs some time to be a request.
_LEAST_SECONDS = 0.05


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
        self._record: LeaseRecord | None = None
        self._has_looked = False
        self._believed_until = 0.0
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
        return (self._record.holder_identity or "") if self._record is not None else ""

    @property
    def is_believed(self) -> bool:
        """Whether the last renewal counts at this moment.

        For any thread: a process that was frozen wakes in all of them at once, and to look takes a request.
        """
        return self._clock.monotonic() < self._believed_until

    def look(self) -> bool:
        """Read the Lease once; False once it was lost."""
        asked_at = self._clock.monotonic()
        try:
            self._take(self._lock.get(self._patience(_REQUEST_SECONDS)), asked_at)
        except ApiError as error:
            log.info("lease not read", error=str(error))
        is_leading = self._is_ours() and self.is_believed
        if is_leading and not self.held.is_set():
            log.info("kube-scheduler beside us leads: working", holder=self.holder)
            self.held.set()
        if self.held.is_set() and not is_leading:
            log.error("the kube-scheduler beside us does not lead any more", holder=self.holder)
            self._on_lost()
            return False
        return True

    def _take(self, record: LeaseRecord | None, asked_at: float) -> None:
        """What was read is as old as the question. The first look sees no change, so it says nothing of a renewal."""
        if self._has_looked and record is not None and record != self._record:
            self._believed_until = asked_at + BELIEVED * (record.lease_duration_seconds or _DURATION_SECONDS)
        self._record, self._has_looked = record, True

    def _is_ours(self) -> bool:
        return self.holder == self._host or self.holder.startswith(f"{self._host}_")

    def _patience(self, most: float) -> float:
        """No longer than the present renewal is believed in: then it is time to end, answer or not."""
        left = self._believed_until - self._clock.monotonic()
        return min(most, max(left, _LEAST_SECONDS)) if self.held.is_set() else most

    def _run(self) -> None:
        while self.look():
            if self._clock.sleep(self._patience(POLL_SECONDS), self._stop):
                return
