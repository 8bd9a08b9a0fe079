"""The CRDs of `kubeflow.org/v1` accept and keep what those of training-operator 1.9.4 do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from generate.v1kinds import render_v1_crd, v1_crd_of
from helpers.schemafields import fields_of
from localcluster.crds import documents
from tfjob_controller.api.kubeflowv1.types import (
    V1_KINDS,
    V1_RESOURCES,
    V1Condition,
    V1ElasticPolicy,
    V1ReplicaStatus,
    V1RunPolicy,
    V1SchedulingPolicy,
    V1Spec,
    V1Status,
)

UPSTREAM = yaml.safe_load((Path(__file__).parents[2] / "data/kubeflowv1/fields.yaml").read_text("utf-8"))
# Pod templates are open.
TEMPLATE = 'object {"x-kubernetes-preserve-unknown-fields": true}'
# `kubectl apply` keeps an object in an annotation, and annotations may have 256 KiB.
MAX_APPLIED = 256 * 1024

KINDS = list(V1_KINDS)


def version_of(kind: str) -> dict[str, Any]:
    """Returns the only version of a CRD."""
    (version,) = v1_crd_of(V1_KINDS[kind])["spec"]["versions"]
    return dict(version)


def schema_of(kind: str) -> dict[str, Any]:
    return dict(version_of(kind)["schema"]["openAPIV3Schema"])


@pytest.mark.parametrize("kind", KINDS)
def test_each_field_accepts_what_upstreams_does(kind: str) -> None:
    recorded = {**UPSTREAM["all"], **UPSTREAM.get(kind, {})}
    field = V1_KINDS[kind].replicas_field
    expected = {path.replace("REPLICAS", field): line.replace("REPLICAS", field) for path, line in recorded.items()}
    expected[f".spec.{field}{{}}.template"] = TEMPLATE
    assert dict(fields_of(schema_of(kind), "template")) == expected


DECODED: dict[str, type[msgspec.Struct]] = {
    ".spec": V1Spec,
    ".spec.runPolicy": V1RunPolicy,
    ".spec.runPolicy.schedulingPolicy": V1SchedulingPolicy,
    ".spec.elasticPolicy": V1ElasticPolicy,
    ".status": V1Status,
    ".status.conditions[]": V1Condition,
    ".status.replicaStatuses{}": V1ReplicaStatus,
}


@pytest.mark.parametrize("at", DECODED)
def test_each_field_that_is_decoded_is_one_of_a_crd(at: str) -> None:
    paths = {path for kind in KINDS for path, _ in fields_of(schema_of(kind), "template")}
    # The kinds name it in their own ways.
    names = set(DECODED[at].__struct_encode_fields__) - {"replicaSpecs"}
    assert {f"{at}.{name}" for name in names} <= paths


def patterns(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("pattern"), str):
            yield node["pattern"]
        for value in node.values():
            yield from patterns(value)
    for item in node if isinstance(node, list) else ():
        yield from patterns(item)


@pytest.mark.parametrize("text", ["1", "-1", "+1.5", ".5", "1.", "2Gi", "1m", "1k", "1e3", "1E-3", "1e1.5", "1e.5"])
def test_a_quantity_is_what_controller_gen_takes_for_one(text: str) -> None:
    (pattern,) = set(patterns(schema_of("PyTorchJob")))
    assert re.search(pattern, text)
    assert not re.search(pattern, f"{text}?")
    assert not re.search(pattern, f"Gi{text}")


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_of_the_kind_is_served_under_its_resource(kind: str) -> None:
    crd, resource = v1_crd_of(V1_KINDS[kind]), V1_RESOURCES[kind]
    assert crd["metadata"]["name"] == resource.full_name
    names = {"kind": kind, "listKind": f"{kind}List", "plural": resource.plural, "singular": kind.lower()}
    assert crd["spec"]["names"] == names
    assert (version_of(kind)["name"], crd["spec"]["scope"]) == (resource.version, "Namespaced")


@pytest.mark.parametrize("kind", KINDS)
def test_columns_and_subresources_are_upstreams(kind: str) -> None:
    version = version_of(kind)
    columns = [(column["name"], column["jsonPath"]) for column in version["additionalPrinterColumns"]]
    expected = [("State", ".status.conditions[-1:].type"), ("Age", ".metadata.creationTimestamp")]
    assert columns == (expected[::-1] if kind == "MPIJob" else expected)
    scale = {
        "specReplicasPath": f".spec.{V1_KINDS[kind].replicas_field}.Worker.replicas",
        "statusReplicasPath": ".status.replicaStatuses.Worker.active",
        "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
    }
    has_scale = kind in ("PyTorchJob", "JAXJob", "PaddleJob")
    assert version["subresources"] == {"status": {}, **({"scale": scale} if has_scale else {})}


@pytest.mark.parametrize("kind", KINDS)
def test_a_manifest_is_small_enough_for_kubectl_apply(kind: str) -> None:
    text = render_v1_crd(V1_KINDS[kind])
    assert len(text.encode()) < MAX_APPLIED
    assert documents(text) == [v1_crd_of(V1_KINDS[kind])]
