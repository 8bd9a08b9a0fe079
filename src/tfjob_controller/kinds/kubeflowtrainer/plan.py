"""Compiles a TrainJob of Kubeflow Trainer, with the runtime that it references, into a plan.

Upstream's controller turns both into a JobSet, whose controller creates Jobs. Here each replicated job of the runtime's
template becomes a role. The training nodes are one Indexed Job; every other role has one pod, in an Indexed Job as
well, so that its host name is the one that JobSet gives it. Names, labels and host names are upstream's, since clients
find pods by them. Steps follow from `dependsOn`: a job is in the step after those that it needs to be complete.

The frameworks are those of this project (`trainer.frameworks`), of whose variables a pod gets the ones that upstream
sets. Only what upstream mounts into MPI's pods is here.

A failure of a node restarts all nodes, as often as upstream tolerates failures: a Job runs again after each of its
`backoffLimit` failures, and all Jobs run again `maxRestarts` times. Unlike for other jobs, the exit code does not
matter, except that a program which exceeds its memory or cannot be started ends the job.

An external queue such as Kueue changes `runtimePatches` while a job is suspended. So its Jobs are deleted then, and
created from the new plan when it is resumed.

Source: kubeflow/trainer pkg/runtime/core/trainingruntime.go and pkg/runtime/framework/plugins, kubernetes-sigs/jobset
pkg/controllers/jobset_controller.go.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfjob_controller.api.common.accelerators import accelerators_in
from tfjob_controller.api.common.podtemplates import apply_accelerators
from tfjob_controller.api.common.quantity import CPU, milli_of
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.kubeflowtrainer.patches import patch_problems, pod_patches, set_metadata
from tfjob_controller.api.kubeflowtrainer.runtime import (
    COMPLETE,
    CONTAINERS,
    DATASET_INITIALIZER,
    LAUNCHER,
    MODEL_INITIALIZER,
    NODE,
    TRAINER,
    KubeflowRuntimeSpec,
    ReplicatedJob,
)
from tfjob_controller.api.kubeflowtrainer.types import KUBEFLOW_TRAINJOBS, KubeflowTrainJob
from tfjob_controller.api.kubeflowtrainer.validation import JOBS_FIELD, ancestor_of, validate_with_runtime
from tfjob_controller.api.tfjob.defaults import restart_policy_of
from tfjob_controller.api.tfjob.types import CLEAN_RUNNING, ON_FAILURE
from tfjob_controller.kinds.kubeflowtrainer.podtemplate import (
    JOBSET_NAME,
    initialized,
    jobset_labels,
    labeled,
    patched,
    trained,
    with_resources,
)
from tfjob_controller.kinds.recipe import chief_first, gang_members, in_steps, owner_of, planned, step_of
from tfjob_controller.trainer.frameworks import mpi
from tfjob_controller.trainer.frameworks.base import DEFAULT_PORT, Framework, Setting
from tfjob_controller.trainer.frameworks.environment import JAX, PLAIN, TORCH, XGBOOST
from tfjob_controller.trainer.frameworks.torchtune import (
    ENTRYPOINT,
    RENDEZVOUS_VARIABLES,
    tune_command,
    tune_problems,
)
from tfjob_controller.trainer.naming import (
    INDEX_REFERENCE,
    MAX_LABEL,
    TRAIN_JOB_NAME,
    gang_name,
    job_labels,
    replica_id,
    runtime_id_of,
)
from tfjob_controller.trainer.plan.gangterms import (
    NO_GANGS,
    GangPolicy,
    GangTerms,
    scheduled_by,
    terms_of,
)
from tfjob_controller.trainer.plan.model import (
    GeneratedSecret,
    JobIdentity,
    NewClaim,
    Plan,
    PodMounts,
    PodScheduling,
    Replica,
    Role,
    RunPolicy,
    UnplannableError,
)
from tfjob_controller.trainer.plan.podgroupbackends import BACKENDS
from tfjob_controller.trainer.podtemplate.merge import (
    Part,
    container_of,
    name_problems,
    spec_of,
    with_container,
    with_env,
    with_mounts,
    with_spec,
    with_volumes,
)
from tfjob_controller.trainer.podtemplate.progressreport import (
    ProgressServer,
    files_digest,
    mounted_files,
    with_progress_report,
)

# The variables that upstream sets, by framework. The frameworks set some more for jobs of this project's own kind.
TORCH_VARIABLES = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
JAX_VARIABLES = ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS")
# Upstream refuses jobs that set variables of these frameworks themselves.
RESERVED: Mapping[str, frozenset[str]] = {
    TORCH.name: frozenset(TORCH_VARIABLES),
    XGBOOST.name: XGBOOST.reserved,
    mpi.FRAMEWORK.name: mpi.FRAMEWORK.reserved,
}
VARIABLES: Mapping[str, frozenset[str]] = {**RESERVED, JAX.name: frozenset(JAX_VARIABLES), PLAIN.name: frozenset()}

# The frameworks whose nodes meet at a port of node 0. Upstream declares it in the training container.
_MEETING_AT_NODE_0 = (TORCH, JAX, XGBOOST)

# batch/v1's default.
_BACKOFF_LIMIT = 6
_KUEUE = "kueue.x-k8s.io/"

# What upstream mounts into the pods of an MPI job.
_SSH_SUFFIX, _SSH_VOLUME, _SSH_PATH = "-mpi-ssh-auth", "mpi-ssh-auth", "/root/.ssh"
_SSH_TYPE = "kubernetes.io/ssh-auth"
_HOSTS_SUFFIX, _HOSTS_VOLUME, _HOSTS_PATH = "-mpi-hostfile", "mpi-hostfile", "/etc/mpi"
_CA_SUFFIX = "-tls-config"
# The hosts that the launcher waits for, which are those of the hostfile without its own.
_AWAITED = "await-hosts"
_SSH_KEYS = (
    {"key": mpi.PRIVATE_KEY, "path": "id_rsa", "mode": 0o640},
    {"key": mpi.PUBLIC_KEY, "path": "id_rsa.pub", "mode": 0o644},
    {"key": mpi.PUBLIC_KEY, "path": "authorized_keys", "mode": 0o644},
)


@dataclass(frozen=True, slots=True)
class KubeflowRecipe:
    """A *valid* job with its valid runtime.

    `started_nodes` is the number of nodes that the job was started with, whatever its runtime says now; 0 before that.
    """

    job: KubeflowTrainJob
    runtime: KubeflowRuntimeSpec
    config: ControllerConfig
    gangs: GangPolicy = NO_GANGS
    restart_rules: bool = False
    started_nodes: int = 0
    # None if programs cannot report progress.
    progress_server: ProgressServer | None = None

    @property
    def name(self) -> str:
        return self.job.metadata.name

    @property
    def runtime_id(self) -> str:
        return runtime_id_of(self.job.metadata.uid)

    @property
    def framework(self) -> Framework:
        policy = self.runtime.ml_policy
        given: tuple[tuple[Framework, object], ...] = (
            (TORCH, policy.torch),
            (mpi.FRAMEWORK, policy.mpi),
            (JAX, policy.jax),
            (XGBOOST, policy.xgboost),
        )
        return next((framework for framework, each in given if each is not None), PLAIN)

    @property
    def is_tuning(self) -> bool:
        """Reports whether the nodes run torchtune, whose recipe and config the controller chooses."""
        return self.framework is TORCH and self.job.spec.trainer.command == ENTRYPOINT

    @property
    def jobs(self) -> tuple[ReplicatedJob, ...]:
        return self.runtime.template.spec.replicated_jobs

    @property
    def nodes(self) -> ReplicatedJob:
        """The job whose pods are the training nodes."""
        if self.runtime.ml_policy.mpi is not None:
            return next(each for each in self.jobs if each.name == NODE)
        return next(each for each in self.jobs if ancestor_of(each) == TRAINER)

    @property
    def subdomain(self) -> str:
        """The name of the Service of all pods."""
        return self.runtime.template.spec.network.subdomain or self.name

    @property
    def num_nodes(self) -> int:
        """The number of pods of the training nodes, without an MPI launcher that is a node as well."""
        if self.started_nodes:
            return self.started_nodes
        policy = self.runtime.ml_policy
        count = self.job.spec.trainer.num_nodes or policy.num_nodes or self.nodes.template.spec.get("parallelism") or 1
        return max(count - 1, 1) if policy.mpi is not None and policy.mpi.run_launcher_as_node else count

    def job_name(self, job: str) -> str:
        """The name of a replicated job's Job, as JobSet names it."""
        return f"{self.name}-{job}-0"

    def host(self, job: str, index: int) -> str:
        return f"{self.job_name(job)}-{index}.{self.subdomain}"

    @property
    def setting(self) -> Setting:
        count = self.num_nodes
        accelerators, cpus = _node_resources(self)
        return Setting(
            job_name=self.name,
            num_nodes=count,
            nodes=tuple(self.host(self.nodes.name, index) for index in range(count)),
            num_proc_per_node=_processes(self),
            gpus=sum(accelerators.values()),
            cpus=cpus,
            accelerators=tuple(accelerators),
        )


