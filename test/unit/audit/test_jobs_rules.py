"""The rules of the auditor of jobs: no lawful history is a violation, and each violation is found as what it is."""

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

# Lawful


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


def deleted_with_all() -> Story:
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


def set_restarted(succeeded_before: bool = True) -> Story:
    """One node is killed, the other one had succeeded: both run again in the next generation."""
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


def set_restarted_for_a_job(is_succeeded: bool, *, in_time: bool = True) -> Story:
    """Somebody deletes the child Job of a node before it has a pod, or one whose pod had exited with 0 unseen.

    `in_time`: before the restart was counted.
    """
    story = Story(TRAINJOBS)
    story.job()
    for replica in NODES:
        story.child(JOBS, replica, **{"kubeflow.org/generation": "0"})
    if is_succeeded:
        story.pod("node-1", **{"kubeflow.org/generation": "0"})
        story.exits("pod-node-1", 0)
    if in_time:
        story.delete(JOBS, f"{JOBS}-node-1")
    if is_succeeded:
        story.delete(PODS, "pod-node-1")
    story.job(phase="Creating", restarts=1)
    if not in_time:
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
    """The Job has counted the success of a node whose pod nobody saw end, and another pod of it appears."""
    story = indexed_running()
    story.put(JOBS, f"{JOBS}-node", status={"completedIndexes": "0"})
    story.delete(PODS, "pod-node-0")
    story.pod("node-0", uid="second", job=f"{JOBS}-node", **{"kubeflow.org/generation": "0"})
    return story


def succeeds_as_it_is_deleted(finished: str) -> Story:
    """Its kubelet tells of the end of a worker only after somebody has deleted the pod."""
    story = running()
    story.put(
        PODS,
        "pod-worker-0",
        metadata={"deletionTimestamp": "2026-01-01T00:00:40Z", "deletionGracePeriodSeconds": 30},
    )
    ended = {"terminated": {"exitCode": 0, "finishedAt": finished}}
    containers = [{"name": "main", "state": ended}]
    story.put(PODS, "pod-worker-0", status={"phase": "Succeeded", "containerStatuses": containers})
    is_said_to_have_succeeded(story)
    return story


def trained_after_a_restart() -> Story:
    story = set_restarted()
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
    story.passes(1000)
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


def gang_bound() -> Story:
    story = Story()
    story.job()
    story.gang("Admitted", "worker-0", "worker-1")
    for replica in ("worker-0", "worker-1"):
        story.child(JOBS, replica)
        story.member(replica, node="")
    story.member("worker-0")
    story.member("worker-1")
    story.gang("Bound", "worker-0", "worker-1")
    return story


def member_is_replaced() -> Story:
    story = gang_bound()
    story.delete(PODS, "pod-worker-1")
    story.passes(1000)
    return story


def gang_waits() -> Story:
    story = Story()
    story.job()
    story.gang("Waiting")
    story.passes(1000)
    return story


def quiet_training() -> Story:
    story = running()
    story.passes(10_000)
    return story


def others_have_children_too() -> Story:
    """A Job of nobody, a Service of another controller."""
    story = done()
    story.put(JOBS, "foreign", metadata={"labels": {"kubeflow.org": ""}})
    return story


def outage_while_a_gang_is_bound() -> Story:
    story = partly_bound_for(40)
    story.outages = [story.now - 20]
    story.member("worker-1")
    story.gang("Bound", "worker-0", "worker-1")
    return story


def partly_bound_for(seconds: float) -> Story:
    story = Story()
    story.job()
    story.gang("Admitted", "worker-0", "worker-1")
    for replica in ("worker-0", "worker-1"):
        story.child(JOBS, replica)
        story.member(replica, node="")
    story.member("worker-0")
    story.passes(seconds)
    return story


def surplus_pod_of_one_job() -> Story:
    """A Job controller whose create got no answer makes another pod, and takes the surplus away."""
    story = running()
    story.pod("ps-0", uid="surplus")
    story.delete(PODS, "surplus")
    return story


