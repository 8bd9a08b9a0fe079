"""What a sync writes when a job is resized: in which order, and only as long as nobody else has written."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.controllerbench import GANG_PATH, JOB_PATH, POD_PATH, TFJOB_PATH, ControllerBench
from helpers.manifests import master, workers
from tfjob_controller.controller.outcome import Retry
from tfjob_controller.jobs.plan.gangterms import ON, ON_REQUEST, GangPolicy

JOB = f"{TFJOB_PATH}/example-job"


@pytest.fixture
def bench() -> ControllerBench:
    """A job of four workers that runs as a gang."""
    bench = ControllerBench(gangs=GangPolicy(ON_REQUEST, "gang-scheduler", autoscaling=ON))
    bench.create(master(), workers(1), workerReplicas=4, gang={"enabled": True}, autoscaling={"maxWorkers": 6})
    bench.settle()
    members = ["master-0", *(f"worker-{index}" for index in range(4))]
    says(bench, phase="Bound", attempt=1, placement=[{"node": "n1", "members": members}])
    bench.settle_minor()
    return bench


def says(bench: ControllerBench, **status: object) -> None:
    bench.api.change(f"{GANG_PATH}/example-job-{bench.runtime_id}", {"status": status})


def wish(bench: ControllerBench) -> None:
    gang = bench.api.objects[f"{GANG_PATH}/example-job-{bench.runtime_id}"]
    says(
        bench,
        targetMembers={"worker": 2},
        leaving=["worker-1", "worker-2"],
        targetReason="capacity for b",
        observedGeneration=gang["metadata"]["generation"],
    )


def scales(bench: ControllerBench) -> int:
    return len(bench.api.requests("PATCH", "/scale"))


def test_the_resize_request_is_recorded_before_the_spec_is_written_and_then_the_children_follow(
    bench: ControllerBench,
) -> None:
    wish(bench)
    so_far = len(bench.api.sent)
    bench.sync()
    written = [each.path.rsplit("/", 1)[-1] for each in bench.api.sent[so_far:]]
    assert written == ["status", "scale"]
    assert bench.status["scaling"]["target"] == 2
    bench.settle_minor()
    assert bench.job["spec"]["workerReplicas"] == 2
    left = {path.rsplit("-", 1)[-1] for path in bench.api.paths(f"{JOB_PATH}/") if "-worker-" in path}
    assert left == {"0", "3"}
    assert ("Normal", "Resized", "shrunk 4 → 2 workers: capacity for b") in bench.recorder.events
    assert ("resized", "down", "autoscaler") in bench.counted.said
    assert scales(bench) == 1


def test_what_somebody_writes_in_between_stays(bench: ControllerBench) -> None:
    """The watch lags: the controller does not know of it yet."""
    wish(bench)
    bench.api.hold()
    bench.api.change(JOB, {"spec": {"workerReplicas": 5}})
    outcome = bench.sync()
    assert isinstance(outcome, Retry)
    assert bench.job["spec"]["workerReplicas"] == 5
    bench.api.release()


def test_a_user_who_scales_after_the_resize_request_is_recorded_wins_and_gets_an_event(bench: ControllerBench) -> None:
    wish(bench)
    bench.api.fail(409, "Conflict", part="/scale")
    bench.sync()
    bench.api.change(JOB, {"spec": {"workerReplicas": 5}})
    assert not isinstance(bench.sync(), Retry)
    assert bench.job["spec"]["workerReplicas"] == 5
    assert [reason for _, reason, _ in bench.recorder.events].count("AutoscalerOverridden") == 1
    assert ("resized", "up", "spec") in bench.counted.said


def test_a_resize_request_that_meets_another_version_is_dropped_silently(bench: ControllerBench) -> None:
    """On record it is already; the watch lags."""
    wish(bench)
    bench.api.fail(500, "InternalError", part="/scale")
    bench.sync()
    bench.api.hold()
    bench.api.change(JOB, {"spec": {"workerReplicas": 5}})
    assert not isinstance(bench.sync(), Retry)
    assert bench.job["spec"]["workerReplicas"] == 5


def test_a_spec_that_changes_while_the_resize_request_is_recorded_is_left_alone(bench: ControllerBench) -> None:
    def writes_at_once(kind: str, job: Any) -> None:
        if job.get("status", {}).get("scaling", {}).get("target") == 2 and job["spec"]["workerReplicas"] == 4:
            bench.api.change(JOB, {"spec": {"workerReplicas": 5}})

    wish(bench)
    bench.api.watch("tfjobs", writes_at_once)
    bench.sync()
    assert bench.job["spec"]["workerReplicas"] == 5
    assert scales(bench) == 0


def test_a_right_that_is_missing_is_said_and_it_is_tried_again(bench: ControllerBench) -> None:
    wish(bench)
    bench.api.fail(403, "Forbidden", part="/scale")
    outcome = bench.sync()
    assert isinstance(outcome, Retry)
    bench.settle_minor()
    assert bench.job["spec"]["workerReplicas"] == 2


def test_another_process_that_finds_the_resize_request_recorded_goes_on(bench: ControllerBench) -> None:
    wish(bench)
    bench.api.fail(500, "InternalError", part="/scale")
    bench.sync()
    assert bench.job["spec"]["workerReplicas"] == 4
    bench.reconciler = bench.new_reconciler()
    bench.settle_minor()
    assert bench.job["spec"]["workerReplicas"] == 2
    assert ("Normal", "Resized", "shrunk 4 → 2 workers: capacity for b") in bench.recorder.events


def test_steps_wait_with_the_other_figures_but_not_those_of_a_worker_that_goes() -> None:
    bench = ControllerBench()
    bench.create(master(), workers(2), autoscaling={"maxWorkers": 2, "totalSteps": 10})
    bench.settle()
    for replica in ("master-0", "worker-0", "worker-1"):
        bench.runs(replica)
    bench.settle_minor()
    report(bench, "worker-0", "3")
    so_far = len(bench.api.sent)
    bench.sync()
    assert len(bench.api.sent) == so_far
    report(bench, "worker-1", "4", deletionTimestamp="2026-01-01T00:00:05Z")
    bench.sync()
    assert bench.status["progress"]["done"] == 7


def report(bench: ControllerBench, replica: str, steps: str, **metadata: str) -> None:
    change = {"metadata": {"annotations": {"kubeflow.org/steps": steps}, **metadata}}
    bench.api.change(f"{POD_PATH}/{bench.child(replica)}-x", change)
