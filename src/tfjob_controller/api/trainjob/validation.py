"""Validates TrainJobs and runtimes.

The CRDs have the same rules in CEL (hack/generate/trainjobrules.py, with the messages below, and storagerules.py).
`common.storagevalidation` has those that TFJobs share. The functions here are needed for clusters with older CRDs, and
for what the API server cannot check: the annotation that names a framework, and a job together with its runtime. The
limits of single fields are declared with the fields (`common.schema`). All functions are pure. They return None, or a
sentence that begins with the field and names the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tfjob_controller.api.common.managedby import MANAGED_BY_FIXED
from tfjob_controller.api.common.podtemplates import has_container_named, template_problem
from tfjob_controller.api.common.quantity import milli_of
from tfjob_controller.api.common.schema import LABEL_VALUE, MAX_LABEL_VALUE, limit_violations, matches
from tfjob_controller.api.common.status import MAX_METRIC_NAME, METRIC_NAME
from tfjob_controller.api.common.storage import DATASET_PATH, MODEL_PATH, WORKSPACE_PATH, StorageInput
from tfjob_controller.api.common.storagevalidation import (
    checkpoint_problems,
    env_problems,
    missing_texts,
    source_problems,
    target_problems,
)
from tfjob_controller.api.tfjob.validation import GANG_FIXED
from tfjob_controller.api.trainjob.defaults import bounds_of, framework_of, gang_enabled, image_of, num_nodes_of
from tfjob_controller.api.trainjob.runtime import RuntimeSpec, TrainingRuntime
from tfjob_controller.api.trainjob.types import (
    FRAMEWORK_ANNOTATION,
    MAX_PROCS,
    PROC_WORDS,
    ROLES,
    TORCH,
    ContainerOverride,
    ElasticPolicy,
    PodSpecOverride,
    Trainer,
    TrainJob,
    TrainJobSpec,
)
from tfjob_controller.util.keyedlists import normal_path

# The variables that frameworks set in the training container.
RESERVED_ENV = (
    "PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT",
    "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK",
    "TF_CONFIG",
    "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID",
    "COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID",
    "DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER",
    "OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_keep_fqdn_hostnames", "OMPI_MCA_orte_set_default_slots",
    "OMPI_MCA_plm_rsh_args",
)  # fmt: skip

# Messages about a job.
NODES_TWICE = "numNodes and trainer.numNodes have different values: leave one of them out"
MODEL_TWICE = "config and storageUri have different values: leave one of them out"
MODEL_MISSING = "storageUri is required (or config, its other name)"
RESERVED = "{} is set by the controller: leave it out"
BAD_PROCS = "must be auto, cpu, gpu or a number from 1 to 1024"
DATASET_COVERED = (
    "volumeMounts must not cover /workspace/dataset, where datasetConfig puts the dataset: mount it elsewhere"
)
MODEL_COVERED = "volumeMounts must not cover /workspace/model, which modelConfig uses: mount it elsewhere"
BAD_QUANTITY = "must be a quantity such as 500m, 2 or 16Gi, and not negative"
LABEL_WORDS = "must be of at most 63 letters, digits, -, _ and . and begin and end with a letter or digit"
BAD_METRIC = "must be of letters, digits, _, ., / and -, begin with a letter or _, and have at most 63 characters"
ELASTIC_BOUNDS = "minNodes must not be more than maxNodes: lower it, or raise maxNodes"
NODES_OUTSIDE = (
    "numNodes must be from elasticPolicy.minNodes to maxNodes: choose such a number; "
    "elasticPolicy can be changed until the job has started"
)
ELASTIC_ALIAS = "trainer.numNodes cannot be resized: in a job with elasticPolicy set numNodes instead"
ELASTIC_TORCH_ONLY = (
    "elasticPolicy is for framework torch only, because programs of other frameworks must know all nodes from the "
    "start: leave it out, or use torch"
)
# CEL rules cannot read annotations, so only the controller reports this.
FRAMEWORK_TWICE = "framework and the annotation kubeflow.org/framework have different values: leave one of them out"

# Messages about a job with its runtime, which the API server does not know.
NODES_MISSING = "spec.numNodes: is required, because the runtime does not set it"
IMAGE_MISSING = "spec.trainer.image: is required, because the runtime does not set it"

NO_STEP = "there is no step {}"
NO_CONTAINER = "there is no container {}"
NO_INIT_CONTAINER = "there is no init container {}"

# Messages about a change.
RUNTIME_REF_FIXED = "runtimeRef cannot change: delete the job and create it again"
STARTED_FIXED = (
    "cannot be changed after the job has started; only suspend, ttlSecondsAfterFinished, activeDeadlineSeconds, "
    "maxRestarts, metrics, gang (except gang.enabled) and, with elasticPolicy, numNodes can. To change another field, "
    "delete the job and create it again"
)

ELASTIC_FIXED = (
    "elasticPolicy cannot be added to or removed from a started job, and its bounds cannot change: "
    "delete the job and create it again"
)

# Message about a runtime.
UNKNOWN_ROLE = f"the names of templates are {', '.join(ROLES)}"
WORKER_MISSING = "must have a container named {}, which runs the program of this step"

# Fields of the spec that cannot change once the job has started: wire name and attribute.
# The number of nodes can, in a job that is elastic.
NUM_NODES = ("numNodes", "num_nodes")
FIXED_FIELDS = (
    ("trainer", "trainer"),
    ("modelConfig", "model_config"),
    ("datasetConfig", "dataset_config"),
    ("checkpoint", "checkpoint"),
    ("framework", "framework"),
    ("podSpecOverrides", "pod_spec_overrides"),
    ("labels", "labels"),
    ("annotations", "annotations"),
)


def validate(job: TrainJob) -> str | None:
    """The first problem of a job without regard to its runtime; None for a valid job."""
    return job.invalid or next(_problems(job), None)


def validate_with_runtime(spec: TrainJobSpec, runtime: RuntimeSpec | None) -> str | None:
    """The first problem of a job with its runtime, which is None if the job has none."""
    if num_nodes_of(spec, runtime) is None:
        return NODES_MISSING
    return None if image_of(spec, runtime) else IMAGE_MISSING


def validate_overrides(spec: TrainJobSpec, templates: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The first of podSpecOverrides that would have no effect; None if all have one.

    `templates` are the templates to which overrides apply, by the name of the step; a job has no other steps.
    """
    for index, override in enumerate(spec.pod_spec_overrides):
        problem = next(_missing_targets(override, templates, f"spec.podSpecOverrides[{index}]"), None)
        if problem is not None:
            return problem
    return None


