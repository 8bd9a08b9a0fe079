"""Delays between retries that keep many clients from coming back at the same time.

Theory of operation. Decorrelated jitter: each delay is drawn between the base and three times the previous delay, up to
a cap. Delays grow exponentially, but two clients that failed at the same moment drift apart with each retry. A failure
after a healthy period (nothing failed for `reset_after_seconds` after the last delay) counts as the first one again; a
success alone does not, since a server that accepts and drops every connection would otherwise be called without delay.

Threads: none; one thread owns one. Times are seconds on the `Clock` given.
Source: AWS Architecture Blog, "Exponential Backoff and Jitter" (decorrelated); client-go tools/cache/reflector.go for
the reset by time.
"""

from __future__ import annotations

import random

from tfjob_controller.util.clock import Clock

# A lost connection is replaced before users notice it; a server that is down gets about two requests per minute, as
# from client-go.
BASE_SECONDS = 0.5
CAP_SECONDS = 30.0
RESET_AFTER_SECONDS = 120.0
_GROWTH = 3.0


class DecorrelatedBackoff:
    """Delays for one caller that repeats one operation."""

    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        *,
        base_seconds: float = BASE_SECONDS,
        cap_seconds: float = CAP_SECONDS,
        reset_after_seconds: float = RESET_AFTER_SECONDS,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._base = base_seconds
        self._cap = cap_seconds
        self._reset_after = reset_after_seconds
        self._last = base_seconds
        self._rest_ends = clock.monotonic()

    def next_seconds(self, at_least: float = 0.0) -> float:
        """Count a failure and return the delay before the next try, at least `at_least` (a server's Retry-After)."""
        now = self._clock.monotonic()
        if now - self._rest_ends >= self._reset_after:
            self._last = self._base
        self._last = min(self._cap, self._rng.uniform(self._base, self._last * _GROWTH))
        delay = max(self._last, at_least)
        self._rest_ends = now + delay
        return delay
