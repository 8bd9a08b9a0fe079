"""Compiles a job of `kubeflow.org/v1` into a plan: a pod and a Service for each replica, with upstream's names.

The replicas of an MPIJob have no Services: `mpi` has how its launcher reaches the workers.

Which replicas decide about the end of a job differs between the kinds: the chief or master if there is one, and
otherwise workers; of an MPIJob, the launcher. A restart policy belongs to a type of replicas. All replicas whose policy
makes an end permanent end the job with it.

Source: kubeflow/trainer release-1.9 pkg/controller.v1/{common,tensorflow,pytorch,mpi,xgboost,jax,paddlepaddle}.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tfjob_controller.api.common.core import POD_FAILED, POD_RUNNING
from tfjob_controller.api.common.podtemplates import containers_of
from tfjob_controller.api.common.policies import EXIT_CODE, NEVER
from tfjob_controller.api.kubeflowv1.types import (
    ALL_WORKERS,
    CHIEF,
    LAUNCHER,
    MASTER,
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
    V1ReplicaSpec,
)
from tfjob_controller.api.masterwait import MasterWait, default_wait
from tfjob_controller.jobs.naming import (
    JOB_NAME_LABEL,
    OPERATOR_NAME_LABEL,
    REPLICA_INDEX_LABEL,
    REPLICA_TYPE_LABEL,
    replica_id,
)
from tfjob_controller.jobs.plan.gangterms import NO_GANGS, GangPolicy
from tfjob_controller.jobs.plan.model import (
    JobIdentity,
    Plan,
    PodCarrier,
    PodScheduling,
    Replica,
    Role,
    RunPolicy,
    ScalingPolicy,
    UnplannableError,
)
from tfjob_controller.jobs.podtemplate.merge import container_of, spec_of, with_env, with_spec
from tfjob_controller.kinds.kubeflowv1 import mpi
from tfjob_controller.kinds.kubeflowv1.environment import (
    PodEnvironment,
    container_name,
    init_containers_of,
    pod_name,
    variables_of,
)
from tfjob_controller.kinds.kubeflowv1.gang import gang_fields
from tfjob_controller.kinds.recipe import chief_first, owner_of, planned

JOB_ROLE_LABEL = "training.kubeflow.org/job-role"
_MASTER_ROLE = "master"


@dataclasses.dataclass(frozen=True, slots=True)
class AddedContainers:
    """The init containers that pods get: those that wait for a master, and the image that has kubectl for launchers."""

    wait: MasterWait = dataclasses.field(default_factory=default_wait)
    kubectl_image: str = mpi.DEFAULT_KUBECTL_IMAGE


DEFAULT_CONTAINERS = AddedContainers()


def build_v1_plan(
    job: V1Job,
    cluster_domain: str = "",
    gangs: GangPolicy = NO_GANGS,
    added: AddedContainers = DEFAULT_CONTAINERS,
    *,
    strict: bool = False,
) -> Plan:
    """Compiles a *valid* job with its defaults. `cluster_domain` is the end of host names in TF_CONFIG.

    `added` are the init containers that pods get. With `strict` the rules are those of training-operator where this
    project's differ on purpose.

    Raises UnplannableError for a job without replicas.
    """
    kind, policy = V1_KINDS[job.kind], job.spec.run_policy
    init_containers = {name: init_containers_of(job, name, added.wait) for name in job.spec.replica_specs}
    roles = tuple(
        _role(job, kind, name, entry, init_containers[name], strict=strict)
        for name, entry in job.spec.replica_specs.items()
    )
    deciding = deciding_type(job)
    replicas = chief_first(
        Replica(
            role=role,
            index=index,
            id=replica_id(role.name, index),
            name=_name(job, role.replica_type, index),
            is_chief=role.replica_type == deciding and index == 0,
            decides=role.replica_type in kind.types and not _may_fail(job, role),
        )
        for role in roles
        for index in range(role.replicas)
    )
    if not replicas:
        raise UnplannableError(f"spec.{kind.replicas_field}: the job has no replicas")
    carrier = _carrier(job, kind, cluster_domain, init_containers, added.kubectl_image)
    return Plan(
        identity=JobIdentity(
            namespace=job.metadata.namespace,
            job_name=job.metadata.name,
            # Names need none.
            runtime_id="",
            owner=owner_of(V1_RESOURCES[job.kind], job.metadata),
            labels={OPERATOR_NAME_LABEL: kind.operator_name, JOB_NAME_LABEL: job.metadata.name},
        ),
        policy=RunPolicy(
            policy.clean_pod_policy or "",
            policy.suspend,
            policy.active_deadline_seconds,
            policy.backoff_limit,
            fails_at_limit=True,
            is_strict=strict,
        ),
        replicas=dataclasses.replace(
            planned(roles, replicas, _needed(job, deciding, replicas)),
            needs_one=_needs_one(job, deciding),
            never_succeeds=not deciding,
        ),
        environment=lambda replica: {},
        scheduling=PodScheduling(**gang_fields(job, gangs, replicas, carrier)),
        scaling=_scaling(job),
        carrier=carrier,
        objects=mpi.objects_of(job) if job.kind == MPI_JOB else (),
    )


def _name(job: V1Job, replica_type: str, index: int) -> str:
    if _is_launcher(job, replica_type):
        return mpi.launcher_name(job.metadata.name)
    return pod_name(job.metadata.name, replica_type, index)


def _is_launcher(job: V1Job, replica_type: str) -> bool:
    """Reports whether a replica is the launcher, of which a job has one, without an index."""
    return (job.kind, replica_type) == (MPI_JOB, LAUNCHER)


def deciding_type(job: V1Job) -> str:
    """Returns the type whose replicas tell whether the job runs, and when it has succeeded; a job with defaults."""
    types = job.spec.replica_specs
    return next((name for name in (CHIEF, MASTER, LAUNCHER, WORKER) if name in types), "")


def _needed(job: V1Job, deciding: str, replicas: Sequence[Replica]) -> tuple[Replica, ...]:
    """Returns the replicas whose success completes the job: all of the deciding type.

    Of a TFJob's workers, the first one suffices unless `successPolicy` is AllWorkers.
    """
    if job.kind == TF_JOB and deciding == WORKER and job.spec.success_policy != ALL_WORKERS:
        return ()
    needed = tuple(replica for replica in replicas if replica.role.replica_type == deciding)
    return needed if len(needed) > 1 else ()


def _needs_one(job: V1Job, deciding: str) -> bool:
    """Reports whether one worker of an elastic PyTorchJob suffices: torchrun ends all of them together."""
    return job.kind == PYTORCH_JOB and deciding == WORKER and job.spec.elastic_policy is not None


def _scaling(job: V1Job) -> ScalingPolicy:
    """Returns the bounds and metrics by which Kubernetes resizes a PyTorchJob; nothing else resizes these jobs."""
    policy = job.spec.elastic_policy
    if job.kind != PYTORCH_JOB or policy is None or not policy.metrics:
        return ScalingPolicy()
    least, most = policy.min_replicas, policy.max_replicas
    return ScalingPolicy(
        worker_bounds=(1 if least is None else least, 1 if most is None else most), metrics=policy.metrics
    )


def _may_fail(job: V1Job, role: Role) -> bool:
    """Reports whether the job continues without the replicas of this type that have failed for good."""
    return job.spec.enable_dynamic_worker and role.replica_type == WORKER and role.restart_policy == NEVER


def _role(
    job: V1Job,
    kind: V1Kind,
    name: str,
    entry: V1ReplicaSpec,
    init_containers: Sequence[Mapping[str, Any]],
    *,
    strict: bool,
) -> Role:
    """`init_containers` are those that its pods get besides their own."""
    retried_containers = {str(container["name"]) for container in init_containers}
    if job.kind == MPI_JOB:
        retried_containers.add(mpi.INIT_CONTAINER)
    if strict and entry.restart_policy == EXIT_CODE:
        # Only the training container has an exit code that counts.
        retried_containers |= {
            str(container.get("name")) for container in spec_of(entry.template).get("initContainers") or ()
        }
    return Role(
        name=name.lower(),
        replica_type=name,
        replicas=entry.replicas or 0,
        port=kind.port,
        template=entry.template,
        container=container_name(job, name),
        port_name=kind.port_name,
        restart_policy=entry.restart_policy,
        retried_containers=frozenset(retried_containers),
        final_phases=_final_phases(job, name, entry.restart_policy) if strict else frozenset(),
    )


def _final_phases(job: V1Job, name: str, restart_policy: str) -> frozenset[str]:
    """Returns the phases (`Role.final_phases`) in which a pod fails the job under training-operator."""
    if job.kind == TF_JOB and not (job.spec.enable_dynamic_worker and name == WORKER):
        return frozenset((POD_RUNNING,))
    if job.kind in (XGBOOST_JOB, MPI_JOB) and restart_policy != EXIT_CODE:
        return frozenset((POD_RUNNING, POD_FAILED))
    return frozenset()


def _carrier(
    job: V1Job,
    kind: V1Kind,
    cluster_domain: str,
    init_containers: Mapping[str, Sequence[Mapping[str, Any]]],
    kubectl_image: str,
) -> PodCarrier:
    variables = variables_of(job, cluster_domain)

    def pod(replica: Replica) -> Mapping[str, Any]:
        role = replica.role
        template = _with_variables(role.template, variables(role.replica_type, replica.index))
        if waiting := init_containers[role.replica_type]:
            present = spec_of(template).get("initContainers") or ()
            template = with_spec(template, initContainers=[*present, *waiting])
        if job.kind == MPI_JOB:
            template = mpi.equipped(job, role.replica_type, template, kubectl_image)
        policy = NEVER if role.restart_policy == EXIT_CODE else role.restart_policy
        metadata = role.template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), **_labels(job, kind, replica), **_job_role(job, replica)}
        annotations = {"annotations": metadata["annotations"]} if metadata.get("annotations") else {}
        return {"metadata": {"labels": labels, **annotations}, "spec": {**template["spec"], "restartPolicy": policy}}

    def service(replica: Replica) -> Mapping[str, Any]:
        container = container_of(spec_of(replica.role.template), kind.container) or {}
        ports = [
            {"name": port.get("name") or "", "port": port.get("containerPort")} for port in container.get("ports") or ()
        ]
        return {"clusterIP": "None", "selector": _labels(job, kind, replica), "ports": ports}

    return PodCarrier(pod, service)


def _with_variables(template: Mapping[str, Any], environment: PodEnvironment) -> Mapping[str, Any]:
    """Returns the template with the variables, which replace those of the same name."""
    names = {variable["name"] for variable in environment.variables}
    containers = []
    for container in containers_of(template):
        if environment.container in ("", container.get("name")):
            own = [variable for variable in container.get("env") or () if variable.get("name") not in names]
            containers.append(with_env({**container, "env": own}, environment.variables))
        else:
            containers.append(dict(container))
    return with_spec(template, containers=containers)


def type_labels(job: V1Job, kind: V1Kind, replica_type: str) -> dict[str, str]:
    """Returns the labels that the replicas of one type have in common."""
    return {
        OPERATOR_NAME_LABEL: kind.operator_name,
        JOB_NAME_LABEL: job.metadata.name,
        REPLICA_TYPE_LABEL: replica_type.lower(),
    }


def _labels(job: V1Job, kind: V1Kind, replica: Replica) -> dict[str, str]:
    index = {} if _is_launcher(job, replica.role.replica_type) else {REPLICA_INDEX_LABEL: str(replica.index)}
    return {**type_labels(job, kind, replica.role.replica_type), **index}


def _job_role(job: V1Job, replica: Replica) -> dict[str, str]:
    """Returns the label of masters, by which clients find the pod with the log of the training."""
    types, type_ = job.spec.replica_specs, replica.role.replica_type
    if job.kind == TF_JOB and (CHIEF in types or MASTER in types):
        is_master = type_ in (CHIEF, MASTER)
    elif MASTER in types or job.kind in (XGBOOST_JOB, PADDLE_JOB, MPI_JOB):
        is_master = type_ in (MASTER, LAUNCHER)
    else:
        is_master = type_ == WORKER and replica.index == 0
    return {JOB_ROLE_LABEL: _MASTER_ROLE} if is_master else {}
