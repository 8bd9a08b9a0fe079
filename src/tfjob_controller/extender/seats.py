"""The seats of one attempt of a gang: who is to come where, who has come, whose Binding is under way or done.

Plain state with no rules but one: the sets of members follow from the seats' stages. The rules stand in `barrier`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tfjob_controller.extender.bindcalls import BindAll, PodToBind


class Phase(enum.StrEnum):
    GATHERING = "gathering"
    BINDING = "binding"
    BOUND = "bound"
    GIVEN_UP = "given up"


class Stage(enum.Enum):
    EMPTY = "empty"
    ARRIVED = "arrived"
    POSTED = "posted"
    BOUND = "bound"


@dataclass(slots=True)
class Seat:
    node: str
    """Where the placement wants the member; the pod's own node may differ once it is posted or bound."""
    stage: Stage = Stage.EMPTY
    pod: PodToBind | None = None
    bound_uid: str = ""
    call: int | None = None
    last_uid: str = ""
    """Of the pod that arrived last, so that its coming again is no progress."""
    is_lost: bool = False
    """The pod went away while its Binding was under way."""

    @property
    def uid(self) -> str:
        return self.pod.uid if self.pod is not None else self.bound_uid


@dataclass(slots=True)
class Seats:
    key: str
    attempt: int
    progress_at: float
    phase: Phase = Phase.GATHERING
    nodes: dict[str, str] = field(default_factory=dict)
    """The placement as it was said last: it is said often, and changes rarely."""
    seats: dict[str, Seat] = field(default_factory=dict)
    empty: set[str] = field(default_factory=set)
    posted: set[str] = field(default_factory=set)
    unbound: set[str] = field(default_factory=set)
    has_said: bool = False
    """GiveUp has been said."""

    def put(self, member: str, stage: Stage) -> None:
        """Change a seat's stage, and the sets that follow from it."""
        self.seats[member].stage = stage
        for members, belongs in (
            (self.empty, stage is Stage.EMPTY),
            (self.posted, stage is Stage.POSTED),
            (self.unbound, stage is not Stage.BOUND),
        ):
            (members.add if belongs else members.discard)(member)

    def vacate(self, member: str) -> None:
        seat = self.seats[member]
        seat.pod, seat.bound_uid, seat.call, seat.is_lost = None, "", None, False
        self.put(member, Stage.EMPTY)

    def remove(self, member: str) -> None:
        del self.seats[member]
        for members in (self.empty, self.posted, self.unbound):
            members.discard(member)

    @property
    def is_all_bound(self) -> bool:
        return bool(self.seats) and not self.unbound

    @property
    def is_none_bound(self) -> bool:
        """No member is bound, and no Binding under way that might bind one."""
        return len(self.unbound) == len(self.seats) and not self.posted

    def stage_of(self, member: str) -> Stage | None:
        seat = self.seats.get(member)
        return seat.stage if seat is not None else None

    def post(self) -> BindAll | None:
        """All that have arrived, in the order of the placement: they are under way from here on."""
        arrived = [
            (member, seat.pod)
            for member, seat in (self.seats.items() if self.unbound - self.empty - self.posted else ())
            if seat.stage is Stage.ARRIVED and seat.pod is not None
        ]
        for member, _ in arrived:
            self.put(member, Stage.POSTED)
        return BindAll(self.key, self.attempt, tuple(arrived)) if arrived else None
