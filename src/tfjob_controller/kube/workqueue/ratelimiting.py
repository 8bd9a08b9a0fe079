"""Rate limiters: how long an item that failed waits before it is processed again.

Theory of operation. A rate limiter computes delays; it never waits and starts no thread. The queue asks it for the
delay of each failed item, and adds the item again after that. client-go's default combines two limiters with
`MaxOfRateLimiter`: one per item, so that an item that always fails becomes rare without delaying others, and one for
all items, so that ten thousand items that fail at once do not come back at once.

Threads: any method from any thread. Times are seconds on the monotonic scale of the clock.
Source: client-go util/workqueue (rate_limiting_queue.go, default_rate_limiters.go).
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Protocol

from tfjob_controller.kube.flowcontrol import TokenBucket
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
    """Computes the delays of failed items."""

    def delay_seconds(self, item: Hashable) -> float:
        """Count a failure of `item` and return the seconds until it may be retried."""

    def forget(self, item: Hashable) -> None:
        """Reset the failures of `item`, after its success or because it is not retried. Unknown items are ignored."""

    def failures(self, item: Hashable) -> int:
        """The number of failures of `item` since it was last forgotten."""


class ItemExponentialRateLimiter:
    """Doubles the delay with each failure of an item, up to a cap. Items are kept until they are forgotten."""

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


class BucketRateLimiter:
    """One token bucket for all items: each failure takes a token, whichever item fails."""

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self._bucket = TokenBucket(rate, burst, clock)

    def delay_seconds(self, item: Hashable) -> float:
        return self._bucket.reserve_seconds()

    def forget(self, item: Hashable) -> None:
        """A bucket does not keep items."""

    def failures(self, item: Hashable) -> int:
        """Always 0, since a bucket does not keep items."""
        return 0


class MaxOfRateLimiter:
    """The longest delay of several limiters. All of them count every failure."""

    def __init__(self, *limiters: RateLimiter) -> None:
        self._limiters = limiters

    def delay_seconds(self, item: Hashable) -> float:
        return max((limiter.delay_seconds(item) for limiter in self._limiters), default=0.0)

    def forget(self, item: Hashable) -> None:
        for limiter in self._limiters:
            limiter.forget(item)

    def failures(self, item: Hashable) -> int:
        return max((limiter.failures(item) for limiter in self._limiters), default=0)


def default_limiter(clock: Clock) -> MaxOfRateLimiter:
    """client-go's default for controllers: per item 5 ms doubling to 1,000 s, overall 10 in a second after 100."""
    return MaxOfRateLimiter(ItemExponentialRateLimiter(), BucketRateLimiter(OVERALL_RATE, OVERALL_BURST, clock))
