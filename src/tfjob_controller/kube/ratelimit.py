"""How long does an item rest before it is tried again?

Theory of operation. A limiter is asked and answers; it never waits and starts nothing. The work queue calls
`delay_seconds(item)` for each failed sync and `forget(item)` after a good one, and puts the item back itself. Two rules
work together, as in client-go's default: one for each item, so that a hopeless one fades away without touching the
others, and one for all, so that ten thousand items that fail at once do not come back at once. `SlowestOf` joins them.

The bucket lends: a caller without a token is told when its own token will exist and takes it now, so that callers
queue up one behind the other at the rate, with no thread that hands out tokens.

Threads: any, at any time. Times are seconds on the monotonic scale of the clock given.
Source: client-go util/workqueue/default_rate_limiters.go, golang.org/x/time/rate.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Protocol

from tfjob_controller.util.clock import Clock

# client-go's defaults for controllers. The first retry comes before anybody notices; the cap (reached after 18
# failures, 22 minutes in all) keeps a broken object cheap, yet it is still looked at several times in an hour.
BASE_DELAY_SECONDS = 0.005
MAX_DELAY_SECONDS = 1000.0
# Retries of all items together: only retries pass through it, never ordinary events.
OVERALL_RATE = 10.0
OVERALL_BURST = 100
# 2.0**1024 overflows a float. Any base doubled this often is past any cap.
_MAX_DOUBLINGS = 200


class RateLimiter(Protocol):
    """Says how long failed items rest."""

    def delay_seconds(self, item: Hashable) -> float:
        """Count a failure of `item`; the answer is how long it rests before it is tried again, 0 for not at all."""

    def forget(self, item: Hashable) -> None:
        """`item` is done with, by success or for good: its next failure is its first. An unknown item is no error."""

    def failures(self, item: Hashable) -> int:
        """The failures of `item` since it was last forgotten."""


class ItemExponential:
    """Each failure of an item doubles its rest, up to a cap. Items that are never forgotten are kept for ever."""

    def __init__(self, base_seconds: float = BASE_DELAY_SECONDS, cap_seconds: float = MAX_DELAY_SECONDS) -> None:
        self._base_seconds = base_seconds
        self._cap_seconds = cap_seconds
        self._lock = threading.Lock()
        self._failures: dict[Hashable, int] = {}

    def delay_seconds(self, item: Hashable) -> float:
        with self._lock:
            before = self._failures.get(item, 0)
            self._failures[item] = before + 1
        return float(min(self._cap_seconds, self._base_seconds * 2.0 ** min(before, _MAX_DOUBLINGS)))

    def forget(self, item: Hashable) -> None:
        with self._lock:
            self._failures.pop(item, None)

    def failures(self, item: Hashable) -> int:
        with self._lock:
            return self._failures.get(item, 0)


class TokenBucket:
    """`burst` at once, then `rate` in a second, whoever asks. Starts full."""

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError(f"a bucket needs a rate above 0 and room for one token, not {rate} and {burst}")
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens = float(burst)  # below zero: lent to callers who wait for them
        self._filled_at = clock.monotonic()

    def delay_seconds(self, item: Hashable) -> float:
        """Take a token, which may be one that does not exist yet: then the answer is when it will."""
        with self._lock:
            self._fill()
            self._tokens -= 1.0
            return max(0.0, -self._tokens / self._rate)

    def try_take(self, leaving: int = 0) -> bool:
        """Take a token if there is one now and `leaving` others stay; a refused caller has taken nothing."""
        with self._lock:
            self._fill()
            if self._tokens < 1.0 + leaving:
                return False
            self._tokens -= 1.0
            return True

    def forget(self, item: Hashable) -> None:
        """A bucket knows no items."""

    def failures(self, item: Hashable) -> int:
        """A bucket knows no items: 0."""
        return 0

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(float(self._burst), self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now


class SlowestOf:
    """The longest rest that any of several limiters asks for. All of them count every failure."""

    def __init__(self, *limiters: RateLimiter) -> None:
        self._limiters = limiters

    def delay_seconds(self, item: Hashable) -> float:
        return max((limiter.delay_seconds(item) for limiter in self._limiters), default=0.0)

    def forget(self, item: Hashable) -> None:
        for limiter in self._limiters:
            limiter.forget(item)

    def failures(self, item: Hashable) -> int:
        return max((limiter.failures(item) for limiter in self._limiters), default=0)


def default_limiter(clock: Clock) -> SlowestOf:
    """client-go's default for controllers: per item 5 ms doubling to 1,000 s, overall 10 in a second after 100."""
    return SlowestOf(ItemExponential(), TokenBucket(OVERALL_RATE, OVERALL_BURST, clock))
