"""Time series of jobs: their life cycle, their number, and what running jobs report of their training.

Names begin with the kind: `tfjob_`, `trainjob_`. Only the series of training metrics and of checkpoints carry the name
of a job, because a mean over jobs would mean nothing. Their number is bounded: only running jobs have them, nothing is
kept between two scrapes, a job has the metrics that its spec names, and above `MAX_JOBS` jobs namespaces take turns
until so many have series; others are counted. The values come from statuses, which administrators of a namespace can
edit, so values that are not numbers, and more metrics than a spec can name, are ignored. For the same reason, the
phases, states and types that a namespace has series of are limited.

Jobs of `kubeflow.org/v1` have the counters of training-operator as well (pkg/common/metrics.go of its branch
release-1.9), by namespace and framework. A namespace that comes and goes leaves no series for ever: the number of pairs
is limited, and that which has been counted longest ago is dropped.
"""

from __future__ import annotations

import re
import threading
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tfjob_controller.api.common.status import MAX_METRICS
from tfjob_controller.jobs.trainingjob import TrainingJob
from tfjob_controller.util.fairness import in_turns

# The buckets range from a job that starts at once to one that waits for its nodes for a day.
_START_BUCKETS = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600]
# The buckets range from a smoke test to two weeks of training.
_DURATION_BUCKETS = [1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 3 * 86400, 14 * 86400]


@dataclass(frozen=True, slots=True)
class JobSeries:
    """The series of a kind of job. Kinds with equal ones share them."""

    prefix: str
    """The beginning of their names."""
    counts_workers: bool = False
    """Whether there are series of the number of workers, and of its changes from the start on."""
    replica_type: Callable[[str], str] = str
    """Returns the type of a role's replicas as the API of these jobs names it."""
    frameworks: tuple[tuple[str, str], ...] = ()
    """The kinds that training-operator's counters have, with the names of their frameworks."""


class JobMetrics:
    """Implements `controller.reporter.JobObserver`."""

    def __init__(self, registry: CollectorRegistry, series: JobSeries) -> None:
        prefix = series.prefix
        self._created = Counter(
            f"{prefix}_created_total", "Jobs that this controller started to manage.", registry=registry
        )
        self._finished = Counter(
            f"{prefix}_finished_total", "Jobs that ended, by state: Succeeded or Failed.", ["state"], registry=registry
        )
        for state in ("Succeeded", "Failed"):
            self._finished.labels(state)
        self._restarts = Counter(f"{prefix}_restarts_total", "Restarts of replicas, over all jobs.", registry=registry)
        self._preemptions = Counter(
            f"{prefix}_preemptions_total", "Preemptions by gangs of higher priority, over all jobs.", registry=registry
        )
        self._resizes = Counter(
            f"{prefix}_resizes_total",
            "Changes of the number of workers of running jobs, by direction (up, down) and cause: autoscaler, or "
            "spec for kubectl scale, a HorizontalPodAutoscaler and all others.",
            ["direction", "reason"],
            registry=registry,
        )
        for direction in ("up", "down") if series.counts_workers else ():
            for reason in ("autoscaler", "spec"):
                self._resizes.labels(direction, reason)
        self._checkpoints = Counter(
            f"{prefix}_checkpoints_saved_total", "Checkpoints that were saved, over all jobs.", registry=registry
        )
        self._checkpoint_failures = Counter(
            f"{prefix}_checkpoint_failures_total",
            "How often saving the checkpoints of a job began to fail, over all jobs.",
            registry=registry,
        )
        self._repeated_steps = Counter(
            f"{prefix}_repeated_steps_total",
            "Training steps that were done again after restarts: from the restored checkpoint to the last step that "
            "the metric step had reported before, over all jobs with both.",
            registry=registry,
        )
        self._time_to_running = Histogram(
            f"{prefix}_time_to_running_seconds",
            "Time from a job's creation until its chief runs for the first time.",
            registry=registry,
            buckets=_START_BUCKETS,
        )
        self._duration = Histogram(
            f"{prefix}_duration_seconds",
            "Time from a job's start to its end.",
            registry=registry,
            buckets=_DURATION_BUCKETS,
        )
        self._counts = FrameworkCounts(dict(series.frameworks))
        if series.frameworks:
            registry.register(self._counts)

    def job_created(self, kind: str, namespace: str) -> None:
        self._created.inc()
        self._counts.add(kind, namespace, "created")

    def job_running(self, seconds_since_creation: float) -> None:
        self._time_to_running.observe(seconds_since_creation)

    def job_restarted(self, kind: str, namespace: str, restarts: int) -> None:
        self._restarts.inc(restarts)
        self._counts.add(kind, namespace, "restarted")

    def job_preempted(self) -> None:
        self._preemptions.inc()

    def job_resized(self, direction: str, reason: str) -> None:
        self._resizes.labels(direction, reason).inc()

    def checkpoints_saved(self, count: int) -> None:
        self._checkpoints.inc(count)

    def checkpoints_failed(self, count: int) -> None:
        self._checkpoint_failures.inc(count)

    def steps_repeated(self, count: int) -> None:
        self._repeated_steps.inc(count)

    def job_finished(self, kind: str, namespace: str, state: str, seconds_since_start: float | None) -> None:
        self._finished.labels(state).inc()
        self._counts.add(kind, namespace, "successful" if state == "Succeeded" else "failed")
        if seconds_since_start is not None:
            self._duration.observe(seconds_since_start)

    def job_deleted(self, kind: str, namespace: str) -> None:
        self._counts.add(kind, namespace, "deleted")