def worker_is_told_to_end() -> Story:
    """That it then ends with 0 is no success of it."""
    story = running()
    story.is_being_deleted(PODS, "pod-worker-0")
    story.exits("pod-worker-0", 0)
    story.delete(PODS, "pod-worker-0")
    story.pod("worker-0", uid="again")
    return story


def worker_is_evicted() -> Story:
    """Nor that it ends with 0 because its node drives it away."""
    story = running()
    story.put(PODS, "pod-worker-0", status=ended(0, conditions=[condition("DisruptionTarget")]))
    story.pod("worker-0", uid="again")
    return story


def failed_after_the_success(seconds: float) -> Story:
    """The chief ends with 0; the job fails so many seconds later."""
    story = running()
    story.job(spec={"activeDeadlineSeconds": 5}, phase="Running", state="Running")
    stop(story, "worker-0", "worker-1", "ps-0")
    story.exits("pod-master-0", 0)
    story.job_ends(f"{JOBS}-master-0")
    story.passes(seconds)
    story.job(**FAILED | {"conditions": [condition("Failed", "DeadlineExceeded")]})
    return story


def chief_fails_whose_success_nobody_could_know() -> Story:
    """A user deletes the chief's pod and its Job as soon as it has ended: it runs again, and fails."""
    story = running()
    story.exits("pod-master-0", 0)
    story.delete(PODS, "pod-master-0")
    story.delete(JOBS, f"{JOBS}-master-0")
    story.child(JOBS, "master-0", uid="second-job")
    story.pod("master-0", uid="second", job="second-job")
    story.passes(100)
    story.exits("second", 3)
    story.job_ends("second-job", "Failed")
    stop(story, "worker-0", "worker-1", "ps-0")
    story.job(**FAILED)
    return story


def failed_after_an_outage() -> Story:
    story = failed_after_the_success(100)
    story.outages = [story.now - 30]
    return story


def worker_is_made_anew(
    *, lasts_seconds: float = 0, by_the_controller: bool = False, beside_the_pod: bool = False
) -> Callable[[Story], None]:
    """Its Job is deleted, though it was complete, and its pod was never seen to end.

    `lasts_seconds`: for so long everybody could see that; `beside_the_pod`: when its next Job comes, it still can.
    """

    def tell(story: Story) -> None:
        job = f"{JOBS}-worker-0"
        if beside_the_pod:
            story.exits("pod-worker-0", 0)
        else:
            story.delete(PODS, "pod-worker-0")
        story.job_ends(job)
        story.passes(lasts_seconds)
        if by_the_controller:
            story.put(JOBS, job, metadata={"finalizers": ["foregroundDeletion"]})
            story.is_being_deleted(JOBS, job)
        story.delete(JOBS, job)
        story.child(JOBS, "worker-0", uid="new-job")
        if beside_the_pod:
            story.delete(PODS, "pod-worker-0")
        story.pod("worker-0", uid="again", job="new-job")

    return tell


def nobody_could_know_of_its_success(*, lasts_seconds: float = 0, outage: float | None = None) -> Story:
    """A user deletes what told of it."""
    story = running()
    worker_is_made_anew(lasts_seconds=lasts_seconds)(story)
    if outage is not None:
        story.outages = [story.now - outage]
    return story


def ends_as_it_is_suspended() -> Story:
    """The Job controller deletes a pod that has just exited with 0, and does not count it."""
    story = running(TRAINJOBS)
    story.exits("pod-node-0", 0)
    story.is_being_deleted(PODS, "pod-node-0")
    story.delete(PODS, "pod-node-0")
    story.passes(40)
    story.pod("node-0", uid="again")
    return story


