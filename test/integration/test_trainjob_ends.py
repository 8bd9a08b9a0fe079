"""How a TrainJob fails, what is cleaned up then, and a TFJob of the same name."""

from __future__ import annotations

import pytest

from helpers.controller import Jobs
from helpers.manifests import master, tfjob
from helpers.playground import PATIENCE_SECONDS, Trial, condition
from helpers.poll import eventually
from helpers.trainjobs import await_ready, ends, step_of

pytestmark = pytest.mark.cluster


def test_a_permanent_error_of_one_node_fails_the_job_at_once_and_says_what_it_said(train: Trial) -> None:
    train.plays("node-1", ends(1, "ValueError: no such column 'labels'"))
    train.train(3)
    status = train.await_end()
    assert (status["phase"], status["state"], status.get("restarts", 0)) == ("Failed", "FAILED", 0)
    failed = condition(status, "Failed")
    words = "node-1 failed: exit code 1: ValueError: no such column 'labels'"
    assert (failed["status"], failed["reason"], failed["message"]) == ("True", "ReplicaFailed", words)
    assert status["reason"] == words
    assert step_of(status)["failed"] == 1
    train.await_event("Failed", words)
    # The others are stopped; the failed one's pod stays, with its log.
    eventually(lambda: not train.pods("node-0") and not train.pods("node-2"))
    assert len(train.pods("node-1")) == 1


def test_a_job_and_a_tfjob_of_the_same_name_do_not_disturb_each_other(train: Trial) -> None:
    tfjobs = Jobs(train.jobs.api, train.namespace)
    tfjobs.submit(tfjob(master(), name=train.name))
    train.train(2, command=("torchrun", "train.py"))
    try:
        await_ready(train)
        tfjobs.await_phase("Running", train.name, PATIENCE_SECONDS)
        assert len(train.children("jobs")) == 1
        tfjobs.delete(train.name)
        gone = f"{train.name}-master-"
        eventually(lambda: not [each for each in tfjobs.children("pods") if each.startswith(gone)])
        assert len(train.children("pods")) == 2
        assert train.status().get("restarts", 0) == 0
        train.end("node-0")
        train.end("node-1")
        assert train.await_end()["state"] == "SUCCESS"
    finally:
        if tfjobs.status(train.name):
            tfjobs.delete(train.name)
