"""Validates TrainJobs and runtimes of the group `trainer.kubeflow.org`.

Kubeflow Trainer's admission webhooks are not installed with this controller, so their rules are repeated here. Fields
that this controller does not support are rejected by name. All functions are pure. A problem is a message that begins
with the path of the field; None means that the object is valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tfjob_controller.api.common.podtemplates import has_container_named, template_problem
from tfjob_controller.api.common.quantity import milli_of
from tfjob_controller.api.common.schema import INT32_MAX
from tfjob_controller.api.kubeflowtrainer.runtime import (
    ANCESTOR_LABEL,
    COMPLETE,
    CONTAINERS,
    LAUNCHER,
    NODE,
    READY,
    TRAINER,
    Dependency,
    FailurePolicy,
    JobSetSpec,
    KubeflowRuntime,
    KubeflowRuntimeSpec,
    MachineLearningPolicy,
    ReplicatedJob,
    VolumeClaimPolicy,
)
from tfjob_controller.api.kubeflowtrainer.types import (
    API_GROUP,
    CLUSTER_RUNTIME,
    MAX_NODES,
    MAX_PATCHES,
    NAMESPACED_RUNTIME,
    AssetInitializer,
    KubeflowTrainer,
    KubeflowTrainJob,
)

JOBS_FIELD = "spec.template.spec.replicatedJobs"
MAX_JOBS = 16
# Processes per node.
MAX_PROCS = 1024
PROC_WORDS = ("auto", "cpu", "gpu")

NOT_SUPPORTED = "is not supported by this controller: leave it out"
EXCLUSIVE_TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"

# The supported fields of a Job's spec. Those of `_DETERMINED` may have only these values, which the controller sets.
_DETERMINED = {"completionMode": "Indexed", "suspend": False, "manualSelector": False}
_JOB_FIELDS = ("template", "parallelism", "completions", "backoffLimit", *_DETERMINED)


def validate(job: KubeflowTrainJob) -> str | None:
    """Returns the first problem of a job that does not depend on its runtime."""
    return job.invalid or next(_job_problems(job), None)


def unsupported_runtime(job: KubeflowTrainJob) -> str | None:
    """Returns upstream's message if the job refers to an object that is not a runtime."""
    ref = job.spec.runtime_ref
    if ref.api_group == API_GROUP and ref.kind in (CLUSTER_RUNTIME, NAMESPACED_RUNTIME):
        return None
    return f"unsupported runtime: {ref.kind}.{ref.api_group}"


def validate_runtime(runtime: KubeflowRuntime) -> str | None:
    """Returns the first problem of a TrainingRuntime or ClusterTrainingRuntime."""
    return runtime.invalid or next(_runtime_problems(runtime.spec), None)


def validate_with_runtime(job: KubeflowTrainJob, spec: KubeflowRuntimeSpec) -> str | None:
    """Returns the first problem of a job together with its runtime."""
    return next(_pair_problems(job, spec), None)


def _job_problems(job: KubeflowTrainJob) -> Iterator[str]:
    spec = job.spec
    if (problem := unsupported_runtime(job)) is not None:
        yield problem
    yield from _trainer_problems(spec.trainer)
    for name in ("dataset", "model"):
        asset: AssetInitializer | None = getattr(spec.initializer, name)
        if asset is not None:
            yield from env_problems(asset.env, f"spec.initializer.{name}.env")
    if not 0 <= spec.active_deadline_seconds <= INT32_MAX:
        yield f"spec.activeDeadlineSeconds: must be from 1 to {INT32_MAX}"
    for field in ("runtime_patches", "pod_template_overrides", "pod_spec_overrides"):
        if len(getattr(spec, field)) > MAX_PATCHES:
            yield f"spec.{_wire_name(field)}: must have at most {MAX_PATCHES} entries"


def _wire_name(field: str) -> str:
    first, *others = field.split("_")
    return first + "".join(word.capitalize() for word in others)


def _trainer_problems(trainer: KubeflowTrainer) -> Iterator[str]:
    yield from env_problems(trainer.env, "spec.trainer.env")
    yield from _count_problems(trainer.num_nodes, "spec.trainer.numNodes", MAX_NODES)
    yield from _procs_problems(trainer.num_proc_per_node, "spec.trainer.numProcPerNode")
    resources = trainer.resources_per_node
    for kind in ("requests", "limits") if resources is not None else ():
        for name, amount in getattr(resources, kind).items():
            try:
                is_amount = milli_of(str(amount)) >= 0
            except ValueError:
                is_amount = False
            if not is_amount:
                yield f"spec.trainer.resourcesPerNode.{kind}.{name}: must be a quantity such as 500m, 2 or 16Gi"


def _count_problems(count: int | None, at: str, most: int) -> Iterator[str]:
    if count is not None and not 1 <= count <= most:
        yield f"{at}: must be from 1 to {most}, is {count}"


def _procs_problems(given: int | str | None, at: str) -> Iterator[str]:
    is_number = isinstance(given, int) and 1 <= given <= MAX_PROCS
    if given is not None and not is_number and given not in PROC_WORDS:
        yield f"{at}: must be auto, cpu, gpu or a number from 1 to {MAX_PROCS}"


