"""Time series of the controller, except those of jobs, which are in jobmetrics.py.

Theory of operation. The parts that count events (queue, transport, workers, status writer) depend only on small
Protocols, which the classes below implement with prometheus_client metrics. Figures that another part keeps anyway (the
jobs in the cache, the statistics of a watch) are not counted a second time: a collector reads them at each scrape.

Names, labels and buckets of `workqueue_*`, `rest_client_*` and `leader_election_*` are client-go's, those of
`controller_runtime_*` controller-runtime's, so that stock dashboards work. No label carries the name of a job or pod.

Threads: any. Source: component-base metrics/prometheus/{workqueue,restclient,clientgo/leaderelection}/metrics.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from tfjob_controller.jobs.trainingjob import TrainingJob
from tfjob_controller.kube.cache.informer import InformerStatistics
from tfjob_controller.kube.workqueue import metrics
from tfjob_controller.telemetry.jobmetrics import (
    CheckpointCollector,
    CheckpointOfJob,
    JobCollector,
    JobMetrics,
    JobSeries,
    TrainingCollector,
    TrainingOfJob,
)

# 10 ns to 1,000 s, the buckets of controller-runtime.
_QUEUE_BUCKETS = [1e-8 * 10**power for power in range(12)]
_REQUEST_BUCKETS = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]
_RECONCILE_BUCKETS = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0]


class Metrics:
    """The registry, and the metrics of each part of the program."""

    def __init__(self, version: str = "", job_series: Iterable[JobSeries] = (), *, of_controller: bool = True) -> None:
        """Without `of_controller` there are no metrics of queues, syncs and jobs, which the gang scheduler lacks."""
        # Otherwise each counter and histogram has a second series with its creation time.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.requests = RequestMetrics(self.registry)
        self.leadership = LeaderElectionMetrics(self.registry)
        of_jobs = self.registry if of_controller else CollectorRegistry()
        self.queues = WorkQueueMetrics(of_jobs)
        self.syncs = SyncMetrics(of_jobs)
        self.jobs = {series: JobMetrics(of_jobs, series) for series in dict.fromkeys(job_series)}
        self._reports = Counter(
            "trainjob_progress_reports_total",
            "Reports that the progress server answered, by the status code of HTTP.",
            ["code"],
            registry=of_jobs,
        )
        self._history_records = Counter(
            "tfjob_controller_history_records_total",
            "Records of ended jobs by their result: recorded, failed (tried again), dropped, or removed by a limit.",
            ["result"],
            registry=of_jobs,
        )
        build = Gauge(
            "tfjob_controller_build_info", "Always 1; the label has the version.", ["version"], registry=self.registry
        )
        build.labels(version).set(1)

    def collect_jobs(self, jobs_of: Callable[[JobSeries], Iterable[TrainingJob]]) -> None:
        """Show the jobs of all series by phase and state, their replicas and their workers."""
        for series in self.jobs:
            self.registry.register(JobCollector(series, partial(jobs_of, series)))

    def collect_informers(self, statistics: Callable[[], Mapping[str, InformerStatistics]]) -> None:
        """Show the statistics of informers, by resource."""
        self.registry.register(InformerCollector(statistics))

    def collect_thread_restarts(self, restarts: Callable[[], Mapping[str, int]]) -> None:
        """Show how often threads that died were restarted, by thread."""
        self.registry.register(ThreadCollector(restarts))

    def collect_training(self, jobs: Callable[[], Iterable[TrainingOfJob]]) -> None:
        """Show the last values of the metrics of running jobs."""
        self.registry.register(TrainingCollector(jobs))

    def collect_checkpoints(self, jobs: Callable[[], Iterable[CheckpointOfJob]]) -> None:
        """Show since when the training of running jobs is not saved."""
        self.registry.register(CheckpointCollector(jobs))

    def report_answered(self, code: int) -> None:
        """Counts a report that the progress server answered."""
        self._reports.labels(str(code)).inc()

    def history_recorded(self, result: str) -> None:
        """Counts a record of the history."""
        self._history_records.labels(result).inc()

    def exposition(self, accept: str = "") -> tuple[str, bytes]:
        """Returns the content type and body for this Accept header."""
        encoder, content_type = choose_encoder(accept)
        return content_type, encoder(self.registry)


class WorkQueueMetrics:
    """`kube.workqueue.metrics.MetricsProvider`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, help_: str) -> Gauge:
            return Gauge(f"workqueue_{name}", help_, ["name"], registry=registry)

        def counter(name: str, help_: str) -> Counter:
            return Counter(f"workqueue_{name}", help_, ["name"], registry=registry)

        def histogram(name: str, help_: str) -> Histogram:
            return Histogram(f"workqueue_{name}", help_, ["name"], registry=registry, buckets=_QUEUE_BUCKETS)

        self._depth = gauge("depth", "Items that wait for a worker.")
        self._adds = counter("adds_total", "Items added, repeated adds of a waiting item not counted.")
        self._latency = histogram("queue_duration_seconds", "Time from an item's first add to its get.")
        self._work = histogram("work_duration_seconds", "Time that workers take to process an item.")
        self._unfinished = gauge(
            "unfinished_work_seconds", "Sum of the times for which the items in progress have been processed."
        )
        self._longest = gauge(
            "longest_running_processor_seconds", "Time for which the oldest item in progress has been processed."
        )
        self._retries = counter("retries_total", "Adds with a delay.")

    def new_depth_metric(self, name: str) -> metrics.Gauge:
        return self._depth.labels(name)

    def new_adds_metric(self, name: str) -> metrics.Counter:
        return self._adds.labels(name)

    def new_latency_metric(self, name: str) -> metrics.Histogram:
        return self._latency.labels(name)

    def new_work_duration_metric(self, name: str) -> metrics.Histogram:
        return self._work.labels(name)

    def new_unfinished_work_seconds_metric(self, name: str) -> metrics.SettableGauge:
        return self._unfinished.labels(name)

    def new_longest_running_processor_seconds_metric(self, name: str) -> metrics.SettableGauge:
        return self._longest.labels(name)

    def new_retries_metric(self, name: str) -> metrics.Counter:
        return self._retries.labels(name)


