"""The clock of a program that works on objects of an API server whose machine may have another time.

Objects have times of the API server and of kubelets: when a Job was created, when a container ended. A program that
compares them with a wrong clock of its own ends waits too early: two minutes ahead, it deleted each pod whose program
had ended, with its log, because the grace period of its sidecars seemed to be over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from tfjob_controller.util.clock import Clock

# Smaller differences do no harm, and the API server's time is known to some seconds only.
TOLERANCE_SECONDS = 5.0
# How long the API server must disagree until its time is taken again. Several servers may have several times.
DISAGREEMENT_SECONDS = 30.0

log = structlog.get_logger(__name__)


class ServerClock:
    """A clock with the wall time of the API server, where that of `clock` differs by more than `TOLERANCE_SECONDS`.

    `server_time` is `Requester.server_time`. After the first response time passes with the monotonic time of `clock`,
    so that steps of the machine's wall time have no effect. Safe to use from any thread.
    """

    def __init__(self, clock: Clock, server_time: Callable[[], datetime | None]) -> None:
        self._clock = clock
        self._server_time = server_time
        # A wall time, and the monotonic time at that moment.
        self._origin: tuple[datetime, float] | None = None
        self._disagrees_since: float | None = None

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def now(self) -> datetime:
        monotonic, server = self._clock.monotonic(), self._server_time()
        if server is None:
            return self._clock.now()
        if self._origin is None:
            self._origin = (self._first(server), monotonic)
        origin, since = self._origin
        now = origin + timedelta(seconds=monotonic - since)
        if abs((server - now).total_seconds()) <= TOLERANCE_SECONDS:
            self._disagrees_since = None
        elif self._disagrees_since is None:
            self._disagrees_since = monotonic
        elif monotonic - self._disagrees_since > DISAGREEMENT_SECONDS:
            log.warning("the API server's clock was changed", by_seconds=round((server - now).total_seconds()))
            self._origin, self._disagrees_since, now = (server, monotonic), None, server
        return now

    def _first(self, server: datetime) -> datetime:
        own = self._clock.now()
        ahead_seconds = (own - server).total_seconds()
        if abs(ahead_seconds) <= TOLERANCE_SECONDS:
            return own
        log.warning("the clock of this machine is wrong: the API server's is used", ahead_seconds=round(ahead_seconds))
        return server

    def wait(self, condition: threading.Condition, timeout_seconds: float | None) -> None:
        self._clock.wait(condition, timeout_seconds)

    def sleep(self, seconds: float, stop: threading.Event) -> bool:
        return self._clock.sleep(seconds, stop)
