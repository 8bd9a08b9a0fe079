"""Wait conditions: their names in Python and the plugin, and whether a job has reached one. Pure.

Only the standard library is imported, because the plugin validates its command line with these names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tfjob_controller.client.errors import ClientError, JobEndedError, JobFailedError

if TYPE_CHECKING:
    from tfjob_controller.client.kinds import Snapshot

SUCCEEDED, COMPLETE, RUNNING, FAILED, ENDED = "Succeeded", "Complete", "Running", "Failed", "Ended"
DELETED = "Deleted"
# `Ended` is no condition: it means Succeeded or Failed. Nor is `Deleted`: the job no longer exists. `Complete` is what
# a TrainJob calls Succeeded.
NAMES = (
    SUCCEEDED,
    RUNNING,
    ENDED,
    FAILED,
    COMPLETE,
    "Created",
    "Scheduled",
    "Resizing",
    "Restarting",
    "Suspended",
    "Preempted",
    "ChangesReverted",
    DELETED,
)
_BY_LOWER_CASE = {name.lower(): name for name in NAMES} | {"delete": DELETED}  # as for kubectl wait
_SUCCESS = (SUCCEEDED, COMPLETE)

# The name of a condition, or a predicate on a state.
Until: TypeAlias = "str | Callable[[Snapshot], bool]"


@dataclass(frozen=True, slots=True)
class ConditionHasStatus:
    """A condition, named in any case as for `kubectl wait`, that has a status (True, False, Unknown)."""

    name: str
    status: str

    def __call__(self, seen: Snapshot) -> bool:
        wanted, is_true = self.name.lower(), self.status == "True"
        return (is_true and wanted == RUNNING.lower() and seen.has_succeeded) or any(
            condition.type.lower() == wanted and condition.status == self.status for condition in seen.conditions
        )

    def __str__(self) -> str:
        return f"condition {self.name}={self.status}"


def name_of(text: str) -> str | None:
    """The name in the case of `NAMES`, whatever the case of `text`; None for a name that is not among them."""
    return _BY_LOWER_CASE.get(text.lower())


def check_name(until: Until) -> None:
    """Raises `ClientError` for a text that names no condition."""
    if isinstance(until, str) and name_of(until) is None:
        raise ClientError(f"unknown condition {until!r}: use one of {', '.join(NAMES)}, or a function of a Snapshot")


def is_deletion(until: Until) -> bool:
    return isinstance(until, str) and name_of(until) == DELETED


def condition_text(until: Until) -> str:
    if isinstance(until, str):
        return name_of(until) or until
    return str(until) if isinstance(until, ConditionHasStatus) else getattr(until, "__name__", "the condition")


def argument_of(until: Until) -> str:
    """The value of `kubectl tfjob wait --for` that means this condition; a predicate has none."""
    if isinstance(until, ConditionHasStatus):
        return f"condition={until.name}" if until.status == "True" else f"condition={until.name}={until.status}"
    return "delete" if is_deletion(until) else condition_text(until).lower()


def is_reached(seen: Snapshot, until: Until) -> bool:
    """Whether the job has reached it. Raises `JobEndedError` or `JobFailedError` if it no longer can."""
    if is_deletion(until):
        return False
    if is_met(seen, until):
        return True
    if seen.has_ended:
        raise ended_error(seen, until)
    return False


def is_met(seen: Snapshot, until: Until) -> bool:
    """A succeeded job counts as one that has run, perhaps too briefly to be observed."""
    if not isinstance(until, str):
        return until(seen)
    name = name_of(until) or until
    if name in _SUCCESS:
        return seen.has_succeeded
    if name == FAILED:
        return seen.has_failed
    if name == ENDED:
        return seen.has_ended
    return seen.has(name) or (name == RUNNING and seen.has_succeeded)


def ended_error(seen: Snapshot, until: Until) -> JobEndedError:
    name = f"{seen.metadata.namespace}/{seen.metadata.name}"
    if seen.has_failed:
        return JobFailedError(f"{name} has failed: {seen.reason or 'no reason was reported'}", seen.reason)
    return JobEndedError(f"{name} has succeeded, so {condition_text(until)} can no longer be reached", seen.reason)
