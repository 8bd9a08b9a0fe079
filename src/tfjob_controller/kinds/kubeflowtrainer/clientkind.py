"""A TrainJob of Kubeflow Trainer as a history shows it.

Its status has few fields, as for the kinds of `kubeflow.org/v1`: what is shown comes from its record.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tfjob_controller.api.common.record import RecordedMeta
from tfjob_controller.api.kubeflowtrainer.types import KUBEFLOW_TRAINJOBS, MANAGED_HERE, KubeflowTrainJob
from tfjob_controller.jobs.naming import TRAIN_JOB_NAME, runtime_id_of
from tfjob_controller.jobs.trainingjob import TrainingJob, TrainingStatus, ready_by_role
from tfjob_controller.kinds.clientkind import ClientKind


class TrainerViewSpec(msgspec.Struct, frozen=True):
    suspend: bool
    managed_by: str


class TrainerView(msgspec.Struct, frozen=True):
    """A job as it is shown."""

    metadata: RecordedMeta
    spec: TrainerViewSpec
    status: TrainingStatus
    job: KubeflowTrainJob


def _decode(raw: bytes | msgspec.Raw) -> TrainerView:
    from tfjob_controller.kinds.kubeflowtrainer.status import recorded_status

    job = KUBEFLOW_TRAINJOBS.decode(raw)
    managed_by = "" if job.spec.managed_by == MANAGED_HERE else job.spec.managed_by
    return TrainerView(job.metadata, TrainerViewSpec(bool(job.spec.suspend), managed_by), recorded_status(job), job)


def _metrics(view: TrainerView) -> Mapping[str, str]:
    from tfjob_controller.kinds.reported import progress_of, reported_metrics

    report = view.job.status.trainer_status
    if report is None:
        return {}
    return {name: metric.value for name, metric in reported_metrics(report).items()} | progress_of(report)


CLIENT_KIND = ClientKind(
    resource=KUBEFLOW_TRAINJOBS.with_decoder(_decode),
    type=TrainerView,
    succeeded="Complete",
    name_label=TRAIN_JOB_NAME,
    member="node",
    has_members=lambda view: False,
    accelerators_of=lambda view: 0,
    size_field_of=lambda view: (),
    size_violation=lambda view, size: "",
    runtime_id_of=lambda view: runtime_id_of(view.metadata.uid),
    work_of=lambda view: TrainingJob(view.metadata, view.status),
    problem_of=lambda view: None,
    plan_of=lambda view: None,
    preview_of=lambda view, requester: None,
    restart_limit_of=lambda view: None,
    ready_of=lambda view: ready_by_role(view.status),
    ends_with_chief=lambda view: False,
    progress_of=lambda view: "",
    percentage_of=lambda view: None,
    metrics_of=_metrics,
    logged_metrics_of=lambda view: (),
)
