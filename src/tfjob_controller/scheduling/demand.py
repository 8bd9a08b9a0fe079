"""A gang's members, compiled for placing: what each kind of pod takes, what it asks of a node, how many there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfjob_controller.api.gang import GangSpec, Member
from tfjob_controller.api.podrequests import Amounts, amounts_of
from tfjob_controller.scheduling.matching import Constraint, constraint_of


@dataclass(frozen=True, slots=True)
class Demand:
    """Like pods: between `least` and `count` of them, each taking `amounts`."""

    name: str
    count: int
    least: int
    amounts: tuple[tuple[str, int], ...]
    constraint: Constraint

    def reduced_to(self, count: int) -> Demand:
        return replace(self, count=count, least=min(self.least, count))

    def capacity(self, free: Amounts) -> int:
        """How many of these pods this room can take."""
        # A plain loop: nothing here runs more often.
        least = -1
        for name, amount in self.amounts:
            fits = free.get(name, 0) // amount
            if fits <= 0:
                return 0
            if least < 0 or fits < least:
                least = fits
        return least


def demand_of(member: Member, least: int | None = None) -> Demand:
    """The demand of one member of a Gang; a quantity that is none raises ValueError."""
    count = max(member.count, 0)
    amounts = tuple(sorted(amounts_of(member).items()))
    least = count if least is None else max(0, min(least, count))
    return Demand(member.name, count, least, amounts, constraint_of(member))


def demands_of(spec: GangSpec) -> tuple[Demand, ...]:
    """The demands of a gang, in the order of its members; a quantity that is none raises ValueError."""
    return tuple(demand_of(member, spec.min_members.get(member.name)) for member in spec.members)


def requests_by_member(demands: Iterable[Demand]) -> dict[str, Mapping[str, int]]:
    """What a pod of each member takes: `ClusterView.reserve` wants it so."""
    return {each.name: dict(each.amounts) for each in demands}


def total_of(demands: Sequence[Demand], counts: Sequence[int]) -> dict[str, int]:
    """What so many of each take together."""
    total: dict[str, int] = {}
    for demand, count in zip(demands, counts, strict=True):
        for name, amount in demand.amounts:
            total[name] = total.get(name, 0) + amount * count
    return total
