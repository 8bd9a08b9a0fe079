"""The adapter of TrainJobs: resolves the runtime and reads metrics; everything else is decided in `trainer`.

Threads: any; workers share one object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol

from msgspec.structs import replace

from tfjob_controller.api.common.core import Pod
from tfjob_controller.api.common.status import TrainingStatus
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.trainjob.defaults import is_managed_here, metric_names_of
from tfjob_controller.api.trainjob.status import Metric, TrainJobStatus
from tfjob_controller.api.trainjob.types import TRAINJOBS, TrainJob
from tfjob_controller.api.trainjob.validation import validate, validate_change
from tfjob_controller.controller.handlers import runtime_key
from tfjob_controller.controller.logs.metricparser import MetricValue
from tfjob_controller.controller.observer import JobObserver, observe_status
from tfjob_controller.controller.runtimes import RuntimeResolver
from tfjob_controller.kube.codec import status_patch
from tfjob_controller.kube.meta import Resource, key_of
from tfjob_controller.trainer.gang.terms import NO_GANGS, GangPolicy
from tfjob_controller.trainer.naming import runtime_id_of
from tfjob_controller.trainer.plan.model import Plan
from tfjob_controller.trainer.plan.trainjob import Recipe, build_train_plan
from tfjob_controller.trainer.state.observed import ObservedState, PlainTrainingJob, TrainingJob
from tfjob_controller.trainer.state.pods import all_containers_ended, newest, was_started
from tfjob_controller.trainer.status.trainjob import from_wire, to_wire
from tfjob_controller.util.clock import Clock

# Metrics change all the time.
STATUS_DEBOUNCE_SECONDS = 5.0
# Metrics that show the progress of training, in the order of display.
_PROGRESS = ("epoch", "step")


class MetricsFollower(Protocol):
    """`controller.logs.follower.LogFollower`: reads the metrics in the logs of jobs."""

    def follow(self, job_key: str, job_uid: str, pod: Pod, container: str, names: tuple[str, ...]) -> None: ...

    def forget_key(self, job_key: str) -> None: ...

    def metrics_of(self, job_uid: str) -> Mapping[str, MetricValue]: ...

    def has_read_all(self, job_uid: str) -> bool: ...


def trainjob_by_runtime_id(job: TrainJob) -> Iterable[str]:
    """Index function."""
    return (runtime_key(job.metadata.namespace, runtime_id_of(job.metadata.uid)),)


def trainjob_work(job: TrainJob) -> TrainingJob:
    return PlainTrainingJob(job.metadata, from_wire(job.status), job.spec.ttl_seconds_after_finished)


class TrainJobAdapter:
    """See `controller.kind.Kind`."""

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
    ) -> None:
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
        return STATUS_DEBOUNCE_SECONDS

    def is_managed(self, job: TrainJob) -> bool:
        return is_managed_here(job.spec)

    def work_of(self, job: TrainJob) -> TrainingJob:
        return trainjob_work(job)

    def problem(self, job: TrainJob, before: TrainJob | None, *, has_children: bool = False) -> str | None:
        return validate(job) or (validate_change(before, job, has_children) if before is not None else None)

    def identity_patch(self, job: TrainJob) -> Mapping[str, Any] | None:
        return None

    def plan(self, job: TrainJob) -> Plan:
        found = self._runtimes.resolve(job, self._clock.now())
        return build_train_plan(
            Recipe(job, found.framework, found.spec, self._config, self._gangs, self._restart_rules)
        )

    def follow_logs(self, job: TrainJob, plan: Plan, observed: ObservedState) -> ObservedState:
        """Follows the chief's log. A job does not end before the log of its ended chief is read."""
        pod = newest(observed.pods.get(plan.replicas.chief.name, ()))
        names = metric_names_of(job.spec)
        if pod is None or not names or not was_started(pod, plan.replicas.chief.role.container):
            return observed
        uid = job.metadata.uid
        self._follower.follow(key_of(job), uid, pod, plan.replicas.chief.role.container, names)
        if not all_containers_ended(pod) or self._follower.has_read_all(uid):
            return observed
        return observed.with_unread()

    def status_change(self, job: TrainJob, status: TrainingStatus) -> Mapping[str, Any] | None:
        wire = self._with_metrics(job, to_wire(status, job.status))
        if wire == job.status:
            return None
        change = status_patch(job.status, wire, job.metadata.resource_version)
        return change if change["status"] else None

    def _with_metrics(self, job: TrainJob, status: TrainJobStatus) -> TrainJobStatus:
        runtime = status.runtime or self._runtimes.name_for(job)
        measured = self._follower.metrics_of(job.metadata.uid)
        if not measured:
            return replace(status, runtime=runtime)
        known = {each.name: each for each in status.metrics}
        known.update({name: Metric(name, each.value, each.log_time) for name, each in measured.items()})
        ordered = tuple(known[name] for name in metric_names_of(job.spec) if name in known)
        return replace(status, runtime=runtime, metrics=ordered, progress=_progress(ordered))

    def status_written(self, before: TrainingJob, status: TrainingStatus, now: datetime) -> None:
        observe_status(self._observer, before, status, now)

    def forget(self, key: str) -> None:
        self._follower.forget_key(key)


def _progress(metrics: Iterable[Metric]) -> str:
    """`epoch 3, step 1200`: the metrics that show progress."""
    values = {each.name: each.value for each in metrics}
    return ", ".join(f"{name} {values[name]}" for name in _PROGRESS if name in values)
