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
