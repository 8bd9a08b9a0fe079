"""The five ways in which a sync ends, as the workers understand them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do until something happens."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The object does not exist any more: no look at it that was planned for later is needed."""


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Look again after `seconds`, even if nothing happens: a deadline, a time to live, a write that can wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Retry:
    """Something that passes is in the way: try again when the rate limiter says so.

    `after_seconds` is the least rest (a server's Retry-After). `wake_after_seconds` is a deadline that must not wait
    for the limiter. `is_error` tells a fault from an obstacle that is the user's own, such as a quota.
    """

    why: str
    after_seconds: float = 0.0
    wake_after_seconds: float | None = None
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No retry can help; only a change of the object can."""

    why: str


Outcome: TypeAlias = Done | Gone | RequeueAfter | Retry | GiveUp

DONE = Done()
GONE = Gone()