def _missing_targets(override: PodSpecOverride, templates: Mapping[str, Mapping[str, Any]], at: str) -> Iterator[str]:
    """Yields the missing steps and containers. Only the first is meaningful, since containers are those of the steps.

    An override of several steps names containers of any of them.
    """
    steps = [target.name for target in override.target_jobs]
    for index, step in enumerate(steps):
        if step not in templates:
            yield f"{at}.targetJobs[{index}].name: {NO_STEP.format(step)}; this job has {', '.join(templates)}"
    for field, message, containers in (
        ("containers", NO_CONTAINER, override.containers),
        ("initContainers", NO_INIT_CONTAINER, override.init_containers),
    ):
        pods = [templates[step].get("spec") or {} for step in steps]
        present = dict.fromkeys(str(container.get("name")) for pod in pods for container in pod.get(field) or ())
        for index, container in enumerate(containers):
            if container.name not in present:
                others = f"the pods of {' and '.join(steps)} have {', '.join(present) or 'none'}"
                yield f"{at}.{field}[{index}].name: {message.format(container.name)}; {others}"


def validate_change(old: TrainJob, new: TrainJob, has_children: bool = False) -> str | None:
    """The first field that may not change; None for an allowed change.

    A job has started once its status has a phase or, possibly a moment earlier, it `has_children`.
    """
    return next(_forbidden_changes(old, new, has_children), None)


def validate_runtime(runtime: TrainingRuntime) -> str | None:
    """The first problem of a runtime of either kind; None for a valid runtime."""
    return runtime.invalid or next(_runtime_problems(runtime.spec), None)


