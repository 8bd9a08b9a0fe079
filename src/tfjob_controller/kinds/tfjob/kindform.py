"""TFJobs in the dashboard's form for a new job.

The replicas of a TFJob share one program: the form shows that of the workers (of the master without workers), and a
change applies to each MASTER and WORKER whose value was the same before. `nodes` is the number of workers, and 0
without workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from tfjob_controller.api.tfjob.types import CONTAINER_NAME, MASTER, MAX_REPLICAS, TFJOBS, WORKER
from tfjob_controller.kinds.kindform import (
    FormError,
    KindForm,
    Manifest,
    command_at,
    gpus_at,
    mapping_at,
    number_at,
    put,
    put_gpus,
    section_at,
    string_at,
)


def _new_spec() -> Manifest:
    master: Manifest = {"tfReplicaType": MASTER, "replicas": 1}
    _ensure_container(master)
    return {"replicaSpecs": [master]}


def _read_fields(spec: Mapping[str, Any]) -> dict[str, Any]:
    replica_specs = spec.get("replicaSpecs") or []
    if not isinstance(replica_specs, list):
        raise FormError("nodes", "Nodes: spec.replicaSpecs must be a list; correct it in the YAML.")
    programs = _program_replicas(replica_specs)
    workers = next((replica for replica in programs if replica.get("tfReplicaType") == WORKER), None)
    container = _container_of(workers or next(_program_replicas(replica_specs), {}))
    count = 0 if workers is None else number_at(workers, "replicas", "nodes")
    return {
        "image": string_at(container, "image", "image"),
        "command": command_at(container),
        "nodes": 1 if count is None else count,
        "gpus": gpus_at(container, "resources"),
    }


def _write_fields(spec: Manifest, changes: Mapping[str, Any]) -> None:
    before = _read_fields(spec)
    replica_specs = spec.setdefault("replicaSpecs", [])
    if "nodes" in changes:
        _put_workers(replica_specs, changes["nodes"] or 0)
    if not changes.keys() & {"image", "command", "gpus"}:
        return
    if not list(_program_replicas(replica_specs)):
        replica_specs.append({"tfReplicaType": MASTER, "replicas": 1})
    for container in [_ensure_container(replica) for replica in _program_replicas(replica_specs)]:
        if "image" in changes and string_at(container, "image", "image") == before["image"]:
            put(container, "image", changes["image"] or None)
        if "command" in changes and command_at(container) == before["command"]:
            put(container, "command", list(changes["command"]) or None)
        if "gpus" in changes and gpus_at(container, "resources") == before["gpus"]:
            put_gpus(container, "resources", changes["gpus"])


def _program_replicas(replica_specs: list[Any]) -> Iterator[Manifest]:
    """The masters and workers; a type that is left out is MASTER."""
    for replica in replica_specs:
        if not isinstance(replica, dict):
            raise FormError("nodes", "Nodes: each of spec.replicaSpecs must be a mapping; correct it in the YAML.")
        if replica.get("tfReplicaType", MASTER) in (MASTER, WORKER):
            yield replica


def _container_of(replica: Mapping[str, Any]) -> Manifest:
    """The training container of a replica; empty if there is none."""
    pod = mapping_at(mapping_at(replica, "template", field="image"), "spec", field="image")
    containers = pod.get("containers") or []
    if not isinstance(containers, list) or not all(isinstance(container, dict) for container in containers):
        raise FormError("image", "Image: containers must be a list of mappings; correct it in the YAML.")
    return next((container for container in containers if container.get("name") == CONTAINER_NAME), {})


def _ensure_container(replica: Manifest) -> Manifest:
    """The training container of a replica, which is created if there is none."""
    if container := _container_of(replica):
        return container
    pod = section_at(section_at(replica, "template"), "spec")
    pod.setdefault("restartPolicy", "OnFailure")
    if not pod.get("containers"):
        pod["containers"] = []
    pod["containers"].append(container := {"name": CONTAINER_NAME})
    return container


def _put_workers(replica_specs: list[Any], count: int) -> None:
    """Sets the number of workers. New workers run the master's program."""
    masters = []
    for replica in _program_replicas(replica_specs):
        if replica.get("tfReplicaType") == WORKER:
            replica["replicas"] = count
            return
        masters.append(replica)
    worker: Manifest = {"tfReplicaType": WORKER, "replicas": count}
    if masters and "template" in masters[0]:
        worker["template"] = deepcopy(masters[0]["template"])
    replica_specs.append(worker)


KIND_FORM = KindForm(
    resource=TFJOBS,
    bounds=("autoscaling", "minWorkers", "maxWorkers"),
    nodes_label="Workers",
    nodes_hint="0 for a master alone",
    min_nodes=0,
    max_nodes=MAX_REPLICAS,
    requires_nodes=True,
    fixed_framework="TensorFlow",
    identity_fields=("RuntimeId",),
    message_patterns=(
        ("minimum", r"\bminWorkers\b|\bautoscaling\b"),
        ("maximum", r"\b(?:spec\.)?(?:autoscaling\.)?maxWorkers\b"),
        ("nodes", r"\breplicas\b"),
    ),
    new_spec=_new_spec,
    read_fields=_read_fields,
    write_fields=_write_fields,
)
