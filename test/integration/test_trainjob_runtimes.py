"""The fields that a TrainJob takes from its runtime, and TrainJobs without a runtime."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from helpers.playground import Trial, condition
from helpers.poll import never
from helpers.trainjobs import GROUP_PATH, await_cached, await_ready, cluster_runtime, env_of
from helpers.trainmanifests import override, role_template, runtime

pytestmark = pytest.mark.cluster

Object = dict[str, Any]


def test_a_job_whose_runtime_is_missing_waits_a_while_and_then_fails(train: Trial) -> None:
    train.train(2, runtimeRef={"name": "nowhere"})
    words = "spec.runtimeRef: there is no ClusterTrainingRuntime nowhere: create it"
    remedy = f"{words} or choose another one, then delete the job and submit it again"
    waiting = train.await_reason(words)
    assert (waiting["phase"], waiting.get("state", "")) == ("Creating", "")
    assert train.children("jobs") == {}
    status = train.await_end()
    failed = condition(status, "Failed")
    assert (status["state"], failed["reason"]) == ("FAILED", "JobsBuildFailed")
    assert remedy in failed["message"]
    born = train.get()["metadata"]["creationTimestamp"]
    assert failed["lastTransitionTime"] > born
    train.await_event("InvalidSpec", remedy)


@pytest.mark.parametrize("namespaced", [False, True], ids=["of-the-cluster", "of-the-namespace"])
def test_a_job_runs_once_its_runtime_comes_a_moment_later(train: Trial, namespaced: bool) -> None:
    api, name = train.jobs.api, f"late-{secrets.token_hex(4)}"
    given = runtime(name, namespaced=namespaced, framework="torch", numNodes=2)
    train.train(None, runtimeRef={"name": name, "kind": given["kind"]})
    # Not for long: it does not wait for ever.
    train.await_reason("there is no")
    assert train.children("jobs") == {}
    folder = f"{GROUP_PATH}/namespaces/{train.namespace}/trainingruntimes"
    path = folder if namespaced else f"{GROUP_PATH}/clustertrainingruntimes"
    api.create(path, given)
    try:
        status = await_ready(train)
        assert (status["runtime"], status.get("reason", "")) == (name, "")
    finally:
        api.delete(f"{path}/{name}")


def test_what_comes_later_wins_runtime_overrides_trainer_framework(train: Trial) -> None:
    """Of each variable the last who sets it, and whatever only one of them says."""
    by_runtime = {
        "image": "localhost/of-the-runtime",
        "command": ["of-the-runtime"],
        "args": ["of-the-runtime"],
        "env": [
            *({"name": name, "value": "runtime"} for name in ("A", "B", "C", "RANK")),
            {"name": "D", "value": "$(B), $(C)"},
        ],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    of_node = role_template(**by_runtime)
    of_node["metadata"] = {"labels": {"of": "runtime"}, "annotations": {"of": "runtime"}}
    of_node["spec"] |= {"nodeSelector": {"a": "runtime"}, "priorityClassName": "system-node-critical"}
    of_node["spec"]["containers"].append({"name": "sidecar", "image": "localhost/sidecar"})
    variables = [{"name": name, "value": "override"} for name in ("B", "C")]
    changed = override(
        nodeSelector={"b": "override"},
        containers=[
            {"name": "node", "env": variables},
            {"name": "sidecar", "env": [{"name": "S", "value": "override"}]},
        ],
    )
    mine = {
        "image": "localhost/of-the-job",
        "command": None,
        "args": ["of-the-job"],
        "env": [{"name": "C", "value": "trainer"}],
        "resourcesPerNode": {"requests": {"cpu": "2"}},
    }
    with cluster_runtime(
        train.jobs.api, framework="torch", numNodes=1, numProcPerNode=3, templates={"node": of_node}
    ) as name:
        await_cached(train, name)
        train.train(2, trainer=mine, runtimeRef={"name": name}, podSpecOverrides=[changed])
        (job,) = train.await_children("jobs", 1).values()
    template = job["spec"]["template"]
    node, sidecar = template["spec"]["containers"]
    assert (node["image"], node["command"], node["args"]) == (
        "localhost/of-the-job",
        ["of-the-runtime"],
        ["of-the-job"],
    )
    assert node["resources"] == {"requests": {"cpu": "2", "memory": "1Gi"}}
    env = env_of(template)
    assert (env["A"], env["B"], env["C"], env["RANK"]) == ("runtime", "override", "trainer", "$(JOB_COMPLETION_INDEX)")
    # D refers to B and C, which stay before it.
    assert [name for name in env if name in "ABCD"] == ["A", "B", "C", "D"]
    assert env["PET_NPROC_PER_NODE"] == "3"
    assert sidecar["env"] == [{"name": "S", "value": "override"}]
    assert template["spec"]["nodeSelector"] == {"a": "runtime", "b": "override"}
    assert template["spec"]["priorityClassName"] == "system-node-critical"
    assert template["metadata"]["labels"]["of"] == template["metadata"]["annotations"]["of"] == "runtime"


def test_a_runtime_that_contradicts_its_job_is_refused_with_a_message(train: Trial) -> None:
    with cluster_runtime(train.jobs.api, framework="torch") as name:
        await_cached(train, name)
        train.train(2, framework="jax", runtimeRef={"name": name})
        status = train.await_end()
    words = f"spec.framework: is jax, but ClusterTrainingRuntime {name} is for torch: leave it out"
    assert words in condition(status, "Failed")["message"]


def test_a_runtime_that_is_changed_does_not_disturb_a_job_that_runs(train: Trial) -> None:
    api = train.jobs.api
    with cluster_runtime(api, framework="torch") as name:
        await_cached(train, name)
        train.train(2, runtimeRef={"name": name})
        await_ready(train)
        old = {each: job["metadata"]["uid"] for each, job in train.children("jobs").items()}
        api.patch(f"{GROUP_PATH}/clustertrainingruntimes/{name}", {"spec": {"framework": "jax"}})
        never(lambda: train.status()["phase"] != "Running", 1, 0.1)
        assert {each: job["metadata"]["uid"] for each, job in train.children("jobs").items()} == old


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({"nodes": None}, "spec.numNodes: is required", id="nobody says how many nodes"),
        pytest.param({"trainer": {"image": None}}, "spec.trainer.image: is required", id="nobody says the image"),
        pytest.param({"framework": "pascal"}, "there is no framework 'pascal'", id="unknown framework"),
        pytest.param(
            {"command": ("torchrun",), "trainer": {"numProcPerNode": "gpu"}},
            "spec.trainer.numProcPerNode: is gpu, but a node requests no GPU",
            id="GPUs that nobody asked for",
        ),
        pytest.param(
            {"podSpecOverrides": [override("node", "launcher")]},
            "invalid job spec: spec.podSpecOverrides[0].targetJobs[1].name: there is no step launcher",
            id="no such step",
        ),
        pytest.param(
            {"podSpecOverrides": [override(containers=[{"name": "trainer"}])]},
            "spec.podSpecOverrides[0].containers[0].name: there is no container trainer; the pods of node have node",
            id="no such container",
        ),
    ],
)
def test_a_job_that_cannot_be_built_says_which_field_is_missing(train: Trial, spec: Object, words: str) -> None:
    train.train(**spec)
    status = train.await_end()
    failed = condition(status, "Failed")
    assert (status["state"], failed["reason"]) == ("FAILED", "JobsBuildFailed")
    assert words in failed["message"]
    assert train.children("jobs") == {}
