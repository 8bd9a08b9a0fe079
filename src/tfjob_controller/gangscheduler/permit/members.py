"""The seats of one attempt of a gang: who is to come where, who has come, whose Binding is under way or done.

Plain state with no rules but one: the sets of members follow from the seats' stages. The rules stand in `machine`.
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
    WAITING = "waiting"
    BINDING = "binding"
    BOUND = "bound"
    REJECTED = "rejected"


class MemberStage(enum.Enum):
    ABSENT = "absent"
    WAITING = "waiting"
    BINDING = "binding"
    BOUND = "bound"


@dataclass(slots=True)
class MemberPermit:
    node: str
    """Where the placement wants the member; the pod's own node may differ once it is posted or bound."""
    stage: MemberStage = MemberStage.ABSENT
    pod: BindRequest | None = None
    bound_uid: str = ""
    call: int | None = None
    last_uid: str = ""
    """Of the pod that arrived last, so that its coming again is no progress."""
    is_pod_deleted: bool = False
    """The pod went away while its Binding was under way."""

    @property
    def uid(self) -> str:
        return self.pod.uid if self.pod is not None else self.bound_uid


@dataclass(slots=True)
class GangPermit:
    key: str
    attempt: int
    progress_at: float
    phase: PermitPhase = PermitPhase.WAITING
    nodes: dict[str, str] = field(default_factory=dict)
    """The placement as it was said last: it is said often, and changes rarely."""
    members: dict[str, MemberPermit] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    binding: set[str] = field(default_factory=set)
    unbound: set[str] = field(default_factory=set)
    is_reported: bool = False
    """AttemptRejected has been said."""

    def set_stage(self, member: str, stage: MemberStage) -> None:
        """Change a permit's stage, and the sets that follow from it."""
        self.members[member].stage = stage
        for members, belongs in (
            (self.absent, stage is MemberStage.ABSENT),
            (self.binding, stage is MemberStage.BINDING),
            (self.unbound, stage is not MemberStage.BOUND),
        ):
            (members.add if belongs else members.discard)(member)

    def reset(self, member: str) -> None:
        permit = self.members[member]
        permit.pod, permit.bound_uid, permit.call, permit.is_pod_deleted = None, "", None, False
        self.set_stage(member, MemberStage.ABSENT)

    def remove(self, member: str) -> None:
        del self.members[member]
        for members in (self.absent, self.binding, self.unbound):
            members.discard(member)

    @property
    def is_all_bound(self) -> bool:
        return bool(self.members) and not self.unbound

    @property
    def is_none_bound(self) -> bool:
        """No member is bound, and no Binding under way that might bind one."""
        return len(self.unbound) == len(self.members) and not self.binding

    def stage_of(self, member: str) -> MemberStage | None:
        permit = self.members.get(member)
        return permit.stage if permit is not None else None

    def start_bindings(self) -> PostBindings | None:
        """All that have arrived, in the order of the placement: they are under way from here on."""
        arrived = [
            (member, permit.pod)
            for member, permit in (self.members.items() if self.unbound - self.absent - self.binding else ())
            if permit.stage is MemberStage.WAITING and permit.pod is not None
        ]
        for member, _ in arrived:
            self.set_stage(member, MemberStage.BINDING)
        return PostBindings(self.key, self.attempt, tuple(arrived)) if arrived else None
