"""What a refused or unanswered request means for a job.

| answer | to a child's create, patch or delete | to the job's own status |
|---|---|---|
| 400, 413, 422 | permanent: the job fails with the server's words (a webhook's 400 passes) | passes (an older CRD) |
| 401, 403 | passes: quota, rights, admission; shown as the reason | passes |
| 404 | passes: the namespace or the job goes away | the job is gone: done |
| 409 AlreadyExists | adopted, or reported as foreign | - |
| 409 | passes: somebody wrote first; read again | passes |
| 429, 5xx, no answer | passes; names make a repeated create find what the first one made | passes |

What passes is tried again at the rate limiter's pace. Nothing here is a guess about what a server meant: an unknown
code passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfjob_controller.controller.outcome import DONE, GiveUp, Outcome, RequeueAfter, Retry
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.trainer.observed import Obstacle

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
        return GiveUp(permanent[0].words)
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
