"""The outcomes of a sync, and the effect of a failed request on a job.

| response | to the create, patch or delete of a child | to the write of the job's status |
|---|---|---|
| 400, 413, 422 | permanent: the job fails (a webhook's 400 is transient) | transient (an older CRD) |
| 401, 403 | transient: quota, rights, admission; shown as the reason | transient |
| 404 | transient: the namespace or the job is being deleted | the job does not exist: done |
| 409 AlreadyExists | adopted, or reported as a conflict of ownership | - |
| 409 | transient: another writer was first; read again | transient |
| 429, 5xx, no response | transient; a repeated create finds the child of the first one by its name | transient |

A transient failure is retried at the rate limiter's pace. An unknown status code counts as transient. A 400 also
refuses a field that the API server does not know, in a child that is created strictly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tfjob_controller.jobs.state.observed import Obstacle
from tfjob_controller.kube.errors import ApiError


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do until the next event."""


@dataclass(frozen=True, slots=True)
class NotFound:
    """The object does not exist any more, so syncs that were scheduled for later are dropped."""


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Sync again after `seconds` without an event: for a deadline, a time to live, a delayed status write."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Retry:
    """A transient failure: sync again when the rate limiter allows.

    `after_seconds` is the minimum delay (a server's Retry-After). `wake_after_seconds` is a deadline that does not
    wait for the limiter. `is_error` is False for an obstacle of the user's own, such as a quota.
    """

    message: str
    after_seconds: float = 0.0
    wake_after_seconds: float | None = None
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class TerminalFailure:
    """A retry cannot help, only a change of the object."""

    message: str


Outcome: TypeAlias = Done | NotFound | RequeueAfter | Retry | TerminalFailure

DONE = Done()
NOT_FOUND = NotFound()


_PERMANENT = (400, 413, 422)
# A server's message may be a whole validation report.
_MAX_MESSAGE = 700
# The refusal of fields that the server does not know, or that are given twice. The message of the fault names the child
# already. Source: apiserver pkg/endpoints/handlers/rest.go (transformDecodeError); apimachinery pkg/runtime/error.go.
_STRICT_DECODING = re.compile(r'^\w+ in version "\S*" cannot be handled as a \w+: strict decoding error: ')


@dataclass(frozen=True, slots=True)
class Fault:
    """A failed request. `message` is for the user; `halts`: other requests of the sync would fail in the same way."""

    message: str
    permanent: bool = False
    halts: bool = False
    after_seconds: float = 0.0
    is_error: bool = False


def fault_of(error: ApiError, operation: str, *, is_optional: bool = False) -> Fault:
    """What `error` means for a child. `operation` names the attempt, such as "create Job x".

    The job runs without an optional child, so that its faults neither end the job nor halt other writes.
    """
    message = f"cannot {operation}: {_truncate(_STRICT_DECODING.sub('', error.message, count=1))}"
    if is_optional:
        return Fault(message, after_seconds=error.retry_after_seconds or 0.0, is_error=error.is_retryable)
    if error.status in _PERMANENT and not _is_webhook(error):
        return Fault(message, permanent=True)
    return Fault(
        message,
        # A conflict concerns this object alone.
        halts=not error.is_conflict,
        after_seconds=error.retry_after_seconds or 0.0,
        is_error=error.is_retryable,
    )


def outcome_of(error: ApiError, operation: str) -> Outcome:
    """What `error` means for a sync that could not write the job itself."""
    if error.is_not_found:
        return DONE
    message = f"cannot {operation}: {_truncate(error.message)}"
    return Retry(message, after_seconds=error.retry_after_seconds or 0.0, is_error=not error.is_conflict)


def outcome_after(faults: Sequence[Fault], wake_after_seconds: float | None) -> Outcome:
    """The outcome of a sync, given the faults of its writes and when it needs the next one at the latest."""
    transient = [fault for fault in faults if not fault.permanent]
    permanent = [fault for fault in faults if fault.permanent]
    if permanent:
        return TerminalFailure(permanent[0].message)
    if transient:
        after_seconds = max(fault.after_seconds for fault in transient)
        is_error = any(fault.is_error for fault in transient)
        return Retry(transient[0].message, after_seconds, wake_after_seconds, is_error)
    return DONE if wake_after_seconds is None else RequeueAfter(wake_after_seconds)


def obstacles_of(faults: Iterable[Fault]) -> list[Obstacle]:
    """Each message once, permanent ones first, since these end the job."""
    messages = {fault.message: fault.permanent for fault in sorted(faults, key=lambda fault: not fault.permanent)}
    return [Obstacle(message, permanent) for message, permanent in messages.items()]


def _is_webhook(error: ApiError) -> bool:
    """Reports whether a webhook denied the request without a code, which becomes a 400. It may allow it later."""
    return error.status == 400 and "admission webhook" in error.message


def _truncate(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= _MAX_MESSAGE else line[: _MAX_MESSAGE - 1] + "…"
