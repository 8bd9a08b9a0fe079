"""TFJob as a kind that the engine can sync: all is decided in `trainer`, this says which function decides what."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.tfjob import TFJOBS, TFJob
from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.api.validation import validate, validate_change
from tfjob_controller.controller.handlers import BY_RUNTIME, runtime_key
from tfjob_controller.controller.milestones import JobObserver, tell
from tfjob_controller.kube.meta import Resource
from tfjob_controller.kube.statuspatch import status_patch
from tfjob_controller.kube.store import Store
from tfjob_controller.trainer import conditions
from tfjob_controller.trainer.difference import Actions, plan_actions
from tfjob_controller.trainer.gangterms import NO_GANGS, GangPolicy, gang_problem
from tfjob_controller.trainer.names import new_runtime_id
from tfjob_controller.trainer.observed import Observed, Obstacle
from tfjob_controller.trainer.phases import is_finished
from tfjob_controller.trainer.plan import Plan
from tfjob_controller.trainer.status import StatusResult, finished_status, invalid_status, next_status
from tfjob_controller.trainer.tfjobplan import build_plan


def by_runtime_id(job: TFJob) -> Iterable[str]:
    """Index function: the RuntimeId, once there is one."""
    return (runtime_key(job.metadata.namespace, job.spec.runtime_id),) if job.spec.runtime_id else ()


class TFJobKind:
    """See `controller.engine.Kind`."""

    def __init__(
        self,
        store: Store[TFJob],
        config: ControllerConfig,
        observer: JobObserver,
        rng: random.Random,
        *,
        restart_rules: bool,
        gangs: GangPolicy = NO_GANGS,
    ) -> None:
        self._store = store
        self._config = config
        self._observer = observer
        self._rng = rng
        self._restart_rules = restart_rules
        self._gangs = gangs

    @property
    def resource(self) -> Resource:
        return TFJOBS

    def is_finished(self, job: TFJob) -> bool:
        return is_finished(job.status)

    def problem(self, job: TFJob, before: TFJob | None) -> str | None:
        return (
            validate(job)
            or (validate_change(before.spec, job.spec) if before is not None else None)
            or gang_problem(job.spec, self._gangs)
        )

    def identity_patch(self, job: TFJob) -> Mapping[str, Any] | None:
        if job.spec.runtime_id:
            return None
        taken = _TakenIds(self._store, job.metadata.namespace)
        return {"spec": {"RuntimeId": new_runtime_id(taken, self._rng)}}

    def plan(self, job: TFJob) -> Plan:
        return build_plan(job, self._config, restart_rules=self._restart_rules, gangs=self._gangs)

    def actions(self, job: TFJob, plan: Plan, observed: Observed, now: datetime) -> Actions:
        return plan_actions(job, plan, observed, now)

    def next_status(
        self, job: TFJob, plan: Plan, observed: Observed, now: datetime, obstacles: Sequence[Obstacle]
    ) -> StatusResult:
        return next_status(job, plan, observed, now, obstacles)

    def refused(self, job: TFJob, why: str, now: datetime) -> StatusResult:
        return invalid_status(job, why, now)

    def finished(self, job: TFJob, now: datetime) -> StatusResult:
        return finished_status(job, now)

    def status_change(self, job: TFJob, result: StatusResult) -> Mapping[str, Any] | None:
        if result.status is job.status:
            return None
        change = status_patch(job.status, result.status, job.metadata.resource_version)
        if not job.status.phase and change["status"]:
            # Its default is left out on the wire, but upstream's readers look for it.
            change["status"]["controlPaused"] = result.status.control_paused
        return change if change["status"] else None

    def suspension(self, job: TFJob) -> Mapping[str, Any]:
        return {"spec": {"suspend": True}}

    def status_of(self, job: TFJob) -> TrainingStatus:
        return job.status

    def with_status(self, job: TFJob, status: TrainingStatus) -> TFJob:
        return replace(job, status=status)

    def is_minor(self, job: TFJob, result: StatusResult) -> bool:
        return not result.is_urgent and _of_substance(job.status) == _of_substance(result.status)

    def told(self, job: TFJob, result: StatusResult, now: datetime) -> None:
        tell(self._observer, job, result.status, now)


def _of_substance(status: TrainingStatus) -> TrainingStatus:
    """All but the figures and words that change as replicas come up one after another."""
    return replace(
        status,
        reason="",
        replica_statuses=(),
        ready={},
        worker_replicas=0,
        succeeded_indexes=(),
        progress=None,
        conditions=tuple(
            replace(each, message="") if each.type == conditions.SCHEDULED else each for each in status.conditions
        ),
    )


class _TakenIds:
    """The RuntimeIds of the jobs in one namespace, for `in`."""

    def __init__(self, store: Store[TFJob], namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    def __contains__(self, runtime_id: object) -> bool:
        return bool(self._store.by_index(BY_RUNTIME, runtime_key(self._namespace, str(runtime_id))))