LAWFUL: dict[str, Callable[[], Story]] = {
    "a TFJob that succeeded": lambda: done("SUCCESS"),
    "a TFJob that failed": lambda: failed("FAILED"),
    "a TFJob that may come to anything": lambda: failed("any"),
    "a TrainJob that succeeded": lambda: trained("SUCCESS"),
    "a job that was deleted with all its children": deleted_with_all,
    "a worker that is started again after an error": worker_runs_again_after_an_error,
    "a restart in place": after_a_restart_in_place,
    "a parameter server that is started again": parameter_server_runs_again,
    "a set that is restarted, with one that had succeeded": set_restarted,
    "a set of which somebody deletes a Job without a pod": lambda: set_restarted_for_a_job(is_succeeded=False),
    "a set of which somebody deletes a Job that had succeeded": lambda: set_restarted_for_a_job(is_succeeded=True),
    "a TrainJob that succeeded after a restart": trained_after_a_restart,
    "a worker that had succeeded when its pod was deleted": lambda: succeeds_as_it_is_deleted("2026-01-01T00:00:09Z"),
    "an Indexed Job that completes": indexed_job_completes,
    "an elastic job that ends with fewer nodes than were requested last": elastic_ends,
    "an Indexed Job that is recreated after a failure": indexed_job_is_restarted,
    "a deadline": deadline_exceeded,
    "a job that cannot be run": invalid,
    "a suspended job, for long": suspended,
    "a job that is scaled up": scaled_up,
    "pods that cleanPodPolicy keeps": pods_are_kept,
    "a gang that is bound": gang_bound,
    "a member of a gang that is replaced": member_is_replaced,
    "a gang that waits for room, for long": gang_waits,
    "a training of which nothing is heard for long": quiet_training,
    "what is not ours": others_have_children_too,
    "a gang whose binding an outage holds up": outage_while_a_gang_is_bound,
    "a second pod of the same Job": surplus_pod_of_one_job,
    "a worker that was told to end, and is made anew": worker_is_told_to_end,
    "a worker that was evicted, and is made anew": worker_is_evicted,
    "a failure at the moment of the chief's success": lambda: failed_after_the_success(30),
    "a failure after a success that nobody could see": failed_after_an_outage,
    "a failure of a chief that ran again": chief_fails_whose_success_nobody_could_know,
    "a success that somebody deletes before it is on record": nobody_could_know_of_its_success,
    "one that is deleted soon after an outage": lambda: nobody_could_know_of_its_success(lasts_seconds=100, outage=30),
    "a success in the moment of a suspension": ends_as_it_is_suspended,
}


@pytest.mark.parametrize("tell", LAWFUL.values(), ids=LAWFUL.keys())
def test_a_lawful_history_has_no_violation(tell: Callable[[], Story]) -> None:
    assert tell().found() == []


# Violations: what is told after a lawful beginning, and what is found.

Plot = Callable[[], Story]


def after(begin: Callable[[], Story], *deeds: Callable[[Story], None]) -> Plot:
    def tell() -> Story:
        story = begin()
        for deed in deeds:
            deed(story)
        return story

    return tell


def restarts_in_place(story: Story) -> None:
    """The container ends with an error, and runs again."""
    ended = {"terminated": {"exitCode": 137}}
    for count, state in ((0, {"state": ended}), (1, {"state": {"running": {}}, "lastState": ended})):
        container = {"name": "main", "restartCount": count, **state}
        story.put(PODS, "pod-worker-0", status={"phase": "Running", "containerStatuses": [container]})


def says(**status: object) -> Callable[[Story], None]:
    return lambda story: story.job(**status)


def second_under_another_name(kind: str) -> Callable[[Story], None]:
    return lambda story: story.child(kind, "worker-0", uid="other", name=f"job-worker-{RUNTIME_ID}-x-0")


def second_pod_of_another_job(story: Story) -> None:
    story.delete(JOBS, f"{JOBS}-ps-0")
    story.child(JOBS, "ps-0", uid="again")
    story.pod("ps-0", uid="other", job="again")


def two_of(kind: str) -> Callable[[Story], None]:
    def deed(story: Story) -> None:
        for uid in ("one", "other"):
            story.put(kind, uid, metadata={"ownerReferences": [story.owner()], "labels": {"tf_job_name": "job"}})

    return deed


def new_runtime_id(story: Story) -> None:
    story.job(spec={"RuntimeId": "z999"}, phase="Running", state="Running")


def child_of_another_runtime_id(story: Story) -> None:
    story.child(SERVICES, "node-1", uid="other", name="job-node-z999-1", runtime_id="z999")