class RequestMetrics:
    """`kube.requester.TransportObserver`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._total = Counter(
            "rest_client_requests_total",
            "Requests to the API server, watches included.",
            ["code", "method", "host"],
            registry=registry,
        )
        self._retries = Counter(
            "rest_client_request_retries_total",
            "Retries of requests, by the code of the previous attempt.",
            ["code", "verb", "host"],
            registry=registry,
        )
        self._seconds = Histogram(
            "rest_client_request_duration_seconds",
            "Time from sending a request to the end of its response (of a watch: the end of the headers).",
            ["verb", "host"],
            registry=registry,
            buckets=_REQUEST_BUCKETS,
        )
        self._limited = Histogram(
            "rest_client_rate_limiter_duration_seconds",
            "Time that requests waited for --qps and --burst.",
            ["verb", "host"],
            registry=registry,
            buckets=_REQUEST_BUCKETS,
        )

    def request_finished(self, method: str, host: str, code: str, seconds: float) -> None:
        self._total.labels(code, method, host).inc()
        self._seconds.labels(method, host).observe(seconds)

    def request_retried(self, method: str, host: str, code: str) -> None:
        self._retries.labels(code, method, host).inc()

    def rate_limited(self, method: str, host: str, seconds: float) -> None:
        self._limited.labels(method, host).observe(seconds)


class LeaderElectionMetrics:
    """`kube.leaderelection.lease.LeaderMetrics`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._status = Gauge(
            "leader_election_master_status", "1 while this process leads, else 0.", ["name"], registry=registry
        )
        self._slowpath = Counter(
            "leader_election_slowpath_total",
            "Renewals that had to read the lease first.",
            ["name"],
            registry=registry,
        )

    def on(self, name: str) -> None:
        self._status.labels(name).set(1)

    def off(self, name: str) -> None:
        self._status.labels(name).set(0)

    def slowpath_exercised(self, name: str) -> None:
        self._slowpath.labels(name).inc()


# Results that controller-runtime counts as `error`.
_FAILED = ("error", "terminal", "panic")


