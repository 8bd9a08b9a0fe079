"""Failures of TrainJobs, and the clean-up after their end."""

from __future__ import annotations

import pytest

from helpers.controller import Jobs
from helpers.manifests import master, tfjob
from helpers.playground import PATIENCE_SECONDS, PERIOD_SECONDS, Trial, condition
from helpers.poll import eventually, never
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
    eventually(lambda: not train.pods("node-0") and not train.pods("node-2"), PATIENCE_SECONDS, PERIOD_SECONDS)
    assert len(train.pods("node-1")) == 1


def test_a_node_that_is_out_of_memory_fails_the_job_though_its_code_is_a_signals(train: Trial) -> None:
    train.plays("node-0", ends(137, reason="OOMKilled"))
    train.train(2)
    assert train.await_end()["reason"] == "node-0 failed: exit code 137 (OOMKilled)"


def test_a_job_that_is_not_done_in_time_fails(train: Trial) -> None:
    train.train(2, activeDeadlineSeconds=3)
    status = train.await_end()
    assert (status["state"], condition(status, "Failed")["reason"]) == ("FAILED", "DeadlineExceeded")
    assert status["reason"] == "DeadlineExceeded: not done after 3 s"
    eventually(lambda: not train.children("pods"), PATIENCE_SECONDS, PERIOD_SECONDS)


def test_a_finished_job_goes_when_its_time_to_live_is_over(train: Trial) -> None:
    train.plays("node-0", ends(0))
    train.train(1, ttlSecondsAfterFinished=1)
    eventually(lambda: train.status() == {} and not names(train), PATIENCE_SECONDS, 0.1)


def names(trial: Trial) -> list[str]:
    return [each["metadata"]["name"] for each in trial.jobs.all() if each["metadata"]["name"] == trial.name]


def test_a_job_of_another_controller_is_never_touched(train: Trial) -> None:
    """Neither now, nor when it changes, nor when what looks like its child comes and goes."""
    train.train(1, managedBy="kueue.x-k8s.io/multikueue")
    train.jobs.change({"metadata": {"labels": {"touched": "yes"}}}, train.name)
    train.change(suspend=True)
    never(lambda: train.status() or train.children("jobs") or train.events(), 3, 0.2)
    train.delete()


def test_a_job_of_which_pods_cannot_be_made_says_so(train: Trial) -> None:
    """The API server refuses the child Job for good."""
    bad = {"targetJobs": [{"name": "node"}], "tolerations": [{"key": "a", "operator": "Nonsense"}]}
    train.train(1, podSpecOverrides=[bad])
    status = train.await_end()
    assert condition(status, "Failed")["reason"] == "CreateRefused"
    assert "Nonsense" in status["reason"]
    train.await_event("FailedCreate")


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
        eventually(lambda: not [each for each in tfjobs.children("pods") if each.startswith(gone)], 60, 0.1)
        assert len(train.children("pods")) == 2
        assert train.status().get("restarts", 0) == 0
        train.end("node-0")
        train.end("node-1")
        assert train.await_end()["state"] == "SUCCESS"
    finally:
        if tfjobs.status(train.name):
            tfjobs.delete(train.name)
