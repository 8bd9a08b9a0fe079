"""The state of one attempt in Permit: each member's stage, and the outputs of the state machine.

It contains no rules but that the sets of members follow from their stages; the rules are in `machine`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tfjob_controller.gangscheduler.bindrequests import BindRequest


@dataclass(frozen=True, slots=True)
class PostBindings:
    """Post a Binding for each pod now, and report each outcome (`PermitMachine.record_result`)."""

    gang: str
    attempt: int
    pods: tuple[tuple[str, BindRequest], ...]
    """Member and pod."""


@dataclass(frozen=True, slots=True)
class BindResponse:
    """Answer a bind call; without an error the pod is bound."""

    call: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class GangBound:
    """Every placed member is bound, for the first time in this attempt."""

    gang: str
    attempt: int


@dataclass(frozen=True, slots=True)
class AttemptRejected:
    """The attempt is over: the gang returns to the queue, and its pods are to be deleted."""

    gang: str
    attempt: int


PermitOutput = PostBindings | BindResponse | GangBound | AttemptRejected


class PermitPhase(enum.StrEnum):
    """A gang's phase in Permit."""

    WAITING = "waiting"
    BINDING = "binding"
    BOUND = "bound"
    REJECTED = "rejected"


class MemberStage(enum.Enum):
    """A member's stage in Permit."""

    ABSENT = "absent"
    WAITING = "waiting"
    BINDING = "binding"
    BOUND = "bound"


@dataclass(slots=True)
class MemberPermit:
    """One member's stage, its pod, and the bind call that waits for it."""

    node: str
    """The member's node in the placement; the pod's node may differ once its Binding is posted."""
    stage: MemberStage = MemberStage.ABSENT
    pod: BindRequest | None = None
    bound_uid: str = ""
    call: int | None = None
    is_created_counted: bool = False
    """A pod of the member was created as the gang requires, and counted as progress. No later pod of it counts."""
    is_call_counted: bool = False
    """The same for the first call of a member whose pod counted."""
    is_bound_counted: bool = False
    is_pod_deleted: bool = False
    """The pod was deleted while its Binding was in flight."""

    @property
    def uid(self) -> str:
        return self.pod.uid if self.pod is not None else self.bound_uid


@dataclass(slots=True)
class GangPermit:
    """One attempt of a gang."""

    key: str
    attempt: int
    admitted_at: float
    progress_at: float
    phase: PermitPhase = PermitPhase.WAITING
    nodes: dict[str, str] = field(default_factory=dict)
    """The last placement, for comparison: it is set often and changes rarely."""
    members: dict[str, MemberPermit] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    binding: set[str] = field(default_factory=set)
    unbound: set[str] = field(default_factory=set)
    is_reported: bool = False
    """`AttemptRejected` was reported."""

    def set_stage(self, member: str, stage: MemberStage) -> None:
        """Change a member's stage and the sets that follow from it."""
        self.members[member].stage = stage
        for members, belongs in (
            (self.absent, stage is MemberStage.ABSENT),
            (self.waiting, stage is MemberStage.WAITING),
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
        for members in (self.absent, self.waiting, self.binding, self.unbound):
            members.discard(member)

    @property
    def is_all_bound(self) -> bool:
        return bool(self.members) and not self.unbound

    @property
    def is_none_bound(self) -> bool:
        """Reports whether no member is bound and no Binding is in flight that might bind one."""
        return len(self.unbound) == len(self.members) and not self.binding

    def start_bindings(self) -> PostBindings | None:
        """Move all waiting members to BINDING and return them in the order of the placement."""
        if not self.waiting:
            return None
        waiting = [
            (member, permit.pod)
            for member, permit in self.members.items()
            if permit.stage is MemberStage.WAITING and permit.pod is not None
        ]
        for member, _ in waiting:
            self.set_stage(member, MemberStage.BINDING)
        return PostBindings(self.key, self.attempt, tuple(waiting)) if waiting else None
