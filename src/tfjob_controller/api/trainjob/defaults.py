"""What the fields that a TrainJob leaves out mean. Pure functions; nothing is written back into the job.

`runtime` is always the spec of the runtime that the job uses, None where that is not known or there is none.
"""

from __future__ import annotations

from tfjob_controller.api.common.podtemplates import containers_of
from tfjob_controller.api.trainjob.runtime import RuntimeSpec
from tfjob_controller.api.trainjob.status import TrainJobStatus
from tfjob_controller.api.trainjob.storage import StorageInput, StorageOutput
from tfjob_controller.api.trainjob.types import DEFAULT_METRICS, MANAGED_HERE, NODE, PROC_AUTO, TrainJob, TrainJobSpec


def is_managed_here(spec: TrainJobSpec) -> bool:
    """False for the job of another controller, which is left alone."""
    return spec.managed_by in ("", MANAGED_HERE)


def num_nodes_of(spec: TrainJobSpec, runtime: RuntimeSpec | None) -> int | None:
    """How many nodes train together; None where nobody says it."""
    given = (spec.num_nodes, spec.trainer.num_nodes, runtime.num_nodes if runtime is not None else None)
    return next((each for each in given if each is not None), None)


def started_nodes_of(status: TrainJobStatus) -> int:
    """How many nodes the job was started with, whatever its runtime says since then; 0 of one that was not."""
    return next((each.replicas for each in status.jobs_status if each.name == NODE), 0)


def num_proc_per_node_of(spec: TrainJobSpec, runtime: RuntimeSpec | None) -> int | str:
    """A number, or auto, cpu or gpu."""
    given = (spec.trainer.num_proc_per_node, runtime.num_proc_per_node if runtime is not None else None)
    return next((each for each in given if each is not None), PROC_AUTO)


def image_of(spec: TrainJobSpec, runtime: RuntimeSpec | None) -> str:
    """The image of the nodes; empty where nobody says it."""
    return spec.trainer.image or (template_image_of(runtime, NODE) if runtime is not None else "")


def template_image_of(runtime: RuntimeSpec, role: str) -> str:
    """The image of the container that does a role's work; empty where the runtime gives none."""
    containers = containers_of(runtime.templates.get(role))
    return next((str(each.get("image") or "") for each in containers if each.get("name") == role), "")


def framework_of(job: TrainJob) -> str:
    """The framework that the job itself names; empty leaves it to the runtime and the command."""
    return job.spec.framework or job.metadata.annotations.framework


def model_input_of(spec: TrainJobSpec) -> StorageInput | None:
    return spec.model_config.input if spec.model_config is not None else None


def model_output_of(spec: TrainJobSpec) -> StorageOutput | None:
    return spec.model_config.output if spec.model_config is not None else None


def model_uri_of(spec: TrainJobSpec) -> str:
    """Where the model to begin with is, by either of the field's names; empty where there is none."""
    given = model_input_of(spec)
    return (given.storage_uri or given.config) if given is not None else ""


def dataset_uri_of(spec: TrainJobSpec) -> str:
    """Where the dataset is; empty where there is none."""
    return spec.dataset_config.storage_uri if spec.dataset_config is not None else ""


def gang_enabled(spec: TrainJobSpec) -> bool | None:
    """What the job itself says of gang scheduling; None leaves it to the controller."""
    return spec.gang.enabled if spec.gang is not None else None


def metric_names_of(spec: TrainJobSpec) -> tuple[str, ...]:
    """The names to look for in the log of node 0; empty where it is not read."""
    return spec.metrics.names if spec.metrics is not None else DEFAULT_METRICS
