"""How long to rest after a failure, so that many clients do not come back as one.

Theory of operation. Decorrelated jitter: each delay is drawn between the base and three times the one before, up to a
cap. It grows as an exponential does, but two clients that failed at the same moment drift apart with each try, and stay
apart. A failure that follows a healthy period (nothing failed since the last rest ended, for `reset_after_seconds`)
counts as the first again; a success alone does not, else a server that accepts and drops every connection would be
called without rest.

Threads: none; one thread owns one. Times are seconds on the `Clock` given.
Source: AWS Architecture Blog, "Exponential Backoff and Jitter" (decorrelated); client-go tools/cache/reflector.go for
the reset by time.
"""

from __future__ import annotations

import random

from tfjob_controller.util.clock import Clock

# One lost connection is mended before anybody notices; a server that is down is asked about twice a minute, as
# client-go does.
BASE_SECONDS = 0.5
CAP_SECONDS = 30.0
RESET_AFTER_SECONDS = 120.0
_GROWTH = 3.0


class DecorrelatedBackoff:
    """Delays for one caller that tries the same thing again and again."""

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
        """Count one failure and say how long to rest; never shorter than `at_least` (a server's Retry-After)."""
        now = self._clock.monotonic()
        if now - self._rest_ends >= self._reset_after:
            self._last = self._base
        self._last = min(self._cap, self._rng.uniform(self._base, self._last * _GROWTH))
        delay = max(self._last, at_least)
        self._rest_ends = now + delay
        return delay