# Five series each.
MAX_COUNTED = 1000
_COUNTED = {
    "created": "Jobs of kubeflow.org/v1 that this controller started to manage.",
    "deleted": "Jobs of kubeflow.org/v1 that were deleted because their time to live was over.",
    "successful": "Jobs of kubeflow.org/v1 that succeeded.",
    "failed": "Jobs of kubeflow.org/v1 that failed.",
    "restarted": "How often jobs of kubeflow.org/v1 were restarted. Replicas that restart together count once.",
}


class FrameworkCounts:
    """`training_operator_jobs_*_total`. Thread-safe."""

    def __init__(self, frameworks: Mapping[str, str]) -> None:
        """`frameworks` has the name of the framework by kind; other kinds are not counted."""
        self._frameworks = frameworks
        self._lock = threading.Lock()
        # By namespace and framework; that which has been counted last is at the end.
        self._counts: dict[tuple[str, str], Tally[str]] = {}

    def add(self, kind: str, namespace: str, transition: str) -> None:
        framework = self._frameworks.get(kind)
        if framework is None:
            return
        labels = (namespace, framework)
        with self._lock:
            counts = self._counts[labels] = self._counts.pop(labels, Tally())
            counts[transition] += 1
            if len(self._counts) > MAX_COUNTED:
                del self._counts[next(iter(self._counts))]

    def describe(self) -> Iterable[Metric]:
        return [self._family(transition) for transition in _COUNTED]

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            counts = sorted((labels, dict(tally)) for labels, tally in self._counts.items())
        families = [self._family(transition) for transition in _COUNTED]
        for labels, tally in counts:
            for transition, family in zip(_COUNTED, families, strict=True):
                family.add_metric(labels, tally.get(transition, 0))
        return families

    def _family(self, transition: str) -> CounterMetricFamily:
        name = f"training_operator_jobs_{transition}"
        return CounterMetricFamily(name, _COUNTED[transition], labels=["job_namespace", "framework"])


class JobCollector:
    """`<prefix>_jobs`, `<prefix>_replicas` and so on, counted in the cache at each scrape."""

    def __init__(self, series: JobSeries, jobs: Callable[[], Iterable[TrainingJob]]) -> None:
        self._series = series
        self._jobs = jobs

    def describe(self) -> Iterable[Metric]:
        return [*self._families()]

    def collect(self) -> Iterable[Metric]:
        jobs = list(self._jobs())
        by_phase = Tally((job.metadata.namespace, job.status.phase, job.status.state) for job in jobs)
        replicas: Tally[tuple[str, str, str]] = Tally()
        for job in jobs:
            for role in job.status.roles:
                type_ = self._series.replica_type(role.role)
                for state, count in role.states.items():
                    replicas[job.metadata.namespace, type_, state] += count
        workers = _workers(jobs) if self._series.counts_workers else ()
        return _filled(self._families(), (by_phase, replicas, _most_restarts(jobs), *workers))

    def _families(self) -> tuple[GaugeMetricFamily, ...]:
        prefix = self._series.prefix
        families = (
            GaugeMetricFamily(
                f"{prefix}_jobs",
                "Jobs that exist, by phase and state, as the leader sees them.",
                labels=["namespace", "phase", "state"],
            ),
            GaugeMetricFamily(
                f"{prefix}_replicas",
                "Replicas of jobs, by type and state, as the leader sees them.",
                labels=["namespace", "type", "state"],
            ),
            GaugeMetricFamily(
                f"{prefix}_restarts_max",
                "Highest number of restarts of an unfinished job, by namespace, as the leader sees them.",
                labels=["namespace"],
            ),
        )
        if not self._series.counts_workers:
            return families
        name = f"{prefix}_workers"
        return (
            *families,
            GaugeMetricFamily(f"{name}_actual", "Existing workers of unfinished jobs.", labels=["namespace"]),
            GaugeMetricFamily(f"{name}_desired", "Desired workers of unfinished jobs.", labels=["namespace"]),
        )


def _most_restarts(jobs: Iterable[TrainingJob]) -> Tally[tuple[str]]:
    most: Tally[tuple[str]] = Tally()
    for job in jobs:
        if job.status.completion_time is None:
            namespace = (job.metadata.namespace,)
            most[namespace] = max(most[namespace], job.status.restarts)
    return most


