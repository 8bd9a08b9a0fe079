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

log = structlog.get_logger(__name__)


class ServerClock:
    """A clock with the wall time of the API server, where that of `clock` differs by more than `TOLERANCE_SECONDS`.

    `server_time` is `Requester.server_time`. All durations are those of `clock`. Safe to use from any thread.
    """

    def __init__(self, clock: Clock, server_time: Callable[[], datetime | None]) -> None:
        self._clock = clock
        self._server_time = server_time
        self._difference = timedelta()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def now(self) -> datetime:
        own, server = self._clock.now(), self._server_time()
        if server is None:
            return own + self._difference
        difference = server - own
        # The same value as long as it is good enough: a time that goes back by a second would confuse readers.
        if abs((difference - self._difference).total_seconds()) > TOLERANCE_SECONDS:
            is_equal = abs(difference.total_seconds()) <= TOLERANCE_SECONDS
            self._difference = timedelta() if is_equal else difference
            log.warning(
                "the clock of this machine agrees with the API server's again"
                if is_equal
                else "the clock of this machine is wrong: the API server's is used",
                ahead_seconds=round(-difference.total_seconds()),
            )
        return own + self._difference

    def wait(self, condition: threading.Condition, timeout_seconds: float | None) -> None:
        self._clock.wait(condition, timeout_seconds)

    def sleep(self, seconds: float, stop: threading.Event) -> bool:
        return self._clock.sleep(seconds, stop)
