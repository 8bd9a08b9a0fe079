"""One kind of job in a running controller: its caches, queue, logs and workers. The program loops over all of them.

Threads: the program's main thread makes, starts and stops it; its parts have threads of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from tfjob_controller.api.common.core import decode_scale
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.masterwait import MasterWait
from tfjob_controller.controller.caches import ControllerCaches
from tfjob_controller.controller.handlers import DeletionHandler, TriggerLog
from tfjob_controller.controller.jobhistory import NO_HISTORY, JobHistory
from tfjob_controller.controller.kind import KindAdapter, KindCaches
from tfjob_controller.controller.logs.follower import LogFollower
from tfjob_controller.controller.logs.progressreader import ProgressReader
from tfjob_controller.controller.podevents import PodEvents
from tfjob_controller.controller.reconciler import Reconciler
from tfjob_controller.controller.reporter import JobEventRecorder
from tfjob_controller.controller.workers import Workers
from tfjob_controller.controller.writer import Fanout
from tfjob_controller.jobs.plan.gangterms import GangPolicy
from tfjob_controller.jobs.podtemplate.progressreport import ProgressServer
from tfjob_controller.jobs.status.checkpoints import unsaved_since
from tfjob_controller.jobs.trainingjob import TrainingJob
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.flowcontrol import TokenBuckets
from tfjob_controller.kube.http.responsestream import Connector
from tfjob_controller.kube.meta import Object, Resource, namespace_of
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kube.workqueue.queue import RateLimiter, RateLimitingQueue
from tfjob_controller.options import RunOptions
from tfjob_controller.telemetry.jobmetrics import CheckpointOfJob, JobSeries, TrainingOfJob
from tfjob_controller.telemetry.metrics import Metrics
from tfjob_controller.util.clock import Clock

HistoryOf: TypeAlias = "Callable[[Kind, Callable[[str], object]], JobHistory]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The parts that all kinds share.

    `most_of_namespace` is how many jobs of one namespace are synced at a time; None: any number. With `traces` the
    triggers of syncs are logged. `kubectl_image` is for launchers of MPIJobs, `master_wait` for workers of PyTorchJobs,
    `kubeflow_v1_strict` for all kinds of `kubeflow.org/v1`. `restart_rules` (see `jobs.actions.children`) and
    `progress_server` are known once the API server's version is. `history_of` returns the history of a kind, given what
    queues a job.
    """

    requester: Requester
    connector: Connector
    caches: ControllerCaches
    config: ControllerConfig
    metrics: Metrics
    recorder: JobEventRecorder
    fanout: Fanout
    clock: Clock
    gangs: GangPolicy
    events: PodEvents
    most_of_namespace: int | None
    traces: bool
    kubectl_image: str
    master_wait: MasterWait
    kubeflow_v1_strict: bool
    restart_rules: bool = False
    progress_server: ProgressServer | None = None
    history_of: HistoryOf = lambda kind, enqueue: NO_HISTORY


@dataclass(frozen=True, slots=True)
class LogReaders:
    """What reads the logs of a kind's jobs, a thread each: metrics and checkpoints, and the progress of workers."""

    follower: LogFollower | None = None
    progress: ProgressReader | None = None

    def __iter__(self) -> Iterator[LogFollower | ProgressReader]:
        return (reader for reader in (self.progress, self.follower) if reader is not None)


