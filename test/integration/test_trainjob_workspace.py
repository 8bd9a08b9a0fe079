"""Initializers and exporters of datasets and models: their order, and their failures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from helpers.playground import Trial, condition
from helpers.poll import never
from helpers.trainjobs import (
    await_cached,
    await_ready,
    claim,
    cluster_runtime,
    ends,
    env_of,
    make_claim,
    nodes,
    step_of,
)

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

DATASET, MODEL, EXPORTER = "dataset-initializer", "model-initializer", "model-exporter"
STORAGE: Object = {
    "datasetConfig": {"storageUri": "s3://bucket/data", "secretRef": {"name": "keys"}},
    "modelConfig": {"input": {"config": "hf://gpt2"}, "output": {"storageUri": "s3://bucket/out"}},
}
INPUTS: Object = {**STORAGE, "modelConfig": {"input": {"config": "hf://gpt2"}}}


@pytest.fixture
def shared(train: Trial) -> Iterator[str]:
    """The name of a runtime with a volume that all pods of a job share."""
    make_claim(train.jobs.api, train.namespace)
    with cluster_runtime(train.jobs.api, framework="torch", workspace=claim()) as name:
        await_cached(train, name)
        yield name


def roles_of(trial: Trial, plural: str = "jobs") -> set[str]:
    return {each["metadata"]["labels"]["job_type"] for each in trial.children(plural).values()}


def test_initializers_run_side_by_side_then_the_nodes_then_the_exporter(train: Trial, shared: str) -> None:
    train.train(2, runtimeRef={"name": shared}, **STORAGE)
    for role in (DATASET, MODEL):
        train.await_running(f"{role}-0")
    assert roles_of(train) == {DATASET, MODEL}
    train.end(f"{MODEL}-0")
    train.await_status(lambda status: step_of(status, MODEL).get("succeeded") == 1)
    never(lambda: roles_of(train) - {DATASET, MODEL}, 1, 0.1)
    assert train.status().get("state", "") == ""
    train.end(f"{DATASET}-0")
    await_ready(train)
    assert roles_of(train) == {DATASET, MODEL, "node"}
    assert train.status()["state"] == "RUNNING"
    train.end("node-0")
    never(lambda: EXPORTER in roles_of(train), 1, 0.1)
    train.end("node-1")
    train.await_running(f"{EXPORTER}-0")
    assert train.status()["phase"] == "Running"
    train.end(f"{EXPORTER}-0")
    status = train.await_end()
    assert (status["state"], condition(status, "Complete")["reason"]) == ("SUCCESS", "AllJobsCompleted")
    for role in (DATASET, MODEL, EXPORTER):
        assert step_of(status, role)["succeeded"] == 1
    assert step_of(status)["succeeded"] == 2
    assert status.get("restarts", 0) == 0


def test_all_pods_of_a_job_share_a_folder_of_its_own_in_the_claim(train: Trial, shared: str) -> None:
    for role in (DATASET, MODEL):
        train.plays(f"{role}-0", ends(0))
    train.train(1, runtimeRef={"name": shared}, **INPUTS)
    await_ready(train, 1)
    for role in (DATASET, MODEL, "node"):
        (each,) = train.pods(f"{role}-0")
        (container,) = each["spec"]["containers"]
        (mount,) = [mount for mount in container["volumeMounts"] if mount["mountPath"] == "/workspace"]
        (volume,) = [volume for volume in each["spec"]["volumes"] if volume["name"] == mount["name"]]
        assert volume["persistentVolumeClaim"]["claimName"] == "workspace"
        assert mount["subPath"] == f"{train.name}-{train.runtime_id}", role
    (pod,) = train.pods(f"{DATASET}-0")
    (container,) = pod["spec"]["containers"]
    assert container["args"] == ["initialize", "dataset"]
    assert container["envFrom"] == [{"secretRef": {"name": "keys"}}]
    assert env_of(pod, DATASET)["STORAGE_URI"] == "s3://bucket/data"
    assert "PET_NNODES" not in env_of(pod, DATASET)


def test_a_failing_initializer_fails_the_job_with_its_last_line_and_no_node_is_made(train: Trial, shared: str) -> None:
    train.plays(f"{DATASET}-0", ends(1, "s3://bucket/data: there is no such bucket"))
    train.train(2, runtimeRef={"name": shared}, **INPUTS)
    status = train.await_end()
    assert status["reason"] == f"{DATASET}-0 failed: exit code 1: s3://bucket/data: there is no such bucket"
    assert (status["state"], condition(status, "Failed")["reason"]) == ("FAILED", "ReplicaFailed")
    assert roles_of(train) == {DATASET, MODEL}


def test_an_initializer_whose_failure_may_pass_is_tried_again_alone(train: Trial, shared: str) -> None:
    train.plays(f"{DATASET}-0", ends(143), ends(0))
    train.plays(f"{MODEL}-0", ends(0))
    train.train(1, runtimeRef={"name": shared}, **INPUTS)
    status = await_ready(train, 1)
    assert train.starts(f"{MODEL}-0") == 1
    assert condition(status, "Failed")["status"] == "absent"


def test_a_restart_of_the_nodes_does_not_bring_the_data_again(train: Trial, shared: str) -> None:
    for role in (DATASET, MODEL):
        train.plays(f"{role}-0", ends(0))
    train.train(2, runtimeRef={"name": shared}, **INPUTS)
    await_ready(train)
    train.end("node-1", 137)
    train.await_status(
        lambda status: status.get("restarts") == 1 and condition(status, "Restarting")["status"] == "False"
    )
    assert [train.starts(f"{role}-0") for role in (DATASET, MODEL)] == [1, 1]
    assert [train.starts(node) for node in nodes(2)] == [2, 2]


def test_without_a_shared_volume_each_node_fetches_its_own_copy(train: Trial) -> None:
    train.train(2, **INPUTS)
    await_ready(train)
    assert roles_of(train) == {"node"}
    (pod,) = train.pods("node-1")
    first, second = pod["spec"]["initContainers"]
    assert [each["name"] for each in (first, second)] == [DATASET, MODEL]
    (container,) = pod["spec"]["containers"]
    for each in (first, second, container):
        assert "/workspace" in [mount["mountPath"] for mount in each["volumeMounts"]]
    volumes = [each for each in pod["spec"]["volumes"] if each["name"] == "workspace"]
    assert volumes == [{"name": "workspace", "emptyDir": {}}]


def test_a_failing_init_container_fails_the_job_in_its_name(train: Trial) -> None:
    words = "s3://bucket/data: access denied"
    train.plays("node-0", ends(1, words, container=DATASET))
    train.train(2, **INPUTS)
    status = train.await_end()
    assert status["reason"] == f"node-0 failed: {DATASET}: exit code 1: {words}"


def test_an_init_container_whose_failure_may_pass_restarts_all(train: Trial) -> None:
    train.plays("node-0", ends(143, "interrupted", container=DATASET))
    train.train(2, **INPUTS)
    train.await_status(lambda status: status.get("restarts") == 1 and step_of(status).get("ready") == 2)
    train.await_event("Restarted", f"node-0 failed: {DATASET}: exit code 143: interrupted")


def test_what_is_on_a_claim_already_is_mounted_and_brought_by_nobody(train: Trial) -> None:
    make_claim(train.jobs.api, train.namespace, "data.sets")
    train.train(1, datasetConfig={"storageUri": "pvc://data.sets/imagenet/train"})
    await_ready(train, 1)
    (pod,) = train.pods("node-0")
    assert "initContainers" not in pod["spec"]
    (container,) = pod["spec"]["containers"]
    (mount,) = [each for each in container["volumeMounts"] if each["mountPath"] == "/workspace/dataset"]
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == mount["name"]]
    assert volume["persistentVolumeClaim"]["claimName"] == "data.sets"
    assert mount["subPath"] == "imagenet/train"


def test_an_output_without_a_shared_volume_is_refused_with_a_message(train: Trial) -> None:
    train.train(2, modelConfig={"output": {"storageUri": "s3://bucket/out"}})
    status = train.await_end()
    failed = condition(status, "Failed")
    assert failed["reason"] == "JobsBuildFailed"
    assert "spec.modelConfig.output: the nodes' files are deleted with their pods" in failed["message"]
    assert train.children("jobs") == {}
