"""Tests of audit.jobs.results and states: what a job reports of itself."""

from __future__ import annotations

import pytest

from audit.jobs.history import JOBS, PODS
from helpers.jobstory import (
    COMPLETE,
    DONE,
    FAILED,
    NODES,
    TF_REPLICAS,
    Story,
    StoryFactory,
    after,
    condition,
    done,
    elastic_ends,
    failed,
    indexed_running,
    reports_worker_succeeded,
    running,
    status_changes,
    stop,
    worker_succeeds,
)


def elastic_shrinks(*, nodes: int = 1) -> Story:
    """The last node of an elastic job has succeeded when the job is resized to this many nodes."""
    story = indexed_running()
    elastic = {"numNodes": nodes, "elasticPolicy": {"minNodes": 1, "maxNodes": 4}}
    story.exits("pod-node-1", 0)
    story.job(phase="Running", state="RUNNING", succeededIndexes=["node-1"], spec=elastic)
    counts = [{"name": "node", "replicas": nodes}]
    story.job(phase="Running", state="RUNNING", succeededIndexes=[], jobsStatus=counts)
    return story


def indexed_job_completes() -> Story:
    """The nodes of an Indexed Job succeed one after the other; their pods are deleted before the status is written."""
    story = indexed_running()
    for replica, completed in zip(NODES, ("0", "0,1"), strict=True):
        story.exits(f"pod-{replica}", 0)
        story.put(JOBS, f"{JOBS}-node", status={"completedIndexes": completed})
    story.put(
        JOBS, f"{JOBS}-node", status={"completedIndexes": "0,1", "conditions": [{"type": "Complete", "status": "True"}]}
    )
    story.job(**COMPLETE)
    return story


def ends_during_deletion(story: Story, pod: str, finished: str) -> None:
    """The kubelet reports a container's end with 0 only after a user has deleted the pod."""
    deletion = {"deletionTimestamp": "2026-01-01T00:00:40Z", "deletionGracePeriodSeconds": 30}
    story.put(PODS, pod, metadata=deletion)
    ended = {"terminated": {"exitCode": 0, "finishedAt": finished}}
    containers = [{"name": "main", "state": ended}]
    story.put(PODS, pod, status={"phase": "Succeeded", "containerStatuses": containers})


def succeeds_during_deletion(finished: str) -> Story:
    story = running()
    ends_during_deletion(story, "pod-worker-0", finished)
    reports_worker_succeeded(story)
    return story


def deadline_exceeded() -> Story:
    story = running()
    story.job(spec={"activeDeadlineSeconds": 5}, phase="Running", state="Running")
    stop(story, *TF_REPLICAS)
    story.job(**FAILED | {"conditions": [condition("Failed", "DeadlineExceeded")]})
    return story


def invalid() -> Story:
    story = Story()
    story.job(expects="FAILED")
    story.job(**FAILED | {"conditions": [condition("Failed", "InvalidSpec")], "reason": "invalid job spec: …"})
    return story


def failed_after_a_late_report() -> Story:
    """The chief succeeds, which nobody can know before its pod is deleted; the job exceeds its deadline."""
    story = running()
    story.job(spec={"activeDeadlineSeconds": 5}, phase="Running", state="Running")
    stop(story, "worker-0", "worker-1", "ps-0")
    ends_during_deletion(story, "pod-master-0", "2026-01-01T00:00:09Z")
    story.put(JOBS, f"{JOBS}-master-0", spec={"suspend": True})
    story.advance(100)
    story.job(**FAILED | {"conditions": [condition("Failed", "DeadlineExceeded")]})
    return story


def failed_after_the_success(seconds: float) -> Story:
    """The chief exits with 0, and the job fails that many seconds later."""
    story = running()
    story.job(spec={"activeDeadlineSeconds": 5}, phase="Running", state="Running")
    stop(story, "worker-0", "worker-1", "ps-0")
    story.exits("pod-master-0", 0)
    story.job_ends(f"{JOBS}-master-0")
    story.advance(seconds)
    story.job(**FAILED | {"conditions": [condition("Failed", "DeadlineExceeded")]})
    return story


def chief_fails_after_unobserved_success() -> Story:
    """A user deletes the chief's pod and Job right after its success; the chief runs again and fails."""
    story = running()
    story.exits("pod-master-0", 0)
    story.delete(PODS, "pod-master-0")
    story.delete(JOBS, f"{JOBS}-master-0")
    story.child(JOBS, "master-0", uid="second-job")
    story.pod("master-0", uid="second", job="second-job")
    story.advance(100)
    story.exits("second", 3)
    story.job_ends("second-job", "Failed")
    stop(story, "worker-0", "worker-1", "ps-0")
    story.job(**FAILED)
    return story


def failed_after_an_outage() -> Story:
    story = failed_after_the_success(100)
    story.outages = [story.now - 30]
    return story


def condition_time_decreases(story: Story) -> None:
    for second in ("10", "05"):
        conditions = [condition("Running", is_true=False, since=f"2026-01-01T00:00:{second}Z")]
        story.job(phase="Running", state="Running", conditions=conditions)


SUCCEEDED_CONDITION = [condition("Succeeded")]

FAILED_CONDITION = [condition("Failed", "ReplicaFailed")]