def build_kubeflow_plan(recipe: KubeflowRecipe) -> Plan:
    """Returns the plan, which may be cached as long as job and runtime are unchanged. Raises UnplannableError."""
    problem = next(_problems(recipe), None)
    if problem is not None:
        raise UnplannableError(problem)
    setting = recipe.setting
    problem = recipe.framework.problem(setting)
    if problem is not None:
        raise UnplannableError(problem)
    mounts = _mounts(recipe, setting)
    roles = tuple(_role(recipe, setting, each, mounts) for each in recipe.jobs)
    problem = next(_added_name_problems(recipe, roles), None)
    if problem is not None:
        raise UnplannableError(problem)
    replicas = chief_first(replica for role in roles for replica in _replicas(recipe, role))
    whole = _whole(recipe, setting, roles, replicas, mounts)
    steps = tuple(_steps(recipe, whole))
    if len(steps) == 1:
        return steps[0]
    return in_steps(whole, steps, _targets(recipe, replicas) or steps[-1].replicas.needed)


def _problems(recipe: KubeflowRecipe) -> Iterator[str]:
    """Yields the problems of a job with its runtime. Only the first is meaningful."""
    if (problem := validate_with_runtime(recipe.job, recipe.runtime)) is not None:
        yield problem
    yield from patch_problems(recipe.job.spec, recipe.jobs)
    yield from _trainer_problems(recipe)
    yield from _job_set_problems(recipe)
    yield from _name_problems(recipe)
    yield from _injection_problems(recipe)
    yield from _gang_problems(recipe)


