"""Tests of audit.jobs.children: what a job may own, and what must be gone when it has finished."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from audit.jobs.history import CONFIG_MAPS, GANGS, JOBS, PODS, SECRETS, SERVICES, TFJOBS, TRAINJOBS
from helpers.jobstory import (
    DONE,
    RUNTIME_ID,
    TF_REPLICAS,
    Story,
    StoryFactory,
    after,
    done,
    indexed_running,
    running,
)


def deleted_with_all_children() -> Story:
    story = running()
    story.delete(TFJOBS, "job")
    for replica in TF_REPLICAS:
        for kind in (JOBS, SERVICES):
            story.delete(kind, f"{kind}-{replica}")
        story.delete(PODS, f"pod-{replica}")
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


def a_gang_of_kept_pods() -> Story:
    story = pods_are_kept()
    story.gang("Bound")
    return story


def foreign_job() -> Story:
    """A Job without an owner exists beside the children of the job."""
    story = done()
    story.put(JOBS, "foreign", metadata={"labels": {"kubeflow.org": ""}})
    return story


def second_under_another_name(kind: str) -> Callable[[Story], None]:
    return lambda story: story.child(kind, "worker-0", uid="other", name=f"job-worker-{RUNTIME_ID}-x-0")


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


VALID: dict[str, StoryFactory] = {
    "a job that was deleted with all its children": deleted_with_all_children,
    "a job that is scaled up": scaled_up,
    "pods that cleanPodPolicy keeps": pods_are_kept,
    "a Gang whose pods cleanPodPolicy keeps": a_gang_of_kept_pods,
    "a foreign Job": foreign_job,
}

VIOLATIONS: dict[str, tuple[str, StoryFactory]] = {
    **{
        f"two {kind} for one replica": (
            "duplicates: for one replica at once",
            after(running, second_under_another_name(kind)),
        )
        for kind in (JOBS, SERVICES)
    },
    **{
        f"two {kind} for one job": ("duplicates: for one job at once", after(running, two_of(kind)))
        for kind in (CONFIG_MAPS, SECRETS, GANGS)
    },
    "a RuntimeId that changes": ("duplicates: several RuntimeIds: k3f9, z999", after(running, new_runtime_id)),
    "a TrainJob's child with another RuntimeId": (
        "duplicates: several RuntimeIds",
        after(lambda: running(TRAINJOBS), child_with_another_runtime_id),
    ),
    "a worker beyond the plan": (
        "duplicates: for worker-2, which the plan",
        after(running, lambda story: story.child(JOBS, "worker-2")),
    ),
    "a role beyond the plan": (
        "duplicates: for evaluator-0, which the plan",
        after(running, lambda story: story.child(JOBS, "evaluator-0")),
    ),
    "a node beyond the plan": (
        "duplicates: for node-2, which the plan",
        after(lambda: running(TRAINJOBS), lambda story: story.child(SERVICES, "node-2")),
    ),
    "an Indexed Job beyond the plan": (
        "duplicates: has 3 completions, more than the plan",
        after(indexed_running, lambda story: story.indexed(JOBS, completions=3)),
    ),
    "a second Indexed Job under another name": (
        "duplicates: for one replica at once",
        after(indexed_running, lambda story: story.indexed(JOBS, uid="second", name="job-2-node-k3f9")),
    ),
    "a Service whose name matches no role": (
        "duplicates: is named for no role",
        after(indexed_running, lambda story: story.indexed(SERVICES, name="other")),
    ),
    "a child whose name matches no replica": (
        "duplicates: is named for no replica",
        after(running, lambda story: story.child(JOBS, "worker-1", name="other")),
    ),
    "a child without a controller": ("orphans: has no controller", after(running, without_controller)),
    "a child whose owner is deleted": (
        "orphans: which does not exist",
        after(running, lambda story: story.delete(TFJOBS, "job")),
    ),
    "a child whose owner never existed": ("orphans: which does not exist", after(running, owned_by(uid="nobody"))),
    "an owner reference with the uid of another job": (
        "orphans: names job as its owner with the uid of",
        after(running, owned_by(uid="stranger")),
    ),
    "a child with another job's labels": (
        "orphans: has the labels of job and is owned by",
        after(running, owned_by(uid="stranger", name="stranger")),
    ),
    "a pod of a finished job that still runs": ("orphans: still runs", after(done, pod_keeps_running)),
    "a Job of a finished job that is not suspended": ("orphans: is not stopped", after(done, job_is_not_suspended)),
    "a Gang of a finished job that holds capacity": ("orphans: still holds capacity", after(done, gang_remains_bound)),
}


@pytest.mark.parametrize("build", VALID.values(), ids=VALID.keys())
def test_a_valid_history_has_no_violation(build: StoryFactory) -> None:
    assert build().found() == []


@pytest.mark.parametrize(("finding", "build"), VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_a_violation_is_found(finding: str, build: StoryFactory) -> None:
    build().must_find(finding)


def test_a_gap_causes_no_false_duplicates() -> None:
    """A list after the gap contains the second Job and not the first one."""
    story = after(running, second_under_another_name(JOBS))()
    version = max(int(row["object"]["metadata"]["resourceVersion"]) for row in story.history.rows())
    listed = [record.last for record in story.history.existing(JOBS) if record.uid != f"{JOBS}-worker-0"]
    story.history.record_list(JOBS, listed, version, story.now)
    assert not any("for one replica at once" in finding for finding in story.found())
