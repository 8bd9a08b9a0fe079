"""Which jobs of `kubeflow.org/v1` are refused, and with which text. Numbers in ids are those of the contract."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.v1manifests import decoded_v1, v1_job, v1_manifest, v1_replicas
from tfjob_controller.api.kubeflowv1.types import V1_KINDS
from tfjob_controller.api.kubeflowv1.validation import MAX_REPLICAS, problem

DNS_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
MANAGERS = '"kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"'

# A valid job of each kind, by its replicas.
VALID: dict[str, Any] = {
    "TFJob": {"Worker": 2},
    "PyTorchJob": {"Master": 1, "Worker": 1},
    "MPIJob": {"Launcher": 1, "Worker": 2},
    "XGBoostJob": {"Master": 1, "Worker": 2},
    "JAXJob": {"Worker": 1},
    "PaddleJob": {"Worker": 2},
}


def containers(*items: Any, **fields: Any) -> dict[str, Any]:
    """Returns a specification of replicas with these containers."""
    return {"template": {"spec": {"containers": list(items)}}, **fields}


def bad_name(name: str) -> str:
    return f'metadata.name: Invalid value: "{name}": should match: {DNS_1035}'


def no_containers(field: str, type_: str) -> str:
    return f"spec.{field}[{type_}].template.spec.containers: Required value: must be specified"


def no_image(field: str, type_: str) -> str:
    return f"spec.{field}[{type_}].template.spec.containers[0].image: Required value: must be required"


def no_container(field: str, type_: str, name: str) -> str:
    return (
        f"spec.{field}[{type_}].template.spec.containers: Required value: "
        f"must have at least one container with name {name}"
    )


BAD_MANAGER = f'spec.runPolicy.managedBy: Unsupported value: "other-job-controller": supported values: {MANAGERS}'
OTHER_MANAGER = {"runPolicy": {"managedBy": "other-job-controller"}}
NAMELESS = {"name": "", "image": "training:1"}


def named(kind: str) -> dict[str, Any]:
    """Returns the training container of a kind, without an image."""
    return {"name": V1_KINDS[kind].container, "image": ""}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=f"80: {kind}" if kind == "PyTorchJob" else kind) for kind in VALID]
)
def test_a_valid_job(kind: str) -> None:
    managed = {"runPolicy": {"managedBy": "kubeflow.org/training-operator"}}
    assert problem(v1_job(kind, VALID[kind], **managed)) is None


@pytest.mark.parametrize(
    ("replicas", "name", "spec", "expected"),
    [
        pytest.param(VALID["PyTorchJob"], "0-test", {}, bad_name("0-test"), id="81: name"),
        pytest.param(
            {"Worker": containers()}, "test", {}, no_containers("pytorchReplicaSpecs", "Worker"), id="82: no containers"
        ),
        pytest.param(
            {"Worker": containers(named("PyTorchJob"))},
            "test",
            {},
            no_image("pytorchReplicaSpecs", "Worker"),
            id="83: no image",
        ),
        pytest.param(
            {"Worker": containers(NAMELESS)},
            "test",
            {},
            no_container("pytorchReplicaSpecs", "Worker", "pytorch"),
            id="84: no training container",
        ),
        pytest.param(
            {"Master": 2},
            "test",
            {},
            "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1",
            id="85: masters",
        ),
        pytest.param(
            {"Master": None},
            "test",
            {},
            "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1",
            id="85: no number of masters",
        ),
        pytest.param(VALID["PyTorchJob"], "test", {"elasticPolicy": {"nProcPerNode": 1}}, None, id="86: nProcPerNode"),
        pytest.param(
            VALID["PyTorchJob"],
            "test",
            {"nprocPerNode": "1", "elasticPolicy": {"nProcPerNode": 1}},
            "spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode",
            id="87: both numbers of processes",
        ),
        pytest.param(VALID["PyTorchJob"], "test", OTHER_MANAGER, BAD_MANAGER, id="88: managedBy"),
        pytest.param(
            {"Master": 1},
            "test",
            {"elasticPolicy": {}},
            "spec.pytorchReplicaSpecs[Worker]: Required value: must be configured if elastic policy is used",
            id="90: elasticPolicy without workers",
        ),
        pytest.param(
            {"Worker": 0},
            "test",
            {"elasticPolicy": {}},
            "spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1",
            id="91: no worker",
        ),
        pytest.param(
            {"PS": 1},
            "test",
            {},
            'spec.pytorchReplicaSpecs[PS]: Unsupported value: "PS": supported values: "Master", "Worker"',
            id="type",
        ),
        pytest.param(
            {"WORKER": 1},
            "test",
            {},
            'spec.pytorchReplicaSpecs[WORKER]: Unsupported value: "WORKER": supported values: "Master", "Worker"',
            id="case of a type",
        ),
        pytest.param({}, "test", {}, "spec.pytorchReplicaSpecs: Required value: must be required", id="no types"),
    ],
)
def test_pytorchjobs(replicas: Any, name: str, spec: Any, expected: str | None) -> None:
    assert problem(v1_job("PyTorchJob", replicas, name, **spec)) == expected


@pytest.mark.parametrize(
    ("replicas", "name", "spec", "expected"),
    [
        pytest.param(VALID["TFJob"], "00test", {}, bad_name("00test"), id="92: name"),
        pytest.param(
            {"Worker": containers()}, "test", {}, no_containers("tfReplicaSpecs", "Worker"), id="93: no containers"
        ),
        pytest.param(
            {"Worker": containers(named("TFJob"))}, "test", {}, no_image("tfReplicaSpecs", "Worker"), id="94: no image"
        ),
        pytest.param(
            {"Worker": containers(NAMELESS)},
            "test",
            {},
            no_container("tfReplicaSpecs", "Worker", "tensorflow"),
            id="95: no training container",
        ),
        pytest.param(
            {"Chief": None, "Master": None},
            "test",
            {},
            "spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role",
            id="96: two chiefs",
        ),
        pytest.param(VALID["TFJob"], "test", OTHER_MANAGER, BAD_MANAGER, id="97: managedBy"),
        pytest.param({"Chief": 2, "PS": 0, "Helper": 1, "EVALUATOR": 1}, "test", {}, None, id="any type and number"),
    ],
)
def test_tfjobs(replicas: Any, name: str, spec: Any, expected: str | None) -> None:
    assert problem(v1_job("TFJob", replicas, name, **spec)) == expected


@pytest.mark.parametrize(
    ("replicas", "name", "spec", "expected"),
    [
        pytest.param(VALID["XGBoostJob"], "-test", {}, bad_name("-test"), id="98: name"),
        pytest.param(
            {"Master": containers(replicas=1)},
            "test",
            {},
            no_containers("xgbReplicaSpecs", "Master"),
            id="99: no containers",
        ),
        pytest.param(
            {"Master": containers(named("XGBoostJob"), replicas=1)},
            "test",
            {},
            no_image("xgbReplicaSpecs", "Master"),
            id="100: no image",
        ),
        pytest.param(
            {"Master": containers(NAMELESS, replicas=1)},
            "test",
            {},
            no_container("xgbReplicaSpecs", "Master", "xgboost"),
            id="101: no training container",
        ),
        pytest.param(
            {"Master": 2}, "test", {}, "spec.xgbReplicaSpecs[Master].replicas: Forbidden: must be 1", id="102: masters"
        ),
        pytest.param(
            {"Worker": 1},
            "test",
            {},
            "spec.xgbReplicaSpecs[Master]: Required value: must be present",
            id="103: no master",
        ),
        pytest.param(VALID["XGBoostJob"], "test", OTHER_MANAGER, BAD_MANAGER, id="104: managedBy"),
        pytest.param({"Master": 1, "Worker": 0}, "test", {}, None, id="no worker"),
    ],
)
def test_xgboostjobs(replicas: Any, name: str, spec: Any, expected: str | None) -> None:
    assert problem(v1_job("XGBoostJob", replicas, name, **spec)) == expected


@pytest.mark.parametrize(
    ("replicas", "name", "spec", "expected"),
    [
        pytest.param(VALID["JAXJob"], "0-test", {}, bad_name("0-test"), id="105: name"),
        pytest.param(
            {"Worker": containers()}, "test", {}, no_containers("jaxReplicaSpecs", "Worker"), id="106: no containers"
        ),
        pytest.param(
            {"Worker": containers(named("JAXJob"))},
            "test",
            {},
            no_image("jaxReplicaSpecs", "Worker"),
            id="107: no image",
        ),
        pytest.param(
            {"Worker": containers(NAMELESS)},
            "test",
            {},
            no_container("jaxReplicaSpecs", "Worker", "jax"),
            id="108: no training container",
        ),
        pytest.param(
            None, "test", {}, "spec.jaxReplicaSpecs: Required value: must be required", id="109: no replica specs"
        ),
        pytest.param(
            {"Master": 1},
            "test",
            {},
            'spec.jaxReplicaSpecs[Master]: Unsupported value: "Master": supported values: "Worker"',
            id="type",
        ),
        pytest.param(VALID["JAXJob"], "test", OTHER_MANAGER, None, id="managedBy is not checked"),
    ],
)
def test_jaxjobs(replicas: Any, name: str, spec: Any, expected: str | None) -> None:
    assert problem(v1_job("JAXJob", replicas, name, **spec)) == expected


@pytest.mark.parametrize(
    ("replicas", "name", "spec", "expected"),
    [
        pytest.param(VALID["PaddleJob"], "__test", {}, bad_name("__test"), id="110: name"),
        pytest.param(
            {"Worker": containers()}, "test", {}, no_containers("paddleReplicaSpecs", "Worker"), id="111: no containers"
        ),
        pytest.param(
            {"Worker": containers(named("PaddleJob"))},
            "test",
            {},
            no_image("paddleReplicaSpecs", "Worker"),
            id="112: no image",
        ),
        pytest.param(
            {"Worker": containers(NAMELESS)},
            "test",
            {},
            no_container("paddleReplicaSpecs", "Worker", '"paddle"'),
            id="113: no training container",
        ),
        pytest.param(
            None, "test", {}, "spec.paddleReplicaSpecs: Required value: must be required", id="114: no replica specs"
        ),
        pytest.param(VALID["PaddleJob"], "test", OTHER_MANAGER, BAD_MANAGER, id="115: managedBy"),
        pytest.param({"Master": 2}, "test", {}, None, id="two masters"),
    ],
)
def test_paddlejobs(replicas: Any, name: str, spec: Any, expected: str | None) -> None:
    assert problem(v1_job("PaddleJob", replicas, name, **spec)) == expected


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


def test_a_long_name_has_one_problem_or_two() -> None:
    long = "must be no more than 63 characters"
    assert problem(v1_job("TFJob", {"Worker": 1}, "a" * 63)) is None
    assert (problem(v1_job("TFJob", {"Worker": 1}, "a" * 64)) or "").endswith(f"should match: {long}")
    assert (problem(v1_job("TFJob", {"Worker": 1}, "0" * 64)) or "").endswith(f"should match: {long},{DNS_1035}")


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
