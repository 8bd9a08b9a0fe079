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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from tfjob_controller.api.gang import BOUND, Gang
from tfjob_controller.api.tfjob import BY_RESTART, WORKER
from tfjob_controller.api.trainingstatus import ScalingStatus, TrainingStatus
from tfjob_controller.trainer import conditions, reasons, replicas
from tfjob_controller.trainer.conditions import Conditions
from tfjob_controller.trainer.emit import NORMAL, WARNING, Emit
from tfjob_controller.trainer.gang import Gate
from tfjob_controller.trainer.gangterms import OFF, ON
from tfjob_controller.trainer.generations import next_generation, turnover_of, workers_to_know
from tfjob_controller.trainer.observed import Observed
from tfjob_controller.trainer.plan import WORKER_ROLE, Plan
from tfjob_controller.trainer.replicas import View

_NO_REASON = "the gang scheduler asks for it"


@dataclass(frozen=True, slots=True)
class Look:
    """All that is looked at. `gate` is None for a job that is no gang."""

    status: TrainingStatus
    plan: Plan
    observed: Observed
    views: Sequence[View]
    gate: Gate | None


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


def resizing_of(look: Look, said: Conditions) -> Resizing:
    """For a job that goes on; sets the condition Resizing."""
    wanted = _workers_of(look.plan)
    if wanted is None:
        return Resizing(None)
    old = look.status.scaling
    changed = old is not None and old.workers != wanted
    events = tuple(_events(look, old, wanted)) if old is not None and changed else ()
    scaling = _followed(look, old or ScalingStatus(workers=wanted), wanted)
    wish = None if changed else _wish(look, wanted)
    _say(look, scaling, said, changed=changed)
    if wish is None or look.plan.autoscaling != ON or look.plan.policy.suspend or _is_turning(look):
        told = tuple(_recommended(look, wanted, wish, said))
        return Resizing(replace(scaling, target=0, target_reason=""), (*events, *told))
    return Resizing(replace(scaling, target=wish.workers, target_reason=wish.reason), events, wish.workers)


def words_of(before: int, after: int, reason: str, by: str = "spec.workerReplicas") -> str:
    """`reason` is empty where it was not the autoscaler."""
    if not reason:
        return f"scaled {before} → {after} workers by {by}"
    return f"{'shrunk' if after < before else 'grown'} {before} → {after} workers: {reason}"


def _workers_of(plan: Plan) -> int | None:
    return next((role.replicas for role in plan.roles if role.replica_type == WORKER), None)


def _followed(look: Look, old: ScalingStatus, wanted: int) -> ScalingStatus:
    """Who asked for this many workers is known by the wish on record."""
    new = old
    if old.workers != wanted:
        reason = old.target_reason if old.target == wanted else ""
        new = replace(old, workers=wanted, before=old.workers, reason=reason)
    if look.plan.resize != BY_RESTART:
        return new
    members = workers_to_know(look.plan, look.views, _seated(look))
    return new if members == new.members else next_generation(new, members)


def _seated(look: Look) -> Sequence[str] | None:
    return list(look.gate.seats) if look.gate is not None and look.gate.is_open else None


def _events(look: Look, old: ScalingStatus, wanted: int) -> Iterator[Emit]:
    own = old.target == wanted
    yield Emit(
        NORMAL,
        reasons.RESIZED,
        words_of(old.workers, wanted, old.target_reason if own else "", look.plan.workers_field),
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


def _wish(look: Look, wanted: int) -> Wish | None:
    """What the gang scheduler has on record of a gang that runs, within the job's own bounds.

    Not one of before the Gang's spec was changed: whoever wrote the workers since then would be overruled by it.
    """
    gang, bounds = look.observed.gang, look.plan.bounds
    if look.plan.autoscaling == OFF or bounds is None or gang is None or look.gate is None or not look.gate.is_open:
        return None
    target = gang.status.target_members.get(WORKER_ROLE)
    count = _count_of(gang)
    is_old = gang.status.observed_generation < gang.metadata.generation
    if gang.status.phase != BOUND or target is None or target == count or is_old or _is_finishing(look):
        return None
    least, most = bounds
    workers = min(max(wanted + target - count, least), most)
    return Wish(workers, gang.status.target_reason or _NO_REASON) if workers != wanted else None


def _count_of(gang: Gang) -> int:
    return next((member.count for member in gang.spec.members if member.name == WORKER_ROLE), 0)


def _is_finishing(look: Look) -> bool:
    """A worker has done its part: the others will soon."""
    return any(view.state == replicas.SUCCEEDED for view in look.views if view.replica.role.replica_type == WORKER)


def _recommended(look: Look, wanted: int, wish: Wish | None, said: Conditions) -> Iterator[Emit]:
    """Once for each wish; and that there is none any more."""
    before = said.find(conditions.RESIZING)
    if wish is None or look.plan.autoscaling == ON or said.is_true(conditions.RESIZING):
        if before is not None and before.reason == reasons.RESIZE_RECOMMENDED:
            said.set(conditions.RESIZING, False, reasons.NONE_RECOMMENDED, "No other number of workers is recommended")
        return
    words = f"recommends {wanted} → {wish.workers} workers: {wish.reason}"
    if before is None or before.message != words:
        yield Emit(NORMAL, reasons.RESIZE_RECOMMENDED, words)
    said.set(conditions.RESIZING, False, reasons.RESIZE_RECOMMENDED, words)


def _say(look: Look, scaling: ScalingStatus, said: Conditions, *, changed: bool) -> None:
    turns_over = look.status.scaling is not None and scaling.generation != look.status.scaling.generation
    before = said.find(conditions.RESIZING)
    if changed:
        words = words_of(scaling.before, scaling.workers, scaling.reason, look.plan.workers_field)
        said.set(conditions.RESIZING, True, reasons.CHILDREN_FOLLOW, words)
    elif before is not None and said.is_true(conditions.RESIZING) and not turns_over and not _lags(look):
        said.set(conditions.RESIZING, False, reasons.RESIZED, before.message)


def _lags(look: Look) -> bool:
    """Do the children not follow yet?"""
    if look.plan.policy.suspend:
        # Nobody follows before it is resumed.
        return False
    if _is_turning(look):
        return True
    names = {view.replica.name for view in look.views if view.state != replicas.SUCCEEDED}
    return not names <= look.observed.jobs.keys()


def _is_turning(look: Look) -> bool:
    """Is somebody still on the way out?"""
    plan, jobs = look.plan, look.observed.jobs
    if any(name not in plan.by_name for name in jobs):
        return True
    if plan.resize != BY_RESTART:
        return False
    if look.gate is not None:
        return look.gate.is_open and not look.gate.is_clear
    return not turnover_of(plan, look.observed, look.views).is_clear
