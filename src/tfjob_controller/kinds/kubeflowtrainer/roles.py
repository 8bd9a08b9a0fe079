"""The roles of a TrainJob of Kubeflow Trainer: a replicated job of the runtime each, with the template of its pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tfjob_controller.api.common.podtemplates import apply_accelerators
from tfjob_controller.api.common.policies import ON_FAILURE, restart_policy_of
from tfjob_controller.api.kubeflowtrainer.patches import pod_patches, set_metadata
from tfjob_controller.api.kubeflowtrainer.runtime import (
    CONTAINERS,
    DATASET_INITIALIZER,
    LAUNCHER,
    MODEL_INITIALIZER,
    NODE,
    TRAINER,
    ReplicatedJob,
)
from tfjob_controller.api.kubeflowtrainer.validation import ancestor_of
from tfjob_controller.jobs.frameworks import mpi
from tfjob_controller.jobs.frameworks.base import DEFAULT_PORT, Setting
from tfjob_controller.jobs.frameworks.environment import JAX, TORCH, XGBOOST
from tfjob_controller.jobs.naming import replica_id
from tfjob_controller.jobs.plan.model import PodMounts, Replica, Role
from tfjob_controller.jobs.podtemplate.merge import (
    Part,
    container_of,
    spec_of,
    with_container,
    with_env,
    with_spec,
    with_volumes,
)
from tfjob_controller.jobs.podtemplate.progressreport import with_progress_report
from tfjob_controller.kinds.kubeflowtrainer.mpi import with_ssh
from tfjob_controller.kinds.kubeflowtrainer.podtemplate import (
    initialized,
    jobset_labels,
    labeled,
    patched,
    trained,
    with_resources,
)
from tfjob_controller.kinds.kubeflowtrainer.recipe import VARIABLES, KubeflowRecipe
from tfjob_controller.kinds.kubeflowtrainer.torchtune import tune_command

# The frameworks whose nodes meet at a port of node 0. Upstream declares it in the training container.
_MEETING_AT_NODE_0 = (TORCH, JAX, XGBOOST)
_KUEUE = "kueue.x-k8s.io/"


def role_of(recipe: KubeflowRecipe, setting: Setting, job: ReplicatedJob, mounts: PodMounts) -> Role:
    """Returns the role of a replicated job of the runtime."""
    is_nodes, is_launcher = job is recipe.nodes, recipe.framework.has_launcher and job.name == LAUNCHER
    trains = is_nodes or is_launcher
    container = _container_name(job)
    labels = jobset_labels(recipe.name, job.name)
    template = labeled(_template(recipe, setting, job, container, mounts), labels, recipe.subdomain)
    return Role(
        name=job.name,
        replica_type=job.name,
        replicas=setting.num_nodes if is_nodes else 1,
        port=(recipe.framework.port or DEFAULT_PORT) if is_nodes else 0,
        template=apply_accelerators(template, recipe.config.accelerators, container),
        serves=recipe.framework.has_launcher and is_nodes and not is_target(recipe, job.name),
        container=container,
        port_name=recipe.framework.name,
        restarts_together=trains,
        retries_any_error=trains,
        job_name=recipe.job_name(job.name) if is_nodes else "",
        service_name=recipe.subdomain if is_nodes else "",
        shares_service=is_nodes,
        is_indexed=True,
        job_labels=_job_metadata(recipe, job, "labels") | labels,
        job_annotations=_job_metadata(recipe, job, "annotations") | labels,
    )


def _container_name(job: ReplicatedJob) -> str:
    """Returns the name of the container whose exit code is the pod's."""
    ancestor = ancestor_of(job)
    containers: Sequence[Part] = spec_of(job.template.spec["template"])["containers"]
    wanted = CONTAINERS.get(ancestor, NODE if job.name in (NODE, LAUNCHER) else "")
    return next((wanted for container in containers if container["name"] == wanted), str(containers[0]["name"]))


def _job_metadata(recipe: KubeflowRecipe, job: ReplicatedJob, field: str) -> dict[str, str]:
    """Returns the labels or annotations of a Job, without those by which Kueue would queue each Job by itself."""
    merged: dict[str, str] = dict(recipe.runtime.template.metadata.get(field) or {})
    merged |= job.template.metadata.get(field) or {}
    merged |= set_metadata(recipe.job.spec, field)
    for patch in pod_patches(recipe.job.spec):
        if patch.job == job.name:
            merged |= patch.job_metadata.get(field) or {}
    return {name: value for name, value in merged.items() if not name.startswith(_KUEUE)}


