"""Has come what somebody waits for? Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tfjob_controller.client.errors import JobEndedError, JobFailedError
from tfjob_controller.client.snapshot import DONE, FAILED, Snapshot

SUCCEEDED, RUNNING = "Succeeded", "Running"
_SUCCESS = (SUCCEEDED, "Complete")


# A condition's name, or what says of a state whether it is the one.
Until: TypeAlias = str | Callable[[Snapshot], bool]


def in_words(until: Until) -> str:
    return until if isinstance(until, str) else getattr(until, "__name__", "what it waits for")


def has_come(seen: Snapshot, until: Until) -> bool:
    """Raises `JobEndedError`, or `JobFailedError`, if it never will."""
    if is_met(seen, until):
        return True
    if seen.has_ended:
        raise ended(seen, until)
    return False


def is_met(seen: Snapshot, until: Until) -> bool:
    """A job that has succeeded has also run, perhaps too briefly to be seen."""
    if not isinstance(until, str):
        return until(seen)
    if until in _SUCCESS:
        return seen.phase == DONE
    if until == FAILED:
        return seen.phase == FAILED
    return seen.has(until) or (until == RUNNING and seen.phase == DONE)


def ended(seen: Snapshot, until: Until) -> JobEndedError:
    name = f"{seen.metadata.namespace}/{seen.metadata.name}"
    if seen.phase == FAILED:
        return JobFailedError(f"{name} has failed: {seen.reason or 'no reason is known'}", seen.reason)
    return JobEndedError(f"{name} has ended well, so {in_words(until)} cannot come any more", seen.reason)
