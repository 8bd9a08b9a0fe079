"""What the builders make of a few words, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.tfjob.validation import validate
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.api.trainjob.validation import validate as validate_trainjob
from tfjob_controller.client import ClientError, tfjob, trainjob

both_kinds = pytest.mark.parametrize("build", [tfjob, trainjob])


def test_a_tfjob_is_built_from_a_few_words() -> None:
    built = tfjob(
        "a",
        image="i",
        command=["train"],
        workers=2,
        ps=1,
        resources={"cpu": 2, "memory": "1Gi", "nvidia.com/gpu": 1},
        env={"RATE": 0.1, "KEY": {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}},
        gang={"minWorkers": 1},
        autoscaling={"maxWorkers": 4},
        pod={"nodeSelector": {"gpu": "a100"}},
        cleanPodPolicy="None",
    )
    job = TFJOBS.decode(msgspec.json.encode(built))
    assert validate(job) is None
    counts = {each.tf_replica_type: each.replicas for each in job.spec.replica_specs}
    assert counts == {"MASTER": 1, "WORKER": 2, "PS": 1}
    pod = built["spec"]["replicaSpecs"][1]["template"]["spec"]
    assert pod["nodeSelector"] == {"gpu": "a100"}
    (container,) = pod["containers"]
    assert container["name"] == "tensorflow"
    assert container["resources"]["limits"] == {"cpu": 2, "memory": "1Gi", "nvidia.com/gpu": 1}
    assert [each["name"] for each in container["env"]] == ["RATE", "KEY"]
    assert job.spec.clean_pod_policy == "None"


def test_without_a_master_worker_0_is_the_chief() -> None:
    built = tfjob("a", image="i", workers=2, master=False)
    assert validate(TFJOBS.decode(msgspec.json.encode(built))) is None
    assert built["spec"]["terminationPolicy"]["chief"]["replicaName"] == "WORKER"


def test_a_trainjob_is_built_from_a_few_words() -> None:
    built = trainjob(
        "a",
        image="i",
        command=["torchrun", "train.py"],
        nodes=2,
        framework="torch",
        processes_per_node="gpu",
        resources={"nvidia.com/gpu": 8},
        dataset="s3://bucket/data",
        model={"storageUri": "hf://org/model", "secretRef": {"name": "hub"}},
        output="s3://bucket/out",
        gang=True,
        maxRestarts=3,
    )
    job = TRAINJOBS.decode(msgspec.json.encode(built))
    assert validate_trainjob(job) is None
    assert (job.spec.num_nodes, job.spec.trainer.num_proc_per_node, job.spec.max_restarts) == (2, "gpu", 3)
    assert job.spec.model_config is not None
    assert job.spec.model_config.output is not None
    assert job.spec.model_config.output.storage_uri == "s3://bucket/out"
    assert "env" not in built["spec"]["trainer"]


def test_what_is_not_said_is_left_to_the_runtime() -> None:
    assert trainjob("a", runtime="torch-distributed")["spec"] == {"runtimeRef": {"name": "torch-distributed"}}
    of_namespace = {"kind": "TrainingRuntime", "name": "ours"}
    assert trainjob("a", runtime=of_namespace)["spec"] == {"runtimeRef": of_namespace}


def training_container(build: Callable[..., dict[str, Any]], **words: Any) -> dict[str, Any]:
    """What the manifest says of the container that trains."""
    spec = build("a", image="i", **words)["spec"]
    found: dict[str, Any] = spec.get("trainer") or spec["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    return found


@both_kinds
def test_command_and_args_are_lists_or_tuples_of_strings(build: Callable[..., dict[str, Any]]) -> None:
    for argument in ("command", "args"):
        for given in (["sleep", "5"], ("sleep", "5")):
            assert training_container(build, **{argument: given})[argument] == ["sleep", "5"]
        with pytest.raises(ClientError) as refused:
            build("a", image="i", **{argument: "sleep 5"})
        assert str(refused.value) == (
            f'{argument}: must be a list of strings such as ["python", "train.py"], not str: '
            "write each word as one element of the list"
        )
        with pytest.raises(ClientError) as refused:
            build("a", image="i", **{argument: ["sleep", 5]})
        assert str(refused.value) == f"{argument}[1]: must be a string, not int: write str(…)"


def test_a_pull_policy_is_that_of_the_masters_and_workers_of_a_tfjob() -> None:
    policy = "Never"
    built = tfjob("a", image="i", workers=1, image_pull_policy=policy)
    assert validate(TFJOBS.decode(msgspec.json.encode(built))) is None
    pods = [each["template"]["spec"] for each in built["spec"]["replicaSpecs"]]
    assert [pod["containers"][0]["imagePullPolicy"] for pod in pods] == [policy, policy]


def test_a_change_of_the_masters_template_does_not_change_the_workers() -> None:
    built = tfjob("a", image="i", workers=1)
    master, worker = built["spec"]["replicaSpecs"]
    master["template"]["spec"]["containers"][0]["image"] = "other"
    assert worker["template"]["spec"]["containers"][0]["image"] == "i"


@both_kinds
def test_containers_of_the_pod_are_added_to_the_one_that_trains(build: Callable[..., dict[str, Any]]) -> None:
    sidecar = {"name": "proxy", "image": "p"}
    spec = build("a", image="i", pod={"containers": [sidecar]}, volumes={"/data": {"emptyDir": {}}})["spec"]
    override = spec.get("podSpecOverrides") or [spec["replicaSpecs"][0]["template"]["spec"]]
    training, *others = override[0]["containers"]
    assert training["volumeMounts"]
    assert others == [sidecar]


@both_kinds
def test_without_a_pull_policy_none_is_said(build: Callable[..., dict[str, Any]]) -> None:
    assert "imagePullPolicy" not in training_container(build)


@both_kinds
def test_a_pull_policy_that_there_is_not_is_refused(build: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(ClientError) as refused:
        build("a", image="i", image_pull_policy="Sometimes")
    assert str(refused.value) == "image_pull_policy: must be Always, IfNotPresent or Never, not 'Sometimes'"


def test_a_trainjob_may_say_the_pull_policy_that_it_has_anyway() -> None:
    assert trainjob("a", image="i", image_pull_policy="IfNotPresent") == trainjob("a", image="i")


def test_another_pull_policy_of_a_trainjob_is_its_runtimes_to_say() -> None:
    with pytest.raises(ClientError) as refused:
        trainjob("a", image="i", image_pull_policy="Always")
    assert str(refused.value) == (
        "image_pull_policy: cannot be Always for a TrainJob, whose image is pulled if the node does not have it "
        "(IfNotPresent): set imagePullPolicy in the template of a runtime, and name that runtime in the job"
    )


@pytest.mark.parametrize("build", [tfjob, trainjob])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"env": "A=B"}, 'env: must be a mapping such as {"NAME": "value"}, not str'),
        ({"resources": ["cpu"]}, 'resources: must be a mapping such as {"cpu": 2, "memory": "4Gi"}, not list'),
        ({"env": {"A": None}}, "env['A']: must have a value, not None: give one, or leave 'A' out"),
        ({"resources": {"cpu": None}}, "resources['cpu']: must have a value, not None: give one, or leave 'cpu' out"),
        ({"volumes": {"/a": None}}, "volumes['/a']: must have a value, not None: give one, or leave '/a' out"),
    ],
)
def test_what_is_no_mapping_of_values_is_refused_in_one_sentence(
    build: Callable[..., dict[str, Any]], given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ClientError) as refused:
        build("train", image="i", **given)
    assert str(refused.value) == words
