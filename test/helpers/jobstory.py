"""Builds a history of a job for the auditor of jobs: one version after another, a second apart."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from audit.jobs.history import GANGS, JOBS, PODS, SERVICES, TFJOBS, TRAINJOBS, History, Object
from audit.jobs.judge import Limits, final, pending
from audit.jobs.trim import trimmed

LIMITS = Limits(reaction_seconds=60.0, skew_seconds=1.0)
RUNTIME_ID = "k3f9"
_META = {"namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"}
_SPECS = [{"tfReplicaType": "MASTER"}, {"tfReplicaType": "WORKER", "replicas": 2}, {"tfReplicaType": "PS"}]
_OWNERS = {TFJOBS: "TFJob", TRAINJOBS: "TrainJob", JOBS: "Job"}


class Story:
    """One job, `job`, and its children. `kind` is that of the job."""

    def __init__(self, kind: str = TFJOBS) -> None:
        self.kind = kind
        self.history = History()
        self.outages: list[float] = []
        self._versions = itertools.count(1)
        self._objects: dict[str, Object] = {}
        self.now = 1000.0

    def put(self, kind: str, uid: str, **fields: Any) -> None:
        """Sends a new version of an object: the last one with these fields."""
        before = self._objects.get(uid, {"metadata": _META | {"uid": uid, "name": uid}, "spec": {}})
        after = {**before, **fields}
        after["metadata"] = {**before["metadata"], **fields.get("metadata", {})}
        self._record(kind, "MODIFIED" if uid in self._objects else "ADDED", uid, after)

    def delete(self, kind: str, uid: str) -> None:
        self._record(kind, "DELETED", uid, self._objects[uid])

    def is_being_deleted(self, kind: str, uid: str) -> None:
        self.put(kind, uid, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def _record(self, kind: str, change: str, uid: str, obj: Object) -> None:
        self.now += 1.0
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(next(self._versions))}}
        self._objects[uid] = obj
        self.history.record(kind, change, trimmed(kind, obj), self.now)

    def found(self) -> list[str]:
        """Returns the violations at the end."""
        violations = [
            *final(self.history, LIMITS, self.outages),
            *pending(self.history, LIMITS, self.now, self.outages),
        ]
        return [str(violation) for violation in violations]

    def must_find(self, finding: str) -> None:
        """Fails unless there is a violation of this category with these words, which follow a colon."""
        category, _, words = finding.partition(": ")
        found = self.found()
        assert any(text.startswith(f"{category}: ") and words in text for text in found), found

    # Shorthands

    def job(self, expects: str = "", **given: Any) -> None:
        """Sends a version of the job with these fields of the status, and with `spec`."""
        if "job" not in self._objects:
            spec = {"RuntimeId": RUNTIME_ID, "replicaSpecs": _SPECS} if self.kind == TFJOBS else {"numNodes": 2}
            notes = {"chaos.kubeflow.org/expects": expects} if expects else {}
            self.put(self.kind, "job", spec=spec, metadata={"annotations": notes})
        spec = {**self._objects["job"]["spec"], **given.pop("spec", {})}
        self.put(self.kind, "job", spec=spec, status=given)

    def child(self, kind: str, replica: str, uid: str = "", name: str = "", **labels: str) -> None:
        """Sends a child Job, or a Service, of a replica such as `worker-1`."""
        role, _, index = replica.rpartition("-")
        name = name or f"job-{role}-{RUNTIME_ID}-{index}"
        meta = {"name": name, "labels": self._labels(replica) | labels, "ownerReferences": [self.owner()]}
        self.put(kind, uid or f"{kind}-{replica}", metadata=meta)

    def indexed(self, kind: str, role: str = "node", uid: str = "", name: str = "", **more: Any) -> None:
        """Sends the Job or Service that all replicas of a role share; `more` are labels and `completions`."""
        completions = more.pop("completions", 2)
        labels = {name: text for name, text in self._labels(f"{role}-0").items() if name != "task_index"}
        name = name or (f"job-{role}-{RUNTIME_ID}" if kind == JOBS else f"job-{RUNTIME_ID}")
        meta = {"name": name, "labels": labels | more, "ownerReferences": [self.owner()]}
        self.put(kind, uid or f"{kind}-{role}", metadata=meta, spec={"completions": completions})

    def pod(
        self, replica: str, uid: str = "", job: str = "", *, phase: str = "Running", node: str = "node", **labels: str
    ) -> None:
        uid = uid or f"pod-{replica}"
        role, _, index = replica.rpartition("-")
        job = job or f"{JOBS}-{replica}"
        made = self._objects.get(job)
        name = made["metadata"]["name"] if made is not None else f"job-{role}-{RUNTIME_ID}-{index}"
        owner = {"kind": "Job", "name": name, "uid": job, "controller": True}
        meta = {"labels": self._labels(replica) | labels, "ownerReferences": [owner]}
        self.put(PODS, uid, metadata=meta, status={"phase": phase}, spec={"nodeName": node} if node else {})

    def exits(self, uid: str, code: int, reason: str = "") -> None:
        self.put(PODS, uid, status=ended(code, reason))

    def job_ends(self, uid: str, outcome: str = "Complete") -> None:
        conditions = [{"type": outcome, "status": "True"}]
        self.put(JOBS, uid, status={"conditions": conditions, "failed": int(outcome == "Failed")})

    def gang(self, phase: str) -> None:
        self.put(GANGS, "gang", metadata={"ownerReferences": [self.owner()]}, status={"phase": phase})

    def owner(self, **fields: Any) -> Object:
        return {"kind": _OWNERS[self.kind], "name": "job", "uid": "job", "controller": True, **fields}

    def _labels(self, replica: str) -> dict[str, str]:
        role, _, index = replica.rpartition("-")
        is_tf = self.kind == TFJOBS
        name = {"tf_job_name" if is_tf else "train_job_name": "job"}
        return {"runtime_id": RUNTIME_ID, "job_type": role.upper() if is_tf else role, "task_index": index, **name}


def ended(code: int, reason: str = "", **more: Any) -> Object:
    """Returns the status of a pod that has ended."""
    state = {"terminated": {"exitCode": code, "reason": reason}}
    return {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [{"name": "main", "state": state}],
        **more,
    }


def condition(type_: str, reason: str = "", *, is_true: bool = True, since: str = "2026-01-01T00:00:10Z") -> Object:
    return {"type": type_, "status": "True" if is_true else "False", "reason": reason, "lastTransitionTime": since}


TIMES = {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:10Z"}
DONE: Object = {
    "phase": "Done",
    "state": "Succeeded",
    "conditions": [condition("Succeeded", "ChiefSucceeded")],
    **TIMES,
}
FAILED: Object = {"phase": "Failed", "state": "Failed", "conditions": [condition("Failed", "ReplicaFailed")], **TIMES}
COMPLETE: Object = {
    "phase": "Done",
    "state": "SUCCESS",
    "conditions": [condition("Complete", "AllJobsCompleted")],
    "succeededIndexes": ["node-0", "node-1"],
    **TIMES,
}
TF_REPLICAS = ("master-0", "worker-0", "worker-1", "ps-0")
NODES = ("node-0", "node-1")


def running(kind: str = TFJOBS, expects: str = "") -> Story:
    """All replicas of the job run."""
    story = Story(kind)
    story.job(expects)
    for replica in TF_REPLICAS if kind == TFJOBS else NODES:
        for child in (JOBS, SERVICES):
            story.child(child, replica)
        story.pod(replica)
    story.job(phase="Running", state="Running" if kind == TFJOBS else "RUNNING")
    return story


def indexed_running() -> Story:
    """The two nodes of a TrainJob run, in one Indexed Job."""
    story = Story(TRAINJOBS)
    story.job()
    for kind in (JOBS, SERVICES):
        story.indexed(kind, **{"kubeflow.org/generation": "0"})
    for replica in NODES:
        story.pod(replica, job=f"{JOBS}-node", **{"kubeflow.org/generation": "0"})
    story.job(phase="Running", state="RUNNING")
    return story


def stop(story: Story, *replicas: str) -> None:
    """Suspends Jobs and deletes their pods, as clean-up does."""
    for replica in replicas:
        story.put(JOBS, f"{JOBS}-{replica}", spec={"suspend": True})
        story.delete(PODS, f"pod-{replica}")


def done(expects: str = "") -> Story:
    """Sends a TFJob that has succeeded, with one of two workers."""
    story = running(expects=expects)
    for replica in ("worker-0", "master-0"):
        story.exits(f"pod-{replica}", 0)
        story.job_ends(f"{JOBS}-{replica}")
    stop(story, "worker-1", "ps-0")
    story.job(**DONE, succeededIndexes=["master-0", "worker-0"])
    return story


def failed(expects: str = "") -> Story:
    """Sends a TFJob whose master has failed permanently."""
    story = running(expects=expects)
    story.exits("pod-master-0", 3)
    story.job_ends(f"{JOBS}-master-0", "Failed")
    stop(story, "worker-0", "worker-1", "ps-0")
    story.job(**FAILED)
    return story


# Changes of a story


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


StoryFactory = Callable[[], Story]


def after(begin: Callable[[], Story], *changes: Callable[[Story], None]) -> StoryFactory:
    def build() -> Story:
        story = begin()
        for change in changes:
            change(story)
        return story

    return build


def status_changes(**status: object) -> Callable[[Story], None]:
    return lambda story: story.job(**status)


def worker_succeeds(story: Story) -> None:
    story.exits("pod-worker-0", 0)


def reports_worker_succeeded(story: Story) -> None:
    story.job(phase="Running", state="Running", succeededIndexes=["worker-0"])
