"""A work queue in which items that failed rest before they come again. See `workqueue`, `delayingqueue`, `ratelimit`.

Threads: any method from any thread. Source: client-go util/workqueue (rate_limiting_queue.go).
"""

from __future__ import annotations

from typing import Generic

from tfjob_controller.kube.delayingqueue import DelayingQueue
from tfjob_controller.kube.queuemetrics import ItemT, MetricsProvider
from tfjob_controller.kube.ratelimit import RateLimiter, default_limiter
from tfjob_controller.kube.workqueue import QueueStatistics, WorkQueue
from tfjob_controller.util.clock import Clock


class RateLimitingQueue(Generic[ItemT]):
    """A delaying queue that asks a limiter how long a failed item rests."""

    def __init__(self, queue: DelayingQueue[ItemT], limiter: RateLimiter) -> None:
        self._queue = queue
        self._limiter = limiter

    def add_rate_limited(self, item: ItemT, priority: int = 0) -> None:
        """Add an item that failed, when the limiter says that it has rested enough."""
        self._queue.add_after(item, self._limiter.delay_seconds(item), priority)

    def forget(self, item: ItemT) -> None:
        """The retries of an item are over, by success or for good. It still has to be `done`.

        An item that is never forgotten is remembered for ever.
        """
        self._limiter.forget(item)

    def num_requeues(self, item: ItemT) -> int:
        """How often an item failed since it was last forgotten."""
        return self._limiter.failures(item)

    def add_after(self, item: ItemT, seconds: float, priority: int = 0) -> None:
        self._queue.add_after(item, seconds, priority)

    def take_back(self, item: ItemT) -> None:
        self._queue.take_back(item)

    def add(self, item: ItemT, priority: int = 0) -> None:
        self._queue.add(item, priority)

    def get(self) -> ItemT:
        return self._queue.get()

    def priority_of(self, item: ItemT) -> int:
        return self._queue.priority_of(item)

    def done(self, item: ItemT) -> None:
        self._queue.done(item)

    def __len__(self) -> int:
        return len(self._queue)

    def shut_down(self) -> None:
        self._queue.shut_down()

    def shut_down_with_drain(self, timeout_seconds: float | None = None) -> bool:
        return self._queue.shut_down_with_drain(timeout_seconds)

    @property
    def is_shutting_down(self) -> bool:
        return self._queue.is_shutting_down

    def statistics(self) -> QueueStatistics:
        return self._queue.statistics()


def new_rate_limiting_queue(
    clock: Clock,
    *,
    name: str = "",
    limiter: RateLimiter | None = None,
    metrics: MetricsProvider | None = None,
) -> RateLimitingQueue[ItemT]:
    """A queue for a controller, with client-go's default limits unless others are given."""
    queue: WorkQueue[ItemT] = WorkQueue(clock, name=name, metrics=metrics)
    return RateLimitingQueue(DelayingQueue(queue), limiter or default_limiter(clock))
