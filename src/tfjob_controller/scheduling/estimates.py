"""Estimates of how much of a gang fits, so that hopeless placements are not tried.

`CapacityEstimate` counts for each pod set how many of its pods fit now if there were no others, on how many nodes, and
how many if only one resource counted. That is an upper bound: where it is below a gang's minimum, no placement needs to
be tried. It is updated with the changed nodes only, which costs microseconds per event for each of thousands of pending
gangs.

`HypotheticalCapacity` answers for a cluster without any pods, or without gangs. It decides which gangs can never start,
and for which it is useful to hold capacity back. Nodes count here also while they are not ready or cordoned, since they
may come back. Groups of nodes are cached per set of filters until nodes change, since thousands of gangs have the same
filters.

The messages of pending gangs count whole pods that would fit rather than free amounts, so that they do not change with
every small pod. Equal situations have equal messages: none contains the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tfjob_controller.api.common.quantity import PODS, quantity_of
from tfjob_controller.api.gang import Missing
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.nodefilter import NodeFilter
from tfjob_controller.scheduling.nodeinfo import NodeInfo, NodeInfoChange
from tfjob_controller.scheduling.packing import NodeGroup, capacities, group_nodes, pack
from tfjob_controller.scheduling.podsets import PodSet

_TIMES = "\u00d7"


@dataclass(slots=True)
class PodSetEstimate:
    """The estimate of one pod set; `by_resource` is in the order of its requests."""

    count: int
    nodes: int
    by_resource: list[int]


class CapacityEstimate:
    """The estimates of one gang shape.

    `is_sufficient`: the minimum of every pod set would fit, each pod set alone. `has_grown` is set when capacity is
    freed; the reader clears it.
    """

    def __init__(self, view: ClusterView, pod_sets: Sequence[PodSet]) -> None:
        self._view = view
        self._pod_sets = pod_sets
        self._version = view.version
        self.has_grown = True
        self.estimates = [self._count_all(pod_set) for pod_set in pod_sets]
        self.is_sufficient = not _insufficient(pod_sets, self.estimates)

    def refresh(self) -> None:
        """Applies the changes of the view."""
        view = self._view
        if self._version == view.version:
            return
        changes = view.changes_since(self._version)
        self._version = view.version
        if changes is None or len(changes) > len(view.node_infos):
            self.estimates = [self._count_all(each) for each in self._pod_sets]
            self.has_grown = True
        else:
            for pod_set, estimate in zip(self._pod_sets, self.estimates, strict=True):
                self._adjust(pod_set, estimate, changes)
        self.is_sufficient = not _insufficient(self._pod_sets, self.estimates)

    def fingerprint(self) -> tuple[int, ...]:
        """Returns all numbers: while they are equal, so is the message."""
        return tuple(
            number for estimate in self.estimates for number in (estimate.count, estimate.nodes, *estimate.by_resource)
        )

    def _count_all(self, pod_set: PodSet) -> PodSetEstimate:
        estimate = PodSetEstimate(0, 0, [0] * len(pod_set.requests))
        for group in self._view.candidates(pod_set.node_filter).groups.values():
            _count(estimate, pod_set, next(iter(group.values())), len(group))
        return estimate

    def _adjust(self, pod_set: PodSet, estimate: PodSetEstimate, changes: Iterable[NodeInfoChange]) -> None:
        rejection, node_filter = self._view.verdicts.rejection, pod_set.node_filter
        for change in changes:
            before, after = change.before, change.after
            was_accepted = before is not None and not rejection(node_filter, before.node)
            if before is not None and was_accepted:
                _count(estimate, pod_set, before, -1)
            is_same_node = before is not None and after is not None and before.node is after.node
            if after is not None and (was_accepted if is_same_node else not rejection(node_filter, after.node)):
                _count(estimate, pod_set, after, 1)
                self.has_grown = self.has_grown or _has_grown(before, after)


def _count(estimate: PodSetEstimate, pod_set: PodSet, info: NodeInfo, nodes: int) -> None:
    free = info.free
    least = -1
    for index, (name, amount) in enumerate(pod_set.requests):
        fits = max(free.get(name, 0) // amount, 0)
        estimate.by_resource[index] += fits * nodes
        least = fits if least < 0 else min(least, fits)
    if least > 0:
        estimate.count += least * nodes
        estimate.nodes += nodes


def _has_grown(before: NodeInfo | None, after: NodeInfo) -> bool:
    """Whether anything could fit now that did not fit before."""
    if before is None or before.node is not after.node:
        return True
    return any(value > before.free.get(name, 0) for name, value in after.free.items())


_Filters = tuple[NodeFilter, ...]
# The maximum age of the snapshot without gangs. It takes tens of milliseconds on thousands of nodes, and a few pods
# more or less should not change which gang holds capacity back.
_MAX_SNAPSHOT_AGE = timedelta(seconds=10)
# How many gangs are evaluated against it in one cycle; the others keep their previous result.
_EVALUATIONS_PER_CYCLE = 1


class HypotheticalCapacity:
    """Estimates over one view; threads as there.

    `snapshot` is the number of the snapshot without gangs; answers from an older one are outdated.
    """

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        # The nodes' version of the view for which the next two hold.
        self._nodes_version = -1
        self._empty: dict[_Filters, list[NodeGroup]] = {}
        self._rejections: dict[NodeFilter, str] = {}
        self._without_gangs: dict[_Filters, list[NodeGroup]] = {}
        self.snapshot = 0
        self._snapshot_of: tuple[int, datetime] | None = None
        self._evaluations_left = 0

    def start_cycle(self, now: datetime) -> None:
        """Starts a scheduling cycle: renews the snapshot without gangs if it is outdated."""
        self._evaluations_left = _EVALUATIONS_PER_CYCLE
        known = self._snapshot_of
        if known is None or known[0] != self._view.nodes_version or abs(now - known[1]) > _MAX_SNAPSHOT_AGE:
            self._snapshot_of = self._view.nodes_version, now
            self.snapshot += 1
            self._without_gangs = {}

    def groups_when_empty(self, pod_sets: Sequence[PodSet]) -> Sequence[NodeGroup]:
        """Returns the nodes with all their allocatable capacity."""
        self._forget_old_nodes()
        return self._groups(self._empty, pod_sets, lambda info: info.allocatable)

    def fits_empty(self, pod_sets: Sequence[PodSet]) -> bool:
        """Whether the minimum of the gang would fit an empty cluster."""
        return _fits(self.groups_when_empty(pod_sets), pod_sets)

    def rejections(self, node_filter: NodeFilter) -> str:
        """Returns how many nodes are rejected now and why: `2 not ready, 3 unschedulable`."""
        self._forget_old_nodes()
        rejection = self._view.verdicts.rejection
        if node_filter not in self._rejections:
            counts = Counter(rejection(node_filter, info.node) for info in self._view.node_infos.values())
            self._rejections[node_filter] = ", ".join(
                f"{count} {reason}" for reason, count in sorted(counts.items()) if reason
            )
        return self._rejections[node_filter]

    def _forget_old_nodes(self) -> None:
        if self._nodes_version != self._view.nodes_version:
            self._nodes_version, self._empty, self._rejections = self._view.nodes_version, {}, {}

    def may_evaluate(self) -> bool:
        """Whether one more gang may be evaluated in this cycle."""
        self._evaluations_left -= 1
        return self._evaluations_left >= 0

    def fits_without_gangs(self, pod_sets: Sequence[PodSet]) -> bool:
        """Whether it would fit if all gangs were deleted and the other pods stayed."""
        view = self._view
        return _fits(
            self._groups(self._without_gangs, pod_sets, lambda info: view.free_without_gangs(info.name)), pod_sets
        )

    def _groups(
        self,
        cache: dict[_Filters, list[NodeGroup]],
        pod_sets: Sequence[PodSet],
        free: Callable[[NodeInfo], Mapping[str, int]],
    ) -> list[NodeGroup]:
        filters = tuple(pod_set.node_filter for pod_set in pod_sets)
        could_accept = self._view.verdicts.could_accept
        if filters not in cache:
            masked = (
                (tuple(could_accept(node_filter, info.node) for node_filter in filters), info)
                for info in self._view.node_infos.values()
            )
            cache[filters] = group_nodes((accepts, free(info), info.name) for accepts, info in masked if any(accepts))
        return cache[filters]


def _fits(groups: Sequence[NodeGroup], pod_sets: Sequence[PodSet]) -> bool:
    most = capacities(groups, pod_sets)
    if any(count < each.min_count for count, each in zip(most, pod_sets, strict=True)):
        return False
    return (
        len(pod_sets) == 1 or pack(groups, [pod_set.with_count(pod_set.min_count) for pod_set in pod_sets]) is not None
    )


# Messages


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
    """Returns a message such as `needs 4 x nvidia.com/gpu: 1; 3 nodes have capacity, 1 more needed`."""
    short = _insufficient(pod_sets, estimates)
    if short:
        return "; ".join(_shortage(pod_set, estimate, rejections) for pod_set, estimate in short)
    return f"needs {_all(pod_sets)}; there is capacity for each kind of pod, but not for all together"


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
    """Returns the scarce resources; all of them if each is sufficient alone, but no node has enough of all."""
    named = [(name, amount, fits) for (name, amount), fits in zip(pod_set.requests, estimate.by_resource, strict=True)]
    scarce = [each for each in named if each[2] < pod_set.min_count]
    return scarce or [(name, amount, estimate.count) for name, amount, _ in named if name != PODS]


def _shortage(pod_set: PodSet, estimate: PodSetEstimate, rejections: Callable[[NodeFilter], str]) -> str:
    needs = f"needs {_pods(pod_set)}"
    if not estimate.nodes:
        because = rejections(pod_set.node_filter)
        return f"{needs}; no node has capacity" + (f" ({because})" if because else "")
    nodes = "1 node has capacity" if estimate.nodes == 1 else f"{estimate.nodes} nodes have capacity"
    if estimate.count > estimate.nodes:
        nodes += f" for {estimate.count}"
    return f"{needs}; {nodes}, {pod_set.min_count - estimate.count} more needed"


def _all(pod_sets: Sequence[PodSet]) -> str:
    return " and ".join(_pods(pod_set) for pod_set in pod_sets if pod_set.min_count)


def _pods(pod_set: PodSet) -> str:
    # Extended resources first: they are mostly what is missing.
    requests = sorted(pod_set.requests, key=lambda each: ("/" not in each[0], each[0]))
    amounts = [f"{name}: {quantity_of(name, amount)}" for name, amount in requests if name != PODS]
    return f"{pod_set.min_count} {_TIMES} {', '.join(amounts) or pod_set.name}"
