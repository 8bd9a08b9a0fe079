"""What TrainJobs cost, and in which order they are written: the reconciler's rules, with another kind."""

from __future__ import annotations

import pytest

from helpers.trainbench import RUNTIME_PATH, TrainBench
from helpers.trainmanifests import runtime
from tfjob_controller.controller.kind import METRICS_DEBOUNCE_SECONDS, RUNTIME_TIMEOUT_SECONDS
from tfjob_controller.controller.outcome import Done, RequeueAfter, TerminalFailure


@pytest.fixture
def bench() -> TrainBench:
    return TrainBench()


def writes(bench: TrainBench) -> list[str]:
    """Of the job's status, so far."""
    return [sent.path for sent in bench.api.requests("PATCH", "/status")]


def running(bench: TrainBench, **job: object) -> None:
    bench.create(**job)
    bench.settle()
    bench.runs("node-0", "node-1")
    bench.settle()
    bench.clock.advance(60)
    bench.settle()


def test_a_controller_that_starts_again_writes_nothing_either(bench: TrainBench) -> None:
    running(bench)
    bench.reconciler = bench.new_reconciler()
    sent = len(bench.api.sent)
    bench.settle()
    assert len(bench.api.sent) == sent


def test_a_change_between_the_first_child_and_the_first_status_is_refused_too(bench: TrainBench) -> None:
    """Its children were made for two nodes; a third would wait for others that never expect it."""
    bench.is_busy = True
    bench.create()
    bench.sync()
    assert (len(bench.api.paths("/jobs/")), bench.status) == (1, {})
    bench.create(numNodes=3)
    bench.sync()
    assert len(bench.api.paths("/jobs/")) == 1
    assert "spec.numNodes: cannot be changed after the job has started" in bench.status["reason"]


def test_metrics_are_written_once_in_their_time_however_often_they_change(bench: TrainBench) -> None:
    running(bench)
    before = len(writes(bench))
    for step in range(10):
        bench.logs.metrics = {"step": str(step)}
        bench.sync()
    assert len(writes(bench)) == before
    bench.clock.advance(METRICS_DEBOUNCE_SECONDS)
    bench.sync()
    assert len(writes(bench)) == before + 1
    assert bench.status["metrics"][0]["value"] == "9"
    assert bench.status["progress"] == "step 9"


def test_the_last_metrics_go_along_with_the_end(bench: TrainBench) -> None:
    running(bench)
    bench.logs.metrics = {"loss": "0.5"}
    bench.sync()
    bench.exits("node-0", 0)
    bench.exits("node-1", 0)
    bench.settle()
    assert bench.status["state"] == "SUCCESS"
    assert [each["value"] for each in bench.status["metrics"]] == ["0.5"]


def test_a_finished_job_costs_nothing_and_its_log_is_no_longer_followed(bench: TrainBench) -> None:
    running(bench)
    bench.exits("node-0", 0)
    bench.exits("node-1", 0)
    bench.settle()
    sent = len(bench.api.sent)
    assert bench.sync() == Done()
    assert len(bench.api.sent) == sent
    assert bench.logs.forgotten


def test_a_restart_is_one_status_write_and_comes_before_the_first_deletion(bench: TrainBench) -> None:
    running(bench)
    sent, before = len(bench.api.sent), len(writes(bench))
    bench.exits("node-1", 137)
    bench.sync()
    assert bench.status["restarts"] == 1
    assert [each.method for each in bench.api.sent[sent:]] == ["PATCH"]
    bench.sync()
    assert [each.method for each in bench.api.sent[sent + 1 :]] == ["DELETE"]
    bench.pods_go()
    bench.settle()
    assert len(bench.api.paths("/jobs/")) == 1
    assert bench.status["restarts"] == 1
    assert len(writes(bench)) == before + 1
    assert ("restarted", 1) in bench.counted.said


def test_keys_are_made_once_and_their_secret_is_read_by_nobody(bench: TrainBench) -> None:
    bench.create(command=["mpirun", "x"])
    bench.settle()
    bench.runs("launcher-0", "node-0", "node-1")
    bench.settle()
    secrets = bench.api.requests(part="/secrets")
    assert [each.method for each in secrets] == ["POST"]


def test_a_secret_that_was_forgotten_is_found_to_be_there(bench: TrainBench) -> None:
    """Another process has nothing in memory, and no right to read it."""
    bench.create(command=["mpirun", "x"])
    bench.settle()
    bench.forget_secrets()
    bench.settle()
    assert bench.status["phase"] == "Creating"
    assert [each.method for each in bench.api.requests(part="/secrets")] == ["POST", "POST", "GET"]


def test_a_job_waits_for_its_runtime_and_then_runs(bench: TrainBench) -> None:
    bench.create(runtimeRef={"name": "mine", "kind": "TrainingRuntime"})
    assert bench.sync() == RequeueAfter(RUNTIME_TIMEOUT_SECONDS)
    assert bench.api.paths("/jobs/") == []
    assert "there is no TrainingRuntime mine" in bench.status["reason"]
    bench.api.put(RUNTIME_PATH, runtime("mine", namespaced=True))
    bench.settle()
    assert len(bench.api.paths("/jobs/")) == 1
    assert "reason" not in bench.status


def test_a_job_whose_runtime_never_comes_fails_without_a_child(bench: TrainBench) -> None:
    bench.create(runtimeRef={"name": "mine", "kind": "TrainingRuntime"})
    bench.sync()
    bench.clock.advance(RUNTIME_TIMEOUT_SECONDS)
    assert isinstance(bench.sync(), TerminalFailure)
    assert bench.status["state"] == "FAILED"
    assert [each["reason"] for each in bench.status["conditions"] if each["type"] == "Failed"] == ["JobsBuildFailed"]
    assert bench.api.paths("/jobs/") == []
