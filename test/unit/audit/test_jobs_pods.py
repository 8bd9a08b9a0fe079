"""Tests of audit.jobs.containers, reruns and stuck: which pods may run, and when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from audit.jobs.history import JOBS, PODS, TRAINJOBS
from helpers.jobstory import (
    DONE,
    TF_REPLICAS,
    Story,
    StoryFactory,
    after,
    done,
    indexed_running,
    reports_worker_succeeded,
    running,
    runs,
    second,
    stop,
)


def parameter_server_runs_again() -> Story:
    story = running()
    story.exits("pod-ps-0", 0)
    story.job_ends(f"{JOBS}-ps-0")
    story.delete(PODS, "pod-ps-0")
    story.delete(JOBS, f"{JOBS}-ps-0")
    story.child(JOBS, "ps-0", uid="second-job")
    story.pod("ps-0", uid="second", job="second-job")
    return story


def completed_index_runs_again() -> Story:
    """The Job counts a node whose pod was not observed to end, and another pod of that node is created."""
    story = indexed_running()
    story.put(JOBS, f"{JOBS}-node", status={"completedIndexes": "0"})
    story.delete(PODS, "pod-node-0")
    story.pod("node-0", uid="second", job=f"{JOBS}-node", **{"kubeflow.org/generation": "0"})
    return story


def suspended() -> Story:
    story = running()
    story.job(spec={"suspend": True}, phase="Creating", state="Unknown")
    stop(story, *TF_REPLICAS)
    story.advance(1000)
    return story


def gang_waits() -> Story:
    story = Story()
    story.job()
    story.gang("Waiting")
    story.advance(1000)
    return story


def quiet_training() -> Story:
    story = running()
    story.advance(10_000)
    return story


def deleted_pod_reports_no_end(until: str) -> Story:
    """A worker gets another pod while the last one, which must have ended at `until`, is still being deleted."""
    story = running()
    story.put(PODS, "pod-worker-0", metadata={"deletionTimestamp": until})
    story.job(phase="Running", state="Running", restarts=1, disruptions=1)
    story.delete(JOBS, f"{JOBS}-worker-0")
    story.child(JOBS, "worker-0", uid="again")
    story.pod("worker-0", uid="next", job="again")
    story.delete(PODS, "pod-worker-0")
    return story


def unbound_pod_of_the_next_job() -> Story:
    """A pod that has no node yet runs nothing, and one that never gets a node never does."""
    story = running()
    story.delete(JOBS, f"{JOBS}-worker-0")
    story.child(JOBS, "worker-0", uid="again")
    story.pod("worker-0", uid="next", job="again", node="")
    story.delete(PODS, "pod-worker-0")
    story.pod("worker-0", uid="next", job="again")
    return story


def runs_again_in_its_pod(story: Story) -> None:
    succeeded = {"terminated": {"exitCode": 0}}
    container = {"name": "main", "restartCount": 1, "state": {"running": {}}, "lastState": succeeded}
    story.put(PODS, "pod-worker-0", status={"phase": "Running", "containerStatuses": [container]})


def worker_is_recreated(
    *, visible_seconds: float = 0, is_deleted_by_controller: bool = False, is_pod_kept: bool = False
) -> Callable[[Story], None]:
    """The complete Job of worker-0 is deleted and recreated.

    `visible_seconds` is the time between the completion and the deletion. With `is_pod_kept`, the succeeded pod exists
    until the next Job is created; otherwise the pod is deleted before its end is observed.
    """

    def apply(story: Story) -> None:
        job = f"{JOBS}-worker-0"
        if is_pod_kept:
            story.exits("pod-worker-0", 0)
        else:
            story.delete(PODS, "pod-worker-0")
        story.job_ends(job)
        story.advance(visible_seconds)
        if is_deleted_by_controller:
            story.put(JOBS, job, metadata={"finalizers": ["foregroundDeletion"]})
            story.is_being_deleted(JOBS, job)
        story.delete(JOBS, job)
        story.child(JOBS, "worker-0", uid="new-job")
        if is_pod_kept:
            story.delete(PODS, "pod-worker-0")
        story.pod("worker-0", uid="again", job="new-job")

    return apply


def unobservable_success(*, visible_seconds: float = 0, outage: float | None = None) -> Story:
    """A user deletes every record of a worker's success."""
    story = running()
    worker_is_recreated(visible_seconds=visible_seconds)(story)
    if outage is not None:
        story.outages = [story.now - outage]
    return story


