"""What is said of a job whose number of workers changes, and whether the controller itself should change it.

Theory of operation. `spec.workerReplicas` has three writers: people (`kubectl scale`), a HorizontalPodAutoscaler, and
this controller, where it runs with --autoscaling=on and the gang scheduler wishes for another number in the status of
the job's Gang. The last one wins. So that it can be told who it was, the controller puts its wish on record
(`status.scaling.target`) before it writes the spec; what then turns up in the spec is its own if it is that number, and
somebody else's if it is not. A wish is written again until the spec says so, somebody else has written the spec, or the
gang scheduler wishes it no more.

The condition Resizing is True from a change on until the children follow: who should leave has gone with its pods, and
who should come has its Job (with resize Restart: all are of the present generation).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from tfjob_controller.api.gang import BOUND, Gang
from tfjob_controller.api.tfjob import BY_RESTART, WORKER
from tfjob_controller.api.trainingstatus import ScalingStatus
from tfjob_controller.trainer import conditions, reasons, replicas
from tfjob_controller.trainer.conditions import Conditions
from tfjob_controller.trainer.emit import NORMAL, WARNING, Emit
from tfjob_controller.trainer.gangterms import OFF, ON
from tfjob_controller.trainer.generations import next_generation
from tfjob_controller.trainer.plan import WORKER_ROLE, Plan
from tfjob_controller.trainer.state.evaluation import JobState

_NO_REASON = "the gang scheduler asks for it"


@dataclass(frozen=True, slots=True)
class Wish:
    """Of the gang scheduler, in workers of the job."""

    workers: int
    reason: str


@dataclass(frozen=True, slots=True)
class Resizing:
    """The next `status.scaling`, events, and the number of workers to be written to the spec, if any."""

    scaling: ScalingStatus | None
    events: tuple[Emit, ...] = ()
    scale_to: int | None = None


def resizing_of(state: JobState, said: Conditions) -> Resizing:
    """For a job that goes on; sets the condition Resizing."""
    wanted = _workers_of(state.plan)
    if wanted is None:
        return Resizing(None)
    old = state.status.scaling
    changed = old is not None and old.workers != wanted
    events = tuple(_events(state, old, wanted)) if old is not None and changed else ()
    scaling = _followed(state, old or ScalingStatus(workers=wanted), wanted)
    wish = None if changed else _wish(state, wanted)
    _say(state, scaling, said, changed=changed)
    if wish is None or state.plan.autoscaling != ON or state.plan.policy.suspend or _is_turning(state):
        told = tuple(_recommended(state, wanted, wish, said))
        return Resizing(replace(scaling, target=0, target_reason=""), (*events, *told))
    return Resizing(replace(scaling, target=wish.workers, target_reason=wish.reason), events, wish.workers)


def words_of(before: int, after: int, reason: str, by: str = "spec.workerReplicas") -> str:
    """`reason` is empty where it was not the autoscaler."""
    if not reason:
        return f"scaled {before} → {after} workers by {by}"
    return f"{'shrunk' if after < before else 'grown'} {before} → {after} workers: {reason}"


def _workers_of(plan: Plan) -> int | None:
    return next((role.replicas for role in plan.roles if role.replica_type == WORKER), None)


def _followed(state: JobState, old: ScalingStatus, wanted: int) -> ScalingStatus:
    """Who asked for this many workers is known by the wish on record."""
    new = old
    if old.workers != wanted:
        reason = old.target_reason if old.target == wanted else ""
        new = replace(old, workers=wanted, before=old.workers, reason=reason)
    if state.plan.resize != BY_RESTART:
        return new
    return new if state.known_workers == new.members else next_generation(new, state.known_workers)


def _events(state: JobState, old: ScalingStatus, wanted: int) -> Iterator[Emit]:
    own = old.target == wanted
    yield Emit(
        NORMAL,
        reasons.RESIZED,
        words_of(old.workers, wanted, old.target_reason if own else "", state.plan.workers_field),
    )
    against = _overruled(old, wanted)
    if against and not own:
        note = (
            f"somebody else set {wanted} workers where the autoscaler wants {against}: the last one wins; "
            "leave the workers of a job to one of them"
        )
        yield Emit(WARNING, reasons.OVERRIDDEN, note)


def _overruled(old: ScalingStatus, wanted: int) -> int:
    """The number that the autoscaler asks for, or set last, where this goes against it; else 0."""
    if old.target:
        return old.target
    turns_back = (wanted - old.workers) * (old.workers - old.before) < 0
    return old.workers if old.reason and turns_back else 0


def _wish(state: JobState, wanted: int) -> Wish | None:
    """What the gang scheduler has on record of a gang that runs, within the job's own bounds.

    Not one of before the Gang's spec was changed: whoever wrote the workers since then would be overruled by it.
    """
    gang, bounds = state.observed.gang, state.plan.bounds
    if state.plan.autoscaling == OFF or bounds is None or gang is None or state.gate is None or not state.gate.is_open:
        return None
    target = gang.status.target_members.get(WORKER_ROLE)
    count = _count_of(gang)
    is_old = gang.status.observed_generation < gang.metadata.generation
    if gang.status.phase != BOUND or target is None or target == count or is_old or _is_finishing(state):
        return None
    least, most = bounds
    workers = min(max(wanted + target - count, least), most)
    return Wish(workers, gang.status.target_reason or _NO_REASON) if workers != wanted else None


def _count_of(gang: Gang) -> int:
    return next((member.count for member in gang.spec.members if member.name == WORKER_ROLE), 0)


def _is_finishing(state: JobState) -> bool:
    """A worker has done its part: the others will soon."""
    return any(view.state == replicas.SUCCEEDED for view in state.views if view.replica.role.replica_type == WORKER)


def _recommended(state: JobState, wanted: int, wish: Wish | None, said: Conditions) -> Iterator[Emit]:
    """Once for each wish; and that there is none any more."""
    before = said.find(conditions.RESIZING)
    if wish is None or state.plan.autoscaling == ON or said.is_true(conditions.RESIZING):
        if before is not None and before.reason == reasons.RESIZE_RECOMMENDED:
            said.set(conditions.RESIZING, False, reasons.NONE_RECOMMENDED, "No other number of workers is recommended")
        return
    words = f"recommends {wanted} → {wish.workers} workers: {wish.reason}"
    if before is None or before.message != words:
        yield Emit(NORMAL, reasons.RESIZE_RECOMMENDED, words)
    said.set(conditions.RESIZING, False, reasons.RESIZE_RECOMMENDED, words)


def _say(state: JobState, scaling: ScalingStatus, said: Conditions, *, changed: bool) -> None:
    turns_over = state.status.scaling is not None and scaling.generation != state.status.scaling.generation
    before = said.find(conditions.RESIZING)
    if changed:
        words = words_of(scaling.before, scaling.workers, scaling.reason, state.plan.workers_field)
        said.set(conditions.RESIZING, True, reasons.CHILDREN_FOLLOW, words)
    elif before is not None and said.is_true(conditions.RESIZING) and not turns_over and not _lags(state):
        said.set(conditions.RESIZING, False, reasons.RESIZED, before.message)


def _lags(state: JobState) -> bool:
    """Do the children not follow yet?"""
    if state.plan.policy.suspend:
        # Nobody follows before it is resumed.
        return False
    if _is_turning(state):
        return True
    names = {view.replica.name for view in state.views if view.state != replicas.SUCCEEDED}
    return not names <= state.observed.jobs.keys()


def _is_turning(state: JobState) -> bool:
    """Is somebody still on the way out?"""
    plan, jobs = state.plan, state.observed.jobs
    if any(name not in plan.by_name for name in jobs):
        return True
    if plan.resize != BY_RESTART:
        return False
    return (state.gate is None or state.gate.is_open) and not state.turnover.is_clear
