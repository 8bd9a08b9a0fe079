"""TFJobs as their users see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_controller.api.common.accelerators import accelerators_of_template
from tfjob_controller.api.common.schema import field_violation
from tfjob_controller.api.tfjob.defaults import min_workers_of, replicas_of, resize_of
from tfjob_controller.api.tfjob.types import TFJOBS, WORKER, TFJob, TFJobSpec
from tfjob_controller.api.trainjob.types import DEFAULT_METRICS
from tfjob_controller.jobs.naming import TF_JOB_NAME
from tfjob_controller.kinds.clientkind import ClientKind

if TYPE_CHECKING:
    from tfjob_controller.jobs.plan.model import Plan
    from tfjob_controller.jobs.trainingjob import TrainingJob
    from tfjob_controller.kinds.kindform import KindForm
    from tfjob_controller.kube.requester import Requester

# The id of a job that has none yet.
_PREVIEW_ID = "0000"


def _work(job: TFJob) -> TrainingJob:
    from tfjob_controller.kinds.tfjob.status import tfjob_work

    return tfjob_work(job)


def _problem(job: TFJob) -> str | None:
    from tfjob_controller.api.tfjob.validation import validate

    return validate(job)


def _plan(job: TFJob) -> Plan | None:
    from tfjob_controller.api.controllerconfig import ControllerConfig
    from tfjob_controller.kinds.tfjob.plan import build_plan

    return build_plan(job, ControllerConfig()) if job.spec.runtime_id else None


def _preview(job: TFJob, requester: Requester) -> Plan:
    from msgspec.structs import replace

    from tfjob_controller.api.controllerconfig import ControllerConfig
    from tfjob_controller.jobs.plan.model import UnplannableError
    from tfjob_controller.kinds.tfjob.plan import build_plan, name_problem

    plan = build_plan(replace(job, spec=replace(job.spec, runtime_id=_PREVIEW_ID)), ControllerConfig())
    if (problem := name_problem(job.spec, plan)) is not None:
        raise UnplannableError(problem)
    return plan


def _accelerators(job: TFJob) -> int:
    return sum(
        replicas_of(job.spec, entry.tf_replica_type) * accelerators_of_template(entry.template)
        for entry in job.spec.replica_specs
    )


def _size(job: TFJob) -> str:
    autoscaling, scaling = job.spec.autoscaling, job.status.scaling
    if autoscaling is None:
        return ""
    bounds = f"from {min_workers_of(job.spec)} to {autoscaling.max_workers}, {resize_of(job.spec)}"
    target = f", {scaling.target} requested: {scaling.target_reason}" if scaling is not None and scaling.target else ""
    return f"{replicas_of(job.spec, WORKER)} ({bounds}){target}"


def _progress(job: TFJob) -> str:
    progress = job.status.progress
    if progress is None:
        return ""
    of = f" of {progress.total}" if progress.total else ""
    return f"{progress.done}{of} steps" + (f"; ignored: {progress.ignored}" if progress.ignored else "")


def _percentage(job: TFJob) -> int | None:
    progress = job.status.progress
    return min(100, 100 * progress.done // progress.total) if progress is not None and progress.total else None


def _form() -> KindForm:
    from tfjob_controller.kinds.tfjob.kindform import KIND_FORM

    return KIND_FORM


_SIZE_FIELD = "workerReplicas"
CLIENT_KIND = ClientKind(
    resource=TFJOBS,
    type=TFJob,
    succeeded="Succeeded",
    name_label=TF_JOB_NAME,
    member="worker",
    size_field_of=lambda job: (_SIZE_FIELD,),
    size_violation=lambda job, size: field_violation(TFJobSpec, _SIZE_FIELD, size),
    has_scale_right=True,
    keeps_pods="cleanPodPolicy: None",
    runtime_id_of=lambda job: job.spec.runtime_id,
    work_of=_work,
    problem_of=_problem,
    plan_of=_plan,
    preview_of=_preview,
    restart_limit_of=lambda job: job.spec.backoff_limit,
    accelerators_of=_accelerators,
    ready_of=lambda job: job.status.ready,
    ends_with_chief=lambda job: True,
    size_of=_size,
    progress_of=_progress,
    percentage_of=_percentage,
    logged_metrics_of=lambda job: DEFAULT_METRICS,
    form=_form,
)
