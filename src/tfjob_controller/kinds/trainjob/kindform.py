"""How the dashboard's form for a new job reads a TrainJob, and writes changed fields into it.

The volumes of the nodes are those of the first entry of podSpecOverrides that is for nodes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tfjob_controller.api.common.quantity import CPU, MEMORY
from tfjob_controller.api.trainjob.runtime import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES
from tfjob_controller.api.trainjob.types import CLUSTER_RUNTIME, FRAMEWORKS, MAX_NODES, NODE, TRAINJOBS
from tfjob_controller.kinds.kindform import (
    COMMON_PARTS,
    FormField,
    KindForm,
    Manifest,
    command_at,
    mapping_at,
    mappings_at,
    number_at,
    put,
    put_command,
    put_nothing,
    scalar,
    section_at,
    storage_parts,
    string_at,
)
from tfjob_controller.kinds.podform import (
    env_at,
    gpus_at,
    other_env_at,
    other_volumes_at,
    put_env,
    put_gpus,
    put_quantity,
    put_shared_memory,
    put_volumes,
    quantity_at,
    shared_memory_at,
    volumes_at,
)

_RESOURCES = "resourcesPerNode"
_OVERRIDES = "podSpecOverrides"


def _runtime_at(spec: Mapping[str, Any]) -> str:
    """As `KIND/NAME`; empty without a runtimeRef."""
    reference = mapping_at(spec, "runtimeRef", field="runtime")
    name = string_at(reference, "name", "runtime")
    return f"{string_at(reference, 'kind', 'runtime') or CLUSTER_RUNTIME}/{name}" if name else ""


def _put_runtime(spec: Manifest, runtime: str) -> None:
    kind, _, name = runtime.partition("/")
    put(spec, "runtimeRef", {"name": name, "kind": kind} if runtime else None)


def _of_trainer(
    field: str, read: Callable[[Mapping[str, Any]], Any], write: Callable[[Manifest, Any], None]
) -> FormField:
    def write_below(spec: Manifest, value: Any) -> None:
        trainer = section_at(spec, "trainer")
        write(trainer, value)
        if not trainer:
            del spec["trainer"]

    return FormField(lambda spec: read(mapping_at(spec, "trainer", field=field)), write_below)


def _quantity(resource: str, *new: str) -> FormField:
    return _of_trainer(
        resource,
        lambda trainer: quantity_at(trainer, _RESOURCES, resource),
        lambda trainer, text: put_quantity(trainer, _RESOURCES, resource, text, new),
    )


def _of_volumes(
    read: Callable[[Mapping[str, Any], Mapping[str, Any]], Any], write: Callable[[Manifest, Manifest, Any], None]
) -> FormField:
    def read_override(spec: Mapping[str, Any]) -> Any:
        override = _override_of(spec)
        return read(override, _container_of(override))

    def write_override(spec: Manifest, value: Any) -> None:
        if not (override := _override_of(spec)):
            override = {"targetJobs": [{"name": NODE}]}
            spec[_OVERRIDES] = [*mappings_at(spec, _OVERRIDES, field="volumes"), override]
        if not (container := _container_of(override)):
            container = {"name": NODE}
            override["containers"] = [*mappings_at(override, "containers", field="volumes"), container]
        write(override, container, value)
        _remove_empty(spec, override, container)

    return FormField(read_override, write_override)


def _override_of(spec: Mapping[str, Any]) -> Manifest:
    """Empty if there is none."""
    overrides = mappings_at(spec, _OVERRIDES, field="volumes")
    return next((override for override in overrides if override.get("targetJobs") == [{"name": NODE}]), {})


def _container_of(override: Mapping[str, Any]) -> Manifest:
    """The additions of an override to the training container; empty if there are none."""
    containers = mappings_at(override, "containers", field="volumes")
    return next((container for container in containers if container.get("name") == NODE), {})


def _remove_empty(spec: Manifest, override: Manifest, container: Manifest) -> None:
    if container == {"name": NODE}:
        put(override, "containers", [each for each in override["containers"] if each is not container])
    if override.keys() == {"targetJobs"}:
        put(spec, _OVERRIDES, [each for each in spec[_OVERRIDES] if each is not override])


KIND_FORM = KindForm(
    resource=TRAINJOBS,
    max_nodes=MAX_NODES,
    frameworks=FRAMEWORKS,
    runtimes=(CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES),
    message_patterns=(
        ("minimum", r"\bminNodes\b|\belasticPolicy\b"),
        ("maximum", r"\b(?:spec\.)?(?:elasticPolicy\.)?maxNodes\b"),
        ("nodes", r"\b(?:spec\.)?(?:trainer\.)?numNodes\b"),
        ("restarts", r"\bmaxRestarts\b"),
    ),
    new_spec=lambda: {"numNodes": 1},
    parts={
        "runtime": FormField(_runtime_at, _put_runtime),
        "framework": scalar("framework", ("framework",), string_at),
        "image": scalar("image", ("trainer", "image"), string_at),
        "command": _of_trainer("command", command_at, put_command),
        "nodes": scalar("nodes", ("numNodes",), number_at, ("trainer", "numNodes")),
        "cpu": _quantity(CPU, "requests"),
        "memory": _quantity(MEMORY, "requests", "limits"),
        "gpus": _of_trainer(
            "gpus",
            lambda trainer: gpus_at(trainer, _RESOURCES),
            lambda trainer, gpus: put_gpus(trainer, _RESOURCES, gpus),
        ),
        "env": _of_trainer("env", env_at, put_env),
        "other_env": _of_trainer("env", other_env_at, put_nothing),
        "volumes": _of_volumes(volumes_at, put_volumes),
        "shared_memory": _of_volumes(shared_memory_at, put_shared_memory),
        "other_volumes": _of_volumes(other_volumes_at, put_nothing),
        **COMMON_PARTS,
        **storage_parts("dataset", "datasetConfig"),
        **storage_parts("output", "modelConfig", "output"),
        **storage_parts("model", "modelConfig", "input"),
        "model": scalar("model", ("modelConfig", "input", "storageUri"), string_at, ("modelConfig", "input", "config")),
        "minimum": scalar("minimum", ("elasticPolicy", "minNodes"), number_at),
        "maximum": scalar("maximum", ("elasticPolicy", "maxNodes"), number_at),
        "restarts": scalar("restarts", ("maxRestarts",), number_at),
    },
)
