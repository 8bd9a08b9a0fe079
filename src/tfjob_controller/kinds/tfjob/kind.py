"""The adapter of TFJobs, and how the program runs them.

Threads: any; workers share one adapter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

from tfjob_controller.api.common.core import PODS, Pod
from tfjob_controller.api.common.managedby import is_managed_here
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.tfjob.progress import pattern_of
from tfjob_controller.api.tfjob.types import CONTAINER_NAME, TFJOBS, WORKER, TFJob
from tfjob_controller.api.tfjob.validation import validate, validate_change
from tfjob_controller.controller.handlers import NO_TRIGGER_LOG, JobHandler, TriggerLog
from tfjob_controller.controller.logs.checkpoints import CheckpointFollower, follow_checkpoints
from tfjob_controller.controller.logs.follower import LogFollower
from tfjob_controller.controller.logs.progressreader import PolledWorker, ProgressReader
from tfjob_controller.controller.snapshot import BY_RUNTIME, runtime_key
from tfjob_controller.jobs.naming import JOB_TYPE, new_runtime_id
from tfjob_controller.jobs.plan.gangterms import NO_GANGS, GangPolicy
from tfjob_controller.jobs.plan.model import Plan, UnplannableError
from tfjob_controller.jobs.state.observed import ObservedState
from tfjob_controller.jobs.state.pods import was_started
from tfjob_controller.jobs.trainingjob import END_PHASES, TrainingJob, TrainingStatus
from tfjob_controller.kinds.kindcontroller import Kind, LogReaders, Shared
from tfjob_controller.kinds.tfjob.plan import build_plan, gang_problem, name_problem
from tfjob_controller.kinds.tfjob.status import tfjob_work, to_wire
from tfjob_controller.kube.cache.informer import Informer
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.codec import status_patch
from tfjob_controller.kube.meta import Object, Resource, key_of
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kube.workqueue.queue import RateLimitingQueue
from tfjob_controller.telemetry.jobmetrics import JobSeries
from tfjob_controller.util.clock import Clock

# Long enough for a burst of replicas to become ready, short enough for a user who watches the job.
TFJOB_DEBOUNCE_SECONDS = 2.0


def tfjob_by_runtime_id(job: TFJob) -> Iterable[str]:
    """Index function: the RuntimeId, once there is one."""
    return (runtime_key(job.metadata.namespace, job.spec.runtime_id),) if job.spec.runtime_id else ()


class TFJobCaches:
    """The informer of TFJobs. `namespace` "" means all namespaces."""

    def __init__(self, requester: Requester, namespace: str, clock: Clock) -> None:
        indexers = {BY_RUNTIME: tfjob_by_runtime_id}
        self.jobs = Informer(requester, TFJOBS, indexers=indexers, namespace=namespace, clock=clock)

    @property
    def all(self) -> Sequence[Informer[Any]]:
        return (self.jobs,)

    def feed(self, queue: RateLimitingQueue[str], triggers: TriggerLog = NO_TRIGGER_LOG) -> None:
        self.jobs.add_handler(JobHandler(queue, is_new=lambda job: not job.status.phase, triggers=triggers))


@dataclass(frozen=True, slots=True, eq=False)
class TFJobAdapter:
    """See `KindAdapter`. Without a `follower`, statuses do not show checkpoints."""

    resource: ClassVar[Resource[Object]] = TFJOBS
    status_debounce_seconds: ClassVar[float] = TFJOB_DEBOUNCE_SECONDS
    is_deleted_when_expired: ClassVar[bool] = True

    store: Store[TFJob]
    config: ControllerConfig
    rng: random.Random
    _: KW_ONLY
    restart_rules: bool
    gangs: GangPolicy = NO_GANGS
    follower: CheckpointFollower | None = None

    def is_managed(self, job: TFJob) -> bool:
        return is_managed_here(job.spec.managed_by)

    def work_of(self, job: TFJob) -> TrainingJob:
        return tfjob_work(job)

    def problem(self, job: TFJob, before: TFJob | None, *, has_children: bool = False) -> str | None:
        return (
            validate(job)
            or (validate_change(before.spec, job.spec) if before is not None else None)
            or gang_problem(job.spec, self.gangs)
        )

    def has_identity(self, job: TFJob) -> bool:
        return bool(job.spec.runtime_id)

    def identity_patch(self, job: TFJob) -> Mapping[str, Any]:
        taken = _TakenIds(self.store, job.metadata.namespace)
        return {"spec": {"RuntimeId": new_runtime_id(taken, self.rng)}}

    def plan(self, job: TFJob) -> Plan:
        plan = build_plan(job, self.config, restart_rules=self.restart_rules, gangs=self.gangs)
        if not job.status.phase and (problem := name_problem(job.spec, plan)) is not None:
            raise UnplannableError(problem)
        return plan

    def follow_logs(self, job: TFJob, plan: Plan, observed: ObservedState) -> ObservedState:
        if job.spec.checkpoint is None or self.follower is None:
            return observed
        return follow_checkpoints(self.follower, key_of(job), job.metadata.uid, plan, observed)

    def status_change(self, job: TFJob, status: TrainingStatus) -> Mapping[str, Any] | None:
        wire = to_wire(status, job.status)
        if wire == job.status:
            return None
        change = status_patch(job.status, wire, job.metadata.resource_version)
        if not job.status.phase and change["status"]:
            # The default is omitted in JSON, but upstream's clients expect the field.
            change["status"]["controlPaused"] = wire.control_paused
        return change if change["status"] else None

    def forget_logs(self, key: str) -> None:
        if self.follower is not None:
            self.follower.forget_key(key)


class _TakenIds:
    """The RuntimeIds that are in use in one namespace."""

    def __init__(self, store: Store[TFJob], namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    def __contains__(self, runtime_id: object) -> bool:
        return bool(self._store.by_index(BY_RUNTIME, runtime_key(self._namespace, str(runtime_id))))


def polled_workers(jobs: Store[TFJob], pods: Store[Pod]) -> Iterator[PolledWorker]:
    """Yields the started workers of jobs with `autoscaling.progress.pattern`."""
    for job in jobs.list():
        pattern = pattern_of(job.spec)
        if pattern is None or not job.spec.runtime_id or job.status.phase in END_PHASES:
            continue
        for pod in pods.by_index(BY_RUNTIME, runtime_key(job.metadata.namespace, job.spec.runtime_id)):
            if pod.metadata.labels.get(JOB_TYPE) == WORKER and was_started(pod, CONTAINER_NAME):
                yield PolledWorker(job, pod, CONTAINER_NAME, pattern)


def _log_readers(shared: Shared, caches: TFJobCaches, enqueue: Callable[[str], object]) -> LogReaders:
    pods = shared.caches.store(PODS)
    follower = LogFollower(shared.connector, enqueue, shared.clock)
    workers = partial(polled_workers, caches.jobs.store, pods)
    progress = ProgressReader(shared.requester, workers, enqueue, shared.clock)
    return LogReaders(follower, progress)


def _adapter(shared: Shared, caches: TFJobCaches, readers: LogReaders) -> TFJobAdapter:
    return TFJobAdapter(
        caches.jobs.store,
        shared.config,
        random.Random(),  # noqa: S311 -- RuntimeIds are names, not secrets
        restart_rules=shared.restart_rules,
        gangs=shared.gangs,
        follower=readers.follower,
    )


KIND = Kind(
    name="tfjob",
    resource=TFJOBS,
    label=TFJOBS.kind,
    queue_page="queue",
    logs_page="tfjob-logs",
    series=JobSeries("tfjob", counts_workers=True, replica_type=str.upper),
    is_enabled=lambda options: TFJOBS.kind not in options.kubeflow_v1_api,
    # The cluster then has the TFJobs of training-operator, which another controller may run.
    may_be_unserved=lambda options: bool(options.kubeflow_v1_api),
    new_caches=lambda requester, namespace, clock, gangs: TFJobCaches(requester, namespace, clock),
    new_adapter=_adapter,
    new_log_readers=_log_readers,
    work_of=tfjob_work,
    has_checkpoint=lambda job: job.spec.checkpoint is not None,
)
