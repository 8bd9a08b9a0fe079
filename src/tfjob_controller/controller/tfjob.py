"""The adapter of TFJobs: names the functions of `trainer` and `api` that decide for this kind."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from tfjob_controller.api.common.status import TrainingStatus
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.tfjob.types import TFJOBS, TFJob
from tfjob_controller.api.tfjob.validation import validate, validate_change
from tfjob_controller.controller.handlers import BY_RUNTIME, runtime_key
from tfjob_controller.controller.observer import JobObserver, observe_status
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.codec import status_patch
from tfjob_controller.kube.meta import Resource
from tfjob_controller.trainer.gang.terms import NO_GANGS, GangPolicy
from tfjob_controller.trainer.naming import new_runtime_id
from tfjob_controller.trainer.plan.model import Plan
from tfjob_controller.trainer.plan.tfjob import build_plan, gang_problem
from tfjob_controller.trainer.state.observed import ObservedState, TrainingJob

# Long enough for a burst of replicas to become ready, short enough for a user who watches the job.
STATUS_DEBOUNCE_SECONDS = 2.0


def tfjob_by_runtime_id(job: TFJob) -> Iterable[str]:
    """Index function: the RuntimeId, once there is one."""
    return (runtime_key(job.metadata.namespace, job.spec.runtime_id),) if job.spec.runtime_id else ()


class TFJobAdapter:
    """See `controller.kind.Kind`."""

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

    @property
    def status_debounce_seconds(self) -> float:
        return STATUS_DEBOUNCE_SECONDS

    def is_managed(self, job: TFJob) -> bool:
        return True

    def work_of(self, job: TFJob) -> TrainingJob:
        return job

    def problem(self, job: TFJob, before: TFJob | None, *, has_children: bool = False) -> str | None:
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

    def follow_logs(self, job: TFJob, plan: Plan, observed: ObservedState) -> ObservedState:
        return observed

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
        """Does nothing, since nothing is kept for a TFJob."""


class _TakenIds:
    """The RuntimeIds that are in use in one namespace."""

    def __init__(self, store: Store[TFJob], namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    def __contains__(self, runtime_id: object) -> bool:
        return bool(self._store.by_index(BY_RUNTIME, runtime_key(self._namespace, str(runtime_id))))
