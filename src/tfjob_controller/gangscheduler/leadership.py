"""Follows the Lease of the kube-scheduler in the same pod: only the leader's gang scheduler works.

Theory of operation. Each replica is a pod with a kube-scheduler and an extender. The kube-schedulers elect a leader by
a Lease, whose holder identity begins with the host name, which is the pod's name. The extender reads this Lease and
works while its own pod holds it. It never writes the Lease.

Two active extenders would each reserve capacity that the other does not know of. The holder's name alone is therefore
not enough, because it remains after a kube-scheduler died: the Lease must also be renewed, which shows as a change.
Other kube-schedulers wait for the whole lease duration after the last renewal; the extender stops after two thirds of
it (kube-scheduler's own renewDeadline), or as soon as the Lease names another holder. Only durations on the local clock
count. Losing the Lease is final: the process exits, and its container restarts as a follower.

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
# Fraction of the lease duration for which a renewal counts.
RENEWAL_FRACTION = 2 / 3
# kube-scheduler's default, for a Lease without a duration.
_DURATION_SECONDS = 15
_REQUEST_SECONDS = 4.0
# Lower bound of a request's timeout.
_MIN_TIMEOUT_SECONDS = 0.05


class LeaseFollower:
    """Follows one Lease. `held` is set once this pod holds it; `on_lost` is called once when it holds it no longer."""

    def __init__(
        self, requester: Requester, clock: Clock, namespace: str, name: str, host: str, on_lost: Callable[[], None]
    ) -> None:
        self.held = threading.Event()
        self._lock = LeaseLock(requester, namespace, name)
        self._clock = clock
        self._host = host
        self._on_lost = on_lost
        self._record: LeaseRecord | None = None
        self._has_read = False
        self._renewed_until = 0.0
        self._stop = threading.Event()
        self._thread = SupervisedThread("lease-follower", self._run, stop=self._stop, clock=clock)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        self._stop.set()
        return self._thread.join(timeout_seconds)

    @property
    def holder(self) -> str:
        """The Lease's holder, as last read; empty without one."""
        return (self._record.holder_identity or "") if self._record is not None else ""

    @property
    def is_renewed(self) -> bool:
        """Reports whether the last renewal still counts.

        For any thread: all threads of a process that was frozen wake at once, before the Lease is read again.
        """
        return self._clock.monotonic() < self._renewed_until

    def check(self) -> bool:
        """Read the Lease once. Returns False once it was lost."""
        request_time = self._clock.monotonic()
        try:
            self._record_renewal(self._lock.get(self._timeout(_REQUEST_SECONDS)), request_time)
        except ApiError as error:
            log.info("lease not read", error=str(error))
        is_leading = self._is_ours() and self.is_renewed
        if is_leading and not self.held.is_set():
            log.info("kube-scheduler of this pod leads, starting", holder=self.holder)
            self.held.set()
        if self.held.is_set() and not is_leading:
            log.error("kube-scheduler of this pod lost the lease", holder=self.holder)
            self._on_lost()
            return False
        return True

    def _record_renewal(self, record: LeaseRecord | None, request_time: float) -> None:
        """Record a renewal as of the request's start. The first read shows none, as it has nothing to compare with."""
        if self._has_read and record is not None and record != self._record:
            self._renewed_until = request_time + RENEWAL_FRACTION * (record.lease_duration_seconds or _DURATION_SECONDS)
        self._record, self._has_read = record, True

    def _is_ours(self) -> bool:
        return self.holder == self._host or self.holder.startswith(f"{self._host}_")

    def _timeout(self, most: float) -> float:
        """Limit a wait to the end of the last renewal, because the process must stop then."""
        left = self._renewed_until - self._clock.monotonic()
        return min(most, max(left, _MIN_TIMEOUT_SECONDS)) if self.held.is_set() else most

    def _run(self) -> None:
        while self.check():
            if self._clock.sleep(self._timeout(POLL_SECONDS), self._stop):
                return