# More than there are combinations of phase and state, or of the types and states of the replicas of some frameworks.
MAX_LABELS_OF_NAMESPACE = 100


def _filled(families: tuple[GaugeMetricFamily, ...], tallies: tuple[Tally[Any], ...]) -> tuple[GaugeMetricFamily, ...]:
    """Fill each family from its tally, of each namespace (the first label) with the labels that count most."""
    for family, tally in zip(families, tallies, strict=True):
        shown: Tally[str] = Tally()
        for labels, value in sorted(tally.items(), key=lambda each: (-each[1], each[0])):
            shown[labels[0]] += 1
            if shown[labels[0]] <= MAX_LABELS_OF_NAMESPACE:
                family.add_metric(labels, value)
    return families


def _workers(jobs: Iterable[TrainingJob]) -> tuple[Tally[tuple[str]], Tally[tuple[str]]]:
    """Returns the existing and the desired workers by namespace; one series for each job would be too many."""
    actual: Tally[tuple[str]] = Tally()
    desired: Tally[tuple[str]] = Tally()
    for job in jobs:
        if job.status.scaling is not None and job.status.completion_time is None:
            desired[(job.metadata.namespace,)] += job.status.scaling.replicas
            actual[(job.metadata.namespace,)] += job.status.scaled_replicas
    return actual, desired


# With five metrics for each job, a small Prometheus can store all series.
MAX_JOBS = 1000


# The pattern of a value in the CRD.
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|NaN|[+-]Inf")

# Kind, namespace and name of a running job, and the last value of each metric as text.
TrainingOfJob = tuple[str, str, str, Mapping[str, str]]


class TrainingCollector:
    """`tfjob_training_*` of the jobs that `jobs` returns, which are the running jobs with a known metric."""

    def __init__(self, jobs: Callable[[], Iterable[TrainingOfJob]]) -> None:
        self._jobs = jobs

    def describe(self) -> Iterable[Metric]:
        return [_values(), _jobs(), _omitted()]

    def collect(self) -> Iterable[Metric]:
        jobs = sorted(self._jobs(), key=lambda job: job[:3])
        values, counts, omitted = _values(), _jobs(), _omitted()
        for kind, namespace, name, metrics in in_turns(jobs, lambda job: job[1])[:MAX_JOBS]:
            for metric, value in sorted(metrics.items())[:MAX_METRICS]:
                if _NUMBER.fullmatch(value):
                    values.add_metric([kind, namespace, name, metric], float(value))
        for labels, count in sorted(Tally(job[:2] for job in jobs).items()):
            counts.add_metric(labels, count)
        omitted.add_metric([], max(0, len(jobs) - MAX_JOBS))
        return [values, counts, omitted]


def _values() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "tfjob_training_metric",
        f"The last value of a metric that a running job logged or reported; of {MAX_JOBS} jobs, of all namespaces in "
        "turn. The series ends with the job.",
        labels=["kind", "namespace", "job", "metric"],
    )


def _jobs() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "tfjob_training_metric_jobs",
        "Running jobs that have logged or reported a metric.",
        labels=["kind", "namespace"],
    )


def _omitted() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "tfjob_training_metric_jobs_omitted",
        f"Running jobs without series of `tfjob_training_metric`, as there are more than {MAX_JOBS}.",
        labels=[],
    )


# Kind, namespace and name of a running job that saves checkpoints, and since when its training is not saved.
CheckpointOfJob = tuple[str, str, str, datetime]


class CheckpointCollector:
    """`tfjob_checkpoint_*` of the jobs that `jobs` returns, which are the running jobs that save checkpoints.

    The same rules as for training metrics limit the number of series.
    """

    def __init__(self, jobs: Callable[[], Iterable[CheckpointOfJob]]) -> None:
        self._jobs = jobs

    def describe(self) -> Iterable[Metric]:
        return [_unsaved_since(), _unsaved_omitted()]

    def collect(self) -> Iterable[Metric]:
        jobs = sorted(self._jobs(), key=lambda job: job[:3])
        times, omitted = _unsaved_since(), _unsaved_omitted()
        for kind, namespace, name, since in in_turns(jobs, lambda job: job[1])[:MAX_JOBS]:
            times.add_metric([kind, namespace, name], since.timestamp())
        omitted.add_metric([], max(0, len(jobs) - MAX_JOBS))
        return [times, omitted]


def _unsaved_since() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "tfjob_checkpoint_timestamp_seconds",
        "When the last checkpoint of a running job with spec.checkpoint was saved, or when the job began to run, if "
        f"that is later; of {MAX_JOBS} jobs, of all namespaces in turn. The series ends when the job does not run.",
        labels=["kind", "namespace", "job"],
    )


def _unsaved_omitted() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "tfjob_checkpoint_jobs_omitted",
        f"Running jobs without series of `tfjob_checkpoint_timestamp_seconds`, as there are more than {MAX_JOBS}.",
        labels=[],
    )
