"""Campaigns for a Lease and keeps it, in threads of its own.

Theory of operation. `lease.py` decides; this module acts in time. One thread attempts to acquire the lease and then to
renew it. A second one watches the time only: it ends leadership the moment the deadline has passed, even while the
first hangs in a request that ignores its time-out.

A leader that loses its lease never leads again: the process should exit, since requests in flight may collide with its
successor's work. The lease is released only by `stop`, after the work has ended.

Source: client-go tools/leaderelection/leaderelection.go.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import structlog

from tfjob_controller.kube.leaderelection.lease import Candidate, CandidateState, LeaderMetrics, LeaseLock, LeaseTimes
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.threads import SupervisedThread, SupervisedThreads

log = structlog.get_logger(__name__)

# The rest between attempts as a share of `retry_seconds`: below 1 (client-go: 1 to 2.2), so that a released lease has a
# new holder within `retry_seconds`, requests included; random, so that candidates drift apart.
_REST_PARTS = (0.5, 0.8)


class LeaderElector:
    """Campaigns for a Lease and keeps it.

    `on_started` is called once, when leadership begins. `on_stopped` is called once, when leadership is *lost*, not for
    `stop`. Both are called by the elector's threads and must return at once; if `on_started` raises, the lease is
    released and `on_stopped` called. `identity` is unique to this process, even across restarts: `<host>_<random>`.
    """

    def __init__(
        self,
        requester: Requester,
        clock: Clock,
        namespace: str,
        name: str,
        identity: str,
        *,
        on_started: Callable[[], None],
        on_stopped: Callable[[], None],
        lease_seconds: float = 15.0,
        renew_deadline_seconds: float = 10.0,
        retry_seconds: float = 2.0,
        metrics: LeaderMetrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._times = LeaseTimes(lease_seconds, renew_deadline_seconds, retry_seconds)
        self._candidate = Candidate(
            LeaseLock(requester, namespace, name), clock, identity, times=self._times, name=name, metrics=metrics
        )
        self._clock = clock
        self._name = name
        self._on_started = on_started
        self._on_stopped = on_stopped
        self._metrics = metrics
        self._rng = rng or random.Random()  # noqa: S311 -- spreads load, guards nothing
        self._stop = threading.Event()
        self._changed = threading.Condition()  # over the flags below; notified when one changes
        self._has_begun = False
        self._is_over = False
        self._threads = SupervisedThreads(
            [
                SupervisedThread(f"lease-{name}", self._campaign, stop=self._stop, clock=clock),
                SupervisedThread(f"lease-watch-{name}", self._watch, stop=self._stop, clock=clock),
            ],
            clock,
        )
        if metrics:
            metrics.off(name)

    @property
    def is_leader(self) -> bool:
        """True only while this process certainly holds the lease."""
        return self._candidate.is_leader

    @property
    def leader(self) -> str:
        """The identity of the last observed holder, "" for none."""
        return self._candidate.leader

    def start(self) -> None:
        self._threads.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Release the lease; the work under it must have ended. Returns False if a thread still runs.

        Waits for a running request, at most half the renew deadline, within `timeout_seconds`.
        """
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        return self._threads.join(timeout_seconds)

    def _campaign(self) -> None:
        log.info("attempting to acquire lease", lease=self._name, identity=self._candidate.identity)
        while not self._stop.is_set():
            if self._candidate.try_acquire_or_renew() and not self._stop.is_set():
                self._begin()
            if self._candidate.end_if_expired() or self._candidate.state is CandidateState.ENDED:
                break
            self._clock.sleep(self._rest_seconds(), self._stop)
        if self._stop.is_set():
            self._release()
        else:
            self._lose()

    def _begin(self) -> None:
        with self._changed:
            if self._has_begun:
                return
            self._has_begun = True
            self._changed.notify_all()
        log.info("became leader", lease=self._name, identity=self._candidate.identity)
        if self._metrics:
            self._metrics.on(self._name)
        try:
            self._on_started()
        except Exception:
            log.exception("leader start failed, releasing lease", lease=self._name)
            self._candidate.release()

    def _watch(self) -> None:
        """End leadership at the deadline. A renewal moves the deadline, which is noticed when the old one has come."""
        with self._changed:
            while not self._candidate.end_if_expired():
                if self._stop.is_set() or self._is_over:
                    return
                self._clock.wait(self._changed, self._candidate.seconds_left)
        self._lose()

    def _lose(self) -> None:
        if self._finish():
            log.error("leadership lost", lease=self._name, identity=self._candidate.identity)
            self._on_stopped()

    def _release(self) -> None:
        self._finish()
        self._candidate.release()

    def _finish(self) -> bool:
        """End leadership; returns False if it had ended before."""
        with self._changed:
            if self._is_over:
                return False
            self._is_over = True
            self._changed.notify_all()
        if self._metrics:
            self._metrics.off(self._name)
        return True

    def _rest_seconds(self) -> float:
        return self._times.retry * self._rng.uniform(*_REST_PARTS)
