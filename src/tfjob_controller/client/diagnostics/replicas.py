"""The replicas of a job, evaluated by the functions that the controller uses. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from tfjob_controller.api.common.status import TrainingStatus
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.tfjob.types import TFJob
from tfjob_controller.api.trainjob.defaults import started_nodes_of
from tfjob_controller.api.trainjob.runtime import RuntimeSpec, VolumeClaim, Workspace
from tfjob_controller.api.trainjob.types import (
    DATASET_INITIALIZER,
    LAUNCHER,
    MODEL_EXPORTER,
    MODEL_INITIALIZER,
    TrainJob,
)
from tfjob_controller.client.validation import spec_problem
from tfjob_controller.jobs.evaluation.jobstate import replica_states as views_of_plan
from tfjob_controller.jobs.frameworks.base import ByEnvironment, Setting
from tfjob_controller.jobs.plan.model import Plan, UnplannableError
from tfjob_controller.jobs.scaling.effective_plan import effective_plan
from tfjob_controller.jobs.state.completion import current_step
from tfjob_controller.jobs.state.indexedjobs import by_replica
from tfjob_controller.jobs.state.observed import PHASE_CLEAN_UP, ObservedState, is_finished
from tfjob_controller.jobs.state.pods import is_finished as is_finished_pod
from tfjob_controller.jobs.state.replica_state import FAILED, SUCCEEDED, ReplicaState
from tfjob_controller.kinds.tfjob.plan import build_plan
from tfjob_controller.kinds.trainjob import status as trainjob
from tfjob_controller.kinds.trainjob.plan import build_train_plan
from tfjob_controller.kinds.trainjob.recipe import Recipe

# The states of replicas of an ended job that have neither succeeded nor failed, beside those that still run.
STOPPED, NOT_STARTED = "Stopped", "NotStarted"
_STORAGE_STEPS = (DATASET_INITIALIZER, MODEL_INITIALIZER, MODEL_EXPORTER)


def status_of(job: TFJob | TrainJob) -> TrainingStatus:
    """The status of a job of either kind, in the form of a TFJob's."""
    return job.status if isinstance(job, TFJob) else trainjob.from_wire(job.status)


def replica_views(job: TFJob | TrainJob, observed: ObservedState, now: datetime) -> tuple[ReplicaState, ...]:
    """The replicas of a job, the chief first; empty if the job has not started or is invalid."""
    if spec_problem(job) is not None:
        return ()
    if isinstance(job, TFJob):
        plan = build_plan(job, ControllerConfig()) if job.spec.runtime_id else None
    else:
        plan = _trainjob_plan(job)
    if plan is None:
        return ()
    status = status_of(job)
    observed = by_replica(plan, observed)
    effective = effective_plan(plan, observed, status)
    views = views_of_plan(effective, observed, status, now)
    return _at_the_end(effective, views, observed) if has_ended(status) else views


def has_ended(status: TrainingStatus) -> bool:
    """Reports whether it is decided how the job ended."""
    return is_finished(status) or status.phase == PHASE_CLEAN_UP


def _at_the_end(plan: Plan, views: tuple[ReplicaState, ...], observed: ObservedState) -> tuple[ReplicaState, ...]:
    """Returns the states in an ended job: nothing starts or is restarted any more."""
    step = current_step(plan, views, observed)
    reached = {view.replica.name for view in (*step.completed, *step.replica_states)}
    return tuple(
        _ended(view) if view.replica.name in reached else replace(view, state=NOT_STARTED, pending="") for view in views
    )


def _ended(view: ReplicaState) -> ReplicaState:
    pod, exited = view.pod, view.exited
    if view.is_up or view.state in (SUCCEEDED, FAILED):
        return view
    if pod is None:
        return replace(view, state=STOPPED, pending="")
    has_failed = is_finished_pod(pod) or (exited is not None and exited.exit_code != 0)
    return replace(view, state=FAILED if has_failed and not pod.metadata.deletion_timestamp else STOPPED)


def _trainjob_plan(job: TrainJob) -> Plan | None:
    """A plan from the status alone, since users may lack the right to read runtimes, and packages of frameworks."""
    steps = {each.name for each in job.status.jobs_status}
    if not started_nodes_of(job.status):
        return None
    claim = Workspace(VolumeClaim("of-the-runtime")) if steps.intersection(_STORAGE_STEPS) else None
    template = {"spec": {"containers": [{"name": "node", "image": "of-the-runtime"}]}}
    runtime = RuntimeSpec(templates={"node": template}, workspace=claim)
    try:
        return build_train_plan(Recipe(job, _shape(LAUNCHER in steps), runtime, ControllerConfig()))
    except UnplannableError:
        return None


def _shape(has_launcher: bool) -> ByEnvironment:
    """Returns a framework that determines only which pods exist."""

    def nothing(setting: Setting, index: str) -> Mapping[str, str]:
        return {}

    return ByEnvironment("unknown", "", frozenset(), nothing, lambda setting: None, has_launcher=has_launcher)
