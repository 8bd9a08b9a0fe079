"""Client-side rate limits.

Theory of operation. A token bucket of `burst` tokens is refilled with `qps` tokens per second. A request takes its
token at once, possibly one that does not exist yet, and waits until it does. Requests are therefore sent in the order
in which they arrive, without a queue and without threads that compete for a new token.

Requests for leases never wait: a leader that waited behind its own thousand creates would lose its lease. They take
their token all the same, so that the overall rate is the configured one.

Source: client-go util/flowcontrol/throttle.go, rest/config.go (a QPS below zero means no limit);
golang.org/x/time/rate.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Hashable

from cachetools import LRUCache

from tfjob_controller.util.clock import Clock


class Priority(enum.Enum):
    """Whether a request waits for the rate limit: leases never do."""

    LEASE = "lease"
    NORMAL = "normal"


class TokenBucket:
    """Allows `burst` requests at once, then `rate` per second. Starts full. Thread-safe."""

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError(f"a token bucket needs a rate above 0 and a burst of at least 1, not {rate} and {burst}")
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens = float(burst)  # below zero: reserved by callers that wait for them
        self._filled_at = clock.monotonic()

    def reserve_seconds(self) -> float:
        """Take a token, possibly one that does not exist yet; returns the seconds until it does."""
        with self._lock:
            self._fill()
            self._tokens -= 1.0
            return max(0.0, -self._tokens / self._rate)

    def try_take(self, leaving: int = 0) -> bool:
        """Take a token if one exists now and `leaving` others remain; otherwise take nothing and return False."""
        with self._lock:
            self._fill()
            if self._tokens < 1.0 + leaving:
                return False
            self._tokens -= 1.0
            return True

    def has_token(self) -> bool:
        """Whether a token exists now."""
        with self._lock:
            self._fill()
            return self._tokens >= 1.0

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(float(self._burst), self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now


class TokenBuckets:
    """A token bucket for each of the `size` keys that were used last. Thread-safe."""

    def __init__(self, rate: float, burst: int, clock: Clock, size: int = 4096) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: LRUCache[Hashable, TokenBucket] = LRUCache(size)

    def of(self, key: Hashable) -> TokenBucket:
        with self._lock:
            bucket = self._buckets.get(key)
            if bucket is None:
                bucket = self._buckets[key] = TokenBucket(self._rate, self._burst, self._clock)
            return bucket


class FlowControl:
    """A token bucket in which the caller waits. Safe to use from any thread.

    `qps` of zero or less means no limit. `burst` is how many may go at once; below 1 counts as 1.
    """

    def __init__(self, qps: float, burst: int, clock: Clock) -> None:
        self._clock = clock
        self._bucket = TokenBucket(qps, max(1, burst), clock) if qps > 0 else None

    def acquire(self, priority: Priority, stop: threading.Event) -> float:
        """Take a token and wait until it exists or `stop` is set; returns the seconds that the wait was to last."""
        if self._bucket is None:
            return 0.0
        delay_seconds = self._bucket.reserve_seconds()
        if delay_seconds <= 0 or priority is Priority.LEASE:
            return 0.0
        self._clock.sleep(delay_seconds, stop)
        return delay_seconds
