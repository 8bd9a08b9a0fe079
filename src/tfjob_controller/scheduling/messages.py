"""Why a gang waits, in words for people and in numbers. Equal situations have equal words: nothing here tells the time.

Numbers are in whole pods' worth: what a gang could use, not what happens to be free, so that they do not change with
every small pod that comes and goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tfjob_controller.api.gang import Missing
from tfjob_controller.api.quantity import PODS, quantity_of
from tfjob_controller.scheduling.estimates import PodSetEstimate
from tfjob_controller.scheduling.nodefilter import NodeFilter
from tfjob_controller.scheduling.podsets import PodSet

BACKING_OFF = "rests after an attempt that failed, and is tried again"
HELD_BACK = "there may be room, but gangs that have waited longer come first"

_TIMES = "\u00d7"


def lacking(demands: Sequence[PodSet], tallies: Sequence[PodSetEstimate]) -> list[tuple[PodSet, PodSetEstimate]]:
    """The kinds of pods of which too few would fit."""
    return [(each, tally) for each, tally in zip(demands, tallies, strict=True) if tally.count < each.min_count]


def pending_message(
    demands: Sequence[PodSet], tallies: Sequence[PodSetEstimate], unsuited: Callable[[NodeFilter], str]
) -> str:
    """`needs 4 x nvidia.com/gpu: 1; 3 nodes have room, 1 more needed`."""
    short = lacking(demands, tallies)
    if short:
        return "; ".join(_lack(demand, tally, unsuited) for demand, tally in short)
    return f"needs {_all(demands)}; there is room for each kind of pod, but not for all together"


def exceeds_capacity_message(demands: Sequence[PodSet]) -> str:
    """Words for a gang that could not fit an empty cluster."""
    return f"needs {_all(demands)}; that is more than the whole cluster has"


def missing_resources(demands: Sequence[PodSet], tallies: Sequence[PodSetEstimate]) -> tuple[Missing, ...]:
    """What is lacking, by resource: what the kinds of pods that do not fit ask for, and what they could get."""
    requested: Counter[str] = Counter()
    available: Counter[str] = Counter()
    for demand, tally in lacking(demands, tallies):
        for name, amount, fits in _scarce(demand, tally):
            requested[name] += demand.min_count * amount
            available[name] += fits * amount
    return tuple(
        Missing(name, quantity_of(name, requested[name]), quantity_of(name, available[name]))
        for name in sorted(requested)
    )


def _scarce(demand: PodSet, tally: PodSetEstimate) -> list[tuple[str, int, int]]:
    """The resources that stand in the way; all of them, if each would do but never all on one node."""
    named = [(name, amount, fits) for (name, amount), fits in zip(demand.requests, tally.by_resource, strict=True)]
    scarce = [each for each in named if each[2] < demand.min_count]
    return scarce or [(name, amount, tally.count) for name, amount, _ in named if name != PODS]


def _lack(demand: PodSet, tally: PodSetEstimate, unsuited: Callable[[NodeFilter], str]) -> str:
    needs = f"needs {_kind(demand)}"
    if not tally.nodes:
        because = unsuited(demand.node_filter)
        return f"{needs}; no node has room" + (f" ({because})" if because else "")
    nodes = "1 node has room" if tally.nodes == 1 else f"{tally.nodes} nodes have room"
    if tally.count > tally.nodes:
        nodes += f" for {tally.count}"
    return f"{needs}; {nodes}, {demand.min_count - tally.count} more needed"


def _all(demands: Sequence[PodSet]) -> str:
    return " and ".join(_kind(each) for each in demands if each.min_count)


def _kind(demand: PodSet) -> str:
    amounts = [f"{name}: {quantity_of(name, amount)}" for name, amount in _valued(demand) if name != PODS]
    return f"{demand.min_count} {_TIMES} {', '.join(amounts) or demand.name}"


def _valued(demand: PodSet) -> list[tuple[str, int]]:
    """Extended resources first: they are what is mostly lacking."""
    return sorted(demand.requests, key=lambda each: ("/" not in each[0], each[0]))
