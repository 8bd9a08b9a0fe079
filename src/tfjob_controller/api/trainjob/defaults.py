"""The effective values of a TrainJob's fields, defaults included. Nothing is written back into the job.

`runtime` is the spec of the job's runtime; None if the runtime is unknown or the job has none. All functions are pure.
"""

from __future__ import annotations

from tfjob_controller.api.common.podtemplates import containers_of
from tfjob_controller.api.common.storage import StorageInput, StorageOutput
from tfjob_controller.api.trainjob.runtime import RuntimeSpec
from tfjob_controller.api.trainjob.types import (
    DEFAULT_METRICS,
    NODE,
    PROC_AUTO,
    TrainJob,
    TrainJobSpec,
    TrainJobStatus,
)


def num_nodes_of(spec: TrainJobSpec, runtime: RuntimeSpec | None) -> int | None:
    """The number of nodes; None if neither the job nor the runtime gives it.

    Of an elastic job it is within the bounds, by default the minimum.
    """
    given = (spec.num_nodes, spec.trainer.num_nodes, runtime.num_nodes if runtime is not None else None)
    count = next((each for each in given if each is not None), None)
    bounds = bounds_of(spec)
    if bounds is None:
        return count
    least, most = bounds
    return least if count is None else min(max(count, least), most)


def bounds_of(spec: TrainJobSpec) -> tuple[int, int] | None:
    """The minimum and the maximum number of nodes; None for a job that is not elastic."""
    policy = spec.elastic_policy
    return (policy.min_nodes, policy.max_nodes) if policy is not None else None


def present_nodes_of(job: TrainJob, runtime: RuntimeSpec | None) -> int:
    """The number of nodes that the job should have now.

    A started job keeps the number that it was started with, whatever its runtime has now, unless its own spec changes
    it.
    """
    is_given = bounds_of(job.spec) is not None and job.spec.num_nodes is not None
    started = 0 if is_given else started_nodes_of(job.status)
    return started or num_nodes_of(job.spec, runtime) or 1


def started_nodes_of(status: TrainJobStatus) -> int:
    """The number of nodes that the job was started with, whatever its runtime has now; 0 before the start."""
    return next((job_status.replicas for job_status in status.jobs_status if job_status.name == NODE), 0)


def num_proc_per_node_of(spec: TrainJobSpec, runtime: RuntimeSpec | None) -> int | str:
    """A number, or auto, cpu or gpu."""
    given = (spec.trainer.num_proc_per_node, runtime.num_proc_per_node if runtime is not None else None)
    return next((each for each in given if each is not None), PROC_AUTO)


def image_of(spec: TrainJobSpec, runtime: RuntimeSpec | None) -> str:
    """The image of the nodes; empty if neither the job nor the runtime gives it."""
    return spec.trainer.image or (template_image_of(runtime, NODE) if runtime is not None else "")


def template_image_of(runtime: RuntimeSpec, role: str) -> str:
    """The image of the container named like the role; empty if the runtime gives none."""
    containers = containers_of(runtime.templates.get(role))
    return next((str(container.get("image") or "") for container in containers if container.get("name") == role), "")


def framework_of(job: TrainJob) -> str:
    """The framework that the job names; empty leaves it to the runtime and the command."""
    return job.spec.framework or job.metadata.annotations.framework


def model_input_of(spec: TrainJobSpec) -> StorageInput | None:
    return spec.model_config.input if spec.model_config is not None else None


def model_output_of(spec: TrainJobSpec) -> StorageOutput | None:
    return spec.model_config.output if spec.model_config is not None else None


def model_uri_of(spec: TrainJobSpec) -> str:
    """The URI of the model to start with, from either name of the field; empty without one."""
    given = model_input_of(spec)
    return (given.storage_uri or given.config) if given is not None else ""


def dataset_uri_of(spec: TrainJobSpec) -> str:
    """The URI of the dataset; empty without one."""
    return spec.dataset_config.storage_uri if spec.dataset_config is not None else ""


def gang_enabled(spec: TrainJobSpec) -> bool | None:
    """Whether the job requests gang scheduling; None leaves it to the controller."""
    return spec.gang.enabled if spec.gang is not None else None


def metric_names_of(spec: TrainJobSpec) -> tuple[str, ...]:
    """The metrics to read from the log of node 0; empty if the log is not read."""
    return spec.metrics.names if spec.metrics is not None else DEFAULT_METRICS


def metric_values_of(status: TrainJobStatus) -> dict[str, str]:
    """The last value of each metric, by its name."""
    return {metric.name: metric.value for metric in status.metrics}