def _template(
    recipe: KubeflowRecipe, setting: Setting, job: ReplicatedJob, container: str, mounts: PodMounts
) -> dict[str, Any]:
    spec, ancestor = recipe.job.spec, ancestor_of(job)
    template: dict[str, Any] = dict(job.template.spec["template"])
    for patch in pod_patches(spec):
        if patch.job == job.name:
            template = patched(template, patch)
    as_node = recipe.runtime.ml_policy.mpi is not None and recipe.runtime.ml_policy.mpi.run_launcher_as_node
    if ancestor == TRAINER or (as_node and job.name == NODE):
        runs = ancestor == TRAINER
        template = with_container(template, NODE, lambda base: trained(base, spec.trainer, runs_command=runs))
        template = with_container(template, NODE, lambda base: with_resources(base, spec.trainer))
    if recipe.is_tuning and ancestor == TRAINER:
        own = container_of(spec_of(job.template.spec["template"]), NODE) or {}
        arguments = (spec.trainer.args or (), own.get("command") or ())
        command = tune_command(spec.runtime_ref.name, setting, *arguments)
        template = with_container(template, NODE, lambda base: {**base, "command": command})
    if ancestor == TRAINER and recipe.framework in _MEETING_AT_NODE_0:
        template = with_container(template, NODE, _with_port)
    if ancestor in (DATASET_INITIALIZER, MODEL_INITIALIZER):
        asset = spec.initializer.dataset if ancestor == DATASET_INITIALIZER else spec.initializer.model
        template = with_container(template, container, lambda base: initialized(base, asset))
    if recipe.framework is mpi.FRAMEWORK and job.name in (NODE, LAUNCHER):
        template = with_ssh(recipe, template, job.name, mounts)
    if recipe.progress_server is not None and ancestor == TRAINER:
        namespace = recipe.job.metadata.namespace
        template = with_progress_report(template, recipe.progress_server, namespace, recipe.name, mounts.config_map)
    return _with_injected(recipe, setting, _with_claims(recipe, template), job.name)


def _with_port(container: Part) -> dict[str, Any]:
    ports: Sequence[Part] = container.get("ports") or ()
    if any(port.get("containerPort") == DEFAULT_PORT for port in ports):
        return dict(container)
    return {**container, "ports": [*ports, {"containerPort": DEFAULT_PORT}]}


def _with_claims(recipe: KubeflowRecipe, template: dict[str, Any]) -> dict[str, Any]:
    """Returns the template with the volumes of those claims that one of its containers mounts."""
    spec = spec_of(template)
    containers = [container for kind in ("containers", "initContainers") for container in spec.get(kind) or ()]
    mounted = {mount.get("name") for container in containers for mount in container.get("volumeMounts") or ()}
    policies = recipe.runtime.template.spec.volume_claim_policies
    names = (claim.name for policy in policies for claim in policy.templates)
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{recipe.name}"}}
        for name in names
        if name in mounted
    ]
    return with_volumes(template, volumes)


def _with_injected(recipe: KubeflowRecipe, setting: Setting, template: dict[str, Any], job: str) -> dict[str, Any]:
    """Returns the template with torch's variables in the containers that the runtime names beside the training one."""
    torch = recipe.runtime.ml_policy.torch
    targets = torch.env_injection.targets if torch is not None else ()
    names = {name for target in targets if target.job_name == job for name in target.container_names}
    if not names:
        return template
    # Job controllers append this variable, and a variable can only refer to earlier ones.
    index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    variables = variables_of(recipe, setting, NODE, "")
    env = [
        {"name": name, "valueFrom": index} if name == "PET_NODE_RANK" else {"name": name, "value": value}
        for name, value in variables.items()
    ]
    spec = spec_of(template)
    changed = {
        kind: [
            with_env(container, env) if container.get("name") in names else container
            for container in spec.get(kind) or ()
        ]
        for kind in ("containers", "initContainers")
    }
    return with_spec(template, **changed)


def variables_of(recipe: KubeflowRecipe, setting: Setting, role: str, index: str) -> dict[str, str]:
    """Returns those variables of the framework that upstream sets."""
    framework = recipe.framework
    variables = framework.environment(setting, role, index)
    return {name: value for name, value in variables.items() if name in VARIABLES[framework.name]}


def replicas_of(recipe: KubeflowRecipe, role: Role) -> Iterator[Replica]:
    """Yields the replicas of a role in the order of their indexes."""
    job_name = recipe.job_name(role.name)
    # An initializer is tried a limited number of times, whatever its exit code. See `completion.MAX_TRANSFER_ATTEMPTS`.
    is_limited = not role.restarts_together and role.container != NODE
    in_place = recipe.restart_rules and restart_policy_of(role.template) == ON_FAILURE
    for index in range(role.replicas):
        yield Replica(
            role,
            index,
            id=replica_id(role.name, index),
            name=f"{job_name}-{index}" if role.job_name else job_name,
            is_chief=role.name == chief_name(recipe) and index == 0,
            decides=not is_limited,
            restarts_in_place=in_place and not role.restarts_together,
        )


def chief_name(recipe: KubeflowRecipe) -> str:
    return LAUNCHER if recipe.framework.has_launcher else recipe.nodes.name


def is_target(recipe: KubeflowRecipe, job: str) -> bool:
    """Reports whether the runtime names the replicated job as one whose success completes the TrainJob."""
    return job in recipe.runtime.template.spec.success_policy.target_replicated_jobs
