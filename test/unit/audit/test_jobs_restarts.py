"""Tests of audit.jobs.restarts: how many restarts a job counts."""

from __future__ import annotations

import pytest

from audit.jobs.history import JOBS, PODS, TRAINJOBS
from helpers.jobstory import (
    COMPLETE,
    DONE,
    FAILED,
    NODES,
    RUNTIME_ID,
    TIMES,
    Story,
    StoryFactory,
    after,
    condition,
    elastic_ends,
    ended,
    indexed_running,
    running,
    runs,
    second,
    status_changes,
    stop,
)


def worker_runs_again_after_an_error() -> Story:
    story = running()
    story.exits("pod-worker-0", 137)
    story.put(JOBS, f"{JOBS}-worker-0", status={"failed": 1})
    story.pod("worker-0", uid="second")
    story.job(phase="Running", state="Running", restarts=1)
    return story


def after_a_restart_in_place() -> Story:
    story = running()
    restarts_in_place(story)
    story.job(phase="Running", state="Running", restarts=1)
    return story


def all_nodes_restarted() -> Story:
    """One node is killed, the other one had succeeded: both run again in the next restart attempt."""
    story = running(TRAINJOBS)
    story.exits("pod-node-0", 0)
    story.job(phase="Running", state="RUNNING", succeededIndexes=["node-0"])
    story.exits("pod-node-1", 137)
    story.job_ends(f"{JOBS}-node-1", "Failed")
    story.job(phase="Running", state="RUNNING", restarts=1)
    for replica in NODES:
        story.delete(PODS, f"pod-{replica}")
        story.delete(JOBS, f"{JOBS}-{replica}")
        generation = {"kubeflow.org/generation": "1"}
        story.child(JOBS, replica, uid=f"new-{replica}", **generation)
        story.pod(replica, uid=f"new-pod-{replica}", job=f"new-{replica}", **generation)
    return story


def restarted_after_job_deletion(is_succeeded: bool, *, is_deleted_before_restart: bool = True) -> Story:
    """A user deletes the child Job of a node before it has a pod, or after its pod exited with 0 unnoticed.

    `is_deleted_before_restart`: whether the Job is deleted before the restart is counted.
    """
    story = Story(TRAINJOBS)
    story.job()
    for replica in NODES:
        story.child(JOBS, replica, **{"kubeflow.org/generation": "0"})
    if is_succeeded:
        story.pod("node-1", **{"kubeflow.org/generation": "0"})
        story.exits("pod-node-1", 0)
    if is_deleted_before_restart:
        story.delete(JOBS, f"{JOBS}-node-1")
    if is_succeeded:
        story.delete(PODS, "pod-node-1")
    story.job(phase="Creating", restarts=1, disruptions=1)
    if not is_deleted_before_restart:
        story.delete(JOBS, f"{JOBS}-node-1")
    return story


def indexed_job_is_restarted() -> Story:
    """A node fails after the other one has succeeded, and the next Indexed Job runs both."""
    story = indexed_running()
    story.exits("pod-node-0", 0)
    story.put(JOBS, f"{JOBS}-node", status={"completedIndexes": "0"})
    story.exits("pod-node-1", 137)
    conditions = [{"type": "Failed", "status": "True"}]
    story.put(JOBS, f"{JOBS}-node", status={"completedIndexes": "0", "failed": 1, "conditions": conditions})
    story.job(phase="Running", state="RUNNING", restarts=1)
    for replica in NODES:
        story.delete(PODS, f"pod-{replica}")
    story.delete(JOBS, f"{JOBS}-node")
    story.indexed(JOBS, uid="new-job", **{"kubeflow.org/generation": "1"})
    for replica in NODES:
        story.pod(replica, uid=f"new-{replica}", job="new-job", **{"kubeflow.org/generation": "1"})
    return story


def trained_after_a_restart() -> Story:
    story = all_nodes_restarted()
    for replica in NODES:
        story.exits(f"new-pod-{replica}", 0)
        story.job_ends(f"new-{replica}")
    story.job(**COMPLETE, restarts=1)
    return story


def surplus_pod_of_a_replica_that_succeeds() -> Story:
    story = running()
    story.pod("worker-0", uid="surplus")
    story.is_being_deleted(PODS, "surplus")
    counts = {"restarts": 1, "disruptions": 1, "restartCounts": {"worker-0": 1}}
    story.job(phase="Running", state="Running", **counts)
    story.delete(PODS, "surplus")
    story.exits("pod-worker-0", 0)
    story.job(phase="Running", state="Running", succeededIndexes=["worker-0"], **counts)
    return story


