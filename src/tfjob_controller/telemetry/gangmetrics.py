"""Every time series of the gang scheduler. No label carries the name of a gang, node or pod.

Threads: any.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from tfjob_controller.api.gang import PHASES, WAITING, Gang

# From a gang that starts at once to one that waits a day.
_WAIT_BUCKETS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600]
# kube-scheduler waits for a filter; a bind waits for the gang.
_FILTER_BUCKETS = [0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5]
_BIND_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300]
# Of `extender.statuswriter.Result`.
_DIRECTIONS = {"shrink_asked": "shrink", "grow_asked": "grow"}


class GangMetrics:
    """`extender.statuswriter.Observer`, `extender.binder.Observer` and `extender.endpoints.Observer`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._writes = Counter(
            "gang_status_writes_total",
            "Statuses of Gangs that were written, by what they say; failed: the write was refused.",
            ["result"],
            registry=registry,
        )
        self._asked = Counter(
            "gang_resizes_asked_total",
            "Wishes that a running gang have fewer members (shrink) or more (grow), told to its owner.",
            ["direction"],
            registry=registry,
        )
        self._waited = Histogram(
            "gang_waiting_seconds",
            "Time from a gang's entry into the queue until it was admitted.",
            registry=registry,
            buckets=_WAIT_BUCKETS,
        )
        self._bindings = Counter("gang_bindings_total", "Bindings by how they ended.", ["result"], registry=registry)
        self._binding_seconds = Histogram(
            "gang_binding_duration_seconds",
            "Time from the first attempt of a Binding until its outcome was known.",
            registry=registry,
            buckets=_BIND_BUCKETS,
        )
        self._filter_seconds = Histogram(
            "gang_extender_filter_duration_seconds",
            "Time that filter calls take.",
            registry=registry,
            buckets=_FILTER_BUCKETS,
        )
        self._bind_seconds = Histogram(
            "gang_extender_bind_duration_seconds",
            "Time that bind calls take, waiting for the gang included.",
            registry=registry,
            buckets=_BIND_BUCKETS,
        )
        self._errors = Counter(
            "gang_extender_errors_total", "Calls that could not be read.", ["verb"], registry=registry
        )

    def collect(
        self,
        gangs: Callable[[], Sequence[Gang]],
        reserved: Callable[[], Mapping[str, int]],
        used: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """Show gangs by phase, and by resource what is reserved and what share of all is used, when it is asked for."""
        self.registry.register(_Collector(gangs, reserved, used))

    def written(self, result: str, gang: Gang) -> None:
        self._writes.labels(result).inc()
        if result in _DIRECTIONS:
            self._asked.labels(_DIRECTIONS[result]).inc()
        if result == "admitted" and gang.status.waiting_since and gang.status.admitted_time:
            waited = datetime.fromisoformat(gang.status.admitted_time) - datetime.fromisoformat(
                gang.status.waiting_since
            )
            self._waited.observe(max(0.0, waited.total_seconds()))

    def binding_ended(self, result: str, seconds: float) -> None:
        self._bindings.labels(result).inc()
        self._binding_seconds.observe(seconds)

    def answered(self, verb: str, is_error: bool, seconds: float) -> None:
        (self._filter_seconds if verb == "filter" else self._bind_seconds).observe(seconds)
        if is_error:
            self._errors.labels(verb).inc()


class _Collector:
    def __init__(
        self,
        gangs: Callable[[], Sequence[Gang]],
        reserved: Callable[[], Mapping[str, int]],
        used: Callable[[], Mapping[str, float]],
    ) -> None:
        self._gangs = gangs
        self._reserved = reserved
        self._used = used

    def describe(self) -> Iterable[Metric]:
        return [_gangs(), _reserved(), _used()]

    def collect(self) -> Iterable[Metric]:
        gangs, reserved, used = _gangs(), _reserved(), _used()
        phases = Tally(gang.status.phase or WAITING for gang in self._gangs())
        for phase in PHASES:
            gangs.add_metric([phase], phases[phase])
        for resource, amount in sorted(self._reserved().items()):
            reserved.add_metric([resource], amount)
        for resource, share in sorted(self._used().items()):
            used.add_metric([resource], share)
        return [gangs, reserved, used]


def _gangs() -> GaugeMetricFamily:
    return GaugeMetricFamily("gang_gangs", "Gangs by phase.", labels=["phase"])


def _used() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "gang_cluster_used_ratio",
        "What bound pods request, gangs' and others', as a share of what all nodes have: their allocatable.",
        labels=["resource"],
    )


def _reserved() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "gang_reserved_amount",
        "Reserved for members whose pods are not bound yet: thousandths of a CPU, bytes, or pieces.",
        labels=["resource"],
    )
