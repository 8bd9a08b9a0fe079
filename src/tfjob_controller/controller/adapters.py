"""The adapters of TFJobs and TrainJobs: what the reconciler must know where kinds of jobs differ.

An adapter only names the functions of `trainer` and `api` that decide for its kind, and the logs to follow; that of
TrainJobs also resolves the runtime. Kubeflow Trainer's own TrainJobs have theirs in `controller.kubeflowtrainer`.
Threads: any; workers share one adapter.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from tfjob_controller.api.common.core import Pod
from tfjob_controller.api.common.managedby import is_managed_here
from tfjob_controller.api.common.status import TrainingStatus
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.tfjob import validation as tfjob_validation
from tfjob_controller.api.tfjob.types import TFJOBS, TFJob
from tfjob_controller.api.trainjob import validation as trainjob_validation
from tfjob_controller.api.trainjob.defaults import metric_names_of
from tfjob_controller.api.trainjob.types import TRAINJOBS, Metric, TrainJob, TrainJobStatus
from tfjob_controller.controller.handlers import BY_RUNTIME, runtime_key
from tfjob_controller.controller.logs.metricparser import MetricValue
from tfjob_controller.controller.reporter import JobObserver, observe_status
from tfjob_controller.controller.runtimes import RuntimeResolver
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.codec import status_patch
from tfjob_controller.kube.meta import Object, Resource, key_of
from tfjob_controller.trainer.naming import new_runtime_id, runtime_id_of
from tfjob_controller.trainer.plan.gangterms import NO_GANGS, GangPolicy
from tfjob_controller.trainer.plan.model import Plan, UnplannableError
from tfjob_controller.trainer.plan.tfjob import build_plan, gang_problem, name_problem
from tfjob_controller.trainer.plan.trainjob import Recipe, build_train_plan
from tfjob_controller.trainer.podtemplate.progressreport import ProgressServer
from tfjob_controller.trainer.state.checkpoints import saver_container, saving_replica
from tfjob_controller.trainer.state.indexedjobs import pods_of
from tfjob_controller.trainer.state.observed import (
    CheckpointLine,
    ObservedState,
    PlainTrainingJob,
    ReportedStep,
    TrainingJob,
)
from tfjob_controller.trainer.state.pods import all_containers_ended, is_finished, newest, was_started
from tfjob_controller.trainer.status.reported import STEP, metrics_and_progress, step_of
from tfjob_controller.trainer.status.trainjob import from_wire, to_wire
from tfjob_controller.util.clock import Clock

_JobT = TypeVar("_JobT", bound=Object, contravariant=True)


class KindAdapter(Protocol[_JobT]):
    """One kind of job. No method does I/O."""

    @property
    def resource(self) -> Resource: ...

    @property
    def status_debounce_seconds(self) -> float:
        """How long a status write that changes only counts is delayed at first."""

    @property
    def is_deleted_when_expired(self) -> bool:
        """Reports whether a job is deleted once its time to live is over. Otherwise only its child Jobs are."""

    def is_managed(self, job: _JobT) -> bool:
        """Reports whether this controller runs the job. Other jobs are never touched."""

    def work_of(self, job: _JobT) -> TrainingJob: ...

    def problem(self, job: _JobT, before: _JobT | None, *, has_children: bool = False) -> str | None:
        """Why the job is invalid, if it is. `before` is the last valid state that was seen, if any.

        `has_children`: children were created, which the status may not show yet.
        """

    def identity_patch(self, job: _JobT) -> Mapping[str, Any] | None:
        """The patch that gives the job its identity before its first child is created; None once it has one."""

    def plan(self, job: _JobT) -> Plan:
        """Raises UnplannableError."""

    def follow_logs(self, job: _JobT, plan: Plan, observed: ObservedState) -> ObservedState:
        """Follows the logs with metrics and checkpoints, and adds to `observed` what is read, or that one is unread."""

    def record_change(self, job: _JobT, status: TrainingStatus) -> Mapping[str, Any] | None:
        """The merge patch that records what the kind's own status has no field for; None if nothing differs.

        It is written before the status, which follows from it.
        """

    def status_change(self, job: _JobT, status: TrainingStatus) -> Mapping[str, Any] | None:
        """The merge patch for /status; None if nothing differs."""

    def status_written(self, before: TrainingJob, status: TrainingStatus, now: datetime) -> None:
        """Reports the transitions of a written status to metrics."""

    def forget(self, key: str) -> None:
        """Releases what is kept for a job that is finished or does not exist any more."""


class CheckpointFollower(Protocol):
    """`controller.logs.follower.LogFollower`: reads what is said of checkpoints in the logs of jobs."""

    def follow_checkpoints(self, job_key: str, job_uid: str, pod: Pod, container: str) -> None: ...

    def checkpoint_lines_of(self, job_uid: str) -> Sequence[CheckpointLine]: ...

    def has_read_checkpoints(self, job_uid: str) -> bool: ...

    def forget_key(self, job_key: str) -> None: ...


class MetricsFollower(CheckpointFollower, Protocol):
    """`controller.logs.follower.LogFollower`: reads the metrics in the logs of jobs, too."""

    def follow(self, job_key: str, job_uid: str, pod: Pod, container: str, names: tuple[str, ...]) -> None: ...

    def metrics_of(self, job_uid: str) -> Mapping[str, MetricValue]: ...

    def has_read_all(self, job_uid: str) -> bool: ...


def follow_checkpoints(
    follower: CheckpointFollower, job_key: str, job_uid: str, plan: Plan, observed: ObservedState
) -> ObservedState:
    """Follows what the container says that saves the job's checkpoints. A job does not end before this log is read.

    For all kinds of jobs; does nothing for a job without such a container.
    """
    saver = saving_replica(plan)
    if saver is None:
        return observed
    pod = newest(pods_of(saver, observed))
    if pod is not None and (container := saver_container(pod)) is not None:
        follower.follow_checkpoints(job_key, job_uid, pod, container.name)
        has_ended = is_finished(pod) or container.state.terminated is not None
        if has_ended and not follower.has_read_checkpoints(job_uid):
            observed = observed.with_unread()
    return observed.with_checkpoint_lines(follower.checkpoint_lines_of(job_uid))


# Long enough for a burst of replicas to become ready, short enough for a user who watches the job.
TFJOB_DEBOUNCE_SECONDS = 2.0


def tfjob_by_runtime_id(job: TFJob) -> Iterable[str]:
    """Index function: the RuntimeId, once there is one."""
    return (runtime_key(job.metadata.namespace, job.spec.runtime_id),) if job.spec.runtime_id else ()


class TFJobAdapter:
    """See `KindAdapter`."""

    def __init__(
        self,
        store: Store[TFJob],
        config: ControllerConfig,
        observer: JobObserver,
        rng: random.Random,
        *,
        restart_rules: bool,
        gangs: GangPolicy = NO_GANGS,
        follower: CheckpointFollower | None = None,
    ) -> None:
        """Without a `follower`, statuses do not show checkpoints."""
        self._store = store
        self._follower = follower
        self._config = config
        self._observer = observer
        self._rng = rng
        self._restart_rules = restart_rules
        self._gangs = gangs

    @property
    def resource(self) -> Resource:
        return TFJOBS

    @property
    def status_debounce_seconds(self) -> float:
        return TFJOB_DEBOUNCE_SECONDS

    @property
    def is_deleted_when_expired(self) -> bool:
        return True

    def is_managed(self, job: TFJob) -> bool:
        return is_managed_here(job.spec.managed_by)

    def work_of(self, job: TFJob) -> TrainingJob:
        return job

    def problem(self, job: TFJob, before: TFJob | None, *, has_children: bool = False) -> str | None:
        return (
            tfjob_validation.validate(job)
            or (tfjob_validation.validate_change(before.spec, job.spec) if before is not None else None)
            or gang_problem(job.spec, self._gangs)
        )

    def identity_patch(self, job: TFJob) -> Mapping[str, Any] | None:
        if job.spec.runtime_id:
            return None
        taken = _TakenIds(self._store, job.metadata.namespace)
        return {"spec": {"RuntimeId": new_runtime_id(taken, self._rng)}}

    def plan(self, job: TFJob) -> Plan:
        plan = build_plan(job, self._config, restart_rules=self._restart_rules, gangs=self._gangs)
        if not job.status.phase and (problem := name_problem(job.spec, plan)) is not None:
            raise UnplannableError(problem)
        return plan

    def follow_logs(self, job: TFJob, plan: Plan, observed: ObservedState) -> ObservedState:
        if job.spec.checkpoint is None or self._follower is None:
            return observed
        return follow_checkpoints(self._follower, key_of(job), job.metadata.uid, plan, observed)

    def record_change(self, job: TFJob, status: TrainingStatus) -> Mapping[str, Any] | None:
        return None

    def status_change(self, job: TFJob, status: TrainingStatus) -> Mapping[str, Any] | None:
        if status is job.status:
            return None
        change = status_patch(job.status, status, job.metadata.resource_version)
        if not job.status.phase and change["status"]:
            # The default is omitted in JSON, but upstream's clients expect the field.
            change["status"]["controlPaused"] = status.control_paused
        return change if change["status"] else None

    def status_written(self, before: TrainingJob, status: TrainingStatus, now: datetime) -> None:
        observe_status(self._observer, before, status, now)

    def forget(self, key: str) -> None:
        if self._follower is not None:
            self._follower.forget_key(key)


class _TakenIds:
    """The RuntimeIds that are in use in one namespace."""

    def __init__(self, store: Store[TFJob], namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    def __contains__(self, runtime_id: object) -> bool:
        return bool(self._store.by_index(BY_RUNTIME, runtime_key(self._namespace, str(runtime_id))))


# Metrics change all the time.
TRAINJOB_DEBOUNCE_SECONDS = 5.0


def trainjob_by_runtime_id(job: TrainJob) -> Iterable[str]:
    """Index function."""
    return (runtime_key(job.metadata.namespace, runtime_id_of(job.metadata.uid)),)


def trainjob_work(job: TrainJob) -> TrainingJob:
    return PlainTrainingJob(job.metadata, from_wire(job.status), job.spec.ttl_seconds_after_finished)


class TrainJobAdapter:
    """See `KindAdapter`."""

    def __init__(
        self,
        runtimes: RuntimeResolver,
        config: ControllerConfig,
        observer: JobObserver,
        follower: MetricsFollower,
        clock: Clock,
        *,
        restart_rules: bool,
        gangs: GangPolicy = NO_GANGS,
        progress_server: ProgressServer | None = None,
    ) -> None:
        self._progress_server = progress_server
        self._runtimes = runtimes
        self._config = config
        self._observer = observer
        self._follower = follower
        self._clock = clock
        self._restart_rules = restart_rules
        self._gangs = gangs

    @property
    def resource(self) -> Resource:
        return TRAINJOBS

    @property
    def status_debounce_seconds(self) -> float:
        return TRAINJOB_DEBOUNCE_SECONDS

    @property
    def is_deleted_when_expired(self) -> bool:
        return True

    def is_managed(self, job: TrainJob) -> bool:
        return is_managed_here(job.spec.managed_by)

    def work_of(self, job: TrainJob) -> TrainingJob:
        return trainjob_work(job)

    def problem(self, job: TrainJob, before: TrainJob | None, *, has_children: bool = False) -> str | None:
        return trainjob_validation.validate(job) or (
            trainjob_validation.validate_change(before, job, has_children) if before is not None else None
        )

    def identity_patch(self, job: TrainJob) -> Mapping[str, Any] | None:
        return None

    def plan(self, job: TrainJob) -> Plan:
        found = self._runtimes.resolve(job, self._clock.now())
        return build_train_plan(
            Recipe(
                job,
                found.framework,
                found.spec,
                self._config,
                self._gangs,
                self._restart_rules,
                self._progress_server,
            )
        )

    def follow_logs(self, job: TrainJob, plan: Plan, observed: ObservedState) -> ObservedState:
        """Follows the chief's log. A job does not end before the log of its ended chief is read."""
        if job.spec.checkpoint is not None:
            observed = follow_checkpoints(self._follower, key_of(job), job.metadata.uid, plan, observed)
            observed = observed.with_reported_steps(self._reported_steps(job))
        pod = newest(pods_of(plan.replicas.chief, observed))
        names = metric_names_of(job.spec)
        if pod is None or not names or not was_started(pod, plan.replicas.chief.role.container):
            return observed
        uid = job.metadata.uid
        self._follower.follow(key_of(job), uid, pod, plan.replicas.chief.role.container, names)
        if not all_containers_ended(pod) or self._follower.has_read_all(uid):
            return observed
        return observed.with_unread()

    def _reported_steps(self, job: TrainJob) -> Sequence[ReportedStep]:
        """Returns the last training steps that are known: the recorded one, and the one that was read since."""
        recorded = [(each.value, each.log_time) for each in job.status.metrics if each.name == STEP]
        read = self._follower.metrics_of(job.metadata.uid).get(STEP)
        known = [*recorded, (read.value, read.log_time)] if read is not None else recorded
        return [ReportedStep(step, time) for text, time in known if (step := step_of(text)) is not None]

    def record_change(self, job: TrainJob, status: TrainingStatus) -> Mapping[str, Any] | None:
        return None

    def status_change(self, job: TrainJob, status: TrainingStatus) -> Mapping[str, Any] | None:
        wire = self._with_metrics(job, to_wire(status, job.status))
        if wire == job.status:
            return None
        change = status_patch(job.status, wire, job.metadata.resource_version)
        return change if change["status"] else None

    def _with_metrics(self, job: TrainJob, status: TrainJobStatus) -> TrainJobStatus:
        runtime = status.runtime or self._runtimes.name_for(job)
        measured = self._follower.metrics_of(job.metadata.uid)
        if not measured and status.trainer_status is None:
            return replace(status, runtime=runtime)
        logged = {each.name: each for each in status.metrics}
        logged |= {name: Metric(name, each.value, each.log_time) for name, each in measured.items()}
        metrics, progress = metrics_and_progress(metric_names_of(job.spec), logged, status.trainer_status)
        return replace(status, runtime=runtime, metrics=metrics, progress=progress)

    def status_written(self, before: TrainingJob, status: TrainingStatus, now: datetime) -> None:
        observe_status(self._observer, before, status, now)

    def forget(self, key: str) -> None:
        self._follower.forget_key(key)