def drained_worker_is_replaced() -> Story:
    """A worker exits with 0 because its pod is deleted, so its Job is complete; the next Job runs it again."""
    story = running()
    story.is_being_deleted(PODS, "pod-worker-0")
    story.exits("pod-worker-0", 0)
    story.job_ends(f"{JOBS}-worker-0")
    story.job(phase="Running", state="Running", restarts=1, disruptions=1)
    story.advance(100)
    story.delete(PODS, "pod-worker-0")
    story.delete(JOBS, f"{JOBS}-worker-0")
    story.child(JOBS, "worker-0", uid="again")
    story.pod("worker-0", uid="next", job="again")
    return story


def worker_is_evicted() -> Story:
    """An exit with 0 because of an eviction does not count as a success."""
    story = running()
    story.put(PODS, "pod-worker-0", status=ended(0, conditions=[condition("DisruptionTarget")]))
    story.job(phase="Running", state="Running", restarts=1, disruptions=1)
    story.pod("worker-0", uid="again")
    return story


def deleted_worker(*, restarts: int = 1, disruptions: int = 1, **spec: object) -> Story:
    """A worker is deleted, and another one runs."""
    story = running()
    story.job(spec=spec, phase="Running", state="Running")
    story.put(PODS, "pod-worker-0", metadata={"deletionTimestamp": second(1000), "deletionGracePeriodSeconds": 30})
    story.exits("pod-worker-0", 137)
    story.delete(PODS, "pod-worker-0")
    story.job(phase="Running", state="Running", restarts=restarts, disruptions=disruptions)
    story.delete(JOBS, f"{JOBS}-worker-0")
    story.child(JOBS, "worker-0", uid="again")
    story.pod("worker-0", uid="next", job="again")
    return story


def ends_twice() -> Story:
    """A worker exits with 0 because it is deleted; the kubelet's own deletion, without a grace period, hides that."""
    story = running()
    counts = {"restarts": 1, "disruptions": 1, "restartCounts": {"worker-0": 1}}
    story.put(PODS, "pod-worker-0", metadata={"deletionTimestamp": second(1030), "deletionGracePeriodSeconds": 30})
    story.job(phase="Running", state="Running", **counts)
    story.put(PODS, "pod-worker-0", status=runs(("main", 900, 1010), exit_code=0))
    story.put(PODS, "pod-worker-0", metadata={"deletionTimestamp": second(1011), "deletionGracePeriodSeconds": 0})
    story.job(phase="Running", state="Running", succeededIndexes=["worker-0"], **counts)
    return story


def limit_is_exceeded(story: Story) -> None:
    stop(story, "master-0", "worker-1", "ps-0")
    failed_by = {"conditions": [condition("Failed", "BackoffLimitExceeded")]}
    story.job(**FAILED | failed_by, restarts=1, disruptions=1)


def init_container_restarts_in_place(*, sidecar: bool = False) -> Story:
    story = running()
    policy = {"restartPolicy": "Always"} if sidecar else {"restartPolicy": "OnFailure"}
    spec = {"nodeName": "node", "initContainers": [{"name": "setup", **policy}]}
    init = [{"name": "setup", "restartCount": 1, "state": {"running": {}}}]
    story.put(PODS, "pod-worker-0", spec=spec, status={"phase": "Pending", "initContainerStatuses": init})
    story.job(phase="Running", state="Running", restarts=1)
    return story


def restarts_in_place(story: Story) -> None:
    """The container ends with an error and is restarted in its pod."""
    ended = {"terminated": {"exitCode": 137}}
    for count, state in ((0, {"state": ended}), (1, {"state": {"running": {}}, "lastState": ended})):
        container = {"name": "main", "restartCount": count, **state}
        story.put(PODS, "pod-worker-0", status={"phase": "Running", "containerStatuses": [container]})


def sidecar_restarts(story: Story) -> None:
    """A container beside the training container is restarted."""
    trains = {"name": "worker", "restartCount": 0, "state": {"running": {}}}
    beside = {"name": "side", "restartCount": 1, "state": {"running": {}}}
    story.put(PODS, "pod-worker-0", status={"phase": "Running", "containerStatuses": [beside, trains]})


VALID: dict[str, StoryFactory] = {
    "a restart in place": after_a_restart_in_place,
    "a restart after a user deleted a Job without a pod": lambda: restarted_after_job_deletion(is_succeeded=False),
    "a restart after a user deleted a Job that had succeeded": lambda: restarted_after_job_deletion(is_succeeded=True),
    "a TrainJob that succeeded after a restart": trained_after_a_restart,
    "an elastic job that ends with fewer nodes than were requested last": elastic_ends,
    "an Indexed Job that is recreated after a failure": indexed_job_is_restarted,
    "a second pod of the same Job that is counted": surplus_pod_of_a_replica_that_succeeds,
    "a worker that was evicted and is recreated": worker_is_evicted,
    "a worker that ended with 0 because it was drained": drained_worker_is_replaced,
    "a deletion that counts as a disruption": lambda: deleted_worker(backoffLimit=0),
    "a restart of an init container in its pod": init_container_restarts_in_place,
}

