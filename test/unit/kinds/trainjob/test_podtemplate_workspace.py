"""The rules of kinds/trainjob/podtemplate.py: where datasets and models are, and who fetches and exports them."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.trainmanifests import role_template, trainjob
from helpers.trainworld import CLAIM, IN_STEPS, decoded_train, runtime_spec
from tfjob_controller.jobs.podtemplate.merge import container_of
from tfjob_controller.kinds.trainjob.podtemplate import (
    NO_WORKSPACE,
    JobWorkspace,
    job_workspace,
    storage_template,
    with_init_containers,
    with_workspace,
    workspace_problem,
)

SHARED = runtime_spec(workspace=CLAIM)
DATASET = {"datasetConfig": {"storageUri": "s3://data/set"}}
IMAGE = "localhost/storage"
NODE = {"spec": {"containers": [{"name": "node"}]}}


def made(*, is_shared: bool = False, **fields: Any) -> JobWorkspace:
    spec = decoded_train(trainjob(**fields)).spec
    return job_workspace(spec, SHARED if is_shared else None, "example-train-a6no")


def on_claim(dataset: str = "", model: str = "", output: str = "", *, is_shared: bool = False) -> JobWorkspace:
    fields: dict[str, Any] = {}
    if dataset:
        fields["datasetConfig"] = {"storageUri": dataset}
    given = {"input": model, "output": output}
    if model or output:
        fields["modelConfig"] = {name: {"storageUri": uri} for name, uri in given.items() if uri}
    return made(is_shared=is_shared, **fields)


@pytest.mark.parametrize(
    ("uris", "carriers"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"dataset": "s3://a"}, ["dataset-initializer"], id="dataset"),
        pytest.param(
            {"dataset": "s3://a", "model": "hf://a", "output": "gs://a"},
            ["dataset-initializer", "model-initializer", "model-exporter"],
            id="all",
        ),
        pytest.param({"dataset": "pvc://a", "model": "pvc://a", "output": "pvc://a"}, [], id="what-is-on-claims"),
    ],
)
def test_each_uri_has_its_initializer_or_exporter(uris: dict[str, str], carriers: list[str]) -> None:
    assert [each.role for each in on_claim(**uris).storage_containers] == carriers


def test_an_initializer_or_exporter_runs_the_projects_own_command_on_the_uri() -> None:
    carriers = {each.role: each for each in made(**IN_STEPS).storage_containers}
    assert {role: (each.command, each.uri) for role, each in carriers.items()} == {
        "dataset-initializer": (("initialize", "dataset"), "s3://data/set"),
        "model-initializer": (("initialize", "model"), "hf://gpt2"),
        "model-exporter": (("export",), "s3://models/out"),
    }


def test_a_model_may_go_by_either_name() -> None:
    (carrier,) = made(modelConfig={"input": {"config": "hf://gpt2"}}).storage_containers
    assert carrier.uri == "hf://gpt2"


@pytest.mark.parametrize(
    ("output", "is_shared", "problem"),
    [
        pytest.param("s3://a", False, NO_WORKSPACE, id="nobody-could-see-what-the-nodes-write"),
        pytest.param("s3://a", True, None, id="shared"),
        pytest.param("pvc://a", False, None, id="straight-onto-a-claim"),
        pytest.param("", False, None, id="no-output"),
    ],
)
def test_an_exporter_needs_a_shared_volume(output: str, is_shared: bool, problem: str | None) -> None:
    assert workspace_problem(on_claim(output=output, is_shared=is_shared)) == problem


def test_a_job_without_need_for_it_gets_no_volume() -> None:
    assert not made().is_needed
    assert with_workspace(NODE, "node", made()) == NODE


def test_without_a_claim_each_pod_has_an_empty_volume() -> None:
    spec = with_workspace(NODE, "node", made(**DATASET))["spec"]
    assert spec["volumes"] == [{"name": "workspace", "emptyDir": {}}]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "workspace", "mountPath": "/workspace"}]


def test_in_a_shared_claim_each_job_sees_its_own_folder_alone() -> None:
    spec = with_workspace(NODE, "node", made(is_shared=True))["spec"]
    assert spec["volumes"] == [{"name": "workspace", "persistentVolumeClaim": {"claimName": "shared"}}]
    assert spec["containers"][0]["volumeMounts"] == [
        {"name": "workspace", "mountPath": "/workspace", "subPath": "example-train-a6no"}
    ]


@pytest.mark.parametrize(
    ("uris", "volumes", "mounts"),
    [
        pytest.param(
            {"dataset": "pvc://data/set/1/"},
            {"claim-data": "data"},
            {"/workspace/dataset": ("claim-data", "set/1")},
            id="a-folder",
        ),
        pytest.param(
            {"dataset": "pvc://one/a", "model": "pvc://one/b"},
            {"claim-one": "one"},
            {"/workspace/dataset": ("claim-one", "a"), "/workspace/model": ("claim-one", "b")},
            id="two-folders-of-one-claim-are-one-volume",
        ),
        pytest.param(
            {"model": "pvc://from", "output": "pvc://to"},
            {"claim-from": "from", "claim-to": "to"},
            {"/workspace/model": ("claim-from", None), "/workspace/output": ("claim-to", None)},
            id="what-comes-and-what-goes",
        ),
    ],
)
def test_what_is_on_a_claim_is_mounted_where_it_is_looked_for(
    uris: dict[str, str], volumes: dict[str, str], mounts: dict[str, tuple[str, str | None]]
) -> None:
    spec = with_workspace(NODE, "node", on_claim(**uris))["spec"]
    claims = {each["name"]: each["persistentVolumeClaim"]["claimName"] for each in spec["volumes"]}
    assert claims == volumes
    found = {each["mountPath"]: (each["name"], each.get("subPath")) for each in spec["containers"][0]["volumeMounts"]}
    assert found == mounts


def test_volumes_of_claims_with_like_names_do_not_meet() -> None:
    """Names of volumes are shorter than those of claims, and without dots."""
    long = "a" * 70
    pairs = [("a.b", "a-b"), (long + "1", long + "2")]
    for first, second in pairs:
        spec = with_workspace(NODE, "node", on_claim(f"pvc://{first}", f"pvc://{second}"))["spec"]
        names = [each["name"] for each in spec["volumes"]]
        assert len(set(names)) == 2
        assert all(len(name) <= 63 and "." not in name for name in names)
        assert {each["persistentVolumeClaim"]["claimName"] for each in spec["volumes"]} == {first, second}


def test_an_initializers_pod_is_the_runtimes_template_with_the_initializers_command() -> None:
    workspace = made(
        is_shared=True,
        datasetConfig={
            "storageUri": "s3://a",
            "env": [{"name": "A", "value": "job"}],
            "secretRef": {"name": "keys"},
        },
    )
    base = role_template(
        "dataset-initializer",
        image="theirs",
        args=["theirs"],
        env=[{"name": "A", "value": "runtime"}, {"name": "STORAGE_URI", "value": "s3://other"}],
        envFrom=[{"configMapRef": {"name": "c"}}],
        resources={"limits": {"cpu": 1}},
    )
    template = storage_template(workspace.storage_containers[0], base, IMAGE, workspace)
    container = dict(container_of(template["spec"], "dataset-initializer") or {})
    assert container["image"] == "theirs"
    assert container["args"] == ["initialize", "dataset"]
    assert container["env"] == [{"name": "A", "value": "job"}, {"name": "STORAGE_URI", "value": "s3://a"}]
    assert container["envFrom"] == [{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "keys"}}]
    assert container["resources"] == {"limits": {"cpu": 1}}
    assert container["volumeMounts"][0]["mountPath"] == "/workspace"


def test_an_initializer_or_exporter_without_a_runtime_may_run_in_a_restricted_namespace() -> None:
    workspace = made(is_shared=True, **DATASET)
    template = storage_template(workspace.storage_containers[0], {}, IMAGE, workspace)
    container = dict(container_of(template["spec"], "dataset-initializer") or {})
    assert container["image"] == IMAGE
    assert "command" not in container
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_init_containers_come_before_those_of_the_runtime_and_see_what_the_nodes_see() -> None:
    workspace = made(**DATASET, modelConfig={"input": {"storageUri": "pvc://models/a"}})
    template = {"spec": {**NODE["spec"], "initContainers": [{"name": "theirs"}]}}
    base = {"dataset-initializer": {"name": "dataset-initializer", "image": "theirs"}}
    changed = with_init_containers(template, workspace.storage_containers, base, IMAGE, workspace)["spec"]
    assert [each["name"] for each in changed["initContainers"]] == ["dataset-initializer", "theirs"]
    first = changed["initContainers"][0]
    assert first["image"] == "theirs"
    assert [each["mountPath"] for each in first["volumeMounts"]] == ["/workspace", "/workspace/model"]
    assert template["spec"]["initContainers"] == [{"name": "theirs"}]


@pytest.mark.parametrize(
    ("pod", "container", "user"),
    [
        pytest.param({}, {}, {"runAsUser": 0, "runAsNonRoot": False}, id="the image's"),
        pytest.param({"runAsUser": 1000, "runAsGroup": 7}, {}, {"runAsUser": 1000, "runAsGroup": 7}, id="the pod's"),
        pytest.param({"runAsUser": 1000}, {"runAsUser": 5}, {"runAsUser": 5}, id="the container's"),
        pytest.param({"runAsNonRoot": True}, {}, {"runAsNonRoot": True}, id="not root"),
    ],
)
def test_an_exporter_runs_as_the_user_whose_files_it_reads(
    pod: dict[str, Any], container: dict[str, Any], user: dict[str, Any]
) -> None:
    """Programs write files that only their user may read, as safetensors does."""
    workspace = made(is_shared=True, modelConfig={"output": {"storageUri": "s3://out"}})
    writer = {"spec": {"securityContext": pod, "containers": [{"name": "node", "securityContext": container}]}}
    template = storage_template(workspace.storage_containers[0], {}, IMAGE, workspace, writer)
    found = dict(container_of(template["spec"], "model-exporter") or {})["securityContext"]
    assert {name: found[name] for name in ("runAsUser", "runAsGroup", "runAsNonRoot") if name in found} == {
        "runAsNonRoot": True,
        **user,
    }
    assert found["capabilities"] == {"drop": ["ALL"]}