def env_problems(env: tuple[dict[str, Any], ...], at: str) -> Iterator[str]:
    """Yields the problems of a list of environment variables."""
    for index, variable in enumerate(env):
        if not isinstance(variable.get("name"), str) or not variable["name"]:
            yield f"{at}[{index}].name: is required, as text"


# Runtimes


def _runtime_problems(spec: KubeflowRuntimeSpec) -> Iterator[str]:
    yield from _policy_problems(spec.ml_policy)
    volcano = spec.pod_group_policy.volcano
    if volcano is not None and volcano.network_topology is not None:
        yield f"spec.podGroupPolicy.volcano.networkTopology: {NOT_SUPPORTED}"
    if volcano is not None and spec.pod_group_policy.coscheduling is not None:
        yield "spec.podGroupPolicy: volcano and coscheduling exclude each other: leave one of them out"
    annotations = spec.template.metadata.get("annotations")
    if isinstance(annotations, Mapping) and EXCLUSIVE_TOPOLOGY in annotations:
        yield f"spec.template.metadata.annotations.{EXCLUSIVE_TOPOLOGY}: {NOT_SUPPORTED}"
    yield from _job_set_problems(spec.template.spec)
    for index, policy in enumerate(spec.template.spec.volume_claim_policies):
        yield from _claim_problems(policy, f"spec.template.spec.volumeClaimPolicies[{index}]")
    jobs = spec.template.spec.replicated_jobs
    if len(jobs) > MAX_JOBS:
        yield f"{JOBS_FIELD}: must have at most {MAX_JOBS} entries, has {len(jobs)}"
    names: set[str] = set()
    for index, job in enumerate(jobs):
        yield from _replicated_job_problems(job, f"{JOBS_FIELD}[{index}]", names)
        names.add(job.name)
    if not any(ancestor_of(job) == TRAINER for job in jobs):
        yield f"{JOBS_FIELD}: one job must have the label {ANCESTOR_LABEL}: {TRAINER}"
    if spec.ml_policy.mpi is not None and not {LAUNCHER, NODE} <= names:
        yield f"{JOBS_FIELD}: with mlPolicy.mpi there must be the jobs {LAUNCHER} and {NODE}"


def _policy_problems(policy: MachineLearningPolicy) -> Iterator[str]:
    yield from _count_problems(policy.num_nodes, "spec.mlPolicy.numNodes", MAX_NODES)
    if policy.flux is not None:
        yield (
            "spec.mlPolicy.flux: Flux is not supported by this controller, because its brokers need Flux's "
            "installer and configuration in each pod: use mpi, or Kubeflow Trainer's own controller"
        )
    given = [name for name in ("torch", "mpi", "jax", "xgboost", "flux") if getattr(policy, name) is not None]
    if len(given) > 1:
        yield f"spec.mlPolicy: {' and '.join(given)} exclude each other: leave one of them out"
    if policy.torch is not None:
        if policy.torch.elastic_policy is not None:
            yield f"spec.mlPolicy.torch.elasticPolicy: {NOT_SUPPORTED}"
        yield from _procs_problems(policy.torch.num_proc_per_node, "spec.mlPolicy.torch.numProcPerNode")
    if policy.mpi is not None:
        yield from _procs_problems(policy.mpi.num_proc_per_node, "spec.mlPolicy.mpi.numProcPerNode")
        if policy.mpi.mpi_implementation not in ("", "OpenMPI"):
            yield "spec.mlPolicy.mpi.mpiImplementation: must be OpenMPI"


def _job_set_problems(spec: JobSetSpec) -> Iterator[str]:
    at = "spec.template.spec"
    if spec.network.enable_dns_hostnames is False:
        yield f"{at}.network.enableDNSHostnames: must not be false, because the nodes find each other by host names"
    if spec.network.publish_not_ready_addresses is False:
        yield f"{at}.network.publishNotReadyAddresses: must not be false, because nodes are looked up before"
    if spec.success_policy.operator != "All":
        yield f"{at}.successPolicy.operator: {spec.success_policy.operator} {NOT_SUPPORTED}"
    if spec.failure_policy is not None:
        yield from _failure_policy_problems(spec.failure_policy, f"{at}.failurePolicy")
    if spec.startup_policy.startup_policy_order != "AnyOrder":
        yield f"{at}.startupPolicy: {NOT_SUPPORTED.replace('leave it out', 'use dependsOn')}"
    if not 0 <= (spec.ttl_seconds_after_finished or 0) <= INT32_MAX:
        yield f"{at}.ttlSecondsAfterFinished: must be from 0 to {INT32_MAX}"
    for name in ("coordinator", "managed_by"):
        if getattr(spec, name):
            yield f"{at}.{_wire_name(name)}: {NOT_SUPPORTED}"
    if spec.suspend:
        yield f"{at}.suspend: is set by each TrainJob's spec.suspend: leave it out"


