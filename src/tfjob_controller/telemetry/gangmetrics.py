"""Every time series of the gang scheduler. No label carries the name of a gang, node or pod.

Threads: any.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from tfjob_controller.api.gang import PHASES, WAITING, Gang
from tfjob_controller.util.timestamps import parse_time

# The buckets range from a gang that starts at once to one that waits for a day.
_WAIT_BUCKETS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600]
# A filter call must be fast, because kube-scheduler waits for it; a bind call waits for the whole gang.
_FILTER_BUCKETS = [0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5]
_BIND_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300]
# Directions by value of `gangscheduler.status.writer.StatusChange`.
_DIRECTIONS = {"shrink_requested": "shrink", "grow_requested": "grow"}
# Series that start with 0, so that `increase` notices the first one too: all changes of
# `gangscheduler.status.writer.StatusChange` and refused writes, and all results that
# `gangscheduler.binding.binder.ObserveBinding` names.
_CHANGES = ("admitted", "waiting", "unschedulable", "bound", "reassigned", "resized", "released", "requeued")
_PREEMPTION = ("preemption_requested", "preempted", "preemption_enforced", "preemption_not_followed")
_WRITE_RESULTS = (*_CHANGES, *_DIRECTIONS, "request_withdrawn", *_PREEMPTION, "failed")
# All results that `gangscheduler.provisioning.provisioner` observes, and the states that requests can have.
_PROVISIONING_RESULTS = ("created", "refused", "failed", "expired", "revoked")
_PROVISIONING_STATES = ("requested", "accepted", "provisioned", "failed", "expired", "revoked")
_BINDING_RESULTS = ("bound", "gone", "elsewhere", "refused", "late", "stopped")
# The meanings of `gangscheduler.admission.queue.FITS`.
_FITS = {
    "yes": "there is capacity now",
    "held": "there is capacity, but an earlier gang holds it",
    "no": "there is no capacity",
    "unknown": "not evaluated yet",
}


@dataclass(frozen=True, slots=True)
class Underway:
    """The gangs that wait or are partly bound. `waits` has one of `admission.queue.FITS` and the seconds since a gang
    was queued, `partly_bound` the seconds since a gang was admitted.
    """

    waits: Sequence[tuple[str, float]]
    partly_bound: Sequence[float]


class GangMetrics:
    """Counts and times status writes, Bindings and calls, which parts of the gang scheduler report to its methods."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._writes = Counter(
            "gang_status_writes_total",
            "Writes of Gang statuses, by the change that they record; failed: the API server refused the write.",
            ["result"],
            registry=registry,
        )
        for result in _WRITE_RESULTS:
            self._writes.labels(result)
        self._resize_requests = Counter(
            "gang_resize_requests_total",
            "Requests to owners of running gangs to reduce (shrink) or increase (grow) the number of members.",
            ["direction"],
            registry=registry,
        )
        for direction in _DIRECTIONS.values():
            self._resize_requests.labels(direction)
        self._waited = Histogram(
            "gang_waiting_seconds",
            "Time from a gang's entry into the queue until it was admitted.",
            registry=registry,
            buckets=_WAIT_BUCKETS,
        )
        self._bindings = Counter("gang_bindings_total", "Bindings by result.", ["result"], registry=registry)
        for result in _BINDING_RESULTS:
            self._bindings.labels(result)
        self._provisioning = Counter(
            "gang_provisioning_results_total",
            "ProvisioningRequests that were created, that the API server refused, and that are over without a use.",
            ["result"],
            registry=registry,
        )
        for result in _PROVISIONING_RESULTS:
            self._provisioning.labels(result)
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
            "Time that bind calls take, including the wait for the gang.",
            registry=registry,
            buckets=_BIND_BUCKETS,
        )
        self._errors = Counter(
            "gang_extender_errors_total", "Calls that could not be read.", ["verb"], registry=registry
        )
        for verb in ("filter", "bind"):
            self._errors.labels(verb)

    def collect(
        self,
        gangs: Callable[[], Sequence[Gang]],
        reserved: Callable[[], Mapping[str, int]],
        used: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """Show at each scrape the gangs by phase, and by resource the reserved capacity and the share that pods
        request.
        """
        self.registry.register(_Collector(gangs, reserved, used))

    def collect_underway(self, underway: Callable[[], Underway | None]) -> None:
        """Show the gangs that wait or are bound in part. None: another replica decides, and shows them."""
        self.registry.register(_UnderwayCollector(underway))

    def collect_provisioning(self, states: Callable[[], Mapping[str, int]]) -> None:
        """Show the ProvisioningRequests by state."""
        self.registry.register(_ProvisioningCollector(states))

    def provisioned(self, result: str) -> None:
        """Count what became of a ProvisioningRequest."""
        self._provisioning.labels(result).inc()

    def written(self, result: str, gang: Gang) -> None:
        self._writes.labels(result).inc()
        if result in _DIRECTIONS:
            self._resize_requests.labels(_DIRECTIONS[result]).inc()
        if result == "admitted" and gang.status.queued_time and gang.status.admitted_time:
            waited = parse_time(gang.status.admitted_time) - parse_time(gang.status.queued_time)
            self._waited.observe(max(0.0, waited.total_seconds()))

    def binding_ended(self, result: str, seconds: float) -> None:
        self._bindings.labels(result).inc()
        self._binding_seconds.observe(seconds)

    def answered(self, verb: str, is_error: bool, seconds: float) -> None:
        (self._filter_seconds if verb == "filter" else self._bind_seconds).observe(seconds)
        if is_error:
            self._errors.labels(verb).inc()


class _UnderwayCollector:
    def __init__(self, underway: Callable[[], Underway | None]) -> None:
        self._underway = underway

    def describe(self) -> Iterable[Metric]:
        return [*_underway()]

    def collect(self) -> Iterable[Metric]:
        length, longest, partly, partly_longest = families = _underway()
        now = self._underway()
        if now is None:
            return families
        for fits in _FITS:
            seconds = [each for of, each in now.waits if of == fits]
            length.add_metric([fits], len(seconds))
            longest.add_metric([fits], max(seconds, default=0.0))
        partly.add_metric([], len(now.partly_bound))
        partly_longest.add_metric([], max(now.partly_bound, default=0.0))
        return families


class _ProvisioningCollector:
    def __init__(self, states: Callable[[], Mapping[str, int]]) -> None:
        self._states = states

    def describe(self) -> Iterable[Metric]:
        return [_provisioning()]

    def collect(self) -> Iterable[Metric]:
        family, states = _provisioning(), self._states()
        for state in _PROVISIONING_STATES:
            family.add_metric([state], states.get(state, 0))
        return [family]


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


def _underway() -> tuple[GaugeMetricFamily, ...]:
    meanings = "; ".join(f"{fits}: {meaning}" for fits, meaning in _FITS.items())
    return (
        GaugeMetricFamily("gang_queue_length", f"Gangs that wait, by whether they fit ({meanings}).", labels=["fits"]),
        GaugeMetricFamily(
            "gang_queue_longest_wait_seconds",
            "Time that the oldest waiting gang has waited, by whether it fits now.",
            labels=["fits"],
        ),
        GaugeMetricFamily(
            "gang_partly_bound", "Gangs of which some members are bound and others are not yet.", labels=[]
        ),
        GaugeMetricFamily(
            "gang_partly_bound_longest_seconds",
            "Time since the admission of the partly bound gang that was admitted first.",
            labels=[],
        ),
    )


def _provisioning() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "gang_provisioning_requests", "ProvisioningRequests of waiting gangs, by state.", labels=["state"]
    )


def _gangs() -> GaugeMetricFamily:
    return GaugeMetricFamily("gang_gangs", "Gangs by phase.", labels=["phase"])


def _used() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "gang_cluster_used_ratio",
        "Requests of all bound pods, as a share of the allocatable capacity of all nodes.",
        labels=["resource"],
    )


def _reserved() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "gang_reserved_amount",
        "Capacity reserved for members whose pods are not bound yet, in thousandths of a CPU, bytes, or units.",
        labels=["resource"],
    )
