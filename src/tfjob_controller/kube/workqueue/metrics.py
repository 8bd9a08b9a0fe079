"""Metrics of a work queue, under client-go's names.

The Protocols describe what a metrics library has to offer; no library is imported here. A provider creates one metric
of each kind per queue name, such as `workqueue_depth{name="tfjob"}`.
Source: client-go util/workqueue/metrics.go, component-base metrics/prometheus/workqueue.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from tfjob_controller.util.clock import Clock

ItemT = TypeVar("ItemT", bound=Hashable)


class Counter(Protocol):
    def inc(self) -> None: ...


class Gauge(Protocol):
    def inc(self) -> None: ...

    def dec(self) -> None: ...


class SettableGauge(Protocol):
    def set(self, value: float, /) -> None: ...


class Histogram(Protocol):
    def observe(self, value: float, /) -> None: ...


class MetricsProvider(Protocol):
    """Creates the metrics of a queue. They are called under its lock: they must be quick and never call back."""

    def new_depth_metric(self, name: str) -> Gauge:
        """`workqueue_depth`: items to be processed, including those that were added again while being processed."""

    def new_adds_metric(self, name: str) -> Counter:
        """`workqueue_adds_total`: adds that were not merged with an earlier one."""

    def new_latency_metric(self, name: str) -> Histogram:
        """`workqueue_queue_duration_seconds`: from an item's first add to its get."""

    def new_work_duration_metric(self, name: str) -> Histogram:
        """`workqueue_work_duration_seconds`: from get to done."""

    def new_unfinished_work_seconds_metric(self, name: str) -> SettableGauge:
        """`workqueue_unfinished_work_seconds`: the sum of the ages of all items in processing."""

    def new_longest_running_processor_seconds_metric(self, name: str) -> SettableGauge:
        """`workqueue_longest_running_processor_seconds`: the age of the oldest item in processing."""

    def new_retries_metric(self, name: str) -> Counter:
        """`workqueue_retries_total`: adds with a delay, including zero."""


class QueueMetrics(Generic[ItemT]):
    """Updates the metrics of one queue. The caller holds the queue's lock; times are monotonic."""

    def __init__(self, provider: MetricsProvider, name: str, clock: Clock) -> None:
        self._clock = clock
        self._depth = provider.new_depth_metric(name)
        self._adds = provider.new_adds_metric(name)
        self._latency = provider.new_latency_metric(name)
        self._work_duration = provider.new_work_duration_metric(name)
        self._unfinished_work = provider.new_unfinished_work_seconds_metric(name)
        self._longest_running = provider.new_longest_running_processor_seconds_metric(name)
        self._retries = provider.new_retries_metric(name)
        self._added_at: dict[ItemT, float] = {}
        self._started_at: dict[ItemT, float] = {}

    def add(self, item: ItemT) -> None:
        self._adds.inc()
        self._depth.inc()
        self._added_at.setdefault(item, self._clock.monotonic())

    def get(self, item: ItemT) -> None:
        now = self._clock.monotonic()
        self._depth.dec()
        self._latency.observe(now - self._added_at.pop(item, now))
        self._started_at[item] = now

    def done(self, item: ItemT) -> None:
        now = self._clock.monotonic()
        self._work_duration.observe(now - self._started_at.pop(item, now))

    def retry(self) -> None:
        self._retries.inc()

    def update_unfinished_work(self) -> None:
        """Set the two gauges that grow with time; called periodically."""
        now = self._clock.monotonic()
        ages = [now - started_at for started_at in self._started_at.values()]
        self._unfinished_work.set(sum(ages))
        self._longest_running.set(max(ages, default=0.0))