def _trainer_problems(recipe: KubeflowRecipe) -> Iterator[str]:
    trainer, reserved = recipe.job.spec.trainer, RESERVED.get(recipe.framework.name, frozenset())
    for index, variable in enumerate(trainer.env):
        if variable["name"] in reserved:
            at = f"spec.trainer.env[{index}].name"
            yield f"{at}: must not have reserved envs: {variable['name']} is set by the controller"
    if recipe.is_tuning:
        yield from tune_problems(recipe.job.spec.runtime_ref.name, recipe.setting, trainer.args or ())


def _job_set_problems(recipe: KubeflowRecipe) -> Iterator[str]:
    spec, names = recipe.runtime.template.spec, {each.name for each in recipe.jobs}
    for target in spec.success_policy.target_replicated_jobs:
        if target not in names:
            yield f"spec.template.spec.successPolicy.targetReplicatedJobs: there is no replicated job {target}"


def _name_problems(recipe: KubeflowRecipe) -> Iterator[str]:
    for each in recipe.jobs:
        host = f"{recipe.job_name(each.name)}-{recipe.num_nodes - 1 if each is recipe.nodes else 0}"
        if len(host) > MAX_LABEL:
            fits = len(recipe.name) - (len(host) - MAX_LABEL)
            yield (
                f"metadata.name: the host name {host} of a pod would be longer than {MAX_LABEL} characters: "
                f"choose a name of at most {fits}"
            )


def _added_name_problems(recipe: KubeflowRecipe, roles: Sequence[Role]) -> Iterator[str]:
    """Yields the containers with the name of one that is added, unless the job has started.

    A volume takes the place of one of the same name, as upstream's do.
    """
    for index, (job, role) in enumerate(zip(recipe.jobs, roles, strict=True)) if not recipe.started_nodes else ():
        given = {name: spec_of(job.template.spec["template"]).get(name) for name in ("containers", "initContainers")}
        at = f"the runtime's {JOBS_FIELD}[{index}].template.spec.template.spec"
        yield from name_problems({"spec": given}, role.template, (at, given))