def without_controller(story: Story) -> None:
    story.put(SERVICES, f"{SERVICES}-worker-0", metadata={"ownerReferences": []})


def owned_by(**fields: object) -> Callable[[Story], None]:
    def deed(story: Story) -> None:
        story.put(TFJOBS, "stranger", spec={"replicaSpecs": []}, status={})
        reference = story.owner(**fields)
        story.put(SERVICES, f"{SERVICES}-worker-0", metadata={"ownerReferences": [reference]})

    return deed


def pod_goes_on(story: Story) -> None:
    story.put(JOBS, f"{JOBS}-worker-1", spec={"suspend": True})
    story.pod("worker-1", uid="goes-on")


def job_goes_on(story: Story) -> None:
    story.put(JOBS, f"{JOBS}-worker-1", spec={"suspend": False})


def gang_is_kept(story: Story) -> None:
    story.gang("Bound", "worker-0")


def runs_again(replica: str, **labels: str) -> Callable[[Story], None]:
    return lambda story: story.pod(replica, uid="again", **labels)


def worker_succeeds(story: Story) -> None:
    story.exits("pod-worker-0", 0)


def is_said_to_have_succeeded(story: Story) -> None:
    story.job(phase="Running", state="Running", succeededIndexes=["worker-0"])


def passes(seconds: float) -> Callable[[Story], None]:
    return lambda story: story.passes(seconds)


def all_pods_are_gone(story: Story) -> None:
    for replica in TF_REPLICAS:
        story.delete(PODS, f"pod-{replica}")


def second_member_comes(story: Story) -> None:
    story.member("worker-1")
    story.gang("Bound", "worker-0", "worker-1")


def waits_again(story: Story) -> None:
    story.gang("Waiting")


def back_in_time(story: Story) -> None:
    for second in ("10", "05"):
        conditions = [condition("Running", is_true=False, since=f"2026-01-01T00:00:{second}Z")]
        story.job(phase="Running", state="Running", conditions=conditions)


SUCCEEDED_CONDITION = [condition("Succeeded")]
FAILED_CONDITION = [condition("Failed", "ReplicaFailed")]

