"""Compiles a TrainJob, with the runtime that it uses, into a plan.

    runtime's template → podSpecOverrides → trainer → workspace → framework → accelerators

Later ones override earlier ones. The steps are the initializers, the nodes (with the launcher) and the exporter. If the
nodes run the initializers themselves and nothing is exported, there is one step.

A framework of another package may raise anything, or return invalid results. This fails the jobs of that framework with
a message that names it, and affects no other job. `frameworks.base` has the contract of frameworks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfjob_controller.api.common.podtemplates import apply_accelerators
from tfjob_controller.api.common.policies import CLEAN_RUNNING, ON_FAILURE, restart_policy_of
from tfjob_controller.api.trainjob.defaults import bounds_of, gang_enabled
from tfjob_controller.api.trainjob.types import DATASET_INITIALIZER, MODEL_EXPORTER, MODEL_INITIALIZER, TRAINJOBS
from tfjob_controller.jobs.frameworks.base import LAUNCHER, NODE, Framework, Setting
from tfjob_controller.jobs.naming import TRAIN_JOB_NAME, gang_name, indexed_job_name, job_labels, replica_id
from tfjob_controller.jobs.plan.gangterms import OFF, GangTerms, scheduled_by, terms_of
from tfjob_controller.jobs.plan.model import (
    GeneratedSecret,
    JobIdentity,
    Plan,
    PodMounts,
    PodScheduling,
    Replica,
    Role,
    RunPolicy,
    ScalingPolicy,
    UnplannableError,
)
from tfjob_controller.jobs.plan.podgroupbackends import QUEUE_LABEL
from tfjob_controller.jobs.podtemplate.checkpoint import RESTORER, SAVER, with_checkpoint_variables, with_checkpoints
from tfjob_controller.jobs.podtemplate.merge import container_of, spec_of
from tfjob_controller.jobs.podtemplate.progressreport import files_digest, mounted_files, with_progress_report
from tfjob_controller.jobs.podtemplate.storage import StorageContainer
from tfjob_controller.kinds.recipe import chief_first, gang_members, in_steps, owner_of, planned, step_of
from tfjob_controller.kinds.trainjob.frameworkcalls import answer, environment_of, equipped_pod_spec, secret_of
from tfjob_controller.kinds.trainjob.podtemplate import (
    JobWorkspace,
    job_workspace,
    storage_template,
    trainer_template,
    with_init_containers,
    with_workspace,
    workspace_problem,
)
from tfjob_controller.kinds.trainjob.problems import name_problem, override_problem, reserved_problem
from tfjob_controller.kinds.trainjob.recipe import Recipe
from tfjob_controller.kube.names import MAX_NAME

_CARRIERS = frozenset((DATASET_INITIALIZER, MODEL_INITIALIZER, MODEL_EXPORTER, RESTORER, SAVER))
# Spec: TrainJob, section 3.
_KEYS_NAME, _KEYS_TYPE = "{}-mpi-ssh-auth", "kubernetes.io/ssh-auth"


def build_train_plan(recipe: Recipe) -> Plan:
    """Returns the plan, which may be cached as long as job and runtime are unchanged.

    Raises UnplannableError for faults that the API server cannot find.
    """
    job, setting = recipe.job, recipe.setting
    workspace = job_workspace(job.spec, recipe.runtime, gang_name(job.metadata.name, recipe.runtime_id))
    problem = (
        answer(recipe.framework, "problem", lambda: recipe.framework.problem(setting))
        or workspace_problem(workspace)
        or reserved_problem(recipe, setting)
        or override_problem(recipe, workspace)
    )
    if problem is not None:
        raise UnplannableError(problem)
    mounts = answer(recipe.framework, "files", lambda: _mounted_files(recipe, setting))
    roles = tuple(_roles(recipe, setting, workspace, mounts.config_map))
    problem = name_problem(recipe, roles)
    if problem is not None:
        raise UnplannableError(problem)
    whole = _whole(recipe, setting, roles, chief_first(_replicas(recipe, roles)), mounts)
    steps = tuple(_steps(whole))
    return whole if len(steps) == 1 else in_steps(whole, steps, steps[-1].replicas.needed)


def _whole(
    recipe: Recipe, setting: Setting, roles: tuple[Role, ...], replicas: tuple[Replica, ...], mounts: PodMounts
) -> Plan:
    """Returns the plan with the replicas of all steps."""
    job, framework = recipe.job, recipe.framework
    spec, name = job.spec, job.metadata.name
    make = secret_of(framework, setting)
    # An invalid environment should fail the job before anything is created. There may be many replicas, so only the
    # first of each role is tried.
    for replica in replicas:
        if replica.index == 0:
            environment_of(framework, setting, replica)
    return Plan(
        identity=JobIdentity(
            namespace=job.metadata.namespace,
            job_name=name,
            runtime_id=recipe.runtime_id,
            owner=owner_of(TRAINJOBS, job.metadata),
            labels=job_labels(name, recipe.runtime_id, TRAIN_JOB_NAME),
            # Kueue would suspend each child that names a queue, and the controller would resume it.
            added_labels={name: value for name, value in spec.labels.items() if name != QUEUE_LABEL},
            added_annotations=spec.annotations,
        ),
        policy=RunPolicy(CLEAN_RUNNING, spec.suspend, spec.active_deadline_seconds, spec.max_restarts),
        replicas=planned(roles, replicas, _needed(framework, replicas)),
        environment=lambda replica: environment_of(framework, setting, replica),
        scaling=_scaling(recipe),
        scheduling=PodScheduling(
            **scheduled_by(recipe.gangs, _gang(recipe, roles), job.metadata.labels),
            is_gang_refused=recipe.gangs.refuses(gang_enabled(spec)),
        ),
        mounts=dataclasses.replace(
            mounts,
            secret=GeneratedSecret(_secret(recipe), _KEYS_TYPE, make) if make is not None else None,
            data_containers=_CARRIERS,
        ),
    )


def _scaling(recipe: Recipe) -> ScalingPolicy:
    bounds = bounds_of(recipe.job.spec)
    if bounds is None:
        return ScalingPolicy()
    return ScalingPolicy(
        NODE,
        worker_bounds=bounds,
        autoscaling=_autoscaling(recipe),
        workers_field="spec.numNodes",
        metrics=_metrics(recipe),
    )


def _metrics(recipe: Recipe) -> Sequence[Mapping[str, Any]]:
    policy = recipe.job.spec.elastic_policy
    return policy.metrics if policy is not None else ()


def _autoscaling(recipe: Recipe) -> str:
    """The gang scheduler does not resize what a HorizontalPodAutoscaler resizes."""
    return OFF if _metrics(recipe) else recipe.gangs.autoscaling


def _needed(framework: Framework, replicas: Sequence[Replica]) -> tuple[Replica, ...]:
    """Returns the replicas whose success completes the training."""
    role = LAUNCHER if framework.has_launcher else NODE
    return tuple(replica for replica in replicas if replica.role.name == role)


def _mounted_files(recipe: Recipe, setting: Setting) -> PodMounts:
    """Returns the files that pods mount and the name of their ConfigMap, which depends on its content.

    Nodes that are restarted after an upgrade of the controller may need other files than those that they started with.
    """
    files = mounted_files(dict(recipe.framework.files(setting)), recipe.progress_server)
    if not files:
        return PodMounts()
    prefix = gang_name(recipe.job.metadata.name, recipe.runtime_id)
    return PodMounts(f"{prefix}-{recipe.framework.name}-{files_digest(files)}", files)


def _secret(recipe: Recipe) -> str:
    """Returns the Secret's name, with the job's name cut so that it is no longer than a name may be."""
    max_length = MAX_NAME - len(_KEYS_NAME.format(""))
    return _KEYS_NAME.format(recipe.job.metadata.name[:max_length].rstrip("-."))


def _gang(recipe: Recipe, roles: Sequence[Role]) -> GangTerms | None:
    """Returns the gang of the nodes and the launcher; None if the job is no gang.

    Initializers run before the gang exists, so that it reserves no capacity for their time.
    """
    spec = recipe.job.spec
    if not recipe.gangs.covers(gang_enabled(spec)):
        return None
    bounds = bounds_of(spec)
    return terms_of(
        gang_name(recipe.job.metadata.name, recipe.runtime_id),
        recipe.gangs,
        spec.gang,
        gang_members(role for role in roles if role.name in (NODE, LAUNCHER)),
        scaled_role=NODE if bounds is not None else "",
        min_workers=bounds[0] if bounds is not None else None,
        # 0: the number of nodes is not changed by load.
        max_workers=None if bounds is None else 0 if _autoscaling(recipe) == OFF else bounds[1],
    )


def _roles(recipe: Recipe, setting: Setting, workspace: JobWorkspace, config_map: str) -> Iterator[Role]:
    launched, spec = recipe.framework.has_launcher, recipe.job.spec
    if launched:
        yield _training_role(recipe, setting, workspace, config_map, LAUNCHER, 1)
    yield _training_role(recipe, setting, workspace, config_map, NODE, setting.num_nodes)
    if workspace.claim:
        for carrier in workspace.storage_containers:
            exports = carrier.role == MODEL_EXPORTER
            writer = trainer_template(spec, recipe.base_of(NODE), NODE, runs_command=False) if exports else None
            yield _carrier_role(recipe, carrier, workspace, writer)


def _training_role(
    recipe: Recipe, setting: Setting, workspace: JobWorkspace, config_map: str, role: str, count: int
) -> Role:
    framework, spec = recipe.framework, recipe.job.spec
    runs_command = role == LAUNCHER or not framework.has_launcher
    template = trainer_template(spec, recipe.base_of(role), role, runs_command=runs_command)
    template = with_workspace(template, role, workspace)
    if not workspace.claim:
        carriers = workspace.of_roles(DATASET_INITIALIZER, MODEL_INITIALIZER)
        bases = {carrier.role: _container_base(recipe, carrier) for carrier in carriers}
        template = with_init_containers(template, carriers, bases, recipe.config.initializer_image, workspace)
    if spec.checkpoint is not None:
        template = with_checkpoint_variables(template, role, spec.checkpoint)
        if role == NODE:
            template = with_checkpoints(template, role, spec.checkpoint, recipe.config.initializer_image)
    names = {"config_map": config_map, "secret": _secret(recipe)}
    template = {**template, "spec": equipped_pod_spec(framework, setting, role, template["spec"], **names)}
    if recipe.progress_server is not None:
        meta = recipe.job.metadata
        template = with_progress_report(template, recipe.progress_server, meta.namespace, meta.name, config_map)
    return Role(
        name=role,
        replica_type=role,
        replicas=count,
        port=framework.port if role == NODE else 0,
        template=apply_accelerators(template, recipe.config.accelerators, role),
        serves=framework.has_launcher and role == NODE,
        container=role,
        port_name=framework.name,
        restarts_together=True,
        job_name=indexed_job_name(recipe.job.metadata.name, NODE, recipe.runtime_id) if role == NODE else "",
        service_name=recipe.service_name if role == NODE and framework.port else "",
        min_replicas=setting.elastic.min_nodes if role == NODE and setting.elastic is not None else 0,
    )


def _container_base(recipe: Recipe, carrier: StorageContainer) -> Mapping[str, Any]:
    """Returns the fields of an init container from the runtime's template of its role, with overrides."""
    template = trainer_template(
        recipe.job.spec, recipe.base_of(carrier.role), carrier.role, runs_command=False, trains=False
    )
    return container_of(spec_of(template), carrier.role) or {}


