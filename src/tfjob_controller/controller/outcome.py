"""The five ways in which a sync ends, as the workers understand them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tfjob_controller.kube.errors import ApiError
from tfjob_controller.trainer.observed import Obstacle


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do until something happens."""


@dataclass(frozen=True, slots=True)
class NotFound:
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
class TerminalFailure:
    """No retry can help; only a change of the object can."""

    why: str


Outcome: TypeAlias = Done | NotFound | RequeueAfter | Retry | TerminalFailure

DONE = Done()
NOT_FOUND = NotFound()


_PERMANENT = (400, 413, 422)
# A server's own words may be a whole validation report.
_WORDS_LIMIT = 700


@dataclass(frozen=True, slots=True)
class Fault:
    """A request that came to nothing. `words` are for the user, `halts` says that its siblings would fare alike."""

    words: str
    permanent: bool = False
    halts: bool = False
    after_seconds: float = 0.0
    is_error: bool = False


def fault_of(error: ApiError, doing: str) -> Fault:
    """What `error` means to a child; `doing` says what was tried, such as "create Job x"."""
    words = f"cannot {doing}: {_shortened(error.message)}"
    if error.status in _PERMANENT and not _is_webhook(error):
        return Fault(words, permanent=True)
    return Fault(
        words,
        # A conflict is about this one object.
        halts=not error.is_conflict,
        after_seconds=error.retry_after_seconds or 0.0,
        is_error=error.is_retryable,
    )


def outcome_of(error: ApiError, doing: str) -> Outcome:
    """What `error` means to a sync that could not write the job itself."""
    if error.is_not_found:
        return DONE
    why = f"cannot {doing}: {_shortened(error.message)}"
    return Retry(why, after_seconds=error.retry_after_seconds or 0.0, is_error=not error.is_conflict)


def outcome_after(faults: Sequence[Fault], wake_after_seconds: float | None) -> Outcome:
    """What all faults of a sync's writes mean to it, and a time at which it wants to look again."""
    passing = [fault for fault in faults if not fault.permanent]
    permanent = [fault for fault in faults if fault.permanent]
    if permanent:
        return TerminalFailure(permanent[0].words)
    if passing:
        after_seconds = max(fault.after_seconds for fault in passing)
        is_error = any(fault.is_error for fault in passing)
        return Retry(passing[0].words, after_seconds, wake_after_seconds, is_error)
    return DONE if wake_after_seconds is None else RequeueAfter(wake_after_seconds)


def obstacles_of(faults: Iterable[Fault]) -> list[Obstacle]:
    """Each sentence once, permanent ones first: they decide."""
    words = {fault.words: fault.permanent for fault in sorted(faults, key=lambda fault: not fault.permanent)}
    return [Obstacle(sentence, permanent) for sentence, permanent in words.items()]


def _is_webhook(error: ApiError) -> bool:
    """A webhook that denies without a code is answered as 400; its mind may change."""
    return error.status == 400 and "admission webhook" in error.message


def _shortened(message: str) -> str:
    words = " ".join(message.split())
    return words if len(words) <= _WORDS_LIMIT else words[: _WORDS_LIMIT - 1] + "…"