class NewAdapter(Protocol):
    """Makes the adapter of a kind, whose caches have the type that the kind makes."""

    def __call__(self, shared: Shared, caches: Any, readers: LogReaders) -> KindAdapter[Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of job: how the program names it, and what it is made of. Functions of a job take one of this kind."""

    name: str
    """In the names of threads and in metrics of queues."""
    resource: Resource[Any]
    label: str
    """In metrics of single jobs."""
    queue_page: str
    """The name of its debug page; `logs_page` is that of its logs."""
    logs_page: str = ""
    series: JobSeries
    """The metrics in which its jobs are counted."""
    takes_reports: bool = False
    """Whether its programs report to the progress server."""
    is_scaled: bool = True
    """Whether it has the scale subresource."""
    optional_children: Collection[Resource[Object]] = ()
    """The kinds of children that its jobs may have, unlike those of other kinds."""
    is_enabled: Callable[[RunOptions], bool]
    may_be_unserved: Callable[[RunOptions], bool] = lambda options: False
    """Whether the program is ready in a cluster without the kind."""
    new_caches: Callable[[Requester, str, Clock, GangPolicy], KindCaches]
    children_of: Callable[[Any], ControllerCaches] | None = None
    """Returns the caches of the children, if they are not those that kinds share."""
    new_adapter: NewAdapter
    new_log_readers: Callable[[Shared, Any, Callable[[str], object]], LogReaders] = lambda shared, caches, enqueue: (
        LogReaders()
    )
    work_of: Callable[[Any], TrainingJob]
    figures_of: Callable[[Any], Mapping[str, str]] = lambda job: {}
    """The last values of a running job's metrics."""
    has_checkpoint: Callable[[Any], bool] = lambda job: False
    """Whether the job saves checkpoints here."""


# The delays of one job's retries, and the rate of all retries. Both allow more retries than client-go's limits: with
# its cap of 1,000 s a job would notice only after a quarter of an hour that a quota has capacity again, and one quota
# can refuse hundreds of jobs at once.
_RETRY_BASE_SECONDS, _RETRY_CAP_SECONDS = 0.01, 60.0
_RETRY_RATE, _RETRY_BURST = 50.0, 200


class KindController:
    """See the module."""

    def __init__(self, kind: Kind, caches: KindCaches, shared: Shared) -> None:
        self.kind = kind
        # Namespaces take turns, so that many jobs in one do not delay those in others.
        self.queue: RateLimitingQueue[str] = RateLimitingQueue(
            shared.clock,
            RateLimiter(_RETRY_BASE_SECONDS, _RETRY_CAP_SECONDS, TokenBuckets(_RETRY_RATE, _RETRY_BURST, shared.clock)),
            name=kind.name,
            metrics=shared.metrics.queues,
            group_of=namespace_of,
            most_of_group=shared.most_of_namespace,
        )
        self._caches = caches
        self._children = kind.children_of(caches) if kind.children_of is not None else shared.caches
        self._triggers = TriggerLog(enabled=shared.traces)
        self._readers = kind.new_log_readers(shared, caches, self.queue.add)
        self._history = NO_HISTORY
        self._is_managed: Callable[[Any], bool] = lambda job: True
        self._reconciler: Reconciler[Any] | None = None
        self._workers: Workers | None = None
        # Of the last scrape, by the identity of the job, which is kept so that no other object has it.
        self._works: dict[int, tuple[Any, TrainingJob]] = {}

    # Life

    def build(self, shared: Shared, worker_count: int) -> None:
        """Makes reconciler and workers, once all that `shared` has is known."""
        kind, requester = self.kind, shared.requester
        progress = self._readers.progress
        adapter = kind.new_adapter(shared, self._caches, self._readers)
        self._history = shared.history_of(kind, self.queue.add)
        self._is_managed = adapter.is_managed
        self._reconciler = Reconciler(
            adapter,
            ResourceClient(requester, kind.resource),
            self._caches.jobs.store,
            self._children.snapshots(progress.readings_of if progress is not None else None),
            self._children.writer(shared.fanout),
            shared.recorder,
            shared.metrics.jobs[kind.series],
            shared.clock,
            is_busy=lambda: len(self.queue) > 0,
            warnings_of=shared.events.warnings_of,
            scales=ResourceClient(requester, kind.resource.with_decoder(decode_scale)) if kind.is_scaled else None,
            history=self._history,
        )
        self._workers = Workers(
            kind.name,
            self.queue,
            self._reconciler.sync,
            count=worker_count,
            clock=shared.clock,
            observer=shared.metrics.syncs,
            triggers=self._triggers,
        )

    def feed(self) -> None:
        """Makes every relevant change of jobs and children queue the key of a job."""
        self._caches.feed(self.queue, self._triggers)
        if self._history is not NO_HISTORY:
            self._caches.jobs.add_handler(DeletionHandler(self._history, self._is_managed))
        kind, jobs = self.kind, self._caches.jobs.store
        self._children.feed(kind.resource, jobs, self.queue, self._triggers, optional=kind.optional_children)

    @property
    def is_synced(self) -> bool:
        """Reports whether the caches of its own are complete."""
        return all(informer.is_synced for informer in self._caches.all)

    @property
    def is_refused(self) -> bool:
        """Reports whether the API server lacks it, or a kind that its jobs need, or refuses to list one of them."""
        return any(informer.is_unserved or informer.is_forbidden for informer in self._caches.all)

    def start(self) -> None:
        """Starts workers and readers of logs."""
        if self._workers is not None:
            self._workers.start()
        for reader in self._readers:
            reader.start()

    def stop_workers(self, timeout_seconds: float) -> bool:
        """Finishes syncs in progress; False if one still runs after `timeout_seconds`."""
        return self._workers is None or self._workers.stop(timeout_seconds)

    def stop_readers(self, timeout_seconds: float) -> None:
        for reader in self._readers:
            reader.stop(timeout_seconds)

    # What it shows

    @property
    def cached_jobs(self) -> int:
        return len(self._caches.jobs.store)

    @property
    def tracked_jobs(self) -> int:
        return self._reconciler.tracked_jobs if self._reconciler is not None else 0

    def pages(self) -> dict[str, Callable[[], Any]]:
        """Returns its debug pages by name."""
        follower = self._readers.follower
        return {
            self.kind.queue_page: self.queue.statistics,
            **({self.kind.logs_page: follower.statistics} if follower is not None else {}),
        }

    def restarts(self) -> dict[str, int]:
        """Returns how often each of its threads was restarted."""
        follower, progress = self._readers.follower, self._readers.progress
        return {
            **(self._workers.restarts() if self._workers is not None else {}),
            **({"logs": progress.restarts} if progress is not None else {}),
            **({f"{self.kind.logs_page}-follow": follower.restarts} if follower is not None else {}),
        }

    def works_of(self, series: JobSeries) -> Iterable[TrainingJob]:
        """Returns the jobs that are counted in these metrics, without what differs between kinds.

        At each scrape all are counted, and few have changed since the last one: only these are converted.
        """
        if series != self.kind.series:
            return ()
        last, jobs = self._works, self._caches.jobs.store.list()
        self._works = {id(job): last.get(id(job)) or (job, self.kind.work_of(job)) for job in jobs}
        return [work for _, work in self._works.values()]

    def training(self) -> Iterator[TrainingOfJob]:
        """Yields the metrics of running jobs."""
        for job in self._caches.jobs.store.list():
            if values := self.kind.figures_of(job):
                yield self.kind.label, job.metadata.namespace, job.metadata.name, values

    def checkpoints(self) -> Iterator[CheckpointOfJob]:
        """Yields since when the training of running jobs with checkpoints is not saved."""
        for job in self._caches.jobs.store.list():
            if self.kind.has_checkpoint(job) and (since := unsaved_since(self.kind.work_of(job).status)) is not None:
                yield self.kind.resource.kind, job.metadata.namespace, job.metadata.name, since
