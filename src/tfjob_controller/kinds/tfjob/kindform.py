"""How the dashboard's form for a new job reads a TFJob, and writes changed fields into it.

Master and workers of a TFJob share one program: the form shows that of the workers (of the master without workers), and
a change applies to each MASTER and WORKER whose value was the same before. `nodes` is the number of workers, and 0
without workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from tfjob_controller.api.common.quantity import CPU, MEMORY
from tfjob_controller.api.tfjob.types import CONTAINER_NAME, MASTER, MAX_REPLICAS, TFJOBS, WORKER
from tfjob_controller.kinds.kindform import (
    COMMON_PARTS,
    FormField,
    KindForm,
    Manifest,
    command_at,
    mapping_at,
    mappings_at,
    number_at,
    put_command,
    put_image,
    put_nothing,
    scalar,
    section_at,
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


def _new_spec() -> Manifest:
    master: Manifest = {"tfReplicaType": MASTER, "replicas": 1}
    _ensure_container(master)
    return {"replicaSpecs": [master]}


def _read_workers(spec: Mapping[str, Any]) -> int:
    programs = _program_replicas(spec, "nodes")
    workers = next((replica for replica in programs if replica.get("tfReplicaType") == WORKER), None)
    count = 0 if workers is None else number_at(workers, "replicas", "nodes")
    return 1 if count is None else count


def _put_workers(spec: Manifest, count: int | None) -> None:
    """Sets the number of workers. New workers run the master's program."""
    masters = []
    for replica in _program_replicas(spec, "nodes"):
        if replica.get("tfReplicaType") == WORKER:
            replica["replicas"] = count or 0
            return
        masters.append(replica)
    worker: Manifest = {"tfReplicaType": WORKER, "replicas": count or 0}
    if masters and "template" in masters[0]:
        worker["template"] = deepcopy(masters[0]["template"])
    spec.setdefault("replicaSpecs", []).append(worker)


def _of_programs(
    field: str,
    read: Callable[[Mapping[str, Any], Mapping[str, Any]], Any],
    write: Callable[[Manifest, Manifest, Any], None],
) -> FormField:
    """A field of the pod of a replica and its training container, which are given in this order."""

    def read_replica(replica: Mapping[str, Any]) -> Any:
        pod = _pod_of(replica, field)
        return read(pod, _container_of(pod, field))

    def read_program(spec: Mapping[str, Any]) -> Any:
        programs = list(_program_replicas(spec, field))
        workers = [replica for replica in programs if replica.get("tfReplicaType") == WORKER]
        return read_replica(next(iter(workers + programs), {}))

    def write_programs(spec: Manifest, value: Any) -> None:
        before = read_program(spec)
        if not list(_program_replicas(spec, field)):
            spec.setdefault("replicaSpecs", []).append({"tfReplicaType": MASTER, "replicas": 1})
        for replica in _program_replicas(spec, field):
            if read_replica(replica) == before:
                container = _ensure_container(replica)
                write(replica["template"]["spec"], container, value)

    return FormField(read_program, write_programs)


def _of_container(
    field: str, read: Callable[[Mapping[str, Any]], Any], write: Callable[[Manifest, Any], None]
) -> FormField:
    return _of_programs(
        field, lambda pod, container: read(container), lambda pod, container, value: write(container, value)
    )


def _program_replicas(spec: Mapping[str, Any], field: str) -> Iterator[Manifest]:
    """The masters and workers; a type that is left out is MASTER."""
    for replica in mappings_at(spec, "replicaSpecs", field="nodes"):
        if replica.get("tfReplicaType", MASTER) in (MASTER, WORKER):
            yield replica


def _pod_of(replica: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    return mapping_at(mapping_at(replica, "template", field=field), "spec", field=field)


def _container_of(pod: Mapping[str, Any], field: str) -> Manifest:
    """The training container of a pod; empty if there is none."""
    containers = mappings_at(pod, "containers", field=field)
    return next((container for container in containers if container.get("name") == CONTAINER_NAME), {})


def _ensure_container(replica: Manifest) -> Manifest:
    """The training container of a replica, which is created if there is none."""
    if container := _container_of(_pod_of(replica, "image"), "image"):
        return container
    pod = section_at(section_at(replica, "template"), "spec")
    pod.setdefault("restartPolicy", "OnFailure")
    if not pod.get("containers"):
        pod["containers"] = []
    pod["containers"].append(container := {"name": CONTAINER_NAME})
    return container


def _quantity(resource: str, *new: str) -> FormField:
    return _of_container(
        resource,
        lambda container: quantity_at(container, "resources", resource),
        lambda container, text: put_quantity(container, "resources", resource, text, new),
    )


KIND_FORM = KindForm(
    resource=TFJOBS,
    nodes_label="Workers",
    nodes_hint="0 for a master alone",
    min_nodes=0,
    max_nodes=MAX_REPLICAS,
    requires_nodes=True,
    identity_fields=("RuntimeId",),
    message_patterns=(
        ("minimum", r"\bminWorkers\b|\bautoscaling\b"),
        ("maximum", r"\b(?:spec\.)?(?:autoscaling\.)?maxWorkers\b"),
        ("nodes", r"\breplicas\b"),
        ("restarts", r"\bbackoffLimit\b"),
    ),
    new_spec=_new_spec,
    parts={
        # First, so that new workers get the other changes as well.
        "nodes": FormField(_read_workers, _put_workers),
        "image": _of_container("image", lambda container: string_at(container, "image", "image"), put_image),
        "command": _of_container("command", command_at, put_command),
        "cpu": _quantity(CPU, "requests"),
        "memory": _quantity(MEMORY, "requests", "limits"),
        "gpus": _of_container(
            "gpus",
            lambda container: gpus_at(container, "resources"),
            lambda container, gpus: put_gpus(container, "resources", gpus),
        ),
        "env": _of_container("env", env_at, put_env),
        "other_env": _of_container("env", other_env_at, put_nothing),
        "volumes": _of_programs("volumes", volumes_at, put_volumes),
        "shared_memory": _of_programs("volumes", shared_memory_at, put_shared_memory),
        "other_volumes": _of_programs("volumes", other_volumes_at, put_nothing),
        **COMMON_PARTS,
        "minimum": scalar("minimum", ("autoscaling", "minWorkers"), number_at),
        "maximum": scalar("maximum", ("autoscaling", "maxWorkers"), number_at),
        "restarts": scalar("restarts", ("backoffLimit",), number_at),
    },
)
