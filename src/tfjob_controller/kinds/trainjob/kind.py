"""The adapter of TrainJobs, which also resolves their runtimes, and how the program runs them.

Threads: any; workers share one adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Protocol, TypeAlias, cast

from msgspec.structs import replace

from tfjob_controller.api.common.core import HORIZONTAL_POD_AUTOSCALERS, Pod
from tfjob_controller.api.common.managedby import is_managed_here
from tfjob_controller.api.common.status import Metric
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.trainjob.defaults import metric_names_of, metric_values_of
from tfjob_controller.api.trainjob.runtime import (
    CLUSTER_TRAINING_RUNTIMES,
    TRAINING_RUNTIMES,
    TrainingRuntime,
)
from tfjob_controller.api.trainjob.types import (
    TRAINJOBS,
    TrainJob,
    TrainJobStatus,
)
from tfjob_controller.api.trainjob.validation import validate, validate_change
from tfjob_controller.controller.kind import METRICS_DEBOUNCE_SECONDS
from tfjob_controller.controller.logs.checkpoints import CheckpointFollower, follow_checkpoints
from tfjob_controller.controller.logs.follower import LogFollower
from tfjob_controller.controller.logs.metricparser import MetricValue
from tfjob_controller.jobs.plan.gangterms import NO_GANGS, GangPolicy
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.podtemplate.progressreport import ProgressServer
from tfjob_controller.jobs.state.observed import ObservedState, ReportedStep, pods_of
from tfjob_controller.jobs.state.pods import all_containers_ended, newest, was_started
from tfjob_controller.jobs.trainingjob import TrainingJob, TrainingStatus
from tfjob_controller.kinds.kindcontroller import Kind, LogReaders, Shared
from tfjob_controller.kinds.reported import STEP, metrics_and_progress, progress_of, step_of
from tfjob_controller.kinds.runtimes import RuntimeCaches, RuntimeKinds
from tfjob_controller.kinds.trainjob.plan import build_train_plan
from tfjob_controller.kinds.trainjob.recipe import Recipe
from tfjob_controller.kinds.trainjob.runtimes import RuntimeResolver, runtime_of
from tfjob_controller.kinds.trainjob.status import to_wire, trainjob_work
from tfjob_controller.kube.codec import status_patch
from tfjob_controller.kube.meta import Object, Resource, key_of
from tfjob_controller.telemetry.jobmetrics import JobSeries
from tfjob_controller.util.clock import Clock


class MetricsFollower(CheckpointFollower, Protocol):
    """`controller.logs.follower.LogFollower`: reads the metrics in the logs of jobs, too."""

    def follow(self, job_key: str, job_uid: str, pod: Pod, container: str, names: tuple[str, ...]) -> None: ...

    def metrics_of(self, job_uid: str) -> Mapping[str, MetricValue]: ...

    def has_read_all(self, job_uid: str) -> bool: ...


@dataclass(frozen=True, slots=True, eq=False)
class TrainJobAdapter:
    """See `KindAdapter`."""

    resource: ClassVar[Resource[Object]] = TRAINJOBS
    status_debounce_seconds: ClassVar[float] = METRICS_DEBOUNCE_SECONDS
    is_deleted_when_expired: ClassVar[bool] = True

    runtimes: RuntimeResolver
    config: ControllerConfig
    follower: MetricsFollower
    clock: Clock
    _: KW_ONLY
    restart_rules: bool
    gangs: GangPolicy = NO_GANGS
    progress_server: ProgressServer | None = None

    def is_managed(self, job: TrainJob) -> bool:
        return is_managed_here(job.spec.managed_by)

    def work_of(self, job: TrainJob) -> TrainingJob:
        return trainjob_work(job)

    def problem(self, job: TrainJob, before: TrainJob | None, *, has_children: bool = False) -> str | None:
        return validate(job) or (validate_change(before, job, has_children) if before is not None else None)

    def plan(self, job: TrainJob) -> Plan:
        runtime = self.runtimes.resolve(job, self.clock.now())
        parts = self.config, self.gangs, self.restart_rules, self.progress_server
        return build_train_plan(Recipe(job, runtime.framework, runtime.spec, *parts))

    def follow_logs(self, job: TrainJob, plan: Plan, observed: ObservedState) -> ObservedState:
        """Follows the chief's log. A job does not end before the log of its ended chief is read."""
        if job.spec.checkpoint is not None:
            observed = follow_checkpoints(self.follower, key_of(job), job.metadata.uid, plan, observed)
            observed = observed.with_reported_steps(self._reported_steps(job))
        pod = newest(pods_of(plan.replicas.chief, observed))
        names = metric_names_of(job.spec)
        if pod is None or not names or not was_started(pod, plan.replicas.chief.role.container):
            return observed
        uid = job.metadata.uid
        self.follower.follow(key_of(job), uid, pod, plan.replicas.chief.role.container, names)
        if not all_containers_ended(pod) or self.follower.has_read_all(uid):
            return observed
        return observed.with_unread()

    def _reported_steps(self, job: TrainJob) -> Sequence[ReportedStep]:
        """Returns the last training steps that are known: the recorded one, and the one that was read since."""
        recorded = [(metric.value, metric.log_time) for metric in job.status.metrics if metric.name == STEP]
        read = self.follower.metrics_of(job.metadata.uid).get(STEP)
        known = [*recorded, (read.value, read.log_time)] if read is not None else recorded
        return [ReportedStep(step, time) for text, time in known if (step := step_of(text)) is not None]

    def status_change(self, job: TrainJob, status: TrainingStatus) -> Mapping[str, Any] | None:
        wire = self._with_metrics(job, to_wire(status, job.status))
        if wire == job.status:
            return None
        change = status_patch(job.status, wire, job.metadata.resource_version)
        return change if change["status"] else None

    def _with_metrics(self, job: TrainJob, status: TrainJobStatus) -> TrainJobStatus:
        runtime = status.runtime or self.runtimes.name_for(job)
        measured = self.follower.metrics_of(job.metadata.uid)
        if not measured and status.trainer_status is None:
            return replace(status, runtime=runtime)
        logged = {metric.name: metric for metric in status.metrics}
        logged |= {name: Metric(name, value.value, value.log_time) for name, value in measured.items()}
        metrics, progress = metrics_and_progress(metric_names_of(job.spec), logged, status.trainer_status)
        return replace(status, runtime=runtime, metrics=metrics, progress=progress)

    def forget_logs(self, key: str) -> None:
        self.follower.forget_key(key)


