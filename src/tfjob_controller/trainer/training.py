"""Has the job ended, and how? Those who must succeed decide (the chief alone, if nobody says more), but for what the
user asked for and what cannot be helped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tfjob_controller.trainer import reasons, replicas
from tfjob_controller.trainer.blame import is_consequence, seconds_to_blame
from tfjob_controller.trainer.carriers import has_tried_too_often, waits_too_long
from tfjob_controller.trainer.observed import Obstacle
from tfjob_controller.trainer.plan import Plan
from tfjob_controller.trainer.pods import how_it_ended, shortened
from tfjob_controller.trainer.replicas import JOB_FAILED, View
from tfjob_controller.trainer.startfailures import why_never_started
from tfjob_controller.util.timestamps import seconds_until


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the job ended: `reason` from reasons.py for its condition, `words` for its `reason`."""

    succeeded: bool
    reason: str
    words: str


def judge(
    plan: Plan,
    views: Sequence[View],
    unfinished: Sequence[View],
    causes: Sequence[View],
    restarts: int,
    started: str | None,
    now: datetime,
) -> Verdict | None:
    """The end of the job, None while it goes on. `views` are in the plan's order: the chief's is the first.

    `unfinished`: those of steps that are not completed; `causes`: those for which all must be started again.
    """
    if has_succeeded(plan, views):
        return Verdict(True, reasons.CHIEF_SUCCEEDED, _who_succeeded(plan, views))
    return (
        _failed_replica(unfinished, causes, now)
        or _not_carried(plan, unfinished, now)
        or (_no_restart_left(plan, causes, restarts) if plan.restarts_together else _too_many_restarts(plan, restarts))
        or _too_late(plan, started, now)
    )


def has_succeeded(plan: Plan, views: Sequence[View]) -> bool:
    """Have all that must? `views` may be of more replicas than the plan's."""
    if not plan.needed:
        return views[0].state == replicas.SUCCEEDED
    names = {replica.name for replica in plan.needed}
    return all(view.state == replicas.SUCCEEDED for view in views if view.replica.name in names)


def _who_succeeded(plan: Plan, views: Sequence[View]) -> str:
    needed = plan.needed or (views[0].replica,)
    if len(needed) == 1:
        return f"{needed[0].id} succeeded"
    return f"all {len(needed)} {needed[0].role.name}s succeeded"


def to_restart(plan: Plan, unfinished: Sequence[View]) -> Sequence[View]:
    """Those for which all must be started again; none while the job is suspended, since nothing runs then."""
    if not plan.restarts_together or plan.policy.suspend:
        return ()
    left = [view for view in unfinished if view.replica.role.restarts_together]
    over = [view for view in left if _is_over(view)]
    is_somebodys_fault = any(view.state == replicas.FAILED and not is_consequence(view, over) for view in left)
    return () if is_somebodys_fault else over


def of_steps_to_do(plan: Plan, views: Sequence[View]) -> Sequence[View]:
    """Without those of steps that are done: what becomes of a node once the launcher has succeeded is no matter."""
    done = {name for step in plan.steps if has_succeeded(step, views) for name in step.by_name}
    return [view for view in views if view.replica.name not in done] if done else views


def _is_over(view: View) -> bool:
    """Not because its Job is suspended, or was until now."""
    if not (view.is_restarting or view.must_redo):
        return False
    is_suspended = view.job is not None and view.job.spec.suspend
    return not is_suspended or (view.pod is not None and replicas.ended_by_itself(view.pod))


def _failed_replica(views: Sequence[View], restarting: Sequence[View], now: datetime) -> Verdict | None:
    for view in views:
        if view.state == replicas.FAILED and view.replica.decides:
            if is_consequence(view, restarting) or seconds_to_blame(view, views, now):
                continue
            return Verdict(False, reasons.REPLICA_FAILED, shortened(how_failed(view)))
    return None


def _not_carried(plan: Plan, views: Sequence[View], now: datetime) -> Verdict | None:
    """What brings or takes data neither starts nor succeeds."""
    if words := waits_too_long(plan, views, now):
        return Verdict(False, reasons.REPLICA_FAILED, shortened(words))
    if words := has_tried_too_often(plan, views):
        return Verdict(False, reasons.BACKOFF_LIMIT_EXCEEDED, shortened(words))
    return None


def how_failed(view: View) -> str:
    """A clause: which replica failed, or cannot start, and why."""
    words = why_never_started(view.exited) if view.exited is not None else ""
    if not words:
        return f"{view.replica.id} failed: {_why_failed(view)}"
    who = f"{view.replica.id}: {view.ended_in}" if view.ended_in else view.replica.id
    return f"{who} cannot start: {words}"


def _why_failed(view: View) -> str:
    """In words: the exit code, and what the program said last."""
    if view.is_restarting and (view.job is None or view.job.metadata.deletion_timestamp is not None):
        return "its Job was deleted"
    if view.exited is not None and view.exited.exit_code:
        return ": ".join(each for each in (view.ended_in, how_it_ended(view.exited)) if each)
    if view.pod is not None and view.pod.status.reason:
        return ": ".join(each for each in (view.pod.status.reason, view.pod.status.message) if each)
    conditions = view.job.status.conditions if view.job is not None else ()
    messages = (each.message for each in conditions if each.type == JOB_FAILED)
    return next(messages, "") or "its Job failed"


def _no_restart_left(plan: Plan, failed: Sequence[View], restarts: int) -> Verdict | None:
    limit = plan.policy.backoff_limit
    if not failed or limit is None or restarts < limit:
        return None
    words = how_failed(failed[0])
    if not limit:
        return Verdict(False, reasons.REPLICA_FAILED, shortened(f"{words}; maxRestarts is 0"))
    return Verdict(
        False,
        reasons.BACKOFF_LIMIT_EXCEEDED,
        shortened(f"{words}; restarted {restarts} times, as often as maxRestarts"),
    )


def refused(obstacles: Sequence[Obstacle]) -> Verdict | None:
    """The end of a job of which a write can never succeed."""
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
