"""The rules of api/decode.py: no object can stop a cache."""

import gc
import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from helpers.goodtrainmanifests import GOOD_TRAINJOBS
from helpers.manifests import master, tfjob, workers
from helpers.trainmanifests import role_template, runtime, trainjob
from tfjob_controller.api.common.sizes import MAX_SPEC_BYTES, MAX_SPEC_VALUES, MAX_STATUS_VALUES
from tfjob_controller.api.tfjob.status import TFJobStatus
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.trainjob.runtime import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES
from tfjob_controller.api.trainjob.types import FRAMEWORK_ANNOTATION, TRAINJOBS
from tfjob_controller.kube.meta import key_of


def encoded(spec: Any, status: Any = None) -> bytes:
    return json.dumps({"metadata": {"name": "a", "uid": "u"}, "spec": spec, "status": status}).encode()


def test_every_field_is_read_under_its_wire_name() -> None:
    manifest = tfjob(RuntimeId="76no", workerReplicas=3, cleanPodPolicy="All", schedulerName="gang", suspend=True)
    job = TFJOBS.decode(json.dumps({**manifest, "status": {"phase": "Running", "ready": {"ps": "1/2"}}}).encode())
    assert (job.metadata.name, job.invalid) == ("example-job", "")
    assert [entry.tf_replica_type for entry in job.spec.replica_specs] == ["MASTER", "WORKER", "PS"]
    assert (job.spec.runtime_id, job.spec.worker_replicas, job.spec.suspend) == ("76no", 3, True)
    assert (job.status.phase, job.status.ready) == ("Running", {"ps": "1/2"})


def test_a_template_stays_as_it_is_with_all_that_nobody_here_knows() -> None:
    template = {"spec": {"containers": [{"name": "tensorflow", "new": [1, None]}], "later": {"x": None}}, "odd": 1.5}
    job = TFJOBS.decode(encoded({"replicaSpecs": [{"template": template}], "suspend": None}))
    assert job.spec.replica_specs[0].template == template


@pytest.mark.parametrize(
    ("spec", "invalid"),
    [
        ({"replicaSpecs": [{"replicas": "2"}]}, "spec.replicaSpecs[0].replicas: expected int, got str"),
        ({"replicaSpecs": [{}, {"tfPort": 1.5}]}, "spec.replicaSpecs[1].tfPort: expected int, got float"),
        ({"replicaSpecs": [{"template": []}]}, "spec.replicaSpecs[0].template: expected object, got array"),
        ("none", "spec: expected object, got str"),
    ],
    ids=str,
)
def test_a_field_of_the_wrong_type_makes_a_job_that_says_so(spec: Any, invalid: str) -> None:
    job = TFJOBS.decode(encoded(spec, {"phase": "Running"}))
    assert job.invalid == invalid
    assert job.spec.replica_specs == ()
    assert (job.metadata.uid, job.status.phase) == ("u", "Running")


@pytest.mark.parametrize(
    "status",
    [{"phase": 3}, {"conditions": [{"type": "Running"}]}, [], "Done"],
    ids=str,
)
def test_a_status_that_does_not_fit_is_as_good_as_none(status: Any) -> None:
    job = TFJOBS.decode(encoded(tfjob(master(), workers(2))["spec"], status))
    assert job.status == TFJobStatus()
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
    job = TFJOBS.decode(encoded(spec))
    assert (job.invalid, job.spec.replica_specs, job.spec.tf_image) == ("", (), "")


def test_a_job_is_read_from_a_part_of_a_list_too() -> None:
    (raw,) = msgspec.json.decode(b'[{"metadata":{"name":"a"},"spec":{"suspend":1}}]', type=list[msgspec.Raw])
    assert TFJOBS.decode(raw).invalid == "spec.suspend: expected bool, got int"


def encoded_train(spec: Any, status: Any = None) -> bytes:
    metadata = {"name": "a", "uid": "u", "annotations": {FRAMEWORK_ANNOTATION: "jax", "other": "x"}}
    return json.dumps({"metadata": metadata, "spec": spec, "status": status}).encode()


def test_every_field_is_read_under_its_wire_name_of_a_trainjob() -> None:
    """What is written back is what was read: no field of a job that has them all is lost."""
    (whole,) = (good.manifest for good in GOOD_TRAINJOBS if good.name == "every-field")
    job = TRAINJOBS.decode(json.dumps(whole).encode())
    spec = json.loads(msgspec.json.encode(job.spec))
    # These are the server's defaults, and so absent.
    spec["runtimeRef"] |= {"kind": "ClusterTrainingRuntime", "apiGroup": "kubeflow.org"}
    assert spec == whole["spec"]
    assert job.invalid == ""


