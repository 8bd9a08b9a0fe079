"""TrainJobs as owners of Gangs, on a real API server; the test acts as the gang scheduler."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.playedgang import PREFIX, GangOf
from helpers.playground import Trial, condition
from helpers.poll import eventually, never
from helpers.trainjobs import (
    await_cached,
    await_ready,
    await_restart,
    claim,
    cluster_runtime,
    generations,
    make_claim,
    step_of,
)

pytestmark = pytest.mark.cluster

Object = dict[str, Any]
ON: Object = {"gang": {"enabled": True}}
DATASET = "dataset-initializer"


@pytest.fixture
def gang(train: Trial) -> GangOf:
    return GangOf(train)


def members(gang: GangOf) -> list[tuple[str, int]]:
    return [(each["name"], each["count"]) for each in gang.get()["spec"]["members"]]


def test_nothing_but_the_gang_exists_before_there_is_capacity_and_then_all_runs(train: Trial, gang: GangOf) -> None:
    train.train(3, command=("torchrun",), labels={"team": "vision"}, **ON)
    assert members(gang) == [("node", 3)]
    meta = gang.get()["metadata"]
    (owner,) = meta["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("TrainJob", train.name)
    assert meta["labels"].items() >= {"train_job_name": train.name, "team": "vision"}.items()
    gang.says("Waiting", message="needs 3 pods", position=2)
    status = train.await_reason("waits for capacity: needs 3 pods (position 2 in the queue)")
    assert (status.get("state", ""), "startTime" in status) == ("", False)
    assert [train.children(kind) for kind in ("jobs", "services", "pods")] == [{}, {}, {}]
    gang.admit()
    train.await_children("pods", 3)
    gang.bind_all()
    gang.says("Bound")
    status = await_ready(train, 3)
    assert condition(status, "Scheduled")["reason"] == "GangAdmitted"
    for pod in train.children("pods").values():
        assert pod["metadata"]["labels"][f"{PREFIX}attempt"] == "1"
        assert pod["spec"]["schedulerName"] == "gang-scheduler"
    for index in range(3):
        train.end(f"node-{index}")
    assert train.await_end()["state"] == "SUCCESS"


def test_there_is_no_gang_before_the_initializers_are_done(train: Trial, gang: GangOf) -> None:
    make_claim(train.jobs.api, train.namespace)
    with cluster_runtime(train.jobs.api, workspace=claim()) as name:
        await_cached(train, name)
        train.train(2, runtimeRef={"name": name}, datasetConfig={"storageUri": "s3://bucket/data"}, **ON)
        train.await_running(f"{DATASET}-0")
        never(lambda: train.jobs.api.find(gang.path), 1, 0.1)
        assert train.pods(f"{DATASET}-0")[0]["spec"]["schedulerName"] == "default-scheduler"
        train.end(f"{DATASET}-0")
        assert members(gang) == [("node", 2)]
        train.await_status(lambda status: "waits for" in status.get("reason", ""))
        gang.admit()
        train.await_children("pods", 3)
        gang.bind()
        await_ready(train)


def test_a_gang_that_goes_back_to_the_queue_is_no_restart(train: Trial, gang: GangOf) -> None:
    train.train(2, command=("torchrun",), **ON)
    gang.bound()
    await_ready(train)
    gang.back_to_the_queue()
    eventually(lambda: not train.children("jobs"))
    status = train.await_phase("Creating")
    assert (status.get("restarts", 0), status.get("state", "")) == (0, "")
    gang.admit(attempt=2)
    train.await_children("pods", 2)
    gang.bind_all()
    gang.says("Bound")
    status = await_ready(train)
    assert (status.get("restarts", 0), set(generations(train).values())) == (0, {"0"})
    assert train.notes("Restarted") == []


def test_a_failed_member_restarts_the_gang_in_its_place(train: Trial, gang: GangOf) -> None:
    train.train(2, command=("torchrun",), **ON)
    gang.bound()
    await_ready(train)
    before = set(train.children("pods"))
    train.end("node-1", 137)
    train.await_status(lambda status: status.get("restarts") == 1)

    def has_new() -> bool:
        gang.bind()
        pods = train.children("pods")
        return len(pods) == 2 and not before & set(pods) and step_of(train.status()).get("ready") == 2

    eventually(has_new)
    await_restart(train)
    labels = [pod["metadata"]["labels"] for pod in train.children("pods").values()]
    assert {each[f"{PREFIX}attempt"] for each in labels} == {"1"}
    assert gang.get()["spec"].get("suspend", False) is False