def _gang_problems(recipe: KubeflowRecipe) -> Iterator[str]:
    """Yields why the scheduler that a runtime names is not the one that this controller leaves gangs to."""
    if recipe.gangs.refuses(True):
        return
    backend, policy = recipe.gangs.backend, recipe.runtime.pod_group_policy
    for name, is_given in (("coscheduling", policy.coscheduling), ("volcano", policy.volcano)):
        if is_given is not None and backend is not BACKENDS[name]:
            yield (
                f"spec.podGroupPolicy.{name}: this controller leaves gangs to another scheduler: "
                f"start it with --gang-backend={name}, or leave the policy out"
            )


def _injection_problems(recipe: KubeflowRecipe) -> Iterator[str]:
    torch = recipe.runtime.ml_policy.torch
    by_name = {each.name: _container_names(each) for each in recipe.jobs}
    for target in torch.env_injection.targets if torch is not None else ():
        for name in target.container_names:
            if name not in by_name.get(target.job_name, ()):
                yield (
                    f'spec.mlPolicy.torch.envInjection: target podSet "{target.job_name}" container "{name}" '
                    "not found in runtime template"
                )


def _container_names(job: ReplicatedJob) -> list[object]:
    pod_spec = spec_of(job.template.spec["template"])
    return [each.get("name") for kind in ("containers", "initContainers") for each in pod_spec.get(kind) or ()]


# Nodes and processes


def _processes(recipe: KubeflowRecipe) -> str:
    """Returns the number of processes per node: the job's, else the runtime's; frameworks without it get none."""
    policy, given = recipe.runtime.ml_policy, recipe.job.spec.trainer.num_proc_per_node
    if policy.torch is not None:
        return str(given or policy.torch.num_proc_per_node or "")
    if policy.mpi is not None:
        # The default of 1 stands for as many as there are GPUs.
        of_runtime = policy.mpi.num_proc_per_node
        return str(given or (of_runtime if of_runtime not in (None, 1) else ""))
    return ""


def _node_resources(recipe: KubeflowRecipe) -> tuple[dict[str, int], float]:
    """Returns accelerators and CPUs of a node: what the job requests, or else the runtime, as upstream reads them."""
    wanted = recipe.job.spec.trainer.resources_per_node
    pod_spec = spec_of(recipe.nodes.template.spec["template"])
    own: Part = (container_of(pod_spec, NODE) or {}).get("resources") or {}
    requests = wanted.requests if wanted is not None else own.get("requests") or {}
    limits = wanted.limits if wanted is not None else own.get("limits") or {}
    try:
        configured = recipe.config.accelerators
        accelerators = accelerators_in(requests, configured) or accelerators_in(limits, configured)
        cpus = _milli(requests.get(CPU)) or _milli(limits.get(CPU))
    # The CRD does not validate the templates of a runtime.
    except ValueError as error:
        raise UnplannableError(f"the pods of {recipe.nodes.name}: {error}") from error
    return accelerators, cpus / 1000


def _milli(quantity: object) -> int:
    return milli_of(str(quantity)) if quantity is not None else 0


# Roles


def _role(recipe: KubeflowRecipe, setting: Setting, job: ReplicatedJob, mounts: PodMounts) -> Role:
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
        serves=recipe.framework.has_launcher and is_nodes and not _is_target(recipe, job.name),
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
    return next((wanted for each in containers if each["name"] == wanted), str(containers[0]["name"]))


