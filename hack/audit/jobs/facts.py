"""Reads objects for the auditor: owners, replicas, results, and how pods ended.

The sources are the contracts of TFJob and TrainJob (docs/tfjob.md, docs/trainjob.md) and of batch/v1 Job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from audit.jobs.history import (
    CHILDREN,
    JOBS,
    OWNERS,
    PODS,
    TFJOBS,
    TRAINJOBS,
    History,
    Object,
    ObjectRecord,
    version_of,
)
from tfjob_controller.api.gang import index_of, kind_of
from tfjob_controller.jobs.naming import replica_id_of

EXPECTS = "chaos.kubeflow.org/expects"
SUCCEEDED, FAILED = "Succeeded", "Failed"
FINISHED_PHASES = ("Done", "Failed")
RESTART_ATTEMPT = "kubeflow.org/generation"
# The product takes a pod for lost 30 s after its grace period. Clocks may differ by some seconds.
_LOST_SECONDS = 25.0
_KIND_OF_OWNER = {"TFJob": TFJOBS, "TrainJob": TRAINJOBS}
_STATES = {"SUCCESS": SUCCEEDED, "FAILED": FAILED, "RUNNING": "Running"}


@dataclass(frozen=True, slots=True, order=True)
class Replica:
    """A replica of a job of either kind; `role` is in lower case."""

    job: str
    role: str
    index: int

    @property
    def id(self) -> str:
        return f"{self.role}-{self.index}"


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """One end of a training container, when it was observed, and the pod's restart attempt (0 without)."""

    version: int
    at: float
    exit_code: int
    reason: str
    pod: str
    attempt: int

    @property
    def is_permanent(self) -> bool:
        return 0 < self.exit_code < 128 or self.reason == "OOMKilled"


# Owners and children


