"""How many requests in a second one process sends.

Theory of operation. A bucket of `burst` tokens fills with `qps` per second. A request takes its token at once, which
may be one that does not exist yet, and rests until it does: requests go in the order in which they came, without a
queue and without threads that race for a new token.

Requests for leases never rest: a leader that waits behind its own thousand creates would lose its lease. They take
their token all the same, so that the overall rate is the one configured.

Source: client-go util/flowcontrol/throttle.go, rest/config.go (a QPS below zero means no limit).
"""

from __future__ import annotations

import enum
import threading

from tfjob_controller.kube.ratelimit import TokenBucket
from tfjob_controller.util.clock import Clock


class Priority(enum.Enum):
    """Who may pass the rate limit."""

    LEASE = "lease"
    NORMAL = "normal"


class FlowControl:
    """A token bucket in which the caller waits. Safe to use from any thread.

    `qps` of zero or less means no limit. `burst` is how many may go at once; below 1 counts as 1.
    """

    def __init__(self, qps: float, burst: int, clock: Clock) -> None:
        self._clock = clock
        self._bucket = TokenBucket(qps, max(1, burst), clock) if qps > 0 else None

    def acquire(self, priority: Priority, stop: threading.Event) -> float:
        """Take a token; rest until it exists or `stop` is set. The answer is how many seconds it was to rest."""
        if self._bucket is None:
            return 0.0
        delay_seconds = self._bucket.delay_seconds(None)
        if delay_seconds <= 0 or priority is Priority.LEASE:
            return 0.0
        self._clock.sleep(delay_seconds, stop)
        return delay_seconds
