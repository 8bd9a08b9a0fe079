"""What decisions are made on beside the plan and the job: a snapshot of the job's children, and why writes failed."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tfjob_controller.api.common.core import BatchJob, HorizontalPodAutoscaler, Pod, PodGroup, Service
from tfjob_controller.api.gang import Gang


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
    # The newest warning about pods and Jobs whose own status gives no reason, by UID: see `silence`.
    warnings: Mapping[str, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of children, without pods, which are children of Jobs."""
        single = (
            self.has_config_map,
            self.has_secret,
            self.gang is not None,
            self.pod_group is not None,
            self.autoscaler is not None,
        )
        return len(self.jobs) + len(self.services) + len(self.claims) + sum(single)

    def with_unread(self) -> ObservedState:
        return replace(self, is_unread=True)

    def with_checkpoint_lines(self, lines: Sequence[CheckpointLine]) -> ObservedState:
        return replace(self, checkpoint_lines=lines)

    def with_warnings(self, warnings: Mapping[str, str]) -> ObservedState:
        return replace(self, warnings=warnings)

    def with_reported_steps(self, steps: Sequence[ReportedStep]) -> ObservedState:
        return replace(self, reported_steps=steps)

    def only(self, names: Container[str]) -> ObservedState:
        """Returns the state with only the Jobs, Services and pods of these names."""
        return replace(
            self,
            jobs={name: job for name, job in self.jobs.items() if name in names},
            services={name: service for name, service in self.services.items() if name in names},
            pods={name: pods for name, pods in self.pods.items() if name in names},
            orphans={name: pods for name, pods in self.orphans.items() if name in names},
        )


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a write was refused, or why nothing should be written. `words` is a message for the user.

    If it is `permanent`, a retry cannot help (422, another owner's object has the child's name) and the job fails with
    this message. Any other obstacle (quota, rights, overload) is only shown as the reason for which the job waits.
    """

    words: str
    permanent: bool = False
