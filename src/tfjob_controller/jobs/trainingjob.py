"""A job of any kind beside its plan: its status, on which decisions are made, and what else they read of it.

`status.py` in the folder of each kind converts the status from and to what the kind shows of it. No field that
decisions read is lost in either direction, so a status that is read back equals the written one, and a job with nothing
to do costs no request.
"""

from __future__ import annotations

import msgspec

from tfjob_controller.api.common.checkpointstatus import CheckpointStatus
from tfjob_controller.api.common.status import JobCondition, Progress
from tfjob_controller.kube.meta import ObjectMeta

PHASE_CREATING = "Creating"
PHASE_RUNNING = "Running"
PHASE_CLEAN_UP = "CleanUp"
PHASE_DONE = "Done"
PHASE_FAILED = "Failed"
END_PHASES = (PHASE_DONE, PHASE_FAILED)


class RoleStatus(msgspec.Struct, frozen=True):
    """The replicas of one role: how many are in each state, and how many are ready or have succeeded.

    If pods without Jobs carry them, `active` is the number of those whose program runs, and `ended` that of pods that
    have ended, or are being deleted, and are replaced; otherwise both are 0.
    """

    role: str
    states: dict[str, int]
    ready: int = 0
    active: int = 0
    ended: int = 0

    @property
    def replicas(self) -> int:
        return sum(self.states.values())


class Scaling(msgspec.Struct, frozen=True):
    """The number of replicas that the scaled role should have, and the last change of it.

    `target` is what the autoscaler requests now; 0 without a request. `reason` is that of the last resize, if the
    autoscaler requested it. `attempt` counts the restarts of all replicas for a resize, and with resize Restart
    `members` are the replicas that know each other in this attempt.
    """

    replicas: int = 0
    before: int = 0
    target: int = 0
    target_reason: str = ""
    reason: str = ""
    attempt: int = 0
    members: int = 0


class TrainingStatus(msgspec.Struct, frozen=True):
    """What the controller reports of a job, and what it must remember between syncs."""

    phase: str = ""
    state: str = ""
    reason: str = ""
    roles: tuple[RoleStatus, ...] = ()
    conditions: tuple[JobCondition, ...] = ()
    observed_generation: int = 0
    start_time: str | None = None
    completion_time: str | None = None
    restarts: int = 0
    disruptions: int = 0
    # By the id of the replica; of an elastic role also by pod, until another one runs.
    restart_counts: dict[str, int] = {}
    # The ids of the replicas that have succeeded, sorted.
    succeeded_indexes: tuple[str, ...] = ()
    # None without a scaled role.
    scaling: Scaling | None = None
    # None unless steps are counted.
    progress: Progress | None = None
    # Of the scaled role, for the scale subresource: how many replicas exist, and the selector of their pods.
    scaled_replicas: int = 0
    scaled_selector: str = ""
    checkpoint: CheckpointStatus | None = None
    # Pending, Running, Suspended, Succeeded or Failed.
    summary: str = ""


class TrainingJob(msgspec.Struct, frozen=True):
    """A job with what decisions need of it."""

    metadata: ObjectMeta
    status: TrainingStatus
    ttl_seconds_after_finished: int | None = None


def is_finished(status: TrainingStatus) -> bool:
    """Reports whether the job has ended. Nothing is written for it any more, until its time to live is over."""
    return status.phase in END_PHASES


def ready_by_role(status: TrainingStatus) -> dict[str, str]:
    """Returns the ready replicas of each role, of those wanted: text such as `3/4`."""
    return {role.role: f"{role.ready}/{role.replicas}" for role in status.roles}
