"""What decisions are made on beside the plan and the job: a snapshot of the job's children, and why writes failed.

A role is carried in one of two ways: each replica by a Job and a Service of its own, or all replicas by one Indexed Job
(`Role.job_name`) and one headless Service, in which a replica is a completion index. `by_replica` divides what is
observed of an Indexed Job among its replicas, so that decisions find a Job, a Service and pods by the name of each
replica. `actions.children` builds such a Job, and `actions.planner` combines the writes for single replicas into writes
of their Job. Rules that differ for an Indexed Job ask for `job_name`: for instance, it is created for all its replicas
at once, and it runs all indexes again if it is recreated.

An elastic role (`Role.is_elastic`) has one more Service, for the first replica alone, under that replica's name. Its
Job may still have another number of indexes than the plan has replicas: pods of indexes beyond them belong to none.

Source: Kubernetes pkg/controller/job/indexed_job_utils.go (completedIndexes), backoff_utils.go and job_controller.go
(failedIndexes, FailureTarget).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec.structs import replace

from tfjob_controller.api.common.core import (
    BatchJob,
    Condition,
    HorizontalPodAutoscaler,
    Pod,
    PodGroup,
    Service,
)
from tfjob_controller.api.gang import ATTEMPT_LABEL, COMPLETION_INDEX_LABEL, MEMBER_LABEL, Gang
from tfjob_controller.jobs.plan.model import Plan, Replica, Role


@dataclass(frozen=True, slots=True)
class Reading:
    """The text that the group of `progress.pattern` matched in the last matching line of a worker's log.

    `is_last` reports whether the worker has ended, so that no later line follows.
    """

    replica: str = ""
    text: str = ""
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint that is complete in the storage. `time` is in whole seconds in UTC."""

    name: str
    step: int | None
    time: str
    size: int
    uri: str

    @property
    def order(self) -> tuple[str, int]:
        """A larger one belongs to a newer checkpoint."""
        return self.time, -1 if self.step is None else self.step


@dataclass(frozen=True, slots=True)
class UnsavedCheckpoint:
    """A checkpoint that is not saved, and since when (whole seconds in UTC). It has no name if none can be listed."""

    name: str
    reason: str
    time: str


CheckpointLine: TypeAlias = SavedCheckpoint | UnsavedCheckpoint


@dataclass(frozen=True, slots=True)
class ReportedStep:
    """A training step that the program has reported, and when (whole seconds in UTC)."""

    step: int
    time: str