def _job_metadata(recipe: KubeflowRecipe, job: ReplicatedJob, field: str) -> dict[str, str]:
    """Returns the labels or annotations of a Job, without those by which Kueue would queue each Job by itself."""
    found: dict[str, str] = dict(recipe.runtime.template.metadata.get(field) or {})
    found |= job.template.metadata.get(field) or {}
    found |= set_metadata(recipe.job.spec, field)
    for patch in pod_patches(recipe.job.spec):
        if patch.job == job.name:
            found |= patch.job_metadata.get(field) or {}
    return {name: value for name, value in found.items() if not name.startswith(_KUEUE)}


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
        template = with_container(template, NODE, lambda each: trained(each, spec.trainer, runs_command=runs))
        template = with_container(template, NODE, lambda each: with_resources(each, spec.trainer))
    if recipe.is_tuning and ancestor == TRAINER:
        own = container_of(spec_of(job.template.spec["template"]), NODE) or {}
        arguments = (spec.trainer.args or (), own.get("command") or ())
        command = tune_command(spec.runtime_ref.name, setting, *arguments)
        template = with_container(template, NODE, lambda each: {**each, "command": command})
    if ancestor == TRAINER and recipe.framework in _MEETING_AT_NODE_0:
        template = with_container(template, NODE, _with_port)
    if ancestor in (DATASET_INITIALIZER, MODEL_INITIALIZER):
        asset = spec.initializer.dataset if ancestor == DATASET_INITIALIZER else spec.initializer.model
        template = with_container(template, container, lambda each: initialized(each, asset))
    if recipe.framework is mpi.FRAMEWORK and job.name in (NODE, LAUNCHER):
        template = _with_ssh(recipe, template, job.name, mounts)
    if recipe.progress_server is not None and ancestor == TRAINER:
        namespace = recipe.job.metadata.namespace
        template = with_progress_report(template, recipe.progress_server, namespace, recipe.name, mounts.config_map)
    return _with_injected(recipe, setting, _with_claims(recipe, template), job.name)


def _with_port(container: Part) -> dict[str, Any]:
    ports: Sequence[Part] = container.get("ports") or ()
    if any(each.get("containerPort") == DEFAULT_PORT for each in ports):
        return dict(container)
    return {**container, "ports": [*ports, {"containerPort": DEFAULT_PORT}]}


def _claims(recipe: KubeflowRecipe) -> tuple[NewClaim, ...]:
    """Returns the volumes that are created for the job, by the names that JobSet gives them."""
    return tuple(
        NewClaim(
            f"{each.name}-{recipe.name}",
            each.metadata.get("labels") or {},
            each.metadata.get("annotations") or {},
            each.spec,
        )
        for policy in recipe.runtime.template.spec.volume_claim_policies
        for each in policy.templates
    )


def _with_claims(recipe: KubeflowRecipe, template: dict[str, Any]) -> dict[str, Any]:
    """Returns the template with the volumes of those claims that one of its containers mounts."""
    spec = spec_of(template)
    containers = [each for kind in ("containers", "initContainers") for each in spec.get(kind) or ()]
    mounted = {mount.get("name") for each in containers for mount in each.get("volumeMounts") or ()}
    policies = recipe.runtime.template.spec.volume_claim_policies
    names = (each.name for policy in policies for each in policy.templates)
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
    found = _variables(recipe, setting, NODE, "")
    env = [
        {"name": name, "valueFrom": index} if name == "PET_NODE_RANK" else {"name": name, "value": value}
        for name, value in found.items()
    ]
    spec = spec_of(template)
    changed = {
        kind: [with_env(each, env) if each.get("name") in names else each for each in spec.get(kind) or ()]
        for kind in ("containers", "initContainers")
    }
    return with_spec(template, **changed)


def _variables(recipe: KubeflowRecipe, setting: Setting, role: str, index: str) -> dict[str, str]:
    framework = recipe.framework
    found = framework.environment(setting, role, index)
    return {name: value for name, value in found.items() if name in VARIABLES[framework.name]}


def _replicas(recipe: KubeflowRecipe, role: Role) -> Iterator[Replica]:
    job_name = recipe.job_name(role.name)
    # An initializer is tried a limited number of times, whatever its exit code. See `completion.MAX_ATTEMPTS`.
    is_limited = not role.restarts_together and role.container != NODE
    in_place = recipe.restart_rules and restart_policy_of(role.template) == ON_FAILURE
    for index in range(role.replicas):
        yield Replica(
            role,
            index,
            id=replica_id(role.name, index),
            name=f"{job_name}-{index}" if role.job_name else job_name,
            is_chief=role.name == _chief_name(recipe) and index == 0,
            decides=not is_limited,
            restarts_in_place=in_place and not role.restarts_together,
        )


