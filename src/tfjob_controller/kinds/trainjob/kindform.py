"""How the dashboard's form for a new job reads a TrainJob, and writes changed fields into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfjob_controller.api.trainjob.types import MAX_NODES, TRAINJOBS
from tfjob_controller.kinds.kindform import (
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


def _read_fields(spec: Mapping[str, Any]) -> dict[str, Any]:
    trainer = mapping_at(spec, "trainer", field="image")
    nodes = number_at(spec, "numNodes", "nodes")
    return {
        "image": string_at(trainer, "image", "image"),
        "command": command_at(trainer),
        "framework": string_at(spec, "framework", "framework"),
        "nodes": number_at(trainer, "numNodes", "nodes") if nodes is None else nodes,
        "gpus": gpus_at(trainer, "resourcesPerNode"),
    }


def _write_fields(spec: Manifest, changes: Mapping[str, Any]) -> None:
    if "framework" in changes:
        put(spec, "framework", changes["framework"] or None)
    if "nodes" in changes:
        put(spec, "numNodes", changes["nodes"])
        if isinstance(trainer := spec.get("trainer"), dict):
            trainer.pop("numNodes", None)  # the other name of the same field
    if changes.keys() & {"image", "command", "gpus"}:
        trainer = section_at(spec, "trainer")
        if "image" in changes:
            put(trainer, "image", changes["image"] or None)
        if "command" in changes:
            put(trainer, "command", list(changes["command"]) or None)
        if "gpus" in changes:
            put_gpus(trainer, "resourcesPerNode", changes["gpus"])
    if spec.get("trainer") == {}:
        del spec["trainer"]


KIND_FORM = KindForm(
    resource=TRAINJOBS,
    bounds=("elasticPolicy", "minNodes", "maxNodes"),
    max_nodes=MAX_NODES,
    framework_hint="torch, tensorflow, jax, xgboost, mpi, plain or another one; empty lets the command or the runtime "
    "decide.",
    message_patterns=(
        ("minimum", r"\bminNodes\b|\belasticPolicy\b"),
        ("maximum", r"\b(?:spec\.)?(?:elasticPolicy\.)?maxNodes\b"),
        ("nodes", r"\b(?:spec\.)?(?:trainer\.)?numNodes\b"),
        ("gpus", r"\bresourcesPerNode\b"),
    ),
    new_spec=lambda: {"numNodes": 1},
    read_fields=_read_fields,
    write_fields=_write_fields,
)