def test_a_status_is_read_under_its_wire_names() -> None:
    status = {
        "phase": "Running",
        "state": "RUNNING",
        "reason": "why",
        "conditions": [],
        "jobsStatus": [
            {"name": "node", "replicas": 4, "ready": 2, "active": 1, "succeeded": 1, "failed": 1, "suspended": 0}
        ],
        "restarts": 3,
        "restartCounts": {"uid": 3},
        "succeededIndexes": ["node-0"],
        "observedGeneration": 7,
        "startTime": "2026-01-01T00:00:00Z",
        "completionTime": "2026-01-01T00:00:01Z",
        "metrics": [{"name": "loss", "value": "0.1", "logTime": "2026-01-01T00:00:00Z"}],
        "progress": "step 40",
        "nodes": "2/2",
        "runtime": "torch-distributed",
    }
    job = TRAINJOBS.decode(encoded_train(trainjob()["spec"], status))
    written = json.loads(msgspec.json.encode(job.status))
    assert written == {name: value for name, value in status.items() if value != []}


def test_metadata_keeps_the_one_annotation_that_is_read_also_of_a_job_that_cannot_be_read() -> None:
    for spec in (trainjob()["spec"], {"numNodes": "2"}):
        assert TRAINJOBS.decode(encoded_train(spec)).metadata.annotations.framework == "jax"


@pytest.mark.parametrize(
    ("spec", "invalid"),
    [
        ({"trainer": {"numProcPerNode": 1.5}}, "spec.trainer.numProcPerNode: expected int or str, got float"),
        ({"datasetConfig": {}}, "spec.datasetConfig: object missing required field storageUri"),
        ({"podSpecOverrides": [{}]}, "spec.podSpecOverrides[0]: object missing required field targetJobs"),
    ],
    ids=str,
)
def test_a_field_of_the_wrong_type_makes_a_job_that_says_so_of_a_trainjob(spec: Any, invalid: str) -> None:
    job = TRAINJOBS.decode(encoded_train(spec, {"phase": "Running"}))
    assert (job.invalid, job.spec.num_nodes) == (invalid, None)
    assert (job.metadata.uid, job.status.phase) == ("u", "Running")


def test_a_null_is_an_absent_field_but_in_a_template() -> None:
    job = TRAINJOBS.decode(
        encoded_train({"numNodes": None, "trainer": {"env": [{"name": "A", "value": None}]}, "gang": None})
    )
    assert (job.invalid, job.spec.num_nodes, job.spec.trainer.env) == ("", None, ({"name": "A"},))
    template = role_template(later=[1, None], odd=None)
    its = TRAINING_RUNTIMES.decode(json.dumps(runtime(framework=None, templates={"node": template})).encode())
    assert (its.invalid, its.spec.templates) == ("", {"node": template})


def test_an_object_cannot_say_of_itself_that_it_is_invalid() -> None:
    assert TFJOBS.decode(json.dumps({**tfjob(), "_invalid": "so there"}).encode()).invalid == ""
    assert TRAINJOBS.decode(json.dumps({**trainjob(), "_invalid": "so there"}).encode()).invalid == ""
    assert TRAINING_RUNTIMES.decode(json.dumps({**runtime(), "_invalid": "so there"}).encode()).invalid == ""


def test_a_runtime_of_the_wrong_shape_says_so() -> None:
    its = TRAINING_RUNTIMES.decode(json.dumps(runtime(templates=[])).encode())
    assert (its.invalid, its.spec.templates) == ("spec.templates: expected object, got array", {})


@pytest.mark.parametrize("data", [b"", b"null", b'{"spec": {}}', b'{"metadata": {"name": 1}}'], ids=str)
def test_what_is_no_object_at_all_is_refused(data: bytes) -> None:
    for decode in (TFJOBS.decode, TRAINJOBS.decode, TRAINING_RUNTIMES.decode):
        with pytest.raises(msgspec.DecodeError):
            decode(data)


def test_only_one_kind_of_runtime_has_a_namespace() -> None:
    assert TRAINJOBS.path("ns", "a", "status") == "/apis/kubeflow.org/v2alpha1/namespaces/ns/trainjobs/a/status"
    assert TRAINING_RUNTIMES.path("ns", "a") == "/apis/kubeflow.org/v2alpha1/namespaces/ns/trainingruntimes/a"
    assert CLUSTER_TRAINING_RUNTIMES.path("ns", "a") == "/apis/kubeflow.org/v2alpha1/clustertrainingruntimes/a"
    assert key_of(TRAINING_RUNTIMES.decode(json.dumps(runtime("plain")).encode())) == "plain"


LARGE = {
    "bytes": {"spec": {"containers": [{"name": "tensorflow", "command": ["x" * MAX_SPEC_BYTES]}]}},
    "empty objects": {"x": [{}] * MAX_SPEC_VALUES},
    "small objects": {"x": [{"a": 1}] * MAX_SPEC_VALUES},
    "lists": {"x": [[]] * MAX_SPEC_VALUES},
    "fields": {"x": {str(number): number for number in range(MAX_SPEC_VALUES + 2)}},
}