def _chief_name(recipe: KubeflowRecipe) -> str:
    return LAUNCHER if recipe.framework.has_launcher else recipe.nodes.name


def _is_target(recipe: KubeflowRecipe, job: str) -> bool:
    return job in recipe.runtime.template.spec.success_policy.target_replicated_jobs


def _targets(recipe: KubeflowRecipe, replicas: Sequence[Replica]) -> tuple[Replica, ...]:
    """Returns the replicas whose success completes the job, if the runtime names them."""
    return tuple(each for each in replicas if _is_target(recipe, each.role.name))


# The whole job


def _whole(
    recipe: KubeflowRecipe, setting: Setting, roles: tuple[Role, ...], replicas: tuple[Replica, ...], mounts: PodMounts
) -> Plan:
    """Returns the plan with the replicas of all steps."""
    job, meta = recipe.job, recipe.job.metadata
    trained_roles = {role.name for role in roles if role.restarts_together}
    launched = recipe.framework.has_launcher

    def environment(replica: Replica) -> Mapping[str, str]:
        if replica.role.name not in trained_roles:
            return {}
        role = LAUNCHER if launched and replica.role.name == LAUNCHER else NODE
        found = _variables(recipe, setting, role, INDEX_REFERENCE if replica.role.job_name else str(replica.index))
        left_out = RENDEZVOUS_VARIABLES if recipe.is_tuning else frozenset()
        return {name: value for name, value in found.items() if name not in left_out}

    return Plan(
        identity=JobIdentity(
            namespace=meta.namespace,
            job_name=recipe.name,
            runtime_id=recipe.runtime_id,
            owner=owner_of(KUBEFLOW_TRAINJOBS, meta),
            labels=job_labels(recipe.name, recipe.runtime_id, TRAIN_JOB_NAME),
            added_labels={JOBSET_NAME: recipe.name},
        ),
        policy=RunPolicy(
            CLEAN_RUNNING,
            job.spec.suspend,
            job.spec.active_deadline_seconds or None,
            _restarts(recipe),
        ),
        replicas=planned(roles, replicas, ()),
        environment=environment,
        scheduling=_scheduling(recipe, roles),
        mounts=dataclasses.replace(
            mounts,
            claims=_claims(recipe),
            data_containers=frozenset(role.container for role in roles if not role.restarts_together) - {NODE},
        ),
    )


def _restarts(recipe: KubeflowRecipe) -> int:
    policy = recipe.runtime.template.spec.failure_policy
    of_job = recipe.nodes.template.spec.get("backoffLimit")
    tolerated = (_BACKOFF_LIMIT if of_job is None else of_job) + 1
    return int(tolerated * ((policy.max_restarts if policy is not None else 0) + 1) - 1)


def _scheduling(recipe: KubeflowRecipe, roles: Sequence[Role]) -> PodScheduling:
    policy = recipe.runtime.pod_group_policy
    enabled = True if policy.coscheduling is not None or policy.volcano is not None else None
    is_refused = recipe.gangs.refuses(enabled)
    if not recipe.gangs.covers(enabled):
        return PodScheduling(is_gang_refused=is_refused)
    queue_label = recipe.gangs.backend.queue_label if recipe.gangs.backend is not None else ""
    annotations = {
        **(recipe.runtime.template.metadata.get("annotations") or {}),
        **set_metadata(recipe.job.spec, "annotations"),
    }
    # Upstream reads Volcano's queue from an annotation of the runtime's template.
    queue = {queue_label: annotations[queue_label]} if queue_label in annotations else {}
    labels = recipe.job.metadata.labels | queue
    return PodScheduling(**scheduled_by(recipe.gangs, _gang(recipe, roles), labels), is_gang_refused=is_refused)


def _gang(recipe: KubeflowRecipe, roles: Sequence[Role]) -> GangTerms:
    """Returns the gang of the nodes and the launcher. Other jobs run before or after it."""
    levels = _levels(recipe)
    for role in roles:
        if not role.restarts_together and levels[role.name] == levels[recipe.nodes.name]:
            raise UnplannableError(
                f"{JOBS_FIELD}: with gang scheduling, {role.name} must not run beside the nodes: add a dependsOn"
            )
    members = gang_members(role for role in roles if role.restarts_together)
    return terms_of(gang_name(recipe.name, recipe.runtime_id), recipe.gangs, None, members)


