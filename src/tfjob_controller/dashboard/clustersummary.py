"""The figures above the list of jobs: GPUs that are used, reserved and free, by whom, and what waits for them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tfjob_controller.api.common.accelerators import is_accelerator
from tfjob_controller.api.common.quantity import CPU, amount_from, rounded_quantity
from tfjob_controller.client.gangqueue import GangQueue, WaitingGang
from tfjob_controller.client.usage import ClusterUsage, NodeUsage

# Resources and namespaces that are shown; more are counted.
_MAX_RESOURCES, _MAX_HOLDERS = 3, 4
# What nodes have, what of that is free, and what is reserved for gangs.
Totals: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ResourceSummary:
    """One resource, in thousandths of CPUs or in devices. Without the right to list nodes `total` is None."""

    name: str
    used: int
    reserved: int = 0
    total: int | None = None

    @property
    def free(self) -> int:
        return max(0, (self.total or 0) - self.used - self.reserved)

    def percent(self, amount: int) -> float:
        return round(100 * amount / self.total, 1) if self.total else 0.0

    def text(self, amount: int) -> str:
        return rounded_quantity(self.name, amount)


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """`holders` are the namespaces whose jobs hold the most of the first resource; `more_holders` counts the others.

    `waiting` is the number of gangs that wait for capacity, None if it is not known, and `first` the next one.
    """

    resources: Sequence[ResourceSummary] = ()
    holders: Sequence[tuple[str, int]] = ()
    more_holders: int = 0
    waiting: int | None = None
    first: WaitingGang | None = None


def cluster_summary(usage: ClusterUsage, queue: GangQueue | None) -> ClusterSummary:
    """The summary of all accelerators; of CPUs in a cluster that has none. `queue` is None if it cannot be read."""
    held = _sum(holding.requests for holding in usage.holdings)
    totals = None if usage.nodes is None else node_totals(usage.nodes)
    names = _accelerators(totals or {}, held)
    resources = [_summary(name, totals, held) for name in names or [CPU]][:_MAX_RESOURCES]
    holders = Counter[str]()
    for holding in usage.holdings:
        holders[holding.namespace] += sum(amount_of(name, holding.requests) for name in names or [CPU])
    top = [(namespace, amount) for namespace, amount in holders.most_common() if amount]
    return ClusterSummary(
        resources,
        top[:_MAX_HOLDERS],
        max(0, len(top) - _MAX_HOLDERS),
        len(queue.waiting) if queue is not None else None,
        queue.waiting[0] if queue is not None and queue.waiting else None,
    )


def _accelerators(totals: Mapping[str, Totals], held: Mapping[str, int]) -> list[str]:
    """Those that nodes have, or that jobs hold; the most numerous first."""
    numbers = {name: totals[name][0] if name in totals else 0 for name in {*totals, *held} if is_accelerator(name)}
    names = [name for name, number in numbers.items() if number or held.get(name)]
    return sorted(names, key=lambda name: (-numbers[name], name))


def node_totals(nodes: Iterable[NodeUsage]) -> Mapping[str, Totals]:
    """The totals of each resource that the nodes have."""
    totals: dict[str, Totals] = {}
    for node in nodes:
        for name in node.allocatable:
            total, free, reserved = totals.get(name, (0, 0, 0))
            totals[name] = (
                total + amount_of(name, node.allocatable),
                free + amount_of(name, node.free),
                reserved + amount_of(name, node.reserved),
            )
    return totals


def amount_of(name: str, amounts: Mapping[str, str]) -> int:
    """The amount of a resource; 0 without it."""
    return amount_from(name, amounts.get(name) or "0")


def _summary(name: str, totals: Mapping[str, Totals] | None, held: Mapping[str, int]) -> ResourceSummary:
    if totals is None:
        return ResourceSummary(name, held.get(name, 0))
    total, free, reserved = totals.get(name, (0, 0, 0))
    return ResourceSummary(name, total - free - reserved, reserved, total)


def _sum(amounts: Iterable[Mapping[str, str]]) -> Counter[str]:
    total = Counter[str]()
    for each in amounts:
        for name in each:
            if name == CPU or is_accelerator(name):
                total[name] += amount_of(name, each)
    return total
