"""The six kinds of `kubeflow.org/v1` as they are decoded and written."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from helpers.v1manifests import decoded_v1, v1_job, v1_manifest, v1_replicas
from tfjob_controller.api.common.record import RECORD_ANNOTATION
from tfjob_controller.api.kubeflowv1.types import (
    V1_KINDS,
    V1_RESOURCES,
    V1Condition,
    V1ReplicaStatus,
    V1Status,
)

KINDS = list(V1_KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_replicas_of_each_kind_are_read_from_its_own_field(kind: str) -> None:
    job = v1_job(kind, {"Worker": 3})
    assert job.kind == kind
    assert job.invalid == ""
    assert job.spec.replica_specs["Worker"].replicas == 3
    assert job.spec.replica_specs["Worker"].template == v1_replicas(kind)["template"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_of_a_list_has_its_kind_without_the_field_kind(kind: str) -> None:
    manifest = v1_manifest(kind, {"Worker": 1})
    del manifest["kind"], manifest["apiVersion"]
    assert V1_RESOURCES[kind].decode(json.dumps(manifest).encode()).kind == kind


def test_unknown_fields_are_ignored_and_null_is_absent() -> None:
    worker = v1_replicas("TFJob", 1, port=2222)
    job = v1_job("TFJob", {"Worker": worker}, runPolicy={"suspend": None, "backOff": 1}, foo=[], successPolicy=None)
    assert job.invalid == ""
    assert not job.spec.run_policy.suspend
    assert job.spec.success_policy == ""


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"tfReplicaSpecs": []}, "spec.tfReplicaSpecs: expected object, got array"),
        ({"tfReplicaSpecs": {"Worker": {"replicas": "2"}}}, "spec.tfReplicaSpecs[...].replicas: expected int, got str"),
        ({"tfReplicaSpecs": {"Worker": {"template": []}}}, "spec.tfReplicaSpecs[...].template: expected object"),
        ({"runPolicy": {"suspend": "true"}}, "spec.runPolicy.suspend: expected bool, got str"),
        ({"runPolicy": {"schedulingPolicy": {"minAvailable": 1.5}}}, "schedulingPolicy.minAvailable: expected int"),
    ],
)
def test_a_field_of_a_wrong_type_makes_a_job_invalid_by_its_path(spec: Any, problem: str) -> None:
    manifest = v1_manifest("TFJob", None) | {"spec": spec}
    job = decoded_v1(manifest)
    assert problem in job.invalid
    assert job.metadata.name == "test"
    assert not job.spec.replica_specs


def test_templates_are_kept_as_they_are() -> None:
    template = {"metadata": {"annotations": None}, "spec": {"containers": [{"name": "tensorflow", "foo": {"a": None}}]}}
    job = v1_job("TFJob", {"Worker": {"template": template}}, runPolicy=None)
    assert job.spec.replica_specs["Worker"].template == template


def test_only_the_record_is_read_of_the_annotations() -> None:
    manifest = v1_manifest("JAXJob", {"Worker": 1})
    manifest["metadata"]["annotations"] = {
        RECORD_ANNOTATION: "{}",
        "kubectl.kubernetes.io/last-applied-configuration": "x",
    }
    assert msgspec.to_builtins(decoded_v1(manifest).metadata.annotations) == {RECORD_ANNOTATION: "{}"}


def test_a_status_is_written_without_empty_values() -> None:
    status = V1Status(
        conditions=(V1Condition("Created", "True", "TFJobCreated", "TFJob a is created.", "t1", "t2"),),
        replica_statuses={"PS": V1ReplicaStatus(), "Worker": V1ReplicaStatus(active=2)},
        start_time="t3",
    )
    assert json.loads(msgspec.json.encode(status)) == {
        "conditions": [
            {
                "type": "Created",
                "status": "True",
                "reason": "TFJobCreated",
                "message": "TFJob a is created.",
                "lastUpdateTime": "t1",
                "lastTransitionTime": "t2",
            }
        ],
        "replicaStatuses": {"PS": {}, "Worker": {"active": 2}},
        "startTime": "t3",
    }


def test_the_status_of_training_operator_is_read_as_it_is_written() -> None:
    manifest = v1_manifest("PyTorchJob", {"Worker": 1})
    selector = "training.kubeflow.org/job-name=test"
    manifest["status"] = {
        "conditions": [{"type": "Created", "status": "True", "lastUpdateTime": "t1", "lastTransitionTime": "t1"}],
        "replicaStatuses": {"Worker": {"active": 1, "selector": selector}},
        "startTime": "t1",
        "completionTime": "t2",
        "lastReconcileTime": "t3",
    }
    assert json.loads(msgspec.json.encode(decoded_v1(manifest).status)) == manifest["status"]
