"""TrainJobs that are suspended, or begin so."""

from __future__ import annotations

import pytest

from helpers.playground import PATIENCE_SECONDS, PERIOD_SECONDS, Trial, condition
from helpers.poll import eventually, never
from helpers.trainjobs import await_ready, ends, step_of

pytestmark = pytest.mark.cluster


def is_suspended(status: dict[str, object]) -> bool:
    return condition(status, "Suspended")["status"] == "True"


def test_a_suspended_job_has_no_pods_and_a_resumed_one_has_all_and_no_restart_is_counted(train: Trial) -> None:
    train.train(2, command=("torchrun", "train.py"))
    await_ready(train)
    before = train.status()["startTime"]
    old = {name: job["metadata"]["uid"] for name, job in train.children("jobs").items()}
    train.change(suspend=True)
    status = train.await_status(is_suspended)
    assert (status.get("state", ""), "startTime" in status) == ("", False)
    eventually(lambda: not train.children("pods"), PATIENCE_SECONDS, PERIOD_SECONDS)
    status = train.await_status(lambda status: step_of(status).get("suspended") == 2)
    assert (step_of(status)["active"], status["nodes"]) == (0, "0/2")
    assert len(train.children("jobs")) == len(train.children("services")) == 2
    train.change(suspend=False)
    status = await_ready(train)
    suspended = condition(status, "Suspended")
    assert (suspended["status"], suspended["reason"]) == ("False", "Resumed")
    assert (status.get("restarts", 0), status["startTime"] >= before) == (0, True)
    assert {name: job["metadata"]["uid"] for name, job in train.children("jobs").items()} == old
    assert train.notes("Restarted") == []
    for reason in ("Suspended", "Resumed"):
        train.await_event(reason)
        assert len(train.notes(reason)) == 1


def test_a_job_resumed_before_its_pods_are_gone_starts_all_of_them_together(train: Trial) -> None:
    train.train(2)
    await_ready(train)
    pods = set(train.children("pods"))
    train.change(suspend=True)
    train.change(suspend=False)
    train.await_status(lambda status: not is_suspended(status) and step_of(status).get("ready") == 2)
    left = pods & {pod for pod, each in train.children("pods").items() if "deletionTimestamp" not in each["metadata"]}
    assert left in (set(), pods), "one node went on without the other"
    assert train.status().get("restarts", 0) == 0


def test_a_job_that_begins_suspended_makes_nothing_before_it_is_resumed(train: Trial) -> None:
    train.plays("node-0", ends(0))
    train.train(1, suspend=True)
    status = train.await_status(is_suspended)
    assert "startTime" not in status
    never(lambda: train.children("jobs") or train.children("services"), 1, 0.1)
    train.change(suspend=False)
    assert train.await_end()["state"] == "SUCCESS"


def test_while_it_is_suspended_a_job_does_not_use_up_its_deadline(train: Trial) -> None:
    train.train(1, activeDeadlineSeconds=4)
    await_ready(train, 1)
    train.change(suspend=True)
    train.await_status(is_suspended)
    never(lambda: train.status().get("state") == "FAILED", 5, 0.2)
    train.change(suspend=False)
    await_ready(train, 1)
    train.end("node-0")
    assert train.await_end()["state"] == "SUCCESS"