VALID: dict[str, StoryFactory] = {
    "a TFJob that succeeded": lambda: done("SUCCESS"),
    "a TFJob that failed": lambda: failed("FAILED"),
    "a worker that had succeeded when its pod was deleted": lambda: succeeds_during_deletion("2026-01-01T00:00:09Z"),
    "an Indexed Job that completes": indexed_job_completes,
    "an elastic job that is shrunk, and lists a node no more that had succeeded": elastic_shrinks,
    "a job that exceeds its deadline": deadline_exceeded,
    "an invalid job": invalid,
    "a failure at the moment of the chief's success": lambda: failed_after_the_success(30),
    "a failure after a success during an outage": failed_after_an_outage,
    "a failure after a success that was reported late": failed_after_a_late_report,
    "a failure of a chief that ran again": chief_fails_after_unobserved_success,
}

VIOLATIONS: dict[str, tuple[str, StoryFactory]] = {
    "a failure that should have been a success": (
        "wrong_states: was expected to end as Succeeded, and ended as Failed",
        lambda: failed("SUCCESS"),
    ),
    "both Succeeded and Failed": (
        "wrong_states: was both Succeeded and Failed",
        after(done, status_changes(**DONE | {"conditions": [*SUCCEEDED_CONDITION, *FAILED_CONDITION]})),
    ),
    "a result that is withdrawn": (
        "wrong_states: changed after its end: phase Done -> Running",
        after(done, status_changes(phase="Running", state="Running")),
    ),
    "a result that changes during clean-up": (
        "wrong_states: changed after its end: state Succeeded -> Failed",
        after(
            running, status_changes(phase="CleanUp", state="Succeeded"), status_changes(phase="CleanUp", state="Failed")
        ),
    ),
    "a phase that contradicts the state": (
        "wrong_states: phase Done with state Failed",
        after(running, status_changes(**DONE | {"state": "Failed"})),
    ),
    "a phase that contradicts the conditions": (
        "wrong_states: phase Done with Failed True",
        after(running, status_changes(**DONE | {"conditions": FAILED_CONDITION})),
    ),
    "a finished job with condition Running": (
        "wrong_states: phase Done with Running True",
        after(running, status_changes(**DONE | {"conditions": [*SUCCEEDED_CONDITION, condition("Running")]})),
    ),
    "a running job with a result": (
        "wrong_states: phase Running with Succeeded True",
        after(running, status_changes(phase="Running", state="Running", conditions=SUCCEEDED_CONDITION)),
    ),
    "an end without completionTime": (
        "wrong_states: phase Done without completionTime",
        after(running, status_changes(**DONE | {"completionTime": None})),
    ),
    "an end before the start": (
        "wrong_states: before it started",
        after(running, status_changes(**DONE | {"startTime": "2026-01-01T00:00:20Z"})),
    ),
    "a condition that exists twice": (
        "wrong_states: has a condition twice",
        after(running, status_changes(phase="Running", state="Running", conditions=[condition("Running")] * 2)),
    ),
    "a condition that goes back in time": (
        "wrong_states: went backwards in time",
        after(running, condition_time_decreases),
    ),
    "a condition that vanishes": (
        "wrong_states: condition Running vanished",
        after(
            running, status_changes(phase="Running", conditions=[condition("Running")]), status_changes(phase="Running")
        ),
    ),
    "a succeeded worker that is no longer listed": (
        "wrong_states: no longer lists worker-0 as succeeded",
        after(running, worker_succeeds, reports_worker_succeeded, status_changes(phase="Running", state="Running")),
    ),
    "Done although the chief failed": (
        "wrong_states: reports Succeeded, but no pod of master-0 exited with 0",
        after(failed, status_changes(**DONE)),
    ),
    "a failure with a retryable exit code": (
        "wrong_states: reports ReplicaFailed, but no pod ended with such an error",
        after(running, lambda story: story.exits("pod-master-0", 137), status_changes(**FAILED)),
    ),
    "a failure long after the chief's success": (
        "wrong_states: reports Failed, but its chief had exited with 0",
        lambda: failed_after_the_success(100),
    ),
    "DeadlineExceeded without a deadline": (
        "wrong_states: reports DeadlineExceeded, but has no deadline",
        after(running, status_changes(**FAILED | {"conditions": [condition("Failed", "DeadlineExceeded")]})),
    ),
    "a reported success without a pod that exited with 0": (
        "wrong_states: reports that worker-0 succeeded, but no pod of it exited with 0",
        after(running, reports_worker_succeeded),
    ),
    "a success of a worker that exited after its deletion": (
        "wrong_states: reports that worker-0 succeeded, but no pod of it exited with 0",
        lambda: succeeds_during_deletion("2026-01-01T00:00:10Z"),
    ),
    "a node that an elastic job still has and does not list any more as succeeded": (
        "wrong_states: no longer lists node-1 as succeeded",
        lambda: elastic_shrinks(nodes=2),
    ),
    "an elastic job of which a node has not succeeded": (
        "wrong_states: reports Succeeded, but no pod of node-1 exited with 0",
        lambda: elastic_ends(end=1),
    ),
}


@pytest.mark.parametrize("build", VALID.values(), ids=VALID.keys())
def test_a_valid_history_has_no_violation(build: StoryFactory) -> None:
    assert build().found() == []


@pytest.mark.parametrize(("finding", "build"), VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_a_violation_is_found(finding: str, build: StoryFactory) -> None:
    build().must_find(finding)


def test_a_gap_long_after_the_end_does_not_hide_a_violation() -> None:
    story = after(running, lambda story: stop(story, *TF_REPLICAS), status_changes(**DONE))()
    story.advance(1000)
    story.history.note_gap(story.now)
    assert any("reports Succeeded, but no pod of master-0" in finding for finding in story.found())
