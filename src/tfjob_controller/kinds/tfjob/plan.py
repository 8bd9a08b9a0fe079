"""Compiles a TFJob into a plan.

The chief saves checkpoints, and all replicas that train restore them. Parameter servers do neither: the chief reads a
checkpoint and assigns its values to the variables that they hold. A replica that restores but does not save has an
outdated checkpoint once the chief has saved another one. So unless its template sets another policy, a restart
recreates its pod, which restores again, instead of its container.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfjob_controller.api.common.podrequests import member_of
from tfjob_controller.api.common.podtemplates import apply_accelerators
from tfjob_controller.api.common.policies import IN_PLACE, NEVER, ON_FAILURE, restart_policy_of
from tfjob_controller.api.common.storage import Checkpoint
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.tfjob.defaults import (
    bounds_of,
    chief_of,
    clean_pod_policy_of,
    failure_policy_of,
    gang_enabled,
    min_workers_of,
    port_of,
    replicas_of,
    resize_of,
    total_steps_of,
)
from tfjob_controller.api.tfjob.progress import pattern_of
from tfjob_controller.api.tfjob.types import (
    CONTAINER_NAME,
    FAIL_ON_ANY,
    PS,
    TFJOBS,
    WORKER,
    ReplicaSpec,
    TFJob,
    TFJobSpec,
)
from tfjob_controller.api.tfjob.validation import has_training_image
from tfjob_controller.jobs.naming import child_name, config_map_name, gang_name, job_labels, replica_id
from tfjob_controller.jobs.plan.gangterms import (
    NO_GANGS,
    OFF,
    GangPolicy,
    GangTerms,
    member_problem,
    scheduled_by,
    terms_of,
)
from tfjob_controller.jobs.plan.model import (
    JobIdentity,
    Plan,
    PlannedReplicas,
    PodMounts,
    PodScheduling,
    Replica,
    Role,
    RunPolicy,
    ScalingPolicy,
    StepCounting,
    environment_of,
)
from tfjob_controller.jobs.podtemplate.checkpoint import (
    RESTORER,
    SAVER,
    with_checkpoint_variables,
    with_checkpoints,
)
from tfjob_controller.jobs.podtemplate.merge import name_problems, spec_of, with_spec
from tfjob_controller.kinds.recipe import chief_first, owner_of
from tfjob_controller.kinds.tfjob.parameterserver import SCRIPT, SCRIPT_NAME, default_server_template

# The role of workers, which is also the name of their members in a gang.
WORKER_ROLE = WORKER.lower()


def build_plan(
    job: TFJob, config: ControllerConfig, *, restart_rules: bool = False, gangs: GangPolicy = NO_GANGS
) -> Plan:
    """Compiles a *valid* TFJob that has its RuntimeId. The plan may be cached by (uid, generation).

    `restart_rules` reports whether the server supports container-level restart rules (Kubernetes 1.35 and later).
    """
    spec = job.spec
    roles = tuple(_role(spec, entry, config) for entry in spec.replica_specs)
    every = chief_first(_replicas(job, roles, restart_rules))
    replicas = tuple(replica for replica in every if replica.index < replica.role.replicas)
    return Plan(
        identity=JobIdentity(
            namespace=job.metadata.namespace,
            job_name=job.metadata.name,
            runtime_id=spec.runtime_id,
            owner=owner_of(TFJOBS, job.metadata),
            labels=job_labels(job.metadata.name, spec.runtime_id),
        ),
        policy=RunPolicy(
            clean_pod_policy=clean_pod_policy_of(spec),
            suspend=spec.suspend,
            active_deadline_seconds=spec.active_deadline_seconds,
            backoff_limit=spec.backoff_limit,
        ),
        replicas=PlannedReplicas(
            roles=roles,
            all=replicas,
            by_name={replica.name: replica for replica in replicas},
            chief=replicas[0],
            candidates=every if resize_of(spec) == IN_PLACE else (),
        ),
        environment=environment_of(every),
        scheduling=PodScheduling(
            scheduler_name=spec.scheduler_name,
            priority_class_name=spec.priority_class_name,
            **scheduled_by(gangs, _gang(job, gangs, roles), job.metadata.labels),
            is_gang_refused=gangs.refuses(gang_enabled(spec)),
        ),
        scaling=ScalingPolicy(
            role=WORKER_ROLE if any(role.replica_type == WORKER for role in roles) else "",
            resize=resize_of(spec),
            worker_bounds=bounds_of(spec),
            autoscaling=gangs.autoscaling,
            workers_field="spec.workerReplicas" if spec.worker_replicas is not None else "replicas of WORKER",
        ),
        mounts=_mounts(spec),
        progress=StepCounting(pattern=pattern_of(spec), total=total_steps_of(spec)),
    )


def _gang(job: TFJob, policy: GangPolicy, roles: Sequence[Role]) -> GangTerms | None:
    spec = job.spec
    if not policy.covers(gang_enabled(spec)):
        return None
    return terms_of(
        gang_name(job.metadata.name, spec.runtime_id),
        policy,
        spec.gang,
        # The chief has the containers of its peers, and possibly more.
        tuple(
            member_of(role.name, role.replicas, _pod_spec(role.chief_template or role.template, spec)) for role in roles
        ),
        scaled_role=WORKER_ROLE,
        min_workers=min_workers_of(spec),
        max_workers=_max_gang_workers(spec, policy),
    )


def _max_gang_workers(spec: TFJobSpec, policy: GangPolicy) -> int | None:
    """Returns the maximum of workers for the Gang; 0 if autoscaling is off, None if the job requests none."""
    if spec.autoscaling is None:
        return None
    return 0 if policy.autoscaling == OFF else spec.autoscaling.max_workers


def _pod_spec(template: Mapping[str, Any], spec: TFJobSpec) -> Mapping[str, Any]:
    pod_spec: Mapping[str, Any] = template.get("spec") or {}
    if spec.priority_class_name and not pod_spec.get("priorityClassName"):
        return {**pod_spec, "priorityClassName": spec.priority_class_name}
    return pod_spec


def gang_problem(spec: TFJobSpec, policy: GangPolicy) -> str | None:
    """Returns why the requests of a gang's templates are invalid; None if they are valid."""
    if not policy.covers(gang_enabled(spec)):
        return None
    for index, entry in enumerate(spec.replica_specs):
        problem = member_problem((entry.template or {}).get("spec") or {})
        if problem is not None:
            return f"spec.replicaSpecs[{index}].template: {problem}"
    return None