VIOLATIONS: dict[str, tuple[str, StoryFactory]] = {
    "restarts that decrease": (
        "wrong_states: restarts decreased: 2 -> 1",
        after(running, status_changes(phase="Running", restarts=2), status_changes(phase="Running", restarts=1)),
    ),
    "more disruptions than restarts": (
        "wrong_states: 2 of 1 restarts are disruptions",
        after(worker_runs_again_after_an_error, status_changes(phase="Running", restarts=1, disruptions=2)),
    ),
    "a drain that is counted twice": (
        "wrong_states: counts 2 restarts, but its pods account for 1",
        after(drained_worker_is_replaced, status_changes(phase="Running", restarts=2, disruptions=1)),
    ),
    "a restart of a sidecar that is counted": (
        "wrong_states: counts 1 restarts, but its pods account for 0",
        after(running, sidecar_restarts, status_changes(phase="Running", restarts=1)),
    ),
    "a restart in place that is counted twice": (
        "wrong_states: counts 2 restarts, but its pods account for 1",
        after(running, restarts_in_place, status_changes(phase="Running", state="Running", restarts=2)),
    ),
    "a restart by a new pod that is counted twice": (
        "wrong_states: counts 2 restarts, but its pods account for 1",
        after(worker_runs_again_after_an_error, status_changes(phase="Running", state="Running", restarts=2)),
    ),
    "a Job that is deleted after the restart was counted": (
        "wrong_states: counts 1 restarts, but its pods account for 0",
        lambda: restarted_after_job_deletion(is_succeeded=False, is_deleted_before_restart=False),
    ),
    "a restart for one Job that is counted twice": (
        "wrong_states: counts 2 restarts, but its pods account for 1",
        after(
            lambda: restarted_after_job_deletion(is_succeeded=True),
            status_changes(phase="Creating", restarts=2),
            lambda story: story.delete(JOBS, f"{JOBS}-node-0"),
        ),
    ),
    "a gang's restart for a Job without a pod": (
        "wrong_states: counts 1 restarts, but its pods account for 0",
        after(lambda: restarted_after_job_deletion(is_succeeded=False), lambda story: story.gang("Waiting")),
    ),
    "a restart of all nodes that is counted twice": (
        "wrong_states: counts 2 restarts, but its pods account for 1",
        after(all_nodes_restarted, status_changes(phase="Running", state="RUNNING", restarts=2)),
    ),
    "a restart of an elastic job's node that is counted twice": (
        "wrong_states: counts 3 restarts, but its pods account for 2",
        lambda: elastic_ends(restarts=3),
    ),
    "a restart that is not counted": (
        "wrong_states: counts 0 restarts, but its pods show 1",
        lambda: deleted_worker(restarts=0, disruptions=0),
    ),
    "an end that counts as a restart and as a success": (
        "wrong_states: (pod-worker-0) as a restart, and then lists worker-0 as succeeded",
        ends_twice,
    ),
    "a disruption that counts as an error": (
        "wrong_states: counts 1 restarts that are no disruptions, but its pods show 0 errors",
        lambda: deleted_worker(disruptions=0),
    ),
    "a disruption that uses up the limit": (
        "wrong_states: its pods show 0 errors, and its limit is 0",
        after(lambda: deleted_worker(backoffLimit=0), limit_is_exceeded),
    ),
    "a restart of a native sidecar that counts": (
        "wrong_states: counts 1 restarts, but its pods account for 0",
        lambda: init_container_restarts_in_place(sidecar=True),
    ),
}


@pytest.mark.parametrize("build", VALID.values(), ids=VALID.keys())
def test_a_valid_history_has_no_violation(build: StoryFactory) -> None:
    assert build().found() == []


@pytest.mark.parametrize(("finding", "build"), VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_a_violation_is_found(finding: str, build: StoryFactory) -> None:
    build().must_find(finding)


def test_changes_in_a_gap_are_not_judged() -> None:
    """A pod may have been created in the gap before the success, and a container may have ended in it."""
    story = running()
    story.exits("pod-worker-0", 0)
    story.history.note_gap(story.now)
    reference = {"kind": "Job", "name": "any", "uid": f"{JOBS}-worker-0", "controller": True}
    labels = {"runtime_id": RUNTIME_ID, "job_type": "WORKER", "task_index": "0"}
    meta: dict[str, object] = {"uid": "late", "name": "late", "namespace": "ns", "resourceVersion": "900"}
    meta |= {"labels": labels, "ownerReferences": [reference]}
    pod = {"metadata": meta, "spec": {}, "status": {"phase": "Running"}}
    story.history.record(PODS, "RELISTED", pod, story.now)
    story.delete(PODS, "pod-master-0")
    story.job(**DONE | TIMES, restarts=3)
    assert not [finding for finding in story.found() if finding.startswith(("reruns", "wrong_states"))]