def _problems(job: TrainJob) -> Iterator[str]:
    spec = job.spec
    yield from limit_violations(spec, "spec")
    if None not in (spec.num_nodes, spec.trainer.num_nodes) and spec.num_nodes != spec.trainer.num_nodes:
        yield f"spec: {NODES_TWICE}"
    if job.metadata.annotations.framework not in ("", framework_of(job)):
        yield f"spec: {FRAMEWORK_TWICE}"
    if spec.elastic_policy is not None:
        yield from _elastic_problems(job, spec.elastic_policy)
    yield from _trainer_problems(spec.trainer)
    yield from _storage_problems(spec)
    for index, override in enumerate(spec.pod_spec_overrides):
        yield from _override_problems(override, f"spec.podSpecOverrides[{index}]")
    yield from _mount_problems(spec)
    yield from _name_problems(spec)


def _elastic_problems(job: TrainJob, policy: ElasticPolicy) -> Iterator[str]:
    spec = job.spec
    if policy.min_nodes > policy.max_nodes:
        yield f"spec.elasticPolicy: {ELASTIC_BOUNDS}"
    elif spec.num_nodes is not None and not policy.min_nodes <= spec.num_nodes <= policy.max_nodes:
        yield f"spec: {NODES_OUTSIDE}"
    if spec.trainer.num_nodes is not None:
        yield f"spec: {ELASTIC_ALIAS}"
    if framework_of(job) not in ("", TORCH):
        yield f"spec: {ELASTIC_TORCH_ONLY}"


def elastic_problem(spec: TrainJobSpec, framework: str) -> str | None:
    """Why a job of this framework, which its runtime or its command chose, cannot be elastic."""
    return f"spec: {ELASTIC_TORCH_ONLY}" if bounds_of(spec) is not None and framework != TORCH else None


def _trainer_problems(trainer: Trainer) -> Iterator[str]:
    yield from env_problems(trainer.env, "spec.trainer.env")
    yield from _reserved(trainer.env, "spec.trainer.env")
    yield from _procs_problems(trainer.num_proc_per_node, "spec.trainer.numProcPerNode")
    for name in ("requests", "limits"):
        for resource, amount in getattr(trainer.resources_per_node, name).items():
            if not _is_quantity(amount):
                yield f"spec.trainer.resourcesPerNode.{name}.{resource}: {BAD_QUANTITY}"


def _is_quantity(amount: int | str) -> bool:
    try:
        return not str(amount).startswith("-") and milli_of(str(amount)) >= 0
    except ValueError:
        return False


def _procs_problems(given: int | str | None, at: str) -> Iterator[str]:
    is_number = isinstance(given, int) and 1 <= given <= MAX_PROCS
    if given is not None and not is_number and given not in PROC_WORDS:
        yield f"{at}: {BAD_PROCS}"


def _reserved(env: tuple[dict[str, Any], ...], at: str) -> Iterator[str]:
    for index, variable in enumerate(env):
        if variable["name"] in RESERVED_ENV:
            yield f"{at}[{index}]: {RESERVED.format(variable['name'])}"


def _storage_problems(spec: TrainJobSpec) -> Iterator[str]:
    if spec.dataset_config is not None:
        yield from source_problems(spec.dataset_config.storage_uri, "spec.datasetConfig.storageUri")
        yield from env_problems(spec.dataset_config.env, "spec.datasetConfig.env")
    if spec.checkpoint is not None:
        yield from checkpoint_problems(spec.checkpoint, "spec.checkpoint")
    if spec.model_config is None:
        return
    if spec.model_config.input is not None:
        yield from _model_problems(spec.model_config.input, "spec.modelConfig.input")
    output = spec.model_config.output
    if output is not None:
        yield from target_problems(output.storage_uri, "spec.modelConfig.output.storageUri")
        yield from env_problems(output.env, "spec.modelConfig.output.env")


def _model_problems(model: StorageInput, at: str) -> Iterator[str]:
    if not model.config and not model.storage_uri:
        yield f"{at}: {MODEL_MISSING}"
    for name, uri in (("config", model.config), ("storageUri", model.storage_uri)):
        yield from source_problems(uri, f"{at}.{name}") if uri else ()
    if model.config and model.storage_uri and model.config != model.storage_uri:
        yield f"{at}: {MODEL_TWICE}"
    yield from env_problems(model.env, f"{at}.env")


