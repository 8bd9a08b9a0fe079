"""The rules of kinds/trainjob/podtemplate.py: the runtime's template, then overrides, then the job's own trainer."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.trainmanifests import override, role_template, trainjob
from helpers.trainworld import decoded_train
from tfjob_controller.api.trainjob.types import TrainJobSpec
from tfjob_controller.jobs.podtemplate.merge import container_of
from tfjob_controller.kinds.trainjob.podtemplate import node_resources, trainer_template


def spec_of(**fields: Any) -> TrainJobSpec:
    return decoded_train(trainjob(**fields)).spec


def trained(base: dict[str, Any], role: str = "node", *, runs_command: bool = True, **fields: Any) -> dict[str, Any]:
    """The pod spec."""
    spec: dict[str, Any] = trainer_template(spec_of(**fields), base, role, runs_command=runs_command)["spec"]
    return spec


def training_container(base: dict[str, Any], role: str = "node", **options: Any) -> dict[str, Any]:
    return dict(container_of(trained(base, role, **options), role) or {})


def test_a_runtime_that_says_nothing_gets_a_container_with_what_the_job_says() -> None:
    assert trained({}, command=["a", "b"], trainer={"args": ["c"]}) == {
        "containers": [
            {
                "name": "node",
                "image": "localhost/trainer",
                "command": ["a", "b"],
                "args": ["c"],
                "imagePullPolicy": "IfNotPresent",
            }
        ]
    }


@pytest.mark.parametrize(
    ("trainer", "command", "args"),
    [
        pytest.param({"command": ["mine"], "args": ["x"]}, ["mine"], ["x"], id="both-are-the-jobs"),
        pytest.param({"command": ["mine"]}, ["mine"], None, id="the-runtimes-arguments-are-for-its-own-command"),
        pytest.param({"command": [], "args": ["x"]}, ["theirs"], ["x"], id="its-command-may-get-other-arguments"),
        pytest.param({"command": []}, ["theirs"], ["y"], id="both-are-the-runtimes"),
    ],
)
def test_command_and_arguments(trainer: dict[str, Any], command: list[str], args: list[str] | None) -> None:
    made = training_container(role_template(command=["theirs"], args=["y"]), trainer=trainer)
    assert (made["command"], made.get("args")) == (command, args)


def test_a_role_that_does_not_run_the_command_keeps_that_of_the_runtime() -> None:
    made = training_container(role_template(command=["sshd"]), runs_command=False, trainer={"args": ["x"]})
    assert (made["command"], made.get("args")) == (["sshd"], None)
    assert made["image"] == "localhost/trainer"


def test_what_the_runtime_says_of_pulling_stays() -> None:
    assert training_container(role_template(imagePullPolicy="Always"))["imagePullPolicy"] == "Always"


def test_resources_are_the_nodes_alone_and_override_by_name() -> None:
    resources = {"limits": {"nvidia.com/gpu": 1}, "requests": {"cpu": "2"}}
    theirs = {"resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}}
    node = training_container(role_template(**theirs), trainer={"resourcesPerNode": resources})
    assert node["resources"] == {
        "limits": {"memory": "1Gi", "nvidia.com/gpu": 1},
        "requests": {"cpu": "2", "memory": "1Gi"},
    }
    launcher = training_container(
        role_template("launcher", **theirs), "launcher", trainer={"resourcesPerNode": resources}
    )
    assert launcher["resources"] == theirs["resources"]


def test_without_resources_none_are_named() -> None:
    assert "resources" not in training_container({})


@pytest.mark.parametrize(
    ("field", "given", "expected"),
    [
        pytest.param("serviceAccountName", "mine", "mine", id="serviceAccountName"),
        pytest.param("schedulerName", "mine", "mine", id="schedulerName"),
        pytest.param("affinity", {"nodeAffinity": {}}, {"nodeAffinity": {}}, id="affinity"),
        pytest.param("nodeSelector", {"b": "2"}, {"a": "1", "b": "2"}, id="nodeSelector-by-name"),
        pytest.param("tolerations", [{"key": "b"}], [{"key": "a"}, {"key": "b"}], id="tolerations-are-added"),
        pytest.param(
            "volumes",
            [{"name": "v", "emptyDir": {}}, {"name": "w"}],
            [{"name": "v", "emptyDir": {}}, {"name": "w"}],
            id="volumes-by-name",
        ),
    ],
)
def test_an_override_says_it_last(field: str, given: Any, expected: Any) -> None:
    theirs = {
        "serviceAccountName": "theirs",
        "priorityClassName": "low",
        "schedulerName": "theirs",
        "affinity": {"podAffinity": {}},
        "nodeSelector": {"a": "1"},
        "tolerations": [{"key": "a"}],
        "imagePullSecrets": [{"name": "a"}],
        "volumes": [{"name": "v", "hostPath": {}}],
    }
    base = {"spec": {**role_template()["spec"], **theirs}}
    made = trained(base, podSpecOverrides=[override("node", **{field: given})])
    assert made[field] == expected
    assert {name: made[name] for name in theirs if name != field} == {
        name: value for name, value in theirs.items() if name != field
    }


def test_of_two_overrides_the_later_wins_and_others_roles_are_not_meant() -> None:
    overrides = [
        override("node", schedulerName="a"),
        override("node", "launcher", schedulerName="b"),
        override("launcher", schedulerName="c"),
    ]
    assert trained({}, podSpecOverrides=overrides)["schedulerName"] == "b"
    assert trained({}, "launcher", podSpecOverrides=overrides)["schedulerName"] == "c"


def test_containers_and_init_containers_are_overridden_by_name_and_none_is_made() -> None:
    mount = {"name": "c", "mountPath": "/c"}
    added = [{"name": each, "env": [{"name": "A"}], "volumeMounts": [mount]} for each in ("side", "init", "absent")]
    base = {"spec": {"containers": [{"name": "node"}, {"name": "side"}], "initContainers": [{"name": "init"}]}}
    made = trained(base, podSpecOverrides=[override("node", containers=added, initContainers=added)])
    assert [each["name"] for each in made["containers"]] == ["node", "side"]
    assert made["containers"][1] == {"name": "side", "env": [{"name": "A"}], "volumeMounts": [mount]}
    assert made["initContainers"] == [{"name": "init", "env": [{"name": "A"}], "volumeMounts": [mount]}]


def test_what_does_not_train_gets_overrides_and_nothing_of_the_trainer() -> None:
    spec = spec_of(podSpecOverrides=[override("model-exporter", schedulerName="mine")])
    made = trainer_template(spec, {}, "model-exporter", runs_command=False, trains=False)
    assert made == {"spec": {"containers": [{"name": "model-exporter"}], "schedulerName": "mine"}}


@pytest.mark.parametrize(
    ("theirs", "mine", "expected"),
    [
        pytest.param({}, {}, ({}, 0.0), id="nothing"),
        pytest.param({}, {"requests": {"cpu": 2}, "limits": {"cpu": 4}}, ({}, 4.0), id="limits-before-requests"),
        pytest.param(
            {"requests": {"amd.com/gpu": 1}}, {"requests": {"cpu": 2}}, ({"amd.com/gpu": 1}, 2.0), id="of-both"
        ),
        pytest.param(
            {"limits": {"amd.com/gpu": 8}}, {"limits": {"amd.com/gpu": 1}}, ({"amd.com/gpu": 1}, 0.0), id="the-jobs-win"
        ),
        pytest.param({}, {"limits": {"example.com/card": 4}}, ({"example.com/card": 4}, 0.0), id="of-the-config"),
        pytest.param({}, {"limits": {"example.com/nic": 4, "memory": "4Gi"}}, ({}, 0.0), id="no-accelerator"),
    ],
)
def test_how_many_accelerators_and_cpus_a_node_has(
    theirs: dict[str, Any], mine: dict[str, Any], expected: tuple[dict[str, int], float]
) -> None:
    spec = spec_of(trainer={"resourcesPerNode": mine})
    assert node_resources(spec, role_template(resources=theirs), {"example.com/card"}) == expected
