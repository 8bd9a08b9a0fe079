"""What the controller says of a job: the next status, the events to emit, and when to look again.

Contract with the engine: call `next_status` after the writes of a sync, with what the caches then hold. If the answer's
status `is` the job's own, nothing is written. Emit the events only after the status write succeeded. Look again after
`wake_after_seconds`, even if nothing happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tfjob_controller.api.tfjob import TFJob, TFJobStatus
from tfjob_controller.trainer.observed import Observed, Obstacle
from tfjob_controller.trainer.plan import Plan


@dataclass(frozen=True, slots=True)
class Emit:
    """One event on the job: type `Normal` or `Warning`, a reason from reasons.py, and a sentence."""

    type: str
    reason: str
    note: str


@dataclass(frozen=True, slots=True)
class StatusResult:
    """`delete_job`: the job's time to live is over, delete it (Background, with its UID as precondition)."""

    status: TFJobStatus
    events: tuple[Emit, ...] = ()
    wake_after_seconds: float | None = None
    delete_job: bool = False


def is_finished(status: TFJobStatus) -> bool:
    """Phase Done or Failed: nothing will ever be written again, but for the time to live."""
    raise NotImplementedError


def next_status(
    job: TFJob, plan: Plan, observed: Observed, now: datetime, obstacles: Sequence[Obstacle] = ()
) -> StatusResult:
    """The status that follows from what is observed. A fixed point: given its own answer, it returns that object."""
    raise NotImplementedError


def invalid_status(job: TFJob, why: str, now: datetime) -> StatusResult:
    """The status of a job whose spec is refused: Failed at once, `invalid job spec: <why>`, one Warning event."""
    raise NotImplementedError


def finished_status(job: TFJob, now: datetime) -> StatusResult:
    """For a finished job, without a plan: its own status, and when or whether its time to live is over."""
    raise NotImplementedError