def controller_of(obj: Object) -> Object | None:
    owners: list[Object] = obj["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def labels_of(obj: Object) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def kind_of_owner(reference: Object) -> str:
    """Returns the kind of job that an owner reference names; empty for other owners."""
    kind = _KIND_OF_OWNER.get(str(reference.get("kind", "")), "")
    return kind if str(reference.get("apiVersion", "kubeflow.org/")).startswith("kubeflow.org/") else ""


def is_ours(obj: Object) -> bool:
    """Reports whether the product created the object, or the Job of the pod."""
    owner = controller_of(obj)
    return "runtime_id" in labels_of(obj) or (owner is not None and bool(kind_of_owner(owner)))


def _last_controller(record: ObjectRecord) -> Object | None:
    """Returns the controlling owner reference, or the last one if it was removed."""
    return next((found for each in reversed(record.versions) if (found := controller_of(each)) is not None), None)


def job_uid_of(history: History, record: ObjectRecord) -> str:
    """Returns the uid of the TFJob or TrainJob, for a pod through its Job; empty for other objects."""
    owner = _last_controller(record)
    if record.kind == PODS and owner is not None:
        job = history.by_uid(owner["uid"])
        owner = _last_controller(job) if job is not None else None
    return str(owner["uid"]) if owner is not None and kind_of_owner(owner) else ""


def replica_of(history: History, record: ObjectRecord) -> Replica | None:
    """Whose child this is, by owner references and labels."""
    uid, replica = job_uid_of(history, record), replica_id_of(labels_of(record.last))
    index = index_of(replica)
    return Replica(uid, kind_of(replica), index) if uid and index is not None else None


def indexed_role_of(history: History, record: ObjectRecord) -> tuple[str, str] | None:
    """Returns job and role of a Job or Service that all replicas of a role share; None for a child of one replica."""
    uid, role = job_uid_of(history, record), replica_id_of(labels_of(record.last))
    return (uid, role) if uid and role and index_of(role) is None else None


def pods_of(history: History) -> Iterator[tuple[Replica, ObjectRecord]]:
    for pod in history.of(PODS):
        if (replica := replica_of(history, pod)) is not None:
            yield replica, pod


def restart_attempt_of(obj: Object) -> int:
    text = labels_of(obj).get(RESTART_ATTEMPT, "")
    return int(text) if text.isdigit() else 0


@dataclass(frozen=True, slots=True)
class Family:
    """A TFJob or TrainJob and all its children, including deleted ones."""

    job: ObjectRecord
    children: Sequence[ObjectRecord]

    def of(self, kind: str) -> Iterator[ObjectRecord]:
        return (record for record in self.children if record.kind == kind)


def families(history: History) -> list[Family]:
    children: dict[str, list[ObjectRecord]] = {}
    for record in history.of(*CHILDREN):
        children.setdefault(job_uid_of(history, record), []).append(record)
    return [Family(job, children.get(job.uid, ())) for job in owners(history)]


# The status of a job


def status_of(obj: Object) -> Object:
    status: Object = obj.get("status") or {}
    return status


def phase_of(obj: Object) -> str:
    return str(status_of(obj).get("phase", ""))


def state_of(obj: Object) -> str:
    """Returns the state of a job of either kind, as a TFJob names it."""
    state = str(status_of(obj).get("state", ""))
    return _STATES.get(state, state)


def is_finished(obj: Object) -> bool:
    return phase_of(obj) in FINISHED_PHASES


def conditions_of(obj: Object) -> list[Object]:
    found: list[Object] = status_of(obj).get("conditions") or []
    return found


def true_types(obj: Object) -> set[str]:
    """Returns the types of the conditions that are True, with Succeeded for a TrainJob's Complete."""
    return {own_type(each) for each in conditions_of(obj) if each["status"] == "True"}


def own_type(condition: Object) -> str:
    return SUCCEEDED if condition["type"] == "Complete" else str(condition["type"])


def reason_of(obj: Object, condition_type: str) -> str:
    """Returns the reason of a condition that is True; empty otherwise."""
    found = (each for each in conditions_of(obj) if own_type(each) == condition_type and each["status"] == "True")
    return next((str(each.get("reason", "")) for each in found), "")


def expected_of(obj: Object) -> str:
    """Returns the expected result, Succeeded or Failed; empty for any."""
    return _STATES.get((obj["metadata"].get("annotations") or {}).get(EXPECTS, ""), "")


def is_managed(obj: Object) -> bool:
    """Reports whether the product's controller manages the job."""
    manager = str((obj.get("spec") or {}).get("managedBy") or "")
    return not manager or manager.startswith("kubeflow.org/")


def chief_of(spec: Object) -> tuple[str, int]:
    """Returns role and index of the chief of a TFJob."""
    chief = (spec.get("terminationPolicy") or {}).get("chief") or {}
    types = [each.get("tfReplicaType", "MASTER") for each in spec.get("replicaSpecs") or ()]
    default = "MASTER" if "MASTER" in types else "WORKER"
    return str(chief.get("replicaName") or default).lower(), int(chief.get("replicaIndex") or 0)


# How pods ended


def ends_of(pod: ObjectRecord, *, include_late_reports: bool = False) -> Iterator[ContainerEnd]:
    """Yields the ends of the training container that count: not those of a pod that was stopped or lost.

    With `include_late_reports`, also ends that the kubelet reported only after the pod was deleted.
    """
    seen: list[Object] = []
    # The kubelet deletes a pod that has ended once more: its last version has the time of that, without a grace period.
    going = next((each for each in pod.versions if each["metadata"].get("deletionTimestamp")), None)
    for version, at in zip(pod.versions, pod.times, strict=True):
        is_being_deleted = bool(version["metadata"].get("deletionTimestamp"))
        if is_disrupted(version) or (is_being_deleted and not include_late_reports):
            continue
        for ended in _terminated(version):
            if ended not in seen and (going is None or not is_being_deleted or _ended_before(going, ended)):
                seen.append(ended)
                yield ContainerEnd(
                    version_of(version),
                    at,
                    int(ended["exitCode"]),
                    str(ended.get("reason", "")),
                    pod.uid,
                    restart_attempt_of(version),
                )


def _ended_before(pod: Object, ended: Object) -> bool:
    """Reports whether the container ended before the pod was deleted, and not in the same second."""
    return 0 < epoch_seconds(ended.get("finishedAt")) < _deletion_requested_at(pod)


def _deletion_requested_at(pod: Object) -> float:
    meta = pod["metadata"]
    return epoch_seconds(meta["deletionTimestamp"]) - float(meta.get("deletionGracePeriodSeconds") or 0)


def failed_by_itself(pod: ObjectRecord) -> bool:
    """Reports whether a container, of whatever kind, ended with an error that no deletion or eviction accounts for.

    An end in the second of a deletion is in doubt, and counts.
    """
    for version in pod.versions:
        codes = [
            each["state"]["terminated"] for each in all_statuses(version) if "terminated" in (each.get("state") or {})
        ]
        errors = [each for each in codes if each["exitCode"]]
        if not version["metadata"].get("deletionTimestamp"):
            if errors and not is_disrupted(version):
                return True
        elif any(0 < epoch_seconds(each.get("finishedAt")) <= _deletion_requested_at(version) for each in errors):
            return True
    return False


def training_statuses(pod: Object) -> Sequence[Object]:
    """Returns the statuses of the containers that train; the first one if none has a known name."""
    statuses = status_of(pod).get("containerStatuses") or ()
    names = {"tensorflow", labels_of(pod).get("job_type", "").lower()}
    return [each for each in statuses if each["name"] in names] or statuses[:1]


def deciding_statuses(pod: Object) -> Sequence[Object]:
    """Returns the statuses of the containers whose errors end the replica: those that train, and init containers."""
    sidecars = (pod.get("spec") or {}).get("sidecars") or ()
    init = [each for each in status_of(pod).get("initContainerStatuses") or () if each["name"] not in sidecars]
    return [*init, *training_statuses(pod)]


def all_statuses(pod: Object) -> list[Object]:
    """Returns the statuses of all containers: init containers, those that train, and those beside them."""
    status = status_of(pod)
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _terminated(pod: Object) -> Iterator[Object]:
    for status in training_statuses(pod):
        for state in (status.get("lastState"), status.get("state")):
            if (ended := (state or {}).get("terminated")) is not None:
                yield ended


def ended_on_request(pod: ObjectRecord) -> bool:
    """Reports whether the pod ended with 0, but only because it was deleted or evicted: this is no success."""
    ended = [int(each["exitCode"]) for each in _terminated(pod.last)]
    return 0 in ended and all(each.exit_code for each in ends_of(pod, include_late_reports=True))


def is_disrupted(pod: Object) -> bool:
    return any(each["type"] == "DisruptionTarget" and each["status"] == "True" for each in conditions_of(pod))


def has_ended(pod: Object) -> bool:
    return status_of(pod).get("phase") in (SUCCEEDED, FAILED)


def runs_until(pod: ObjectRecord) -> float:
    """Returns the version at which the pod had ended, so that none of its containers runs any more."""
    return next((version_of(version) for version in pod.versions if has_ended(version)), pod.end)


def runs_since(pod: ObjectRecord) -> float:
    """Returns the version at which the pod was bound to a node; infinite if it never was."""
    bound = (version_of(version) for version in pod.versions if (version.get("spec") or {}).get("nodeName"))
    return next(bound, float("inf"))


def is_lost_at(pod: ObjectRecord, at: float) -> bool:
    """Reports whether the pod should have ended well before that moment: its node is lost, and reports nothing."""
    times = zip(pod.versions, pod.times, strict=True)
    deadlines = [version["metadata"].get("deletionTimestamp") for version, seen in times if seen <= at]
    return bool(deadlines) and bool(deadlines[-1]) and epoch_seconds(deadlines[-1]) + _LOST_SECONDS <= at


def job_outcome(job: Object) -> str:
    """Returns the outcome of a batch/v1 Job: Succeeded, Failed or empty."""
    outcomes = {"Complete": SUCCEEDED, "SuccessCriteriaMet": SUCCEEDED, "Failed": FAILED}
    true = [each["type"] for each in conditions_of(job) if each["status"] == "True"]
    return next((outcomes[each] for each in true if each in outcomes), "")


def completions_of(history: History, job: ObjectRecord) -> Iterator[tuple[Replica, ContainerEnd]]:
    """Yields when a child Job first reported the success of each of its replicas."""
    seen: set[Replica] = set()
    for version, at in zip(job.versions, job.times, strict=True):
        for replica in _succeeded(history, job, version):
            if replica not in seen:
                seen.add(replica)
                yield replica, ContainerEnd(version_of(version), at, 0, "", "", restart_attempt_of(version))


def _succeeded(history: History, job: ObjectRecord, version: Object) -> Iterator[Replica]:
    shared = indexed_role_of(history, job)
    if shared is not None:
        indexes = _indexes(str(status_of(version).get("completedIndexes", "")))
        yield from (Replica(*shared, index) for index in indexes)
    elif job_outcome(version) == SUCCEEDED and (replica := replica_of(history, job)) is not None:
        yield replica


def _indexes(text: str) -> Iterator[int]:
    """Parses the completed indexes of a Job, such as `0-2,5`."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def successes(history: History, *, include_late_reports: bool = False) -> dict[Replica, list[ContainerEnd]]:
    """Returns the ends of each replica with exit code 0, by pods (`ends_of`) and Jobs; the earliest first."""
    found: dict[Replica, list[ContainerEnd]] = {}
    for replica, pod in pods_of(history):
        ends = ends_of(pod, include_late_reports=include_late_reports)
        found.setdefault(replica, []).extend(each for each in ends if each.exit_code == 0)
    for job in history.of(JOBS):
        for replica, ended in completions_of(history, job):
            found.setdefault(replica, []).append(ended)
    return {replica: sorted(ends, key=lambda each: each.version) for replica, ends in found.items() if ends}


def owners(history: History) -> Iterator[ObjectRecord]:
    return history.of(*OWNERS)


def epoch_seconds(text: str | None) -> float:
    """Returns a timestamp in seconds since the epoch; 0 if it is empty."""
    if not text:
        return 0.0
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=found.tzinfo or UTC).timestamp()
