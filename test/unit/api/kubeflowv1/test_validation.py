"""Which jobs of `kubeflow.org/v1` are refused, and with which text. Numbers in ids are those of the contract."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.v1admission import BY_ID, NAMELESS, containers, named
from helpers.v1manifests import decoded_v1, v1_job, v1_manifest, v1_replicas
from tfjob_controller.api.kubeflowv1.validation import MAX_REPLICAS, problem


@pytest.mark.parametrize("id_", BY_ID)
def test_what_a_webhook_refuses_has_its_text(id_: str) -> None:
    case = BY_ID[id_]
    assert problem(decoded_v1(case.manifest)) == case.refusal


def test_a_job_without_types_has_no_replica_specs() -> None:
    assert problem(v1_job("PyTorchJob", {})) == "spec.pytorchReplicaSpecs: Required value: must be required"


def test_a_valid_mpijob() -> None:
    assert problem(v1_job("MPIJob", {"Launcher": 1, "Worker": 2})) is None


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        pytest.param(None, "MPIReplicaSpecs is not valid", id="134: no replica specs"),
        pytest.param(
            {"Worker": 1}, "MPIReplicaSpec is not valid: Master ReplicaSpec must be present", id="135: no launcher"
        ),
        pytest.param(
            {"Launcher": containers(named("MPIJob"))},
            "MPIReplicaSpec is not valid: Image is undefined in the container of Launcher",
            id="136: no image",
        ),
        pytest.param(
            {"Launcher": containers(NAMELESS)},
            "MPIReplicaSpec is not valid: ImageName is undefined in the container of Launcher",
            id="136: no name",
        ),
        pytest.param(
            {"Launcher": containers()},
            "MPIReplicaSpecs is not valid: containers definition expected in Launcher",
            id="136: no containers",
        ),
        pytest.param(
            {"Launcher": 2},
            "MPIReplicaSpec is not valid: There must be only 1 launcher replica",
            id="135: two launchers",
        ),
        pytest.param(
            {"Launcher": 1, "Master": 1}, "MPIReplicaType is Master but must be one of [Launcher Worker]", id="type"
        ),
        pytest.param({"Launcher": containers({"name": "any", "image": "i"})}, None, id="any container"),
    ],
)
def test_mpijobs(replicas: Any, expected: str | None) -> None:
    assert problem(v1_job("MPIJob", replicas, "0-test")) == expected


def test_the_problem_of_an_undecodable_job_is_the_first_one() -> None:
    manifest = v1_manifest("TFJob", {"Worker": 1}, "0-test", runPolicy=[])
    assert problem(decoded_v1(manifest)) == "spec.runPolicy: expected object, got array"


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ({"Worker": {"template": {"spec": []}}}, "spec.tfReplicaSpecs[Worker].template.spec: expected an object"),
        (
            {"Worker": containers({"image": "i"})},
            "spec.tfReplicaSpecs[Worker].template.spec.containers[0].name: a name is required",
        ),
        (
            {"Worker": containers({"name": "tensorflow", "image": "i", "ports": ["2222"]})},
            "spec.tfReplicaSpecs[Worker].template.spec.containers[0].ports: expected a list of objects",
        ),
        ({"Worker": 1, "WORKER": 1}, 'spec.tfReplicaSpecs[WORKER]: Duplicate value: "WORKER"'),
        (
            {"My_Type": 1},
            'spec.tfReplicaSpecs[My_Type]: Invalid value: "My_Type": '
            "must be of letters, digits and -, as a part of the names of pods",
        ),
        ({"Worker": -1}, "spec.tfReplicaSpecs[Worker].replicas: Invalid value: -1: must be at least 0"),
        (
            {"PS": MAX_REPLICAS, "Worker": None},
            f"spec.tfReplicaSpecs: Invalid value: {MAX_REPLICAS + 1}: must have at most {MAX_REPLICAS} replicas in all",
        ),
        (
            {"Worker": v1_replicas("TFJob", restartPolicy="Sometimes")},
            'spec.tfReplicaSpecs[Worker].restartPolicy: Unsupported value: "Sometimes": '
            'supported values: "Always", "OnFailure", "Never", "ExitCode"',
        ),
    ],
)
def test_jobs_of_which_no_pod_can_come_are_refused(replicas: Any, expected: str) -> None:
    assert problem(v1_job("TFJob", replicas)) == expected
