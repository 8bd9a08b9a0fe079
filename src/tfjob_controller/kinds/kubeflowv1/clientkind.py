"""The jobs of `kubeflow.org/v1` as their users see them.

Their status has few of the fields that this project's kinds show: what a client reads of a job is computed when the
object is decoded, from its spec, its status and its record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec.structs import replace

from tfjob_controller.api.common.accelerators import accelerators_of_template
from tfjob_controller.api.common.record import RecordedMeta
from tfjob_controller.api.kubeflowv1.types import (
    JAX_JOB,
    MANAGED_HERE,
    MPI_JOB,
    PADDLE_JOB,
    PYTORCH_JOB,
    TF_JOB,
    V1_KINDS,
    V1_RESOURCES,
    WORKER,
    XGBOOST_JOB,
    V1Job,
    V1Kind,
)
from tfjob_controller.jobs.naming import JOB_NAME_LABEL
from tfjob_controller.jobs.trainingjob import RoleStatus, TrainingJob, TrainingStatus, ready_by_role
from tfjob_controller.kinds.clientkind import ClientKind

if TYPE_CHECKING:
    from tfjob_controller.jobs.plan.model import Plan
    from tfjob_controller.kube.requester import Requester


class V1ViewSpec(msgspec.Struct, frozen=True):
    """What clients ask for of the spec; `managed_by` is empty for a job of this controller."""

    suspend: bool
    managed_by: str


class V1View(msgspec.Struct, frozen=True):
    """A job as clients read it. Each kind has a subclass."""

    metadata: RecordedMeta
    spec: V1ViewSpec
    status: TrainingStatus
    job: V1Job


def _view_decoder(
    decode: Callable[[bytes | msgspec.Raw], V1Job], view: type[V1View]
) -> Callable[[bytes | msgspec.Raw], V1View]:
    def decode_view(raw: bytes | msgspec.Raw) -> V1View:
        job = decode(raw)
        policy = job.spec.run_policy
        managed_by = "" if policy.managed_by in (None, MANAGED_HERE) else str(policy.managed_by)
        return view(job.metadata, V1ViewSpec(policy.suspend, managed_by), _status(job), job)

    return decode_view


def _status(job: V1Job) -> TrainingStatus:
    """The status of a job; one that has ended is finished. No field has the generation that it was computed from."""
    from tfjob_controller.kinds.kubeflowv1.status import finished_status

    status = finished_status(job)
    by_role = {role.role: role for role in status.roles}
    return replace(
        status,
        state=status.summary,
        roles=tuple(
            _role(by_role.get(name) or RoleStatus(name, {}), count)
            for name, count in sorted(_replicas(job).items(), key=lambda entry: _order(job, entry[0]))
        ),
        observed_generation=job.metadata.generation,
    )


def _replicas(job: V1Job) -> dict[str, int]:
    """The number of replicas of each type, by its name in lower case."""
    specs = job.spec.replica_specs
    return {name.lower(): 1 if entry.replicas is None else max(0, entry.replicas) for name, entry in specs.items()}


def _accelerators(view: V1View) -> int:
    counts = _replicas(view.job)
    specs = view.job.spec.replica_specs
    return sum(counts[name.lower()] * accelerators_of_template(entry.template) for name, entry in specs.items())


def _order(job: V1Job, role: str) -> int:
    types = [name.lower() for name in V1_KINDS[job.kind].types]
    return types.index(role) if role in types else len(types)


def _role(counts: RoleStatus, replicas: int) -> RoleStatus:
    """The counts of a type among all of its replicas: ready are those that run or have succeeded."""
    from tfjob_controller.jobs.state.replica_state import SUCCEEDED, UNKNOWN

    rest = replicas - counts.replicas
    states = {**counts.states, UNKNOWN: rest} if rest > 0 else counts.states
    return replace(counts, states=states, ready=counts.active + counts.states.get(SUCCEEDED, 0))


def _problem(view: V1View) -> str | None:
    from tfjob_controller.api.kubeflowv1.validation import problem

    return problem(replace(view.job, metadata=view.metadata))


def _plan_of(job: V1Job) -> Plan:
    from tfjob_controller.api.kubeflowv1.defaults import with_defaults
    from tfjob_controller.kinds.kubeflowv1.plan import build_v1_plan

    return build_v1_plan(with_defaults(job))


def _plan(view: V1View) -> Plan | None:
    from tfjob_controller.jobs.plan.model import UnplannableError

    try:
        return _plan_of(view.job) if view.status.phase else None
    except UnplannableError:
        return None


def _preview(view: V1View, requester: Requester) -> Plan:
    return _plan_of(replace(view.job, metadata=view.metadata))


def _ends_with_chief(view: V1View) -> bool:
    plan = _plan(view)
    return plan is None or not plan.replicas.needed


def _worker_type(view: V1View) -> str:
    """The type of workers as the manifest writes it; empty if the job has none."""
    return next((name for name in view.job.spec.replica_specs if name.lower() == WORKER.lower()), "")


def _size_field(kind: V1Kind, view: V1View) -> Sequence[str]:
    return (kind.replicas_field, _worker_type(view) or WORKER, "replicas")


def _size_violation(kind: V1Kind, view: V1View, size: int) -> str:
    from tfjob_controller.api.kubeflowv1.validation import problem

    specs, type_ = view.job.spec.replica_specs, _worker_type(view)
    if not type_:
        return "the job has no workers"
    changed = replace(view.job.spec, replica_specs={**specs, type_: replace(specs[type_], replicas=size)})
    job = replace(view.job, spec=changed)
    if not sum(_replicas(job).values()):
        return "the job would have no replicas"
    violation = problem(job)
    if violation is None or problem(view.job) is not None:
        return ""
    path = ".".join(("spec", f"{kind.replicas_field}[{type_}]", "replicas"))
    return violation.removeprefix(f"{path}: ")


def _client_kind(name: str) -> ClientKind:
    kind, resource = V1_KINDS[name], V1_RESOURCES[name]
    view = cast("type[V1View]", msgspec.defstruct(name, [], bases=(V1View,), module=__name__, frozen=True))
    return ClientKind(
        resource=resource.with_decoder(_view_decoder(resource.decode, view)),
        type=view,
        succeeded="Succeeded",
        name_label=JOB_NAME_LABEL,
        operator_name=kind.operator_name,
        suspend_field=("runPolicy", "suspend"),
        member="worker",
        has_members=lambda view: bool(_worker_type(view)),
        size_field_of=partial(_size_field, kind),
        size_violation=partial(_size_violation, kind),
        has_scale_right=kind.has_scale,
        keeps_pods="runPolicy.cleanPodPolicy: None",
        runtime_id_of=lambda view: "",
        work_of=lambda view: TrainingJob(
            view.metadata, view.status, view.job.spec.run_policy.ttl_seconds_after_finished
        ),
        problem_of=_problem,
        plan_of=_plan,
        preview_of=_preview,
        restart_limit_of=lambda view: view.job.spec.run_policy.backoff_limit,
        accelerators_of=_accelerators,
        ready_of=_ready,
        ends_with_chief=_ends_with_chief,
        progress_of=lambda view: "",
        percentage_of=lambda view: None,
        logged_metrics_of=lambda view: (),
    )


def _ready(view: V1View) -> Mapping[str, str]:
    return ready_by_role(view.status)


CLIENT_KINDS: Sequence[ClientKind] = tuple(
    map(_client_kind, (TF_JOB, PYTORCH_JOB, XGBOOST_JOB, JAX_JOB, PADDLE_JOB, MPI_JOB))
)
