"""Messages that say why a gang is pending, and the missing resources in numbers.

Equal situations have equal messages: none contains the time. Numbers count whole pods that would fit rather than free
amounts, so that they do not change with every small pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tfjob_controller.api.common.quantity import PODS, quantity_of
from tfjob_controller.api.gang import Missing
from tfjob_controller.scheduling.estimates import PodSetEstimate
from tfjob_controller.scheduling.nodefilter import NodeFilter
from tfjob_controller.scheduling.podsets import PodSet

BACKING_OFF = "backs off after a failed attempt"
HELD_BACK = "there may be room, but gangs that have waited longer come first"

_TIMES = "\u00d7"


def _insufficient(
    pod_sets: Sequence[PodSet], estimates: Sequence[PodSetEstimate]
) -> list[tuple[PodSet, PodSetEstimate]]:
    """Returns the pod sets of which too few pods would fit."""
    return [
        (each, estimate) for each, estimate in zip(pod_sets, estimates, strict=True) if estimate.count < each.min_count
    ]


def pending_message(
    pod_sets: Sequence[PodSet], estimates: Sequence[PodSetEstimate], rejections: Callable[[NodeFilter], str]
) -> str:
    """`needs 4 x nvidia.com/gpu: 1; 3 nodes have room, 1 more needed`"""
    short = _insufficient(pod_sets, estimates)
    if short:
        return "; ".join(_shortage(pod_set, estimate, rejections) for pod_set, estimate in short)
    return f"needs {_all(pod_sets)}; there is room for each kind of pod, but not for all together"


def exceeds_capacity_message(pod_sets: Sequence[PodSet]) -> str:
    """Returns the message for a gang that would not fit an empty cluster."""
    return f"needs {_all(pod_sets)}; that is more than the whole cluster has"


def missing_resources(pod_sets: Sequence[PodSet], estimates: Sequence[PodSetEstimate]) -> tuple[Missing, ...]:
    """Returns by resource what the pod sets that do not fit request, and how much of it they could get."""
    requested: Counter[str] = Counter()
    available: Counter[str] = Counter()
    for pod_set, estimate in _insufficient(pod_sets, estimates):
        for name, amount, fits in _scarce(pod_set, estimate):
            requested[name] += pod_set.min_count * amount
            available[name] += fits * amount
    return tuple(
        Missing(name, quantity_of(name, requested[name]), quantity_of(name, available[name]))
        for name in sorted(requested)
    )


def _scarce(pod_set: PodSet, estimate: PodSetEstimate) -> list[tuple[str, int, int]]:
    """The resources of which there is too little; all, if each alone would do but no node has all."""
    named = [(name, amount, fits) for (name, amount), fits in zip(pod_set.requests, estimate.by_resource, strict=True)]
    scarce = [each for each in named if each[2] < pod_set.min_count]
    return scarce or [(name, amount, estimate.count) for name, amount, _ in named if name != PODS]


def _shortage(pod_set: PodSet, estimate: PodSetEstimate, rejections: Callable[[NodeFilter], str]) -> str:
    needs = f"needs {_pods(pod_set)}"
    if not estimate.nodes:
        because = rejections(pod_set.node_filter)
        return f"{needs}; no node has room" + (f" ({because})" if because else "")
    nodes = "1 node has room" if estimate.nodes == 1 else f"{estimate.nodes} nodes have room"
    if estimate.count > estimate.nodes:
        nodes += f" for {estimate.count}"
    return f"{needs}; {nodes}, {pod_set.min_count - estimate.count} more needed"


def _all(pod_sets: Sequence[PodSet]) -> str:
    return " and ".join(_pods(each) for each in pod_sets if each.min_count)


def _pods(pod_set: PodSet) -> str:
    amounts = [f"{name}: {quantity_of(name, amount)}" for name, amount in _sorted_requests(pod_set) if name != PODS]
    return f"{pod_set.min_count} {_TIMES} {', '.join(amounts) or pod_set.name}"


def _sorted_requests(pod_set: PodSet) -> list[tuple[str, int]]:
    """Extended resources first: they are mostly what is missing."""
    return sorted(pod_set.requests, key=lambda each: ("/" not in each[0], each[0]))