@dataclass(frozen=True, slots=True)
class ObservedState:
    """Children *owned by the job* (controller reference with its UID), taken from caches at one moment.

    Jobs and Services are keyed by name. Pods are grouped by the name of their child Job (label `POD_JOB_NAME`) and may
    include pods of an earlier Job of the same name. Objects being deleted are included.
    """

    jobs: Mapping[str, BatchJob] = field(default_factory=dict)
    services: Mapping[str, Service] = field(default_factory=dict)
    pods: Mapping[str, Sequence[Pod]] = field(default_factory=dict)
    has_config_map: bool = False
    # None unless this project's gang scheduler runs the job as a gang.
    gang: Gang | None = None
    # None unless another scheduler runs the job as a gang.
    pod_group: PodGroup | None = None
    # By the UID of the worker's pod. They are kept for a while after the pod is deleted. None if no logs are read.
    readings: Mapping[str, Reading] | None = None
    has_secret: bool = False
    # The names of the PersistentVolumeClaims that were created for the job.
    claims: frozenset[str] = frozenset()
    # Reports whether the chief's container has ended and the end of its log has not been read yet.
    is_unread: bool = False
    # What the containers that save the job's checkpoints have logged last, as far as it was read.
    checkpoint_lines: Sequence[CheckpointLine] = ()
    # The last training steps that are known, of this or of an earlier pod.
    reported_steps: Sequence[ReportedStep] = ()
    # Pods without a controller, by the name of the child Job that they had. They are not counted as children.
    orphans: Mapping[str, Sequence[Pod]] = field(default_factory=dict)
    # The name of the Indexed Job that runs a replica, by the replica's name. `jobs` has this Job once for each replica.
    indexed_jobs: Mapping[str, str] = field(default_factory=dict)
    # The object by which Kubernetes resizes an elastic job with metrics.
    autoscaler: HorizontalPodAutoscaler | None = None
    # The Service of the first replica alone, which an elastic role has beside that of all.
    has_first_service: bool = False
    # The digest of the content of each of `Plan.objects` that exists, by its kind and name.
    objects: Mapping[tuple[str, str], str] = field(default_factory=dict)
    # The newest warning about pods and Jobs whose own status gives no reason, by UID: see `silence`.
    warnings: Mapping[str, str] = field(default_factory=dict)

    def count(self, plan: Plan) -> int:
        """The number of children, without pods that are children of Jobs."""
        single = (
            self.has_config_map,
            self.has_secret,
            self.gang is not None,
            self.pod_group is not None,
            self.autoscaler is not None,
        )
        carriers = self.jobs if plan.carrier is None else self.pods
        return len(carriers) + len(self.services) + len(self.claims) + len(self.objects) + sum(single)

    @property
    def has_autoscaler(self) -> bool:
        return self.autoscaler is not None and self.autoscaler.metadata.deletion_timestamp is None

    @property
    def has_pod_group(self) -> bool:
        return self.pod_group is not None and self.pod_group.metadata.deletion_timestamp is None

    def with_unread(self) -> ObservedState:
        return dataclasses.replace(self, is_unread=True)

    def with_checkpoint_lines(self, lines: Sequence[CheckpointLine]) -> ObservedState:
        return dataclasses.replace(self, checkpoint_lines=lines)

    def with_warnings(self, warnings: Mapping[str, str]) -> ObservedState:
        return dataclasses.replace(self, warnings=warnings)

    def with_reported_steps(self, steps: Sequence[ReportedStep]) -> ObservedState:
        return dataclasses.replace(self, reported_steps=steps)

    def only(self, names: Container[str]) -> ObservedState:
        """Returns the state with only the Jobs, Services and pods of these names."""
        return dataclasses.replace(
            self,
            jobs={name: job for name, job in self.jobs.items() if name in names},
            services={name: service for name, service in self.services.items() if name in names},
            pods={name: pods for name, pods in self.pods.items() if name in names},
            orphans={name: pods for name, pods in self.orphans.items() if name in names},
        )


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a write was refused, or why nothing should be written. `message` is a message for the user.

    If it is `permanent`, a retry cannot help (422, another owner's object has the child's name) and the job fails with
    this message. Any other obstacle (quota, rights, overload) is only shown as the reason for which the job waits.
    """

    message: str
    permanent: bool = False


JOB_COMPLETE, JOB_FAILED = "Complete", "Failed"
_OUTCOMES = {JOB_COMPLETE: JOB_COMPLETE, JOB_FAILED: JOB_FAILED, "FailureTarget": JOB_FAILED}


def job_outcome(job: BatchJob) -> str:
    """Returns `Complete`, `Failed` (also while pods of a Job that is bound to fail still end), or empty if neither."""
    condition = job_ending(job)
    return "" if condition is None else _OUTCOMES[condition.type]


def job_end_time(job: BatchJob) -> str | None:
    """Returns when the Job ended; None if it has not, or the condition has no time."""
    condition = job_ending(job)
    return None if condition is None else condition.last_transition_time


def job_ending(job: BatchJob) -> Condition | None:
    """Returns the condition that records how the Job ended."""
    for condition in job.status.conditions:
        if condition.status == "True" and condition.type in _OUTCOMES:
            return condition
    return None


def by_replica(plan: Plan, observed: ObservedState) -> ObservedState:
    """Returns the state with a Job, a Service and the pods of each replica that an Indexed Job carries."""
    for role in plan.replicas.roles:
        if role.job_name:
            observed = _divided(role, [replica for replica in plan.replicas.all if replica.role is role], observed)
    return observed


def _divided(role: Role, replicas: Sequence[Replica], observed: ObservedState) -> ObservedState:
    jobs, services = dict(observed.jobs), dict(observed.services)
    pods, orphans = _by_index(role, observed.pods), _by_index(role, observed.orphans)
    job, service = jobs.pop(role.job_name, None), services.pop(role.service_name, None)
    first_service = services.pop(f"{role.job_name}-0", None) if role.is_elastic else None
    if service is not None:
        services |= dict.fromkeys((replica.name for replica in replicas), service)
    carried: dict[str, str] = {}
    if job is not None:
        done, failed = indexes(job.status.completed_indexes), indexes(job.status.failed_indexes)
        # A pod tells more than its index.
        gone = {replica.index for replica in replicas if not pods.get(replica.name)}
        outcomes = {**dict.fromkeys(failed & gone, JOB_FAILED), **dict.fromkeys(done, JOB_COMPLETE)}
        carried = {replica.name: role.job_name for replica in replicas}
        jobs |= {replica.name: _job_of(job, replica, outcomes.get(replica.index, "")) for replica in replicas}
    return dataclasses.replace(
        observed,
        jobs=jobs,
        services=services,
        pods=pods,
        orphans=orphans,
        indexed_jobs={**observed.indexed_jobs, **carried},
        has_first_service=observed.has_first_service or first_service is not None,
    )


def _by_index(role: Role, pods: Mapping[str, Sequence[Pod]]) -> Mapping[str, Sequence[Pod]]:
    if role.job_name not in pods:
        return pods
    divided = {name: list(of_job) for name, of_job in pods.items() if name != role.job_name}
    for pod in pods[role.job_name]:
        index = pod.metadata.labels.get(COMPLETION_INDEX_LABEL, "")
        divided.setdefault(f"{role.job_name}-{index}", []).append(pod)
    return divided


def _job_of(job: BatchJob, replica: Replica, outcome: str) -> BatchJob:
    """The Job as if it ran this replica alone, under the replica's name. `outcome` is that of its index."""
    labels = job.metadata.labels
    if ATTEMPT_LABEL in labels:
        labels = {**labels, MEMBER_LABEL: replica.id}
    metadata = replace(job.metadata, name=replica.name, labels=labels)
    conditions = job.status.conditions
    if not outcome or any(condition.type == outcome and condition.status == "True" for condition in conditions):
        return replace(job, metadata=metadata)
    kept = (condition for condition in conditions if _OUTCOMES.get(condition.type) != JOB_FAILED)
    status = replace(job.status, conditions=(*kept, Condition(outcome, "True")))
    return replace(job, metadata=metadata, status=status)


def indexes(text: str) -> frozenset[int]:
    """Parses the indexes in the status of a Job, such as `0-2,5`."""
    numbers: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def pods_of(replica: Replica, observed: ObservedState) -> Sequence[Pod]:
    """The pods of a replica, in a state that is not divided by replica."""
    return _by_index(replica.role, observed.pods).get(replica.name, ())
