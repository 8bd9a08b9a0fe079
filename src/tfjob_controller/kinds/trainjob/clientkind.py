"""TrainJobs as their users see them.

Users may lack the right to read runtimes, and packages of frameworks: the replicas are those that the status names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tfjob_controller.api.common.accelerators import accelerators_of
from tfjob_controller.api.common.schema import field_violation
from tfjob_controller.api.trainjob.defaults import metric_names_of, metric_values_of, started_nodes_of
from tfjob_controller.api.trainjob.types import (
    DATASET_INITIALIZER,
    LAUNCHER,
    MODEL_EXPORTER,
    MODEL_INITIALIZER,
    TRAINJOBS,
    TrainJob,
    TrainJobSpec,
)
from tfjob_controller.jobs.naming import TRAIN_JOB_NAME, runtime_id_of
from tfjob_controller.kinds.clientkind import ClientKind

if TYPE_CHECKING:
    from tfjob_controller.jobs.plan.model import Plan
    from tfjob_controller.jobs.trainingjob import TrainingJob
    from tfjob_controller.kinds.kindform import KindForm
    from tfjob_controller.kube.requester import Requester

_STORAGE_STEPS = (DATASET_INITIALIZER, MODEL_INITIALIZER, MODEL_EXPORTER)


def _work(job: TrainJob) -> TrainingJob:
    from tfjob_controller.kinds.trainjob.status import trainjob_work

    return trainjob_work(job)


def _problem(job: TrainJob) -> str | None:
    from tfjob_controller.api.trainjob.validation import validate

    return validate(job)


def _steps(job: TrainJob) -> set[str]:
    return {job_status.name for job_status in job.status.jobs_status}


def _plan(job: TrainJob) -> Plan | None:
    from tfjob_controller.api.controllerconfig import ControllerConfig
    from tfjob_controller.api.trainjob.runtime import RuntimeSpec, VolumeClaim, Workspace
    from tfjob_controller.jobs.frameworks.base import ByEnvironment, Setting
    from tfjob_controller.jobs.plan.model import UnplannableError
    from tfjob_controller.kinds.trainjob.plan import build_train_plan
    from tfjob_controller.kinds.trainjob.recipe import Recipe

    def nothing(setting: Setting, index: str) -> Mapping[str, str]:
        return {}

    steps = _steps(job)
    if not started_nodes_of(job.status):
        return None
    claim = Workspace(VolumeClaim("of-the-runtime")) if steps.intersection(_STORAGE_STEPS) else None
    template = {"spec": {"containers": [{"name": "node", "image": "of-the-runtime"}]}}
    runtime = RuntimeSpec(templates={"node": template}, workspace=claim)
    # A framework that determines only which pods exist.
    shape = ByEnvironment("unknown", "", frozenset(), nothing, lambda setting: None, has_launcher=LAUNCHER in steps)
    try:
        return build_train_plan(Recipe(job, shape, runtime, ControllerConfig()))
    except UnplannableError:
        return None


def _preview(job: TrainJob, requester: Requester) -> Plan | None:
    from tfjob_controller.kinds.trainjob.preview import preview_plan

    return preview_plan(job, requester)


def _preview_without_runtime(job: TrainJob, requester: Requester) -> Plan | None:
    from tfjob_controller.kinds.trainjob.preview import preview_plan_without_runtime

    return preview_plan_without_runtime(job, requester)


def _percentage(job: TrainJob) -> int | None:
    report = job.status.trainer_status
    return report.progress_percentage if report is not None else None


def _accelerators(job: TrainJob) -> int:
    spec, each = job.spec, job.spec.trainer.resources_per_node
    nodes = spec.num_nodes or spec.trainer.num_nodes or started_nodes_of(job.status) or 1
    return nodes * accelerators_of(each.requests, each.limits)


def _form() -> KindForm:
    from tfjob_controller.kinds.trainjob.kindform import KIND_FORM

    return KIND_FORM


_SIZE_FIELD = "numNodes"
CLIENT_KIND = ClientKind(
    resource=TRAINJOBS,
    type=TrainJob,
    succeeded="Complete",
    name_label=TRAIN_JOB_NAME,
    member="node",
    size_field_of=lambda job: (_SIZE_FIELD,),
    size_violation=lambda job, size: field_violation(TrainJobSpec, _SIZE_FIELD, size),
    runtime_id_of=lambda job: runtime_id_of(job.metadata.uid),
    work_of=_work,
    problem_of=_problem,
    plan_of=_plan,
    preview_of=_preview,
    preview_without_runtime_of=_preview_without_runtime,
    restart_limit_of=lambda job: job.spec.max_restarts,
    accelerators_of=_accelerators,
    ready_of=lambda job: {"node": job.status.nodes} if job.status.nodes else {},
    ends_with_chief=lambda job: LAUNCHER in _steps(job),
    progress_of=lambda job: job.status.progress,
    percentage_of=_percentage,
    metrics_of=lambda job: metric_values_of(job.status),
    logged_metrics_of=lambda job: metric_names_of(job.spec),
    form=_form,
)
