"""The auditor's rules: a good story has no violation, and each way to break it is seen."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from helpers.history import JOB, POD, SERVICE, TFJOB, History, violations

Object = dict[str, Any]


class Story:
    """Tells a history; each version is newer than the one before, whatever its kind."""

    def __init__(self) -> None:
        self.history = History()
        self._versions = itertools.count(1)
        self._objects: dict[str, Object] = {}

    def put(self, kind: str, uid: str, **fields: Any) -> None:
        """A new version of an object: what it was, with these fields."""
        before = self._objects.get(uid, {"metadata": {"uid": uid, "name": uid}})
        after = {**before, **fields}
        after["metadata"] = {**before["metadata"], **fields.get("metadata", {})}
        self._record(kind, "MODIFIED" if uid in self._objects else "ADDED", after)

    def delete(self, kind: str, uid: str) -> None:
        self._record(kind, "DELETED", self._objects[uid])

    def _record(self, kind: str, event: str, obj: Object) -> None:
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(next(self._versions))}}
        self._objects[obj["metadata"]["uid"]] = obj
        self.history.record(kind, event, obj)

    # Shorter words

    def job(self, **status: Any) -> None:
        specs = [{"tfReplicaType": "MASTER"}, {"tfReplicaType": "WORKER"}, {"tfReplicaType": "PS"}]
        self.put(TFJOB, "job", spec={"RuntimeId": "abcd", "replicaSpecs": specs}, status=status)

    def child(self, kind: str, role: str = "worker", uid: str = "", name: str = "") -> None:
        owner = {"kind": TFJOB, "name": "job", "uid": "job", "controller": True}
        name = name or f"job-{role}-abcd-0"
        labels = {"job_type": role.upper(), "task_index": "0"}
        self.put(
            kind,
            uid or f"{kind}-{role}",
            metadata={"name": name, "labels": labels, "ownerReferences": [owner]},
        )

    def pod(self, uid: str, role: str = "worker", job: str = "", **status: Any) -> None:
        owner = {"kind": JOB, "name": f"job-{role}-abcd-0", "uid": job or f"Job-{role}", "controller": True}
        labels = {"job_type": role.upper(), "task_index": "0"}
        self.put(POD, uid, metadata={"labels": labels, "ownerReferences": [owner]}, status=status)

    def exits(self, uid: str, code: int, **more: Any) -> None:
        self.put(POD, uid, status={**ended(code), **more})

    def found(self) -> list[str]:
        return violations(self.history)


def ended(code: int, reason: str = "") -> Object:
    state = {"terminated": {"exitCode": code, "reason": reason}}
    statuses = [{"name": "tensorflow", "state": state}]
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": statuses}


def condition(type_: str, reason: str = "") -> Object:
    return {"type": type_, "status": "True", "reason": reason}


DONE = {"phase": "Done", "state": "Succeeded", "conditions": [condition("Succeeded")]}


def started() -> Story:
    """A job whose replicas all run."""
    story = Story()
    story.job()
    for role in ("master", "worker", "ps"):
        for kind in (JOB, SERVICE):
            story.child(kind, role)
        story.pod(f"{role}-pod", role, phase="Running")
    story.job(phase="Running", state="Running")
    return story


def succeeded() -> Story:
    story = started()
    story.exits("worker-pod", 0)
    story.exits("master-pod", 0)
    story.delete(POD, "ps-pod")
    story.job(**DONE, succeededIndexes=["master-0", "worker-0"])
    return story


def test_a_job_that_succeeded_as_it_should() -> None:
    assert succeeded().found() == []


def test_a_job_that_failed_as_it_should() -> None:
    story = started()
    story.exits("master-pod", 3)
    for role in ("worker", "ps"):
        story.delete(POD, f"{role}-pod")
    story.job(phase="Failed", state="Failed", conditions=[condition("Failed", "ReplicaFailed")])
    assert story.found() == []


def test_a_job_that_was_deleted_with_all_its_children() -> None:
    story = started()
    story.delete(TFJOB, "job")
    for role in ("master", "worker", "ps"):
        for kind in (JOB, SERVICE):
            story.delete(kind, f"{kind}-{role}")
        story.delete(POD, f"{role}-pod")
    assert story.found() == []


def test_a_worker_that_is_made_anew_after_an_error_is_no_rerun() -> None:
    story = started()
    story.exits("worker-pod", 137)
    story.pod("second-pod", phase="Running")
    story.exits("second-pod", 0)
    story.exits("master-pod", 0)
    story.delete(POD, "ps-pod")
    story.job(**DONE, succeededIndexes=["master-0", "worker-0"])
    assert story.found() == []


def test_a_parameter_server_may_run_again() -> None:
    story = started()
    story.exits("ps-pod", 0)
    story.pod("second-pod", "ps", phase="Running")
    story.delete(POD, "second-pod")
    story.exits("master-pod", 0)
    story.delete(POD, "worker-pod")
    story.job(**DONE)
    assert story.found() == []


def second_child(kind: str) -> Callable[[Story], None]:
    return lambda story: story.child(kind, uid="other", name="job-worker-wxyz-0")


def same_name(story: Story) -> None:
    """A stranger of the same name, while the first one lives."""
    story.put(SERVICE, "other", metadata={"name": "job-worker-abcd-0", "ownerReferences": [MASTERS_OWNER]})


MASTERS_OWNER = {"kind": TFJOB, "name": "job", "uid": "job", "controller": True}


def second_pod(story: Story) -> None:
    """The child Job is made anew before the first one's pod has gone."""
    story.delete(JOB, "Job-ps")
    story.child(JOB, "ps", uid="again")
    story.pod("other", "ps", job="again", phase="Running")


