"""Tests of audit.jobs.judge: valid histories have no violation, and each violation is found in its category."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from audit.jobs.history import CONFIG_MAPS, GANGS, JOBS, PODS, SECRETS, SERVICES, TFJOBS, TRAINJOBS
from helpers.jobstory import (
    COMPLETE,
    DONE,
    FAILED,
    NODES,
    RUNTIME_ID,
    TF_REPLICAS,
    TIMES,
    Story,
    condition,
    done,
    ended,
    failed,
    indexed_running,
    running,
    stop,
    trained,
)

# Valid histories


def elastic_ends(*, restarts: int = 2, end: int = 2) -> Story:
    """A node of an elastic job is replaced twice by itself, and the job ends before it has grown to four nodes."""
    story = indexed_running()
    story.job(phase="Running", state="RUNNING", spec={"numNodes": 2, "elasticPolicy": {"minNodes": 1, "maxNodes": 4}})
    generation = {"kubeflow.org/generation": "0"}
    for number in (1, 2):
        story.exits("pod-node-1" if number == 1 else "replaced-1", 137)
        story.pod("node-1", uid=f"replaced-{number}", job=f"{JOBS}-node", **generation)
    story.job(phase="Running", state="RUNNING", restarts=restarts, currentNodes=2, spec={"numNodes": 4})
    for uid in ("pod-node-0", "replaced-2")[:end]:
        story.exits(uid, 0)
    story.put(JOBS, f"{JOBS}-node", status={"conditions": [{"type": "Complete", "status": "True"}]})
    story.job(**COMPLETE, restarts=restarts, currentNodes=2)
    return story


def elastic_shrinks(*, nodes: int = 1) -> Story:
    """The last node of an elastic job has succeeded when the job is resized to this many nodes."""
    story = indexed_running()
    elastic = {"numNodes": nodes, "elasticPolicy": {"minNodes": 1, "maxNodes": 4}}
    story.exits("pod-node-1", 0)
    story.job(phase="Running", state="RUNNING", succeededIndexes=["node-1"], spec=elastic)
    counts = [{"name": "node", "replicas": nodes}]
    story.job(phase="Running", state="RUNNING", succeededIndexes=[], jobsStatus=counts)
    return story


def deleted_with_all_children() -> Story:
    story = running()
    story.delete(TFJOBS, "job")
    for replica in TF_REPLICAS:
        for kind in (JOBS, SERVICES):
            story.delete(kind, f"{kind}-{replica}")
        story.delete(PODS, f"pod-{replica}")
    return story


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


def parameter_server_runs_again() -> Story:
    story = running()
    story.exits("pod-ps-0", 0)
    story.job_ends(f"{JOBS}-ps-0")
    story.delete(PODS, "pod-ps-0")
    story.delete(JOBS, f"{JOBS}-ps-0")
    story.child(JOBS, "ps-0", uid="second-job")
    story.pod("ps-0", uid="second", job="second-job")
    return story


def all_nodes_restarted(succeeded_before: bool = True) -> Story:
    """One node is killed, the other one had succeeded: both run again in the next restart attempt."""
    story = running(TRAINJOBS)
    if succeeded_before:
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


def completed_index_runs_again() -> Story:
    """The Job counts a node whose pod was not observed to end, and another pod of that node is created."""
    story = indexed_running()
    story.put(JOBS, f"{JOBS}-node", status={"completedIndexes": "0"})
    story.delete(PODS, "pod-node-0")
    story.pod("node-0", uid="second", job=f"{JOBS}-node", **{"kubeflow.org/generation": "0"})
    return story


def succeeds_during_deletion(finished: str) -> Story:
    """The kubelet reports the end of a worker only after a user has deleted the pod."""
    story = running()
    story.put(
        PODS,
        "pod-worker-0",
        metadata={"deletionTimestamp": "2026-01-01T00:00:40Z", "deletionGracePeriodSeconds": 30},
    )
    ended = {"terminated": {"exitCode": 0, "finishedAt": finished}}
    containers = [{"name": "main", "state": ended}]
    story.put(PODS, "pod-worker-0", status={"phase": "Succeeded", "containerStatuses": containers})
    reports_worker_succeeded(story)
    return story


def trained_after_a_restart() -> Story:
    story = all_nodes_restarted()
    for replica in NODES:
        story.exits(f"new-pod-{replica}", 0)
        story.job_ends(f"new-{replica}")
    story.job(**COMPLETE, restarts=1)
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


def suspended() -> Story:
    story = running()
    story.job(spec={"suspend": True}, phase="Creating", state="Unknown")
    stop(story, *TF_REPLICAS)
    story.advance(1000)
    return story


def scaled_up() -> Story:
    story = running()
    story.job(spec={"workerReplicas": 3}, phase="Running", state="Running")
    story.child(JOBS, "worker-2")
    return story


def pods_are_kept() -> Story:
    story = running()
    story.job(spec={"cleanPodPolicy": "None"}, phase="Running", state="Running")
    story.exits("pod-master-0", 0)
    story.job(**DONE)
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


def foreign_job() -> Story:
    """A Job without an owner exists beside the children of the job."""
    story = done()
    story.put(JOBS, "foreign", metadata={"labels": {"kubeflow.org": ""}})
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


def worker_is_evicted() -> Story:
    """An exit with 0 because of an eviction does not count as a success."""
    story = running()
    story.put(PODS, "pod-worker-0", status=ended(0, conditions=[condition("DisruptionTarget")]))
    story.job(phase="Running", state="Running", restarts=1, disruptions=1)
    story.pod("worker-0", uid="again")
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


def runs(*containers: tuple[str, int, int | None], exit_code: int = 137, **more: object) -> dict[str, object]:
    """Returns the status of a pod whose containers run from one second until another one, or still run."""

    def state(begin: int, end: int | None) -> dict[str, object]:
        started = {"startedAt": second(begin)}
        return (
            {"running": started}
            if end is None
            else {"terminated": {**started, "finishedAt": second(end), "exitCode": exit_code}}
        )

    statuses = [{"name": name, "state": state(begin, end)} for name, begin, end in containers]
    return {"phase": "Running", "containerStatuses": statuses, **more}


def second(number: int) -> str:
    return f"1970-01-01T00:{number // 60:02d}:{number % 60:02d}Z"


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
    story.put(PODS, "pod-worker-0", metadata={"deletionTimestamp": second(1030), "deletionGracePeriodSeconds": 30})
    story.job(phase="Running", state="Running", restarts=1, disruptions=1, restartCounts={"worker-0": 1})
    story.put(PODS, "pod-worker-0", status=runs(("main", 900, 1010), exit_code=0))
    story.put(PODS, "pod-worker-0", metadata={"deletionTimestamp": second(1011), "deletionGracePeriodSeconds": 0})
    counts = {"restarts": 1, "disruptions": 1, "restartCounts": {"worker-0": 1}}
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


VALID: dict[str, Callable[[], Story]] = {
    "a TFJob that succeeded": lambda: done("SUCCESS"),
    "a TFJob that failed": lambda: failed("FAILED"),
    "a TrainJob that succeeded": lambda: trained("SUCCESS"),
    "a job that was deleted with all its children": deleted_with_all_children,
    "a worker that is started again after an error": worker_runs_again_after_an_error,
    "a restart in place": after_a_restart_in_place,
    "a parameter server that is started again": parameter_server_runs_again,
    "a restart after a user deleted a Job without a pod": lambda: restarted_after_job_deletion(is_succeeded=False),
    "a restart after a user deleted a Job that had succeeded": lambda: restarted_after_job_deletion(is_succeeded=True),
    "a TrainJob that succeeded after a restart": trained_after_a_restart,
    "a worker that had succeeded when its pod was deleted": lambda: succeeds_during_deletion("2026-01-01T00:00:09Z"),
    "an Indexed Job that completes": indexed_job_completes,
    "an elastic job that ends with fewer nodes than were requested last": elastic_ends,
    "an elastic job that is shrunk, and lists a node no more that had succeeded": elastic_shrinks,
    "an Indexed Job that is recreated after a failure": indexed_job_is_restarted,
    "a job that exceeds its deadline": deadline_exceeded,
    "an invalid job": invalid,
    "a job that is suspended for a long time": suspended,
    "a job that is scaled up": scaled_up,
    "pods that cleanPodPolicy keeps": pods_are_kept,
    "a gang that waits for capacity for a long time": gang_waits,
    "a running job without changes for a long time": quiet_training,
    "a foreign Job": foreign_job,
    "a second pod of the same Job that is counted": surplus_pod_of_a_replica_that_succeeds,
    "a worker that was evicted and is recreated": worker_is_evicted,
    "a worker that ended with 0 because it was drained": drained_worker_is_replaced,
    "a worker whose node is lost": lambda: deleted_pod_reports_no_end(until="1970-01-01T00:16:20Z"),
    "a pod of the next Job that waits for a node": unbound_pod_of_the_next_job,
    "a failure at the moment of the chief's success": lambda: failed_after_the_success(30),
    "a failure after a success during an outage": failed_after_an_outage,
    "a failure of a chief that ran again": chief_fails_after_unobserved_success,
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
    "a deletion that counts as a disruption": lambda: deleted_worker(backoffLimit=0),
    "a restart of an init container in its pod": init_container_restarts_in_place,
}


@pytest.mark.parametrize("build", VALID.values(), ids=VALID.keys())
def test_a_valid_history_has_no_violation(build: Callable[[], Story]) -> None:
    assert build().found() == []


# Violations: changes that follow a valid history, and the violation that is found.

StoryFactory = Callable[[], Story]


def after(begin: Callable[[], Story], *changes: Callable[[Story], None]) -> StoryFactory:
    def build() -> Story:
        story = begin()
        for change in changes:
            change(story)
        return story

    return build


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


def status_changes(**status: object) -> Callable[[Story], None]:
    return lambda story: story.job(**status)


def second_under_another_name(kind: str) -> Callable[[Story], None]:
    return lambda story: story.child(kind, "worker-0", uid="other", name=f"job-worker-{RUNTIME_ID}-x-0")


def pod_of_second_job(story: Story) -> None:
    story.delete(JOBS, f"{JOBS}-ps-0")
    story.child(JOBS, "ps-0", uid="again")
    story.pod("ps-0", uid="other", job="again")


def two_of(kind: str) -> Callable[[Story], None]:
    def change(story: Story) -> None:
        for uid in ("one", "other"):
            story.put(kind, uid, metadata={"ownerReferences": [story.owner()], "labels": {"tf_job_name": "job"}})

    return change


def new_runtime_id(story: Story) -> None:
    story.job(spec={"RuntimeId": "z999"}, phase="Running", state="Running")


def child_with_another_runtime_id(story: Story) -> None:
    story.child(SERVICES, "node-1", uid="other", name="job-node-z999-1", runtime_id="z999")


def without_controller(story: Story) -> None:
    story.put(SERVICES, f"{SERVICES}-worker-0", metadata={"ownerReferences": []})


def owned_by(**fields: object) -> Callable[[Story], None]:
    def change(story: Story) -> None:
        story.put(TFJOBS, "stranger", spec={"replicaSpecs": []}, status={})
        reference = story.owner(**fields)
        story.put(SERVICES, f"{SERVICES}-worker-0", metadata={"ownerReferences": [reference]})

    return change


def pod_keeps_running(story: Story) -> None:
    story.put(JOBS, f"{JOBS}-worker-1", spec={"suspend": True})
    story.pod("worker-1", uid="goes-on")


def job_is_not_suspended(story: Story) -> None:
    story.put(JOBS, f"{JOBS}-worker-1", spec={"suspend": False})


def gang_remains_bound(story: Story) -> None:
    story.gang("Bound")


def runs_again(replica: str, **labels: str) -> Callable[[Story], None]:
    return lambda story: story.pod(replica, uid="again", **labels)


def worker_succeeds(story: Story) -> None:
    story.exits("pod-worker-0", 0)


def reports_worker_succeeded(story: Story) -> None:
    story.job(phase="Running", state="Running", succeededIndexes=["worker-0"])


def time_passes(seconds: float) -> Callable[[Story], None]:
    return lambda story: story.advance(seconds)


def all_pods_are_deleted(story: Story) -> None:
    for replica in TF_REPLICAS:
        story.delete(PODS, f"pod-{replica}")


def condition_time_decreases(story: Story) -> None:
    for second in ("10", "05"):
        conditions = [condition("Running", is_true=False, since=f"2026-01-01T00:00:{second}Z")]
        story.job(phase="Running", state="Running", conditions=conditions)


SUCCEEDED_CONDITION = [condition("Succeeded")]
FAILED_CONDITION = [condition("Failed", "ReplicaFailed")]

VIOLATIONS: dict[str, dict[str, tuple[str, StoryFactory]]] = {
    "duplicates": {
        **{
            f"two {kind} for one replica": ("for one replica at once", after(running, second_under_another_name(kind)))
            for kind in (JOBS, SERVICES)
        },
        **{
            f"two {kind} for one job": ("for one job at once", after(running, two_of(kind)))
            for kind in (CONFIG_MAPS, SECRETS, GANGS)
        },
        "pods of two Jobs for one replica": ("of two Jobs for one replica", after(running, pod_of_second_job)),
        "a pod that starts while the one before it is still being deleted": (
            "of two Jobs for one replica",
            lambda: deleted_pod_reports_no_end(until="1970-01-01T00:16:50Z"),
        ),
        "a RuntimeId that changes": ("several RuntimeIds: k3f9, z999", after(running, new_runtime_id)),
        "a TrainJob's child with another RuntimeId": (
            "several RuntimeIds",
            after(lambda: running(TRAINJOBS), child_with_another_runtime_id),
        ),
        "a worker beyond the plan": (
            "for worker-2, which the plan",
            after(running, lambda story: story.child(JOBS, "worker-2")),
        ),
        "a role beyond the plan": (
            "for evaluator-0, which the plan",
            after(running, lambda story: story.child(JOBS, "evaluator-0")),
        ),
        "a node beyond the plan": (
            "for node-2, which the plan",
            after(lambda: running(TRAINJOBS), lambda story: story.child(SERVICES, "node-2")),
        ),
        "an Indexed Job beyond the plan": (
            "has 3 completions, more than the plan",
            after(indexed_running, lambda story: story.indexed(JOBS, completions=3)),
        ),
        "a second Indexed Job under another name": (
            "for one replica at once",
            after(indexed_running, lambda story: story.indexed(JOBS, uid="second", name="job-2-node-k3f9")),
        ),
        "a Service whose name matches no role": (
            "is named for no role",
            after(indexed_running, lambda story: story.indexed(SERVICES, name="other")),
        ),
        "a child whose name matches no replica": (
            "is named for no replica",
            after(running, lambda story: story.child(JOBS, "worker-1", name="other")),
        ),
        "a pod that starts while a sidecar of the one before it still runs": (
            "for 10 s",
            lambda: next_pod(second_start=1020),
        ),
        "a pod of the same Job that starts while the one before it is still being deleted": (
            "while containers of Pod ns/pod-worker-0 (pod-worker-0) still ran",
            lambda: next_pod(second_start=1010, same_job=True),
        ),
        "a pod that starts while the one before it is not reported to have ended": (
            "for inf s",
            lambda: next_pod(second_start=1020, sidecar_end=None),
        ),
    },
    "reruns": {
        "a completed index that runs again": ("had succeeded", completed_index_runs_again),
        "a worker that runs again after its success": (
            "after worker-0 of",
            after(running, worker_succeeds, runs_again("worker-0")),
        ),
        "a worker that its kubelet starts again after its success": (
            "which had succeeded in it",
            after(running, runs_again_in_its_pod),
        ),
        "a worker whose complete Job was deleted by the controller": (
            "after worker-0 of",
            after(running, worker_is_recreated(is_deleted_by_controller=True)),
        ),
        "a worker whose complete Job existed for longer than the reaction time": (
            "after worker-0 of",
            after(running, worker_is_recreated(visible_seconds=100)),
        ),
        "a worker whose complete Job existed for long after an outage": (
            "after worker-0 of",
            lambda: unobservable_success(visible_seconds=200, outage=150),
        ),
        "a worker with a new Job while its succeeded pod exists": (
            "after worker-0 of",
            after(running, worker_is_recreated(is_pod_kept=True)),
        ),
        "a worker whose success the status reports": (
            "after worker-0 of",
            after(running, reports_worker_succeeded, runs_again("worker-0")),
        ),
        "a node that had succeeded in the same restart attempt": (
            "after node-0 of",
            after(lambda: running(TRAINJOBS), lambda story: story.exits("pod-node-0", 0), runs_again("node-0")),
        ),
    },
    "orphans": {
        "a child without a controller": ("has no controller", after(running, without_controller)),
        "a child whose owner is deleted": (
            "which does not exist",
            after(running, lambda story: story.delete(TFJOBS, "job")),
        ),
        "a child whose owner never existed": ("which does not exist", after(running, owned_by(uid="nobody"))),
        "an owner reference with the uid of another job": (
            "names job as its owner with the uid of",
            after(running, owned_by(uid="stranger")),
        ),
        "a child with another job's labels": (
            "has the labels of job and is owned by",
            after(running, owned_by(uid="stranger", name="stranger")),
        ),
        "a pod of a finished job that still runs": ("still runs", after(done, pod_keeps_running)),
        "a Job of a finished job that is not suspended": ("is not stopped", after(done, job_is_not_suspended)),
        "a Gang of a finished job that holds capacity": ("still holds capacity", after(done, gang_remains_bound)),
    },
    "wrong_states": {
        "a failure that should have been a success": (
            "was expected to end as Succeeded, and ended as Failed",
            lambda: failed("SUCCESS"),
        ),
        "both Succeeded and Failed": (
            "was both Succeeded and Failed",
            after(done, status_changes(**DONE | {"conditions": [*SUCCEEDED_CONDITION, *FAILED_CONDITION]})),
        ),
        "a result that is withdrawn": (
            "changed after its end: phase Done -> Running",
            after(done, status_changes(phase="Running", state="Running")),
        ),
        "a result that changes during clean-up": (
            "changed after its end: state Succeeded -> Failed",
            after(
                running,
                status_changes(phase="CleanUp", state="Succeeded"),
                status_changes(phase="CleanUp", state="Failed"),
            ),
        ),
        "another completion time": (
            "changed after its end: completionTime",
            after(done, status_changes(**DONE | {"completionTime": "2026-01-01T00:00:20Z"})),
        ),
        "a phase that contradicts the state": (
            "phase Done with state Failed",
            after(running, status_changes(**DONE | {"state": "Failed"})),
        ),
        "a phase that contradicts the conditions": (
            "phase Done with Failed True",
            after(running, status_changes(**DONE | {"conditions": FAILED_CONDITION})),
        ),
        "a finished job with condition Running": (
            "phase Done with Running True",
            after(running, status_changes(**DONE | {"conditions": [*SUCCEEDED_CONDITION, condition("Running")]})),
        ),
        "a running job with a result": (
            "phase Running with Succeeded True",
            after(running, status_changes(phase="Running", state="Running", conditions=SUCCEEDED_CONDITION)),
        ),
        "an end without completionTime": (
            "phase Done without completionTime",
            after(running, status_changes(**DONE | {"completionTime": None})),
        ),
        "an end before the start": (
            "before it started",
            after(running, status_changes(**DONE | {"startTime": "2026-01-01T00:00:20Z"})),
        ),
        "a condition that exists twice": (
            "has a condition twice",
            after(running, status_changes(phase="Running", state="Running", conditions=[condition("Running")] * 2)),
        ),
        "a condition that goes back in time": ("went backwards in time", after(running, condition_time_decreases)),
        "a condition that vanishes": (
            "condition Running vanished",
            after(
                running,
                status_changes(phase="Running", conditions=[condition("Running")]),
                status_changes(phase="Running"),
            ),
        ),
        "restarts that decrease": (
            "restarts decreased: 2 -> 1",
            after(running, status_changes(phase="Running", restarts=2), status_changes(phase="Running", restarts=1)),
        ),
        "more disruptions than restarts": (
            "2 of 1 restarts are disruptions",
            after(worker_runs_again_after_an_error, status_changes(phase="Running", restarts=1, disruptions=2)),
        ),
        "a drain that is counted twice": (
            "counts 2 restarts, but its pods account for 1",
            after(drained_worker_is_replaced, status_changes(phase="Running", restarts=2, disruptions=1)),
        ),
        "a restart of a sidecar that is counted": (
            "counts 1 restarts, but its pods account for 0",
            after(running, sidecar_restarts, status_changes(phase="Running", restarts=1)),
        ),
        "a succeeded worker that is no longer listed": (
            "no longer lists worker-0 as succeeded",
            after(running, worker_succeeds, reports_worker_succeeded, status_changes(phase="Running", state="Running")),
        ),
        "Done although the chief failed": (
            "reports Succeeded, but no pod of master-0 exited with 0",
            after(failed, status_changes(**DONE)),
        ),
        "a success of a TrainJob without the success of a node": (
            "reports Succeeded, but no pod of node-0 exited with 0",
            after(lambda: running(TRAINJOBS), status_changes(**COMPLETE)),
        ),
        "a failure with a retryable exit code": (
            "reports ReplicaFailed, but no pod ended with such an error",
            after(running, lambda story: story.exits("pod-master-0", 137), status_changes(**FAILED)),
        ),
        "a failure long after the chief's success": (
            "reports Failed, but its chief had exited with 0",
            lambda: failed_after_the_success(100),
        ),
        "DeadlineExceeded without a deadline": (
            "reports DeadlineExceeded, but has no deadline",
            after(running, status_changes(**FAILED | {"conditions": [condition("Failed", "DeadlineExceeded")]})),
        ),
        "a reported success without a pod that exited with 0": (
            "reports that worker-0 succeeded, but no pod of it exited with 0",
            after(running, reports_worker_succeeded),
        ),
        "a success of a worker that exited after its deletion": (
            "reports that worker-0 succeeded, but no pod of it exited with 0",
            lambda: succeeds_during_deletion("2026-01-01T00:00:10Z"),
        ),
        "a restart in place that is counted twice": (
            "counts 2 restarts, but its pods account for 1",
            after(running, restarts_in_place, status_changes(phase="Running", state="Running", restarts=2)),
        ),
        "a restart by a new pod that is counted twice": (
            "counts 2 restarts, but its pods account for 1",
            after(worker_runs_again_after_an_error, status_changes(phase="Running", state="Running", restarts=2)),
        ),
        "a Job that is deleted after the restart was counted": (
            "counts 1 restarts, but its pods account for 0",
            lambda: restarted_after_job_deletion(is_succeeded=False, is_deleted_before_restart=False),
        ),
        "a restart for one Job that is counted twice": (
            "counts 2 restarts, but its pods account for 1",
            after(
                lambda: restarted_after_job_deletion(is_succeeded=True),
                status_changes(phase="Creating", restarts=2),
                lambda story: story.delete(JOBS, f"{JOBS}-node-0"),
            ),
        ),
        "a gang's restart for a Job without a pod": (
            "counts 1 restarts, but its pods account for 0",
            after(lambda: restarted_after_job_deletion(is_succeeded=False), lambda story: story.gang("Waiting")),
        ),
        "a restart of all nodes that is counted twice": (
            "counts 2 restarts, but its pods account for 1",
            after(all_nodes_restarted, status_changes(phase="Running", state="RUNNING", restarts=2)),
        ),
        "a node that an elastic job still has and does not list any more as succeeded": (
            "no longer lists node-1 as succeeded",
            lambda: elastic_shrinks(nodes=2),
        ),
        "a restart of an elastic job's node that is counted twice": (
            "counts 3 restarts, but its pods account for 2",
            lambda: elastic_ends(restarts=3),
        ),
        "an elastic job of which a node has not succeeded": (
            "reports Succeeded, but no pod of node-1 exited with 0",
            lambda: elastic_ends(end=1),
        ),
        "a restart that is not counted": (
            "counts 0 restarts, but its pods show 1",
            lambda: deleted_worker(restarts=0, disruptions=0),
        ),
        "an end that counts as a restart and as a success": (
            "counts the end of Pod ns/pod-worker-0 (pod-worker-0) as a restart, and then lists worker-0 as succeeded",
            ends_twice,
        ),
        "a disruption that counts as an error": (
            "counts 1 restarts that are no disruptions, but its pods show 0 errors",
            lambda: deleted_worker(disruptions=0),
        ),
        "a disruption that uses up the limit": (
            "its pods show 0 errors, and its limit is 0",
            after(lambda: deleted_worker(backoffLimit=0), limit_is_exceeded),
        ),
        "a restart of a native sidecar that counts": (
            "counts 1 restarts, but its pods account for 0",
            lambda: init_container_restarts_in_place(sidecar=True),
        ),
    },
    "late_starts": {
        "a pod that is created after the end of its job": (
            "was created after TFJob ns/job (job) had finished",
            after(lambda: done(), runs_again("worker-1")),
        ),
        "a pod that starts after the end of its job": (
            "container main of Pod ns/pod-worker-0",
            lambda: kept(began=2000, again=2000),
        ),
        "a program that its kubelet starts again after the end, in a pod that nobody stops": (
            "container main of Pod ns/pod-worker-0",
            lambda: kept(began=900, again=2000),
        ),
    },
    "stuck": {
        "a job that has not ended": ("was expected to end as Succeeded", lambda: running(expects="SUCCESS")),
        "a job that does not change any more": (
            "nothing changes",
            after(running, all_pods_are_deleted, time_passes(100)),
        ),
        "a job whose chief has ended": (
            "nothing changes",
            after(running, lambda story: story.exits("pod-master-0", 0), time_passes(100)),
        ),
    },
}


@pytest.mark.parametrize(
    ("category", "words", "build"),
    [
        pytest.param(category, *violation, id=name)
        for category, violations in VIOLATIONS.items()
        for name, violation in violations.items()
    ],
)
def test_a_violation_is_found(category: str, words: str, build: StoryFactory) -> None:
    found = build().found()
    assert any(finding.startswith(f"{category}: ") and words in finding for finding in found), found


def test_a_job_with_a_recent_change_is_not_stuck() -> None:
    assert after(running, all_pods_are_deleted, time_passes(50))().found() == []


def test_no_job_is_stuck_right_after_an_outage() -> None:
    story = after(running, all_pods_are_deleted, time_passes(100))()
    story.outages = [story.now - 30]
    assert story.found() == []


def test_a_gap_causes_no_false_duplicates() -> None:
    """A list after the gap contains the second Job and not the first one."""
    story = after(running, second_under_another_name(JOBS))()
    version = max(int(row["object"]["metadata"]["resourceVersion"]) for row in story.history.rows())
    listed = [record.last for record in story.history.existing(JOBS) if record.uid != f"{JOBS}-worker-0"]
    story.history.record_list(JOBS, listed, version, story.now)
    assert not any("for one replica at once" in each for each in story.found())


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
    assert not [each for each in story.found() if each.startswith(("reruns", "wrong_states"))]


def test_a_gap_long_after_the_end_does_not_hide_a_violation() -> None:
    story = after(running, lambda story: stop(story, *TF_REPLICAS), status_changes(**DONE))()
    story.advance(1000)
    story.history.note_gap(story.now)
    assert any("reports Succeeded, but no pod of master-0" in each for each in story.found())