VIOLATIONS: dict[str, tuple[str, str, Plot]] = {
    "a second Job under another name": (
        "duplicates",
        "for one replica at once",
        after(running, second_under_another_name(JOBS)),
    ),
    "a second Service under another name": (
        "duplicates",
        "for one replica at once",
        after(running, second_under_another_name(SERVICES)),
    ),
    "pods of two Jobs for one replica": (
        "duplicates",
        "of two Jobs for one replica",
        after(running, second_pod_of_another_job),
    ),
    "two ConfigMaps for one job": ("duplicates", "for one job at once", after(running, two_of(CONFIG_MAPS))),
    "two Secrets for one job": ("duplicates", "for one job at once", after(running, two_of(SECRETS))),
    "two Gangs for one job": ("duplicates", "for one job at once", after(running, two_of(GANGS))),
    "a RuntimeId made anew": ("duplicates", "several RuntimeIds: k3f9, z999", after(running, new_runtime_id)),
    "a TrainJob's child with another RuntimeId": (
        "duplicates",
        "several RuntimeIds",
        after(lambda: running(TRAINJOBS), child_of_another_runtime_id),
    ),
    "a worker beyond the plan": (
        "duplicates",
        "for worker-2, which the plan",
        after(running, lambda story: story.child(JOBS, "worker-2")),
    ),
    "a role beyond the plan": (
        "duplicates",
        "for evaluator-0, which the plan",
        after(running, lambda story: story.child(JOBS, "evaluator-0")),
    ),
    "a node beyond the plan": (
        "duplicates",
        "for node-2, which the plan",
        after(lambda: running(TRAINJOBS), lambda story: story.child(SERVICES, "node-2")),
    ),
    "an Indexed Job beyond the plan": (
        "duplicates",
        "has 3 completions, more than the plan",
        after(indexed_running, lambda story: story.indexed(JOBS, completions=3)),
    ),
    "a second Indexed Job under another name": (
        "duplicates",
        "for one replica at once",
        after(indexed_running, lambda story: story.indexed(JOBS, uid="second", name="job-2-node-k3f9")),
    ),
    "a Service of a name for no role": (
        "duplicates",
        "is named for no role",
        after(indexed_running, lambda story: story.indexed(SERVICES, name="other")),
    ),
    "a completed index that runs again": (
        "reruns",
        "had succeeded",
        completed_index_runs_again,
    ),
    "a child of a name for no replica": (
        "duplicates",
        "is named for no replica",
        after(running, lambda story: story.child(JOBS, "worker-1", name="other")),
    ),
    "a child without a controller": ("orphans", "has no controller", after(running, without_controller)),
    "a child whose owner is gone": (
        "orphans",
        "which does not exist",
        after(running, lambda story: story.delete(TFJOBS, "job")),
    ),
    "a child whose owner never was": ("orphans", "which does not exist", after(running, owned_by(uid="nobody"))),
    "an owner reference with the uid of another job": (
        "orphans",
        "names job as its owner with the uid of",
        after(running, owned_by(uid="stranger")),
    ),
    "a child with another job's labels": (
        "orphans",
        "has the labels of job and is owned by",
        after(running, owned_by(uid="stranger", name="stranger")),
    ),
    "a pod of a finished job that runs on": ("orphans", "still runs", after(done, pod_goes_on)),
    "a Job of a finished job that is not stopped": ("orphans", "is not stopped", after(done, job_goes_on)),
    "a Gang of a finished job that holds room": ("orphans", "still holds capacity", after(done, gang_is_kept)),
    "a gang bound in part at the end": (
        "partial_gangs",
        "is partly bound",
        lambda: partly_bound_for(1),
    ),
    "a gang bound in part for too long": (
        "partial_gangs",
        "was partly bound for",
        after(lambda: partly_bound_for(100), second_member_comes),
    ),
    "pods that are bound while their gang waits": (
        "partial_gangs",
        "is partly bound",
        after(gang_bound, waits_again),
    ),
    "a success that should have been a failure": (
        "wrong_states",
        "was expected to end as Failed, and ended as Succeeded",
        lambda: done("FAILED"),
    ),
    "a failure that should have been a success": (
        "wrong_states",
        "was expected to end as Succeeded, and ended as Failed",
        lambda: failed("SUCCESS"),
    ),
    "both Succeeded and Failed": (
        "wrong_states",
        "was both Succeeded and Failed",
        after(done, says(**DONE | {"conditions": [*SUCCEEDED_CONDITION, *FAILED_CONDITION]})),
    ),
    "a verdict that is taken back": (
        "wrong_states",
        "changed after its end: phase Done -> Running",
        after(done, says(phase="Running", state="Running")),
    ),
    "a verdict that changes in clean-up": (
        "wrong_states",
        "changed after its end: state Succeeded -> Failed",
        after(running, says(phase="CleanUp", state="Succeeded"), says(phase="CleanUp", state="Failed")),
    ),
    "another completion time": (
        "wrong_states",
        "changed after its end: completionTime",
        after(done, says(**DONE | {"completionTime": "2026-01-01T00:00:20Z"})),
    ),
    "a phase that contradicts the state": (
        "wrong_states",
        "phase Done with state Failed",
        after(running, says(**DONE | {"state": "Failed"})),
    ),
    "a phase that contradicts the conditions": (
        "wrong_states",
        "phase Done with Failed True",
        after(running, says(**DONE | {"conditions": FAILED_CONDITION})),
    ),
    "a finished job that runs": (
        "wrong_states",
        "phase Done with Running True",
        after(running, says(**DONE | {"conditions": [*SUCCEEDED_CONDITION, condition("Running")]})),
    ),
    "a running job with a verdict": (
        "wrong_states",
        "phase Running with Succeeded True",
        after(running, says(phase="Running", state="Running", conditions=SUCCEEDED_CONDITION)),
    ),
    "an end without its time": (
        "wrong_states",
        "phase Done without completionTime",
        after(running, says(**DONE | {"completionTime": None})),
    ),
    "an end before the start": (
        "wrong_states",
        "before it started",
        after(running, says(**DONE | {"startTime": "2026-01-01T00:00:20Z"})),
    ),
    "a condition that is there twice": (
        "wrong_states",
        "has a condition twice",
        after(running, says(phase="Running", state="Running", conditions=[condition("Running")] * 2)),
    ),
    "a condition that goes back in time": ("wrong_states", "went backwards in time", after(running, back_in_time)),
    "a condition that vanishes": (
        "wrong_states",
        "condition Running vanished",
        after(running, says(phase="Running", conditions=[condition("Running")]), says(phase="Running")),
    ),
    "restarts that fall": (
        "wrong_states",
        "restarts decreased: 2 -> 1",
        after(running, says(phase="Running", restarts=2), says(phase="Running", restarts=1)),
    ),
    "a success that is forgotten": (
        "wrong_states",
        "no longer lists worker-0 as succeeded",
        after(running, worker_succeeds, is_said_to_have_succeeded, says(phase="Running", state="Running")),
    ),
    "a success without the chief's": (
        "wrong_states",
        "reports Succeeded, but no pod of master-0 exited with 0",
        after(running, lambda story: stop(story, *TF_REPLICAS), says(**DONE)),
    ),
    "Done although the chief failed": (
        "wrong_states",
        "reports Succeeded, but no pod of master-0 exited with 0",
        after(failed, says(**DONE)),
    ),
    "a success of a TrainJob without one node": (
        "wrong_states",
        "reports Succeeded, but no pod of node-0 exited with 0",
        after(lambda: running(TRAINJOBS), says(**COMPLETE)),
    ),
    "a failure without an error": (
        "wrong_states",
        "reports ReplicaFailed, but no pod ended with such an error",
        after(running, lambda story: stop(story, *TF_REPLICAS), says(**FAILED)),
    ),
    "a failure whose error is one to try again": (
        "wrong_states",
        "reports ReplicaFailed, but no pod ended with such an error",
        after(running, lambda story: story.exits("pod-master-0", 137), says(**FAILED)),
    ),
    "a failure long after the chief's success": (
        "wrong_states",
        "reports Failed, but its chief had exited with 0",
        lambda: failed_after_the_success(100),
    ),
    "a deadline that there is not": (
        "wrong_states",
        "reports DeadlineExceeded, but has no deadline",
        after(running, says(**FAILED | {"conditions": [condition("Failed", "DeadlineExceeded")]})),
    ),
    "a success that nobody had": (
        "wrong_states",
        "reports that worker-0 succeeded, but no pod of it exited with 0",
        after(running, is_said_to_have_succeeded),
    ),
    "a success of a worker that was told to end": (
        "wrong_states",
        "reports that worker-0 succeeded, but no pod of it exited with 0",
        lambda: succeeds_as_it_is_deleted("2026-01-01T00:00:10Z"),
    ),
    "restarts without a cause": (
        "wrong_states",
        "counts 1 restarts, but its pods account for 0",
        after(running, says(phase="Running", state="Running", restarts=1)),
    ),
    "a restart in place that is counted twice": (
        "wrong_states",
        "counts 2 restarts, but its pods account for 1",
        after(running, restarts_in_place, says(phase="Running", state="Running", restarts=2)),
    ),
    "a restart by a new pod that is counted twice": (
        "wrong_states",
        "counts 2 restarts, but its pods account for 1",
        after(worker_runs_again_after_an_error, says(phase="Running", state="Running", restarts=2)),
    ),
    "a Job that is deleted after the restart was counted": (
        "wrong_states",
        "counts 1 restarts, but its pods account for 0",
        lambda: set_restarted_for_a_job(is_succeeded=False, in_time=False),
    ),
    "a restart for one Job that is counted twice": (
        "wrong_states",
        "counts 2 restarts, but its pods account for 1",
        after(
            lambda: set_restarted_for_a_job(is_succeeded=True),
            says(phase="Creating", restarts=2),
            lambda story: story.delete(JOBS, f"{JOBS}-node-0"),
        ),
    ),
    "a gang's restart for a Job without a pod": (
        "wrong_states",
        "counts 1 restarts, but its pods account for 0",
        after(lambda: set_restarted_for_a_job(is_succeeded=False), lambda story: story.gang("Waiting")),
    ),
    "a restart of a set that is counted twice": (
        "wrong_states",
        "counts 2 restarts, but its pods account for 1",
        after(set_restarted, says(phase="Running", state="RUNNING", restarts=2)),
    ),
    "a restart of an elastic job's node that is counted twice": (
        "wrong_states",
        "counts 3 restarts, but its pods account for 2",
        lambda: elastic_ends(restarts=3),
    ),
    "an elastic job of which a node has not succeeded": (
        "wrong_states",
        "reports Succeeded, but no pod of node-1 exited with 0",
        lambda: elastic_ends(end=1),
    ),
    "a worker that had succeeded": (
        "reruns",
        "after worker-0 of",
        after(running, worker_succeeds, runs_again("worker-0")),
    ),
    "a worker whose complete Job the controller has deleted": (
        "reruns",
        "after worker-0 of",
        after(running, worker_is_made_anew(by_the_controller=True)),
    ),
    "a worker whose complete Job was there for long enough": (
        "reruns",
        "after worker-0 of",
        after(running, worker_is_made_anew(lasts_seconds=100)),
    ),
    "a worker whose complete Job was there for long after an outage": (
        "reruns",
        "after worker-0 of",
        lambda: nobody_could_know_of_its_success(lasts_seconds=200, outage=150),
    ),
    "a worker that gets a new Job beside its pod that has succeeded": (
        "reruns",
        "after worker-0 of",
        after(running, worker_is_made_anew(beside_the_pod=True)),
    ),
    "a worker of which the status reports that it succeeded": (
        "reruns",
        "after worker-0 of",
        after(running, is_said_to_have_succeeded, runs_again("worker-0")),
    ),
    "a node that had succeeded in the same generation": (
        "reruns",
        "after node-0 of",
        after(lambda: running(TRAINJOBS), lambda story: story.exits("pod-node-0", 0), runs_again("node-0")),
    ),
    "a job that is not over": ("stuck", "was expected to end as Succeeded", lambda: running(expects="SUCCESS")),
    "a job of which nothing changes": ("stuck", "nothing changes", after(running, all_pods_are_gone, passes(100))),
    "a job whose chief has ended": (
        "stuck",
        "nothing changes",
        after(running, lambda story: story.exits("pod-master-0", 0), passes(100)),
    ),
}