def succeeds_during_suspension() -> Story:
    """The Job controller deletes a pod that has just exited with 0, and does not count it."""
    story = running(TRAINJOBS)
    story.exits("pod-node-0", 0)
    story.is_being_deleted(PODS, "pod-node-0")
    story.delete(PODS, "pod-node-0")
    story.advance(40)
    story.pod("node-0", uid="again")
    return story


def next_pod(*, second_start: int, sidecar_end: int | None = 1030, same_job: bool = False) -> Story:
    """A worker is deleted at second 1000, its sidecar runs on, and the next pod starts."""
    story = running()
    story.put(PODS, "pod-worker-0", status=runs(("main", 1000, None), ("log", 1000, None)))
    story.put(PODS, "pod-worker-0", metadata={"deletionTimestamp": second(3000), "deletionGracePeriodSeconds": 30})
    story.job(phase="Running", state="Running", restarts=1, disruptions=1)
    if not same_job:
        story.delete(JOBS, f"{JOBS}-worker-0")
        story.child(JOBS, "worker-0", uid="again")
    story.pod("worker-0", uid="next", job="" if same_job else "again", node="")
    if sidecar_end is not None:
        story.put(PODS, "pod-worker-0", status=runs(("main", 1000, 1020), ("log", 1000, sidecar_end), phase="Failed"))
        story.delete(PODS, "pod-worker-0")
    story.pod("worker-0", uid="next", job="" if same_job else "again")
    story.put(PODS, "next", status=runs(("main", second_start, None)))
    return story


def kept(*, policy: str = "None", began: int, again: int, name: str = "main", is_stopped: bool = False) -> Story:
    """A worker, or its sidecar, is started again after the end of the job; `began` is its first start."""
    story = running()
    story.job(spec={"cleanPodPolicy": policy}, phase="Running", state="Running")
    trains = ("main", began, None)
    story.put(PODS, "pod-worker-0", status=runs(trains, *([(name, began, None)] if name != "main" else ())))
    story.exits("pod-master-0", 0)
    story.job(**DONE)
    started = [trains] if name != "main" else []
    story.put(PODS, "pod-worker-0", status=runs(*started, (name, again, None)))
    if is_stopped:
        story.is_being_deleted(PODS, "pod-worker-0")
    return story


def pod_of_second_job(story: Story) -> None:
    story.delete(JOBS, f"{JOBS}-ps-0")
    story.child(JOBS, "ps-0", uid="again")
    story.pod("ps-0", uid="other", job="again")


def runs_again(replica: str, **labels: str) -> Callable[[Story], None]:
    return lambda story: story.pod(replica, uid="again", **labels)


def time_passes(seconds: float) -> Callable[[Story], None]:
    return lambda story: story.advance(seconds)


def all_pods_are_deleted(story: Story) -> None:
    for replica in TF_REPLICAS:
        story.delete(PODS, f"pod-{replica}")


def pods_of_no_replica() -> Story:
    story = running()
    for job in ("worker-0", "worker-1"):
        story.pod("worker-0", uid=f"unlabelled-of-{job}", job=f"{JOBS}-{job}", task_index="")
    return story


VALID: dict[str, StoryFactory] = {
    "a parameter server that is started again": parameter_server_runs_again,
    "a job that is suspended for a long time": suspended,
    "a gang that waits for capacity for a long time": gang_waits,
    "a running job without changes for a long time": quiet_training,
    "a worker whose node is lost": lambda: deleted_pod_reports_no_end(until="1970-01-01T00:16:20Z"),
    "a pod of the next Job that waits for a node": unbound_pod_of_the_next_job,
    "a success whose records are deleted before the status lists it": unobservable_success,
    "a success whose records are deleted soon after an outage": lambda: unobservable_success(
        visible_seconds=100, outage=30
    ),
    "a success at the moment of a suspension": succeeds_during_suspension,
    "a pod that starts in the second in which the last container of the one before it has ended": lambda: next_pod(
        second_start=1030
    ),
    "a sidecar that is started again in a pod that is kept": lambda: kept(began=900, again=2000, name="log"),
    "a program that is started again in its pod, which is then stopped": lambda: kept(
        began=900, again=2000, is_stopped=True
    ),
    "a program that starts in the second of the job's end": lambda: kept(began=900, again=1013),
    "pods of a job that are no replica's": pods_of_no_replica,
}