def two_runtime_ids(story: Story) -> None:
    story.put(TFJOB, "job", spec={"RuntimeId": "wxyz", "replicaSpecs": [{"tfReplicaType": "MASTER"}]})


def no_controller(story: Story) -> None:
    story.put(SERVICE, "Service-worker", metadata={"ownerReferences": []})


def owner_is_gone(story: Story) -> None:
    story.delete(TFJOB, "job")


def rerun(story: Story) -> None:
    story.exits("worker-pod", 0)
    story.pod("again", phase="Running")


def both(story: Story) -> None:
    story.job(phase="Running", state="Running", conditions=[condition("Succeeded"), condition("Failed")])


def one_after_the_other(story: Story) -> None:
    story.exits("master-pod", 0)
    story.job(**DONE)
    story.job(phase="Failed", state="Failed", conditions=[condition("Failed", "ReplicaFailed")])


def goes_on_after_its_end(story: Story) -> None:
    story.exits("master-pod", 0)
    story.job(**DONE)
    story.job(phase="Running", state="Running")


def forgets_its_verdict(story: Story) -> None:
    story.job(phase="CleanUp", state="Succeeded")
    story.job(phase="Running", state="Running")


def succeeds_without_cause(story: Story) -> None:
    story.job(**DONE)


def fails_without_cause(story: Story) -> None:
    story.exits("master-pod", 137)
    story.job(phase="Failed", state="Failed", conditions=[condition("Failed", "ReplicaFailed")])


def fails_after_success(story: Story) -> None:
    story.exits("master-pod", 0)
    story.job(phase="Failed", state="Failed", conditions=[condition("Failed", "DeadlineExceeded")])


def wrong_phase(story: Story) -> None:
    story.exits("master-pod", 0)
    story.job(**{**DONE, "phase": "Failed"})


def remembers_wrongly(story: Story) -> None:
    story.exits("worker-pod", 137)
    story.exits("master-pod", 0)
    story.job(**DONE, succeededIndexes=["worker-0"])


def runs_on(story: Story) -> None:
    story.exits("master-pod", 0)
    story.job(**DONE)


def never_ends(story: Story) -> None: ...


@pytest.mark.parametrize(
    ("happens", "words"),
    [
        pytest.param(second_child(JOB), "duplicate: Job", id="two child Jobs"),
        pytest.param(second_child(SERVICE), "duplicate: Service", id="two Services"),
        pytest.param(same_name, "under one name", id="a name twice"),
        pytest.param(second_pod, "duplicate: Pod", id="two pods"),
        pytest.param(two_runtime_ids, "several RuntimeIds", id="two RuntimeIds"),
        pytest.param(no_controller, "has no controller", id="no controller"),
        pytest.param(owner_is_gone, "orphan: Job", id="orphan"),
        pytest.param(rerun, "rerun: Pod again", id="rerun"),
        pytest.param(both, "both Succeeded and Failed", id="both at once"),
        pytest.param(one_after_the_other, "both Succeeded and Failed", id="both in turn"),
        pytest.param(one_after_the_other, "changed after its end: phase Done", id="another end"),
        pytest.param(goes_on_after_its_end, "changed after its end", id="no end"),
        pytest.param(forgets_its_verdict, "state Succeeded -> Running", id="no verdict"),
        pytest.param(succeeds_without_cause, "says Succeeded, but", id="succeeds without cause"),
        pytest.param(fails_without_cause, "says Failed, but no pod", id="fails without cause"),
        pytest.param(fails_after_success, "says Failed, but its chief", id="fails after success"),
        pytest.param(wrong_phase, "in phase Failed with state Succeeded", id="wrong phase"),
        pytest.param(remembers_wrongly, "says that worker-0 succeeded", id="remembers wrongly"),
        pytest.param(runs_on, "still runs, though", id="runs on"),
        pytest.param(never_ends, "is still in phase 'Running'", id="never ends"),
    ],
)
def test_what_must_not_happen_is_seen(happens: Callable[[Story], None], words: str) -> None:
    story = started()
    happens(story)
    found = story.found()
    assert any(words in line for line in found), found


def test_a_pod_that_was_told_to_end_or_disrupted_has_not_succeeded() -> None:
    story = started()
    story.put(POD, "worker-pod", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    story.exits("worker-pod", 0)
    story.pod("again", phase="Running")
    story.exits("again", 0, conditions=[condition("DisruptionTarget")])
    story.pod("once-more", phase="Running")
    assert not [line for line in story.found() if line.startswith("rerun")]


def test_a_surplus_pod_of_one_job_is_the_job_controllers_affair() -> None:
    story = started()
    story.pod("surplus", "ps", phase="Running")
    story.delete(POD, "surplus")
    assert not [line for line in story.found() if line.startswith("duplicate")]


def test_a_gap_hides_ends_but_makes_no_duplicates_up() -> None:
    story = started()
    history = story.history
    story.child(JOB, uid="second")  # listed after a gap, in which the first one went
    history.record_absent(JOB, {"second", "Job-master", "Job-ps"})
    assert not [line for line in story.found() if line.startswith("duplicate: Job")]


def test_a_version_that_is_seen_again_changes_nothing() -> None:
    story = succeeded()
    count = story.history.count
    for kind in (TFJOB, JOB, SERVICE, POD):
        for life in story.history.living(kind):
            for version in life.versions:
                story.history.record(kind, "ADDED", version)
    assert story.history.count == count
    assert story.found() == []
