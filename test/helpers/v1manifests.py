"""Jobs of `kubeflow.org/v1` for tests: manifests as dicts, and the same decoded."""

from __future__ import annotations

import json
from typing import Any

from tfjob_controller.api.kubeflowv1.types import V1_KINDS, V1_RESOURCES, V1Job

Manifest = dict[str, Any]


def v1_replicas(kind: str, replicas: int | None = None, **fields: Any) -> Manifest:
    """Returns the specification of the replicas of one type, with one container that is valid for the kind."""
    containers = [{"name": V1_KINDS[kind].container, "image": "training:1"}]
    given = {} if replicas is None else {"replicas": replicas}
    return {**given, "template": {"spec": {"containers": containers}}, **fields}


def v1_manifest(
    kind: str, replicas: dict[str, int | Manifest | None] | None, name: str = "test", **spec: Any
) -> Manifest:
    """Returns a job: for each type the number of its replicas or their specification; None for a job without types."""
    resource = V1_RESOURCES[kind]
    specs = {
        type_: entry if isinstance(entry, dict) else v1_replicas(kind, entry)
        for type_, entry in (replicas or {}).items()
    }
    field = {} if replicas is None else {V1_KINDS[kind].replicas_field: specs}
    metadata = {"name": name, "namespace": "team", "uid": f"{name}-uid", "generation": 1}
    return {"apiVersion": resource.api_version, "kind": kind, "metadata": metadata, "spec": {**field, **spec}}


def decoded_v1(manifest: Manifest) -> V1Job:
    return V1_RESOURCES[manifest["kind"]].decode(json.dumps(manifest).encode())


def v1_job(kind: str, replicas: dict[str, int | Manifest | None] | None, name: str = "test", **spec: Any) -> V1Job:
    """Returns the job of `v1_manifest`, decoded."""
    return decoded_v1(v1_manifest(kind, replicas, name, **spec))
