"""Why a gang waits, in words for people and in numbers. Equal situations have equal words: nothing here tells the time.

Numbers are in whole pods' worth: what a gang could use, not what happens to be free, so that they do not change with
every small pod that comes and goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from tfjob_controller.api.gang import Missing
from tfjob_controller.api.quantity import PODS, quantity_of
from tfjob_controller.scheduling.demand import Demand
from tfjob_controller.scheduling.matching import Constraint
from tfjob_controller.scheduling.outlook import Tally
from tfjob_controller.scheduling.rooms import Room

RESTING = "rests after an attempt that failed, and is tried again"
HELD_BACK = "there may be room, but gangs that have waited longer come first"

_TIMES = "\u00d7"


def lacking(demands: Sequence[Demand], tallies: Sequence[Tally]) -> list[tuple[Demand, Tally]]:
    """The kinds of pods of which too few would fit."""
    return [(each, tally) for each, tally in zip(demands, tallies, strict=True) if tally.fits < each.least]


def waits(demands: Sequence[Demand], tallies: Sequence[Tally], unsuited: Callable[[Constraint], str]) -> str:
    """`needs 4 x nvidia.com/gpu: 1; 3 nodes have room, 1 more needed`."""
    short = lacking(demands, tallies)
    if short:
        return "; ".join(_lack(demand, tally, unsuited) for demand, tally in short)
    return f"needs {_all(demands)}; there is room for each kind of pod, but not for all together"


def exceeds(demands: Sequence[Demand]) -> str:
    """Words for a gang that could not fit an empty cluster."""
    return f"needs {_all(demands)}; that is more than the whole cluster has"


def missing(demands: Sequence[Demand], tallies: Sequence[Tally]) -> tuple[Missing, ...]:
    """What is lacking, by resource: what the kinds of pods that do not fit ask for, and what they could get."""
    requested: Counter[str] = Counter()
    available: Counter[str] = Counter()
    for demand, tally in lacking(demands, tallies):
        for name, amount, fits in _scarce(demand, tally):
            requested[name] += demand.least * amount
            available[name] += fits * amount
    return tuple(
        Missing(name, quantity_of(name, requested[name]), quantity_of(name, available[name]))
        for name in sorted(requested)
    )


def _scarce(demand: Demand, tally: Tally) -> list[tuple[str, int, int]]:
    """The resources that stand in the way; all of them, if each would do but never all on one node."""
    named = [(name, amount, fits) for (name, amount), fits in zip(demand.amounts, tally.by_resource, strict=True)]
    scarce = [each for each in named if each[2] < demand.least]
    return scarce or [(name, amount, tally.fits) for name, amount, _ in named if name != PODS]


def _lack(demand: Demand, tally: Tally, unsuited: Callable[[Constraint], str]) -> str:
    needs = f"needs {_kind(demand)}"
    if not tally.nodes:
        because = unsuited(demand.constraint)
        return f"{needs}; no node has room" + (f" ({because})" if because else "")
    nodes = "1 node has room" if tally.nodes == 1 else f"{tally.nodes} nodes have room"
    if tally.fits > tally.nodes:
        nodes += f" for {tally.fits}"
    return f"{needs}; {nodes}, {demand.least - tally.fits} more needed"


def objections(constraint: Constraint, rooms: Iterable[Room]) -> str:
    """How many nodes do not suit and why: `2 not ready, 3 unschedulable`."""
    found = Counter(constraint.objection(room.node) for room in rooms)
    return ", ".join(f"{count} {words}" for words, count in sorted(found.items()) if words)


def _all(demands: Sequence[Demand]) -> str:
    return " and ".join(_kind(each) for each in demands if each.least)


def _kind(demand: Demand) -> str:
    amounts = [f"{name}: {quantity_of(name, amount)}" for name, amount in _valued(demand) if name != PODS]
    return f"{demand.least} {_TIMES} {', '.join(amounts) or demand.name}"


def _valued(demand: Demand) -> list[tuple[str, int]]:
    """Extended resources first: they are what is mostly lacking."""
    return sorted(demand.amounts, key=lambda each: ("/" not in each[0], each[0]))