def _carrier_role(
    recipe: Recipe, carrier: StorageContainer, workspace: JobWorkspace, writer: dict[str, Any] | None
) -> Role:
    base = trainer_template(
        recipe.job.spec, recipe.base_of(carrier.role), carrier.role, runs_command=False, trains=False
    )
    return Role(
        name=carrier.role,
        replica_type=carrier.role,
        replicas=1,
        port=0,
        template=storage_template(carrier, base, recipe.config.initializer_image, workspace, writer),
        container=carrier.role,
    )


def _replicas(recipe: Recipe, roles: Sequence[Role]) -> Iterator[Replica]:
    chief = LAUNCHER if recipe.framework.has_launcher else NODE
    for role in roles:
        in_place = recipe.restart_rules and restart_policy_of(role.template) == ON_FAILURE
        for index in range(role.replicas):
            yield Replica(
                role,
                index,
                id=replica_id(role.name, index),
                name=recipe.name(role.name, index),
                is_chief=role.name == chief and index == 0,
                decides=True,
                restarts_in_place=in_place and not role.restarts_together,
            )


_STEPS = ((DATASET_INITIALIZER, MODEL_INITIALIZER), (NODE, LAUNCHER), (MODEL_EXPORTER,))


def _steps(whole: Plan) -> Iterator[Plan]:
    for names in _STEPS:
        replicas = tuple(replica for replica in whole.replicas.all if replica.role.name in names)
        if replicas:
            trains = NODE in names
            yield step_of(whole, replicas, whole.replicas.needed if trains else replicas, trains=trains)