VIOLATIONS: dict[str, tuple[str, StoryFactory]] = {
    "pods of two Jobs for one replica": ("duplicates: of two Jobs for one replica", after(running, pod_of_second_job)),
    "a pod that starts while the one before it is still being deleted": (
        "duplicates: of two Jobs for one replica",
        lambda: deleted_pod_reports_no_end(until="1970-01-01T00:16:50Z"),
    ),
    "a pod that starts while a sidecar of the one before it still runs": (
        "duplicates: for 10 s",
        lambda: next_pod(second_start=1020),
    ),
    "a pod of the same Job that starts while the one before it is still being deleted": (
        "duplicates: while containers of Pod ns/pod-worker-0 (pod-worker-0) still ran",
        lambda: next_pod(second_start=1010, same_job=True),
    ),
    "a pod that starts while the one before it is not reported to have ended": (
        "duplicates: for inf s",
        lambda: next_pod(second_start=1020, sidecar_end=None),
    ),
    "a completed index that runs again": ("reruns: had succeeded", completed_index_runs_again),
    "a worker that its kubelet starts again after its success": (
        "reruns: which had succeeded in it",
        after(running, runs_again_in_its_pod),
    ),
    "a worker whose complete Job was deleted by the controller": (
        "reruns: after worker-0 of",
        after(running, worker_is_recreated(is_deleted_by_controller=True)),
    ),
    "a worker whose complete Job existed for longer than the reaction time": (
        "reruns: after worker-0 of",
        after(running, worker_is_recreated(visible_seconds=100)),
    ),
    "a worker whose complete Job existed for long after an outage": (
        "reruns: after worker-0 of",
        lambda: unobservable_success(visible_seconds=200, outage=150),
    ),
    "a worker with a new Job while its succeeded pod exists": (
        "reruns: after worker-0 of",
        after(running, worker_is_recreated(is_pod_kept=True)),
    ),
    "a worker whose success the status reports": (
        "reruns: after worker-0 of",
        after(running, reports_worker_succeeded, runs_again("worker-0")),
    ),
    "a pod that is created after the end of its job": (
        "late_starts: was created after TFJob ns/job (job) had finished",
        after(lambda: done(), runs_again("worker-1")),
    ),
    "a pod that starts after the end of its job": (
        "late_starts: container main of Pod ns/pod-worker-0",
        lambda: kept(began=2000, again=2000),
    ),
    "a program that its kubelet starts again after the end, in a pod that nobody stops": (
        "late_starts: container main of Pod ns/pod-worker-0",
        lambda: kept(began=900, again=2000),
    ),
    "a job that has not ended": ("stuck: was expected to end as Succeeded", lambda: running(expects="SUCCESS")),
    "a job that does not change any more": (
        "stuck: nothing changes",
        after(running, all_pods_are_deleted, time_passes(100)),
    ),
    "a job whose chief has ended": (
        "stuck: nothing changes",
        after(running, lambda story: story.exits("pod-master-0", 0), time_passes(100)),
    ),
}


@pytest.mark.parametrize("build", VALID.values(), ids=VALID.keys())
def test_a_valid_history_has_no_violation(build: StoryFactory) -> None:
    assert build().found() == []


@pytest.mark.parametrize(("finding", "build"), VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_a_violation_is_found(finding: str, build: StoryFactory) -> None:
    build().must_find(finding)


def test_a_job_with_a_recent_change_is_not_stuck() -> None:
    assert after(running, all_pods_are_deleted, time_passes(50))().found() == []


def test_no_job_is_stuck_right_after_an_outage() -> None:
    story = after(running, all_pods_are_deleted, time_passes(100))()
    story.outages = [story.now - 30]
    assert story.found() == []
