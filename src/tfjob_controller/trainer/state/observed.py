"""What the cluster holds of one job: the snapshot that decisions are made on.

A job of any kind, as far as the trainer must know it beyond its plan.

Where a job is on its way, in one word: upstream's, and on the wire.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import msgspec

from tfjob_controller.api.common.core import BatchJob, Pod, PodGroup, Service
from tfjob_controller.api.common.status import TrainingStatus
from tfjob_controller.api.gang import Gang
from tfjob_controller.kube.meta import ObjectMeta


@dataclass(frozen=True, slots=True)
class Reading:
    """What stood in the group of `progress.pattern` in the last line of a worker's log that it matched.

    `is_last`: no more is to be expected, the worker has ended.
    """

    replica: str = ""
    text: str = ""
    is_last: bool = False


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
    # Only of a job that is one.
    gang: Gang | None = None
    # Only of a job whose gang another scheduler runs.
    pod_group: PodGroup | None = None
    # What the logs of workers say, by UID of the pod, for a while also of pods that are gone; None where nobody reads.
    readings: Mapping[str, Reading] | None = None
    has_secret: bool = False
    # A log that tells how training goes has an end that was not read yet.
    is_unread: bool = False
    # By the name of the child Job that they had: pods that nobody controls any more. They are not the job's.
    orphans: Mapping[str, Sequence[Pod]] = field(default_factory=dict)
    # By the name of each replica that an Indexed Job carries: the Job's name. `jobs` has it under each of the replicas.
    indexed_jobs: Mapping[str, str] = field(default_factory=dict)
    # Replicas whose pods their Indexed Job ended because others had failed: see `indexedjobs`.
    interrupted: frozenset[str] = frozenset()

    @property
    def count(self) -> int:
        """How many children there are; pods are not ours."""
        single = (self.has_config_map, self.has_secret, self.gang is not None, self.pod_group is not None)
        return len(self.jobs) + len(self.services) + sum(single)

    def with_unread(self) -> ObservedState:
        return replace(self, is_unread=True)

    def only(self, names: Container[str]) -> ObservedState:
        """Without the children of other names."""
        return replace(
            self,
            jobs={name: job for name, job in self.jobs.items() if name in names},
            services={name: service for name, service in self.services.items() if name in names},
            pods={name: pods for name, pods in self.pods.items() if name in names},
            orphans={name: pods for name, pods in self.orphans.items() if name in names},
        )


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a write was refused, or why nothing should be written, in words for the user.

    `permanent`: no retry can help (422, a foreign object under a child's name): the job fails with these words.
    Passing ones (quota, rights, overload) only show as a reason.
    """

    words: str
    permanent: bool = False


class TrainingJob(Protocol):
    """A TFJob is one by itself."""

    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def status(self) -> TrainingStatus: ...
    @property
    def ttl_seconds_after_finished(self) -> int | None: ...


class PlainTrainingJob(msgspec.Struct, frozen=True):
    """A job whose own status is told in other words."""

    metadata: ObjectMeta
    status: TrainingStatus
    ttl_seconds_after_finished: int | None = None


PHASE_CREATING = "Creating"
PHASE_RUNNING = "Running"
PHASE_CLEAN_UP = "CleanUp"
PHASE_DONE = "Done"
PHASE_FAILED = "Failed"


def is_finished(status: TrainingStatus) -> bool:
    """Phase Done or Failed: nothing will ever be written again, but for the time to live."""
    return status.phase in (PHASE_DONE, PHASE_FAILED)