def name_problem(spec: TFJobSpec, plan: Plan) -> str | None:
    """Returns which name in a template is that of a container or volume which the controller adds; None if none is."""
    for index, (entry, role) in enumerate(zip(spec.replica_specs, plan.replicas.roles, strict=True)):
        given: Mapping[str, Any] = entry.template or {}
        field = (f"spec.replicaSpecs[{index}].template.spec", spec_of(given))
        for completed in filter(None, (role.template, role.chief_template)):
            if (problem := next(name_problems(given, completed, field), None)) is not None:
                return problem
    return None


def _role(spec: TFJobSpec, entry: ReplicaSpec, config: ControllerConfig) -> Role:
    template: Mapping[str, Any] = entry.template or {}
    if _uses_default_server(entry):
        image = spec.tf_image or config.tf_image
        template = default_server_template(template, image, config_map_name(spec.runtime_id))
    chief_template = None
    if spec.checkpoint is not None:
        image = config.initializer_image
        if entry.tf_replica_type == chief_of(spec).replica_name:
            chief_template = _complete(_saving_template(template, spec.checkpoint, image), config)
        if entry.tf_replica_type != PS:
            template = _restoring_template(template, spec.checkpoint, image)
    return Role(
        name=entry.tf_replica_type.lower(),
        replica_type=entry.tf_replica_type,
        replicas=replicas_of(spec, entry.tf_replica_type),
        port=port_of(entry),
        template=_complete(template, config),
        container=CONTAINER_NAME,
        serves=entry.tf_replica_type == PS,
        chief_template=chief_template,
    )


def _complete(template: Mapping[str, Any], config: ControllerConfig) -> Mapping[str, Any]:
    return apply_accelerators(template, config.accelerators, CONTAINER_NAME)


def _saving_template(template: Mapping[str, Any], checkpoint: Checkpoint, image: str) -> dict[str, Any]:
    informed = with_checkpoint_variables(template, CONTAINER_NAME, checkpoint)
    return with_checkpoints(informed, CONTAINER_NAME, checkpoint, image)


def _restoring_template(template: Mapping[str, Any], checkpoint: Checkpoint, image: str) -> dict[str, Any]:
    informed = with_checkpoint_variables(template, CONTAINER_NAME, checkpoint)
    restoring = with_checkpoints(informed, CONTAINER_NAME, checkpoint, image, saves=False)
    return with_spec(restoring, restartPolicy=spec_of(template).get("restartPolicy") or NEVER)


def _mounts(spec: TFJobSpec) -> PodMounts:
    data_containers = frozenset((RESTORER, SAVER)) if spec.checkpoint is not None else frozenset()
    if not any(map(_uses_default_server, spec.replica_specs)):
        return PodMounts(data_containers=data_containers)
    files = {SCRIPT_NAME: SCRIPT}
    return PodMounts(config_map=config_map_name(spec.runtime_id), files=files, data_containers=data_containers)


def _uses_default_server(entry: ReplicaSpec) -> bool:
    return entry.tf_replica_type == PS and not has_training_image(entry.template)


def _replicas(job: TFJob, roles: tuple[Role, ...], restart_rules: bool) -> Iterator[Replica]:
    chief = chief_of(job.spec)
    any_decides = failure_policy_of(job.spec) == FAIL_ON_ANY
    for role in roles:
        for index in range(_most_of(job.spec, role)):
            is_chief = role.replica_type == chief.replica_name and index == chief.replica_index
            decides = is_chief or any_decides
            replica = Replica(
                role,
                index,
                id=replica_id(role.name, index),
                name=child_name(job.metadata.name, role.name, job.spec.runtime_id, index),
                is_chief=is_chief,
                decides=decides,
            )
            in_place = restart_rules and restart_policy_of(replica.template) == ON_FAILURE
            yield dataclasses.replace(replica, restarts_in_place=in_place)


def _most_of(spec: TFJobSpec, role: Role) -> int:
    """Returns how many replicas a role may ever have. TF_CONFIG lists all of them if workers come and go."""
    if role.replica_type != WORKER or spec.autoscaling is None or resize_of(spec) != IN_PLACE:
        return role.replicas
    return max(role.replicas, spec.autoscaling.max_workers)