def _override_problems(override: PodSpecOverride, at: str) -> Iterator[str]:
    yield from missing_texts(override.volumes, f"{at}.volumes", "name")
    yield from missing_texts(override.image_pull_secrets, f"{at}.imagePullSecrets", "name")
    for index, container in enumerate(override.containers):
        yield from _container_problems(container, f"{at}.containers[{index}]")
    for index, container in enumerate(override.init_containers):
        yield from _container_problems(container, f"{at}.initContainers[{index}]")


def _container_problems(container: ContainerOverride, at: str) -> Iterator[str]:
    yield from env_problems(container.env, f"{at}.env")
    yield from missing_texts(container.volume_mounts, f"{at}.volumeMounts", "name", "mountPath")
    yield from _reserved(container.env, f"{at}.env")


def _mount_problems(spec: TrainJobSpec) -> Iterator[str]:
    if spec.dataset_config is not None and _covers(spec, DATASET_PATH):
        yield f"spec.podSpecOverrides: {DATASET_COVERED}"
    if spec.model_config is not None and _covers(spec, MODEL_PATH):
        yield f"spec.podSpecOverrides: {MODEL_COVERED}"


def _covers(spec: TrainJobSpec, path: str) -> bool:
    """Whether an override mounts another volume over the dataset or the model of a step."""
    containers = (
        container
        for override in spec.pod_spec_overrides
        for container in override.containers + override.init_containers
    )
    mounts = (mount for container in containers if container.name in ROLES for mount in container.volume_mounts)
    return any(normal_path(mount["mountPath"]) in (WORKSPACE_PATH, path) for mount in mounts)


def _name_problems(spec: TrainJobSpec) -> Iterator[str]:
    for label, value in spec.labels.items():
        if len(value) > MAX_LABEL_VALUE or not matches(LABEL_VALUE, value):
            yield f"spec.labels.{label}: {LABEL_WORDS}"
    names = spec.metrics.names if spec.metrics is not None else ()
    for index, name in enumerate(names):
        if len(name) > MAX_METRIC_NAME or not matches(METRIC_NAME, name):
            yield f"spec.metrics.names[{index}]: {BAD_METRIC}"
        if name in names[:index]:
            yield f"spec.metrics.names[{index}]: {name} is listed twice: leave one of them out"


def _forbidden_changes(old: TrainJob, new: TrainJob, has_children: bool) -> Iterator[str]:
    before, after = old.spec, new.spec
    if before.runtime_ref != after.runtime_ref:
        yield f"spec.runtimeRef: {RUNTIME_REF_FIXED}"
    if before.managed_by != after.managed_by:
        yield f"spec.managedBy: {MANAGED_BY_FIXED}"
    # The old job is usually remembered from before its first status, so both are checked. Only the controller writes a
    # status, and only for a spec that it has validated.
    if not (has_children or old.status.phase or new.status.phase):
        return
    if bounds_of(before) != bounds_of(after):
        yield f"spec.elasticPolicy: {ELASTIC_FIXED}"
    for wire_name, name in FIXED_FIELDS if bounds_of(after) is not None else (NUM_NODES, *FIXED_FIELDS):
        if getattr(before, name) != getattr(after, name):
            yield f"spec.{wire_name}: {STARTED_FIXED}"
    if gang_enabled(before) != gang_enabled(after):
        yield f"spec.gang: {GANG_FIXED}"
    if old.metadata.annotations != new.metadata.annotations:
        yield f"metadata.annotations.{FRAMEWORK_ANNOTATION}: {STARTED_FIXED}"


def _runtime_problems(spec: RuntimeSpec) -> Iterator[str]:
    yield from limit_violations(spec, "spec")
    yield from _procs_problems(spec.num_proc_per_node, "spec.numProcPerNode")
    for role, template in spec.templates.items():
        if role not in ROLES:
            yield f"spec.templates: {UNKNOWN_ROLE}"
        problem = template_problem(template)
        if problem is not None:
            yield f"spec.templates.{role}{problem}"
        elif not has_container_named(template, role):
            yield f"spec.templates: {WORKER_MISSING.format(role)}"
