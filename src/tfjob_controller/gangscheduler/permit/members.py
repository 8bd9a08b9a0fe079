"""The seats of one attempt of a gang: who is to come where, who has come, whose Binding is under way or done.

Plain state with no rules but one: the sets of members follow from the seats' stages. The rules stand in `barrier`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tfjob_controller.gangscheduler.bindrequests import BindRequest


@dataclass(frozen=True, slots=True)
class PostBindings:
    """Post a Binding for each of these, now, and say how each ended (`Barrier.result`)."""

    gang: str
    attempt: int
    pods: tuple[tuple[str, BindRequest], ...]
    """Member and pod."""


@dataclass(frozen=True, slots=True)
class BindResponse:
    """BindResponse a call; no error means that its pod is bound."""

    call: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class GangBound:
    """Every placed member is bound, for the first time in this attempt."""

    gang: str
    attempt: int


@dataclass(frozen=True, slots=True)
class AttemptRejected:
    """The attempt is over: the gang goes back to Waiting, and its pods must go."""

    gang: str
    attempt: int


PermitOutput = PostBindings | BindResponse | GangBound | AttemptRejected


class PermitPhase(enum.StrEnum):
    GATHERING = "gathering"
    BINDING = "binding"
    BOUND = "bound"
    GIVEN_UP = "given up"


class MemberStage(enum.Enum):
    EMPTY = "empty"
    ARRIVED = "arrived"
    POSTED = "posted"
    BOUND = "bound"


@dataclass(slots=True)
class MemberPermit:
    node: str
    """Where the placement wants the member; the pod's own node may differ once it is posted or bound."""
    stage: MemberStage = MemberStage.EMPTY
    pod: BindRequest | None = None
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
class GangPermit:
    key: str
    attempt: int
    progress_at: float
    phase: PermitPhase = PermitPhase.GATHERING
    nodes: dict[str, str] = field(default_factory=dict)
    """The placement as it was said last: it is said often, and changes rarely."""
    seats: dict[str, MemberPermit] = field(default_factory=dict)
    empty: set[str] = field(default_factory=set)
    posted: set[str] = field(default_factory=set)
    unbound: set[str] = field(default_factory=set)
    has_said: bool = False
    """AttemptRejected has been said."""

    def put(self, member: str, stage: MemberStage) -> None:
        """Change a seat's stage, and the sets that follow from it."""
        self.seats[member].stage = stage
        for members, belongs in (
            (self.empty, stage is MemberStage.EMPTY),
            (self.posted, stage is MemberStage.POSTED),
            (self.unbound, stage is not MemberStage.BOUND),
        ):
            (members.add if belongs else members.discard)(member)

    def vacate(self, member: str) -> None:
        seat = self.seats[member]
        seat.pod, seat.bound_uid, seat.call, seat.is_lost = None, "", None, False
        self.put(member, MemberStage.EMPTY)

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

    def stage_of(self, member: str) -> MemberStage | None:
        seat = self.seats.get(member)
        return seat.stage if seat is not None else None

    def post(self) -> PostBindings | None:
        """All that have arrived, in the order of the placement: they are under way from here on."""
        arrived = [
            (member, seat.pod)
            for member, seat in (self.seats.items() if self.unbound - self.empty - self.posted else ())
            if seat.stage is MemberStage.ARRIVED and seat.pod is not None
        ]
        for member, _ in arrived:
            self.put(member, MemberStage.POSTED)
        return PostBindings(self.key, self.attempt, tuple(arrived)) if arrived else None