class SyncMetrics:
    """Implements `controller.reporter.SyncObserver`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        by_controller = ["controller"]
        self._total = Counter(
            "controller_runtime_reconcile_total",
            "Syncs by result: success, requeue_after, requeue or error.",
            ["controller", "result"],
            registry=registry,
        )
        self._errors = Counter(
            "controller_runtime_reconcile_errors_total", "Syncs that failed.", by_controller, registry=registry
        )
        self._terminal = Counter(
            "controller_runtime_terminal_reconcile_errors_total",
            "Syncs that failed with an error that a retry cannot correct.",
            by_controller,
            registry=registry,
        )
        self._panics = Counter(
            "controller_runtime_reconcile_panics_total",
            "Syncs that ended with an unexpected exception, which is a bug.",
            by_controller,
            registry=registry,
        )
        self._seconds = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Time that a sync takes.",
            by_controller,
            registry=registry,
            buckets=_RECONCILE_BUCKETS,
        )
        self._active = Gauge(
            "controller_runtime_active_workers", "Workers that run a sync now.", by_controller, registry=registry
        )
        self._max = Gauge(
            "controller_runtime_max_concurrent_reconciles", "Number of workers.", by_controller, registry=registry
        )

    def workers_started(self, controller: str, count: int) -> None:
        self._max.labels(controller).set(count)
        for result in ("success", "requeue_after", "requeue", "error"):
            self._total.labels(controller, result)
        self._errors.labels(controller)
        self._terminal.labels(controller)
        self._panics.labels(controller)
        self._active.labels(controller)

    def sync_started(self, controller: str) -> None:
        self._active.labels(controller).inc()

    def sync_finished(self, controller: str, result: str, seconds: float) -> None:
        self._active.labels(controller).dec()
        self._seconds.labels(controller).observe(seconds)
        self._total.labels(controller, "error" if result in _FAILED else result).inc()
        if result in _FAILED:
            self._errors.labels(controller).inc()
        if result == "panic":
            self._panics.labels(controller).inc()
        if result == "terminal":
            self._terminal.labels(controller).inc()


# Name, help and value of the series of each informer; all are by resource.
_INFORMER_GAUGES: tuple[tuple[str, str, Callable[[InformerStatistics], float]], ...] = (
    ("informer_objects", "Objects in the cache.", lambda it: it.objects),
    ("informer_synced", "1 once the cache has received a complete list.", lambda it: it.is_synced),
    (
        "informer_pending_notifications",
        "Changes not yet delivered to handlers.",
        lambda it: sum(h.pending for h in it.handlers),
    ),
    (
        "reflector_connected",
        "1 if the last list or watch succeeded, 0 while it is retried.",
        lambda it: not it.reflector.last_error,
    ),
    (
        "reflector_last_resource_version",
        "Resource version up to which the cache has processed all changes.",
        lambda it: it.resource_version,
    ),
)
_INFORMER_COUNTERS: tuple[tuple[str, str, Callable[[InformerStatistics], float]], ...] = (
    (
        "reflector_lists",
        "Complete lists, streamed or in pages.",
        lambda it: it.reflector.lists + it.reflector.streaming_lists,
    ),
    ("reflector_watches", "Watches opened.", lambda it: it.reflector.watches),
    ("reflector_events", "Events applied, without bookmarks.", lambda it: it.reflector.events),
    ("reflector_failures", "Lists and watches that failed.", lambda it: it.reflector.failures),
    ("reflector_expired", "Versions that the server had compacted away (410).", lambda it: it.reflector.expired),
    ("reflector_undecodable", "Objects that could not be decoded.", lambda it: it.reflector.undecodable),
    (
        "informer_handler_failures",
        "Changes for which a handler failed.",
        lambda it: sum(h.failures for h in it.handlers),
    ),
)


class InformerCollector:
    """The statistics of informers and their reflectors."""

    def __init__(self, statistics: Callable[[], Mapping[str, InformerStatistics]]) -> None:
        self._statistics = statistics

    def describe(self) -> Iterable[Metric]:
        return [*self._families({})]

    def collect(self) -> Iterable[Metric]:
        return self._families(self._statistics())

    def _families(self, statistics: Mapping[str, InformerStatistics]) -> Iterable[Metric]:
        for name, help_, value in _INFORMER_GAUGES:
            gauge = GaugeMetricFamily(name, help_, labels=["name"])
            for resource, figures in statistics.items():
                gauge.add_metric([resource], value(figures))
            yield gauge
        for name, help_, value in _INFORMER_COUNTERS:
            counter = CounterMetricFamily(name, help_, labels=["name"])
            for resource, figures in statistics.items():
                counter.add_metric([resource], value(figures))
            yield counter


class ThreadCollector:
    """The restarts of long-lived threads."""

    def __init__(self, restarts: Callable[[], Mapping[str, int]]) -> None:
        self._restarts = restarts

    def describe(self) -> Iterable[Metric]:
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        family = self._family()
        for thread, count in self._restarts().items():
            family.add_metric([thread], count)
        return [family]

    def _family(self) -> CounterMetricFamily:
        help_ = "Restarts of threads that died."
        return CounterMetricFamily("tfjob_controller_thread_restarts", help_, labels=["thread"])