LARGE_STATUS = {
    "empty objects": {"replicaStatuses": [{}] * 480_000},
    "small objects": {"replicaStatuses": [{"ReplicasStates": {"a": 1}}] * 50_000},
    "fields": {"restartCounts": {f"{number:05x}": 1 for number in range(120_000)}},
    "as many as are decoded": {"replicaStatuses": [{}] * (MAX_STATUS_VALUES // 2 - 10), "reason": "x" * 1_400_000},
}


@pytest.mark.parametrize("status", LARGE_STATUS.values(), ids=LARGE_STATUS)
def test_a_status_of_any_content_takes_at_most_four_megabytes(status: Any) -> None:
    data = encoded({"replicaSpecs": [{"template": {}}]}, status)
    tracemalloc.start()
    try:
        kept = [TFJOBS.decode(data) for _ in range(3)]
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < len(kept) * 4_000_000
    finally:
        tracemalloc.stop()
    assert (kept[0].invalid, len(kept[0].spec.replica_specs)) == ("", 1)


def test_a_status_with_too_many_values_is_as_good_as_none() -> None:
    spec = {"replicaSpecs": [{"template": {}}]}
    many = {"phase": "Done", "restartCounts": {f"{number:036x}": 1 for number in range(MAX_STATUS_VALUES + 2)}}
    assert TFJOBS.decode(encoded(spec, many)).status == TFJobStatus()
    assert TRAINJOBS.decode(encoded_train({"trainer": {}}, many)).status.phase == ""


def test_the_status_of_the_largest_job_is_decoded() -> None:
    """2,001 replicas whose pods and child Jobs have all been restarted, and which have all succeeded."""
    status = {
        "phase": "Done",
        "restartCounts": {f"{number:036x}": 1 for number in range(2 * 2001 + 32)},
        "succeededIndexes": [f"worker-{number}" for number in range(2001)],
        "progress": {"counts": {f"{number:036x}": 1 for number in range(1000 + 32)}},
    }
    found = TFJOBS.decode(encoded({"replicaSpecs": [{"template": {}}]}, status)).status
    assert (found.phase, len(found.restart_counts)) == ("Done", 2 * 2001 + 32)


@pytest.mark.parametrize("template", LARGE.values(), ids=LARGE)
def test_what_would_take_much_memory_is_not_decoded_and_says_so(template: Any) -> None:
    job = TFJOBS.decode(encoded({"replicaSpecs": [{"template": template}]}, {"phase": "Running"}))
    assert job.invalid.startswith("spec: must have at most ")
    assert job.spec.replica_specs == ()
    assert (job.metadata.name, job.metadata.uid, job.status.phase) == ("a", "u", "Running")


def test_many_labels_are_not_decoded() -> None:
    labels = {f"k{number}": "v" for number in range(10_000)}
    body = {"metadata": {"name": "a", "namespace": "n", "uid": "u", "labels": labels}, "spec": {}}
    job = TFJOBS.decode(json.dumps(body).encode())
    assert "labels and ownerReferences" in job.invalid
    assert (key_of(job), job.metadata.labels) == ("n/a", {})


def test_a_template_with_long_texts_and_all_that_people_use_is_taken() -> None:
    env = [{"name": f"V{number}", "value": "1, 2, {3}, [4]"} for number in range(1000)]
    template = {"spec": {"containers": [{"name": "tensorflow", "args": ["a,{" * 30_000], "env": env}]}}
    job = TFJOBS.decode(encoded({"replicaSpecs": [{"template": template}]}))
    assert job.invalid == ""
    assert job.spec.replica_specs[0].template == template


def test_objects_of_any_content_take_at_most_two_megabytes_each() -> None:
    """Those that the API server takes: 1.5 MB, in all."""
    hostile = [encoded({"replicaSpecs": [{"template": template}]}) for template in LARGE.values()]
    just_within = {"x": [{"a": 1.5, "b": "\u00e9" * 10} for _ in range(MAX_SPEC_VALUES // 3)]}
    hostile.append(encoded({"replicaSpecs": [{"template": just_within}]}))
    for data in hostile:
        tracemalloc.start()
        try:
            kept = [TFJOBS.decode(data) for _ in range(3)]
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < len(kept) * 2_000_000
        finally:
            tracemalloc.stop()


def test_bytes_that_are_not_utf_8_are_refused_as_all_other_invalid_json() -> None:
    with pytest.raises(msgspec.DecodeError, match="not UTF-8"):
        TFJOBS.decode(b'{"metadata": {"name": "\xff"}}')