def _claim_problems(policy: VolumeClaimPolicy, at: str) -> Iterator[str]:
    if policy.retention_policy.when_deleted != "Delete":
        yield f"{at}.retentionPolicy.whenDeleted: {policy.retention_policy.when_deleted} {NOT_SUPPORTED}"
    for index, template in enumerate(policy.templates):
        if not template.name:
            yield f"{at}.templates[{index}].metadata.name: is required"
        for name in ("labels", "annotations"):
            if not isinstance(template.metadata.get(name), dict | None):
                yield f"{at}.templates[{index}].metadata.{name}: expected an object"


def _failure_policy_problems(policy: FailurePolicy, at: str) -> Iterator[str]:
    if policy.rules:
        yield f"{at}.rules: {NOT_SUPPORTED}"
    if policy.restart_strategy not in ("", "Recreate", "BlockingRecreate"):
        yield f"{at}.restartStrategy: {policy.restart_strategy} {NOT_SUPPORTED}"
    if not 0 <= policy.max_restarts <= INT32_MAX:
        yield f"{at}.maxRestarts: must be from 0 to {INT32_MAX}"


def ancestor_of(job: ReplicatedJob) -> str:
    """Which part of a TrainJob configures a replicated job; empty if none does."""
    labels = job.template.metadata.get("labels")
    return str(labels.get(ANCESTOR_LABEL) or "") if isinstance(labels, Mapping) else ""


def _replicated_job_problems(job: ReplicatedJob, at: str, earlier: set[str]) -> Iterator[str]:
    if job.name in earlier:
        yield f"{at}.name: {job.name} is listed twice"
    if job.replicas != 1:
        yield f"{at}.replicas: always must be 1"
    if job.group_name not in ("", "default"):
        yield f"{at}.groupName: {NOT_SUPPORTED}"
    for dependency in job.depends_on:
        yield from _dependency_problems(job, dependency, f"{at}.dependsOn", earlier)
    metadata = job.template.metadata
    for name in ("labels", "annotations"):
        if not isinstance(metadata.get(name), dict | None):
            yield f"{at}.template.metadata.{name}: expected an object"
    if EXCLUSIVE_TOPOLOGY in (metadata.get("annotations") or {}):
        yield f"{at}.template.metadata.annotations.{EXCLUSIVE_TOPOLOGY}: {NOT_SUPPORTED}"
    yield from _job_spec_problems(job, f"{at}.template.spec")
    yield from _template_problems(job, f"{at}.template.spec.template")


def _dependency_problems(job: ReplicatedJob, needed: Dependency, at: str, earlier: set[str]) -> Iterator[str]:
    if needed.name not in earlier:
        yield f"{at}: {needed.name} must be an earlier job"
    if needed.status not in (COMPLETE, READY):
        yield f"{at}: the status must be {COMPLETE} or {READY}"
    if needed.status == READY and (job.name, needed.name) != (LAUNCHER, NODE):
        yield f"{at}: the status {READY} is supported for {LAUNCHER} and its {NODE} only: use {COMPLETE}"


def _job_spec_problems(job: ReplicatedJob, at: str) -> Iterator[str]:
    spec = job.template.spec
    for name, value in spec.items():
        if name not in _JOB_FIELDS:
            yield f"{at}.{name}: {NOT_SUPPORTED}"
        elif name in _DETERMINED and value not in (None, _DETERMINED[name]):
            yield f"{at}.{name}: must be {_DETERMINED[name]}, is {value}"
    for name in ("parallelism", "completions", "backoffLimit"):
        if not isinstance(spec.get(name), int | None) or not 0 <= (spec.get(name) or 0) <= INT32_MAX:
            yield f"{at}.{name}: must be a number from 0 to {INT32_MAX}"
    yield from _count_problems(spec.get("parallelism"), f"{at}.parallelism", MAX_NODES)
    is_single = job.name != NODE and ancestor_of(job) != TRAINER
    if is_single and any((spec.get(field) or 1) > 1 for field in ("parallelism", "completions")):
        yield f"{at}.parallelism: only the training nodes can be several pods"


def _template_problems(job: ReplicatedJob, at: str) -> Iterator[str]:
    template, ancestor = job.template.spec.get("template"), ancestor_of(job)
    if not isinstance(template, dict):
        yield f"{at}: is required"
        return
    container = CONTAINERS.get(ancestor, NODE if job.name == NODE else "")
    problem = template_problem(template)
    if problem is not None:
        yield f"{at}{problem}"
    elif not (template.get("spec") or {}).get("containers"):
        yield f"{at}.spec.containers: at least one container is required"
    elif container and not has_container_named(template, container):
        yield (
            f"{at}.spec.containers: must contain the required container for the ancestor: "
            f"{ancestor or job.name} (a container named {container})"
        )


# A job with its runtime


def _pair_problems(job: KubeflowTrainJob, spec: KubeflowRuntimeSpec) -> Iterator[str]:
    ancestors = {ancestor_of(replicated) for replicated in spec.template.spec.replicated_jobs}
    for name, ancestor in (("dataset", "dataset-initializer"), ("model", "model-initializer")):
        if getattr(job.spec.initializer, name) is not None and ancestor not in ancestors:
            yield f"spec.initializer.{name}: the runtime has no job with the label {ANCESTOR_LABEL}: {ancestor}"
