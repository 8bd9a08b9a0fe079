"""What a job reports besides its status: standard conditions, one per type, and events.

The transition time of a condition moves only with its status.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfjob_controller.api.common.status import JobCondition

CREATED = "Created"
SCHEDULED = "Scheduled"
PREEMPTED = "Preempted"
RUNNING = "Running"
RESIZING = "Resizing"
RESTARTING = "Restarting"
SUSPENDED = "Suspended"
CHANGES_REVERTED = "ChangesReverted"
SUCCEEDED = "Succeeded"
FAILED = "Failed"

TRUE = "True"
FALSE = "False"

# Types of events.
NORMAL = "Normal"
WARNING = "Warning"


class Conditions:
    """The conditions of a status while the next status is built. Not thread-safe."""

    def __init__(self, present: tuple[JobCondition, ...], now_text: str, generation: int) -> None:
        self._by_type = {condition.type: condition for condition in present}
        self._now = now_text
        self._generation = generation

    def set(self, condition_type: str, is_true: bool, reason: str, message: str, *, anew: bool = False) -> None:
        """Sets a condition. With `anew` its transition time is now, even if its status does not change."""
        status = TRUE if is_true else FALSE
        old = self._by_type.get(condition_type)
        since = old.last_transition_time if old is not None and old.status == status and not anew else self._now
        self._by_type[condition_type] = JobCondition(condition_type, status, reason, message, since, self._generation)

    def clear(self, condition_type: str, reason: str, message: str) -> None:
        """Sets a condition to False if the status has it."""
        if condition_type in self._by_type:
            self.set(condition_type, False, reason, message)

    def find(self, condition_type: str) -> JobCondition | None:
        return self._by_type.get(condition_type)

    def is_true(self, condition_type: str) -> bool:
        condition = self._by_type.get(condition_type)
        return condition is not None and condition.status == TRUE

    def all(self) -> tuple[JobCondition, ...]:
        return tuple(self._by_type.values())


def find(conditions: tuple[JobCondition, ...], condition_type: str) -> JobCondition | None:
    return next((condition for condition in conditions if condition.type == condition_type), None)


def has_true(conditions: tuple[JobCondition, ...], condition_type: str) -> bool:
    return any(condition.type == condition_type and condition.status == TRUE for condition in conditions)


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """One event on the job: type `Normal` or `Warning`, a reason from reasons.py, and a sentence."""

    type: str
    reason: str
    note: str


@dataclass(frozen=True, slots=True)
class PodEvent:
    """What has happened in a pod, for an event on its job that is written once.

    `time` differs between two times that the same `cause` has this effect in the pod; it is empty for what is only told
    the first time. One event stands for all pods of a sync with the same cause.
    """

    uid: str
    pod: str
    cause: tuple[str, ...]
    event: StatusEvent
    time: str = ""