# Steps


def _levels(recipe: KubeflowRecipe) -> dict[str, int]:
    """Returns the number of the step of each replicated job."""
    levels: dict[str, int] = {}
    for each in recipe.jobs:
        needed = (levels[other.name] + (other.status == COMPLETE) for other in each.depends_on)
        levels[each.name] = max(needed, default=0)
    if recipe.framework.has_launcher:
        together = max(levels[NODE], levels[LAUNCHER])
        levels |= {NODE: together, LAUNCHER: together}
    return levels


def _steps(recipe: KubeflowRecipe, whole: Plan) -> Iterator[Plan]:
    levels = _levels(recipe)
    for level in sorted(set(levels.values())):
        replicas = tuple(each for each in whole.replicas.all if levels[each.role.name] == level)
        trains = any(replica.role.restarts_together for replica in replicas)
        needed = _targets(recipe, replicas) or tuple(each for each in replicas if not each.role.serves)
        yield step_of(whole, replicas, needed, trains=trains)


# MPI


def _mounts(recipe: KubeflowRecipe, setting: Setting) -> PodMounts:
    policy = recipe.runtime.ml_policy.mpi
    if policy is None:
        files = mounted_files({}, recipe.progress_server)
        return PodMounts(f"{recipe.name}{_CA_SUFFIX}-{files_digest(files)}", files) if files else PodMounts()
    hosts = {NODE: setting.nodes, LAUNCHER: (recipe.host(LAUNCHER, 0),) if policy.run_launcher_as_node else ()}
    lines = [f"{host} slots={mpi.slots(setting)}\n" for job in recipe.jobs for host in hosts.get(job.name, ())]
    files = mounted_files(
        {
            mpi.HOSTFILE: "".join(lines),
            _AWAITED: "".join(f"{host}\n" for host in setting.nodes),
            mpi.AWAIT_NODES: mpi.await_nodes_script(f"{_HOSTS_PATH}/{_AWAITED}"),
        },
        recipe.progress_server,
    )
    make = mpi.FRAMEWORK.secret(setting)
    keys = (mpi.PRIVATE_KEY, mpi.PUBLIC_KEY)

    def secret() -> Mapping[str, bytes]:
        data = make() if make is not None else {}
        return {name: data[name] for name in keys}

    return PodMounts(
        f"{recipe.name}{_HOSTS_SUFFIX}-{files_digest(files)}",
        files,
        GeneratedSecret(f"{recipe.name}{_SSH_SUFFIX}", _SSH_TYPE, secret),
    )


def _with_ssh(recipe: KubeflowRecipe, template: dict[str, Any], job: str, mounts: PodMounts) -> dict[str, Any]:
    """Returns the template with the keys, and for the launcher the hostfile and the wait for the nodes."""
    policy = recipe.runtime.ml_policy.mpi
    path = (policy.ssh_auth_mount_path if policy is not None else "") or _SSH_PATH
    secret = {"secretName": mounts.secret.name if mounts.secret is not None else "", "defaultMode": 0o400}
    volumes: list[Part] = [{"name": _SSH_VOLUME, "secret": {**secret, "items": list(_SSH_KEYS)}}]
    paths = [{"name": _SSH_VOLUME, "mountPath": path}]
    if job == LAUNCHER:
        volumes.append({"name": _HOSTS_VOLUME, "configMap": {"name": mounts.config_map}})
        paths.append({"name": _HOSTS_VOLUME, "mountPath": _HOSTS_PATH})
    changed = with_container(with_volumes(template, volumes), NODE, lambda each: with_mounts(each, paths))
    if job != LAUNCHER:
        return changed
    container = container_of(spec_of(changed), NODE) or {}
    # The launcher may mount what its ssh needs, such as a configuration or the name of its user.
    mounted = [each["name"] for each in container["volumeMounts"]]
    waits = mpi.await_container(container, mounted, f"{_HOSTS_PATH}/{mpi.AWAIT_NODES}")
    waits |= {name: container[name] for name in ("env", "envFrom") if name in container}
    return with_spec(changed, initContainers=[*(spec_of(changed).get("initContainers") or ()), waits])
