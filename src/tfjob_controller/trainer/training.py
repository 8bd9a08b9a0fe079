"""Has the job ended, and how? The chief alone decides, but for what the user asked for and what cannot be helped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tfjob_controller.trainer import reasons, replicas
from tfjob_controller.trainer.exit_codes import in_words
from tfjob_controller.trainer.moments import seconds_until
from tfjob_controller.trainer.observed import Obstacle
from tfjob_controller.trainer.plan import Plan
from tfjob_controller.trainer.pods import shortened
from tfjob_controller.trainer.replicas import JOB_FAILED, View


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the job ended: `reason` from reasons.py for its condition, `words` for its `reason`."""

    succeeded: bool
    reason: str
    words: str


def judge(
    plan: Plan,
    views: Sequence[View],
    obstacles: Sequence[Obstacle],
    restarts: int,
    started: str | None,
    now: datetime,
) -> Verdict | None:
    """The end of the job, None while it goes on. `views` are in the plan's order: the chief's is the first."""
    chief = views[0]
    if chief.state == replicas.SUCCEEDED:
        return Verdict(True, reasons.CHIEF_SUCCEEDED, f"{chief.replica.id} succeeded")
    return (
        _failed_replica(views)
        or _refused(obstacles)
        or _too_many_restarts(plan, restarts)
        or _too_late(plan, started, now)
    )


def _failed_replica(views: Sequence[View]) -> Verdict | None:
    for view in views:
        if view.state == replicas.FAILED and view.replica.decides:
            return Verdict(False, reasons.REPLICA_FAILED, shortened(f"{view.replica.id} failed: {_why_failed(view)}"))
    return None


def _why_failed(view: View) -> str:
    if view.exited is not None and view.exited.exit_code:
        message = view.exited.message
        return f"{in_words(view.exited)}: {message}" if message else in_words(view.exited)
    conditions = view.job.status.conditions if view.job is not None else ()
    messages = (each.message for each in conditions if each.type == JOB_FAILED)
    return next(messages, "") or "its Job failed"


def _refused(obstacles: Sequence[Obstacle]) -> Verdict | None:
    words = next((obstacle.words for obstacle in obstacles if obstacle.permanent), None)
    return None if words is None else Verdict(False, reasons.CREATE_REFUSED, shortened(words))


def _too_many_restarts(plan: Plan, restarts: int) -> Verdict | None:
    limit = plan.policy.backoff_limit
    if limit is None or restarts <= limit:
        return None
    words = f"{reasons.BACKOFF_LIMIT_EXCEEDED}: {restarts} restarts of replicas, backoffLimit is {limit}"
    return Verdict(False, reasons.BACKOFF_LIMIT_EXCEEDED, words)


def _too_late(plan: Plan, started: str | None, now: datetime) -> Verdict | None:
    left = seconds_to_deadline(plan, started, now)
    if left is None or left > 0:
        return None
    words = f"{reasons.DEADLINE_EXCEEDED}: not done after {plan.policy.active_deadline_seconds} s"
    return Verdict(False, reasons.DEADLINE_EXCEEDED, words)


def seconds_to_deadline(plan: Plan, started: str | None, now: datetime) -> float | None:
    """None without a deadline, and while the job is suspended: then it has no start time."""
    limit = plan.policy.active_deadline_seconds
    if limit is None or started is None or plan.policy.suspend:
        return None
    return seconds_until(started, limit, now)
