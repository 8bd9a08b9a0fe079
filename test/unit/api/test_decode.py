"""The rules of api/decode.py: no object can stop a cache."""

import json
from typing import Any

import msgspec
import pytest

from helpers.manifests import master, tfjob, workers
from tfjob_controller.api.decode import decode_tfjob
from tfjob_controller.api.trainingstatus import TrainingStatus


def encoded(spec: Any, status: Any = None) -> bytes:
    return json.dumps({"metadata": {"name": "a", "uid": "u"}, "spec": spec, "status": status}).encode()


def test_every_field_is_read_under_its_wire_name() -> None:
    manifest = tfjob(RuntimeId="76no", workerReplicas=3, cleanPodPolicy="All", schedulerName="gang", suspend=True)
    job = decode_tfjob(json.dumps({**manifest, "status": {"phase": "Running", "ready": {"ps": "1/2"}}}).encode())
    assert (job.metadata.name, job.invalid) == ("example-job", "")
    assert [entry.tf_replica_type for entry in job.spec.replica_specs] == ["MASTER", "WORKER", "PS"]
    assert (job.spec.runtime_id, job.spec.worker_replicas, job.spec.suspend) == ("76no", 3, True)
    assert (job.status.phase, job.status.ready) == ("Running", {"ps": "1/2"})


def test_a_template_stays_as_it_is_with_all_that_nobody_here_knows() -> None:
    template = {"spec": {"containers": [{"name": "tensorflow", "new": [1, None]}], "later": {"x": None}}, "odd": 1.5}
    job = decode_tfjob(encoded({"replicaSpecs": [{"template": template}], "suspend": None}))
    assert job.spec.replica_specs[0].template == template


@pytest.mark.parametrize(
    ("spec", "invalid"),
    [
        ({"replicaSpecs": [{"replicas": "2"}]}, "spec.replicaSpecs[0].replicas: expected int, got str"),
        ({"replicaSpecs": [{}, {"tfPort": 1.5}]}, "spec.replicaSpecs[1].tfPort: expected int, got float"),
        ({"replicaSpecs": [{"template": []}]}, "spec.replicaSpecs[0].template: expected object, got array"),
        ({"replicaSpecs": {}}, "spec.replicaSpecs: expected array, got object"),
        ({"terminationPolicy": {"chief": "MASTER"}}, "spec.terminationPolicy.chief: expected object, got str"),
        ({"suspend": "true"}, "spec.suspend: expected bool, got str"),
        ("none", "spec: expected object, got str"),
    ],
    ids=str,
)
def test_a_field_of_the_wrong_type_makes_a_job_that_says_so(spec: Any, invalid: str) -> None:
    job = decode_tfjob(encoded(spec, {"phase": "Running"}))
    assert job.invalid == invalid
    assert job.spec.replica_specs == ()
    assert (job.metadata.uid, job.status.phase) == ("u", "Running")


@pytest.mark.parametrize(
    "status",
    [{"phase": 3}, {"conditions": "none"}, {"conditions": [{"type": "Running"}]}, [], "Done", {"restarts": "many"}],
    ids=str,
)
def test_a_status_that_does_not_fit_is_as_good_as_none(status: Any) -> None:
    job = decode_tfjob(encoded(tfjob(master(), workers(2))["spec"], status))
    assert job.status == TrainingStatus()
    assert (job.invalid, len(job.spec.replica_specs)) == ("", 2)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(None, id="of the spec"),
        pytest.param({"replicaSpecs": None}, id="of a list"),
        pytest.param({"tfImage": None, "terminationPolicy": {"chief": {"replicaIndex": None}}}, id="of a field"),
    ],
)
def test_a_null_is_an_absent_field(spec: Any) -> None:
    job = decode_tfjob(encoded(spec))
    assert (job.invalid, job.spec.replica_specs, job.spec.tf_image) == ("", (), "")


def test_an_object_cannot_say_of_itself_that_it_is_invalid() -> None:
    manifest = json.dumps({**tfjob(), "_invalid": "so there"}).encode()
    assert decode_tfjob(manifest).invalid == ""


def test_a_job_is_read_from_a_part_of_a_list_too() -> None:
    (raw,) = msgspec.json.decode(b'[{"metadata":{"name":"a"},"spec":{"suspend":1}}]', type=list[msgspec.Raw])
    assert decode_tfjob(raw).invalid == "spec.suspend: expected bool, got int"


def test_what_is_no_kubernetes_object_is_an_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_tfjob(b"<html>")