TrainJobCaches: TypeAlias = RuntimeCaches[TrainJob, TrainingRuntime]
RUNTIMES = RuntimeKinds(
    jobs=TRAINJOBS,
    namespaced=TRAINING_RUNTIMES,
    cluster=CLUSTER_TRAINING_RUNTIMES,
    runtime_of=runtime_of,
    status_of=lambda job: job.status,
)


def _log_readers(shared: Shared, caches: TrainJobCaches, enqueue: Callable[[str], object]) -> LogReaders:
    return LogReaders(LogFollower(shared.connector, enqueue, shared.clock))


def _adapter(shared: Shared, caches: TrainJobCaches, readers: LogReaders) -> TrainJobAdapter:
    return TrainJobAdapter(
        RuntimeResolver(caches.namespaced.store, caches.cluster.store),
        shared.config,
        cast("MetricsFollower", readers.follower),
        shared.clock,
        restart_rules=shared.restart_rules,
        gangs=shared.gangs,
        progress_server=shared.progress_server,
    )


def _figures_of(job: TrainJob) -> Mapping[str, str]:
    """Returns the last values of a running job's metrics."""
    if job.status.completion_time is not None:
        return {}
    return metric_values_of(job.status) | progress_of(job.status.trainer_status)


KIND = Kind(
    name="trainjob",
    resource=TRAINJOBS,
    label=TRAINJOBS.kind,
    queue_page="trainjobs",
    logs_page="logs",
    optional_children=(HORIZONTAL_POD_AUTOSCALERS,),
    series=JobSeries("trainjob"),
    takes_reports=True,
    is_enabled=lambda options: options.trainjobs,
    new_caches=lambda requester, namespace, clock, gangs: RuntimeCaches(RUNTIMES, requester, namespace, clock),
    new_adapter=_adapter,
    new_log_readers=_log_readers,
    work_of=trainjob_work,
    figures_of=_figures_of,
    has_checkpoint=lambda job: job.spec.checkpoint is not None,
)