@pytest.mark.parametrize(("category", "words", "tell"), VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_a_violation_is_found(category: str, words: str, tell: Plot) -> None:
    found = tell().found()
    assert any(each.startswith(f"{category}: ") and words in each for each in found), found


def test_a_job_that_moved_a_moment_ago_is_not_stuck() -> None:
    assert after(running, all_pods_are_gone, passes(50))().found() == []


def test_nobody_is_stuck_right_after_an_outage() -> None:
    story = after(running, all_pods_are_gone, passes(100))()
    story.outages = [story.now - 30]
    assert story.found() == []


def test_a_gap_makes_no_duplicates_up() -> None:
    """The second Job is in the list that was made after it, and the first one is not."""
    story = after(running, second_under_another_name(JOBS))()
    version = max(int(row["object"]["metadata"]["resourceVersion"]) for row in story.history.rows())
    there = [record.last for record in story.history.existing(JOBS) if record.uid != f"{JOBS}-worker-0"]
    story.history.record_list(JOBS, there, version, story.now)
    assert not any("for one replica at once" in each for each in story.found())


def test_what_nobody_could_see_is_not_judged() -> None:
    """A pod that came in a gap may have come before the success; an end may have been in one."""
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


def test_a_gap_long_after_the_end_hides_nothing_of_it() -> None:
    story = after(running, lambda story: stop(story, *TF_REPLICAS), says(**DONE))()
    story.passes(1000)
    story.history.note_gap(story.now)
    assert any("reports Succeeded, but no pod of master-0" in each for each in story.found())
