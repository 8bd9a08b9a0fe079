"""Permit as a state machine: all members of a gang are bound together, or none is. Pure.

Theory of operation. kube-scheduler calls `bind` for one pod after the other, and each call waits until every member of
its gang has called. For each member of its placement an admitted gang has a `MemberPermit`, with the member's node:

    ABSENT --request_bind--> WAITING --all present--> BINDING --record_result--> BOUND
      ^                         |                        |                         |
      +---- pod deleted, another node, Binding failed, `remove_pod` ---------------+

A call may end before its member is bound, because kube-scheduler's timeout is finite. The member stays WAITING while
its pod and node are the same, and the pod's next call replaces the first. The gang has a phase:

    WAITING     until no member is ABSENT. No Binding is posted before. Then, in one step,
    BINDING     all waiting members are posted. Once one is bound, the gang only goes forward: a member whose Binding
                failed calls again and is posted at once, alone. If all have failed, the gang is WAITING again.
    BOUND       every member is bound; `GangBound` reports it once. A later pod of a member (a replacement, or a member
                that was added) is posted at once.
    REJECTED    WAITING or BINDING made no progress for `bind_timeout_seconds`, or lasted for `admitted_timeout_seconds`
                as a whole: nothing more is posted. Once the Bindings in flight have ended, `AttemptRejected` reports it
                once, unless they bound the last members.

Progress is a pod that was created (`note_progress`: the caller checks that it matches the gang), the first call of
such a member, and its Binding; each counts once per member. Otherwise one pod that is deleted and recreated again and
again, or that can never be bound, would keep the capacity of a whole gang from all others. A gang of more than
`MEMBERS_PER_TIMEOUT` members has proportionally more time as a whole, since pods are created one by one.

A call whose Binding is in flight is answered with the outcome of that Binding and with nothing else, whatever happens
to its gang: after an earlier error kube-scheduler would give the capacity to another pod.

A call of a pod that is no member of this attempt gets a constant error at once. Only a new attempt or `forget` ends an
attempt; one that was rejected although it was bound continues when it is set as bound. `set_placement` with the same
attempt updates the placement: reassigned members become ABSENT (kube-scheduler must filter them again, because binding
a pod to another node than it assumed can make it exit), all others keep their state.

Every method takes the time and returns the outputs to carry out. Nothing here waits, reads a clock or does I/O; one
caller at a time. After a restart the caller reports which members are bound, and kube-scheduler calls for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfjob_controller.gangscheduler.bindrequests import (
    NOT_ADMITTED,
    NOT_COMPLETE,
    POD_DELETED,
    REJECTED,
    SECOND_POD,
    STOPPING,
    SUPERSEDED,
    UNKNOWN_MEMBER,
    WRONG_ATTEMPT,
    WRONG_NODE,
    BindRequest,
    GangMember,
)
from tfjob_controller.gangscheduler.permit.members import (
    AttemptRejected,
    BindResponse,
    GangBound,
    GangPermit,
    MemberPermit,
    MemberStage,
    PermitOutput,
    PermitPhase,
)

# Controllers create at least three pods per second: the default of `--admitted-timeout` suffices for this number.
MEMBERS_PER_TIMEOUT = 2000
_FIXED_STAGES = (MemberStage.BINDING, MemberStage.BOUND)


@dataclass(frozen=True, slots=True)
class PermitStatistics:
    """For metrics and the debug page."""

    gangs: Mapping[PermitPhase, int]
    calls: int
    """Waiting calls."""
    posted: int


class PermitMachine:
    """The state machine. Times are monotonic seconds."""

    def __init__(
        self, *, call_timeout_seconds: float, bind_timeout_seconds: float, admitted_timeout_seconds: float
    ) -> None:
        """A call waits for at most `call_timeout_seconds`, which must be less than kube-scheduler's httpTimeout."""
        self._call_timeout = call_timeout_seconds
        self._bind_timeout = bind_timeout_seconds
        self._admitted_timeout = admitted_timeout_seconds
        self.gangs: dict[str, GangPermit] = {}
        # The member and the time of expiry, in the order of the calls' start, which is also that of their expiry.
        self._calls: dict[int, tuple[MemberPermit, float]] = {}
        # Calls of removed gangs or members whose Bindings are in flight, by gang, attempt and pod uid.
        self._orphans: dict[tuple[str, int, str], int] = {}

    def set_placement(
        self,
        gang: str,
        attempt: int,
        nodes: Mapping[str, str],
        now: float,
        *,
        bound: Mapping[str, str] | None = None,
        was_bound: bool = False,
    ) -> list[PermitOutput]:
        """Set an attempt's placement (node by member), new or changed. Permit waits for the members in `nodes` only.

        `bound` has the uids of pods that are known to be bound, by member. `was_bound` means that the gang's phase is
        Bound, so that a missing pod is a replacement. An older attempt is ignored.
        """
        known = self.gangs.get(gang)
        if known is not None and known.attempt > attempt:
            return []
        outputs: list[PermitOutput] = []
        if known is None or known.attempt < attempt:
            outputs += self._remove_gang(known, WRONG_ATTEMPT)
            known = self.gangs[gang] = GangPermit(gang, attempt, now, now)
        if known.phase is PermitPhase.REJECTED and not was_bound:
            return outputs
        outputs += self._update_members(known, nodes)
        outputs += self._mark_bound(known, bound or {})
        self._update_phase(known, was_bound)
        return outputs + self._advance(known)

    def forget(self, gang: str, error: str = NOT_ADMITTED) -> list[PermitOutput]:
        """Forget a gang that is not admitted any more. Bindings in flight continue; their outcome is not reported."""
        return self._remove_gang(self.gangs.pop(gang, None), error)

    def request_bind(self, call: int, member: GangMember, pod: BindRequest, now: float) -> list[PermitOutput]:
        """Start a bind call with a new number. It is answered exactly once, by these outputs or later ones."""
        gang = self.gangs.get(member.gang)
        rejection = _rejection(gang, member, pod)
        if rejection or gang is None:
            return [BindResponse(call, rejection)]
        permit = gang.members[member.name]
        if permit.stage is MemberStage.BOUND:
            return [BindResponse(call)]
        outputs = self._respond(permit, SUPERSEDED)
        self._calls[call] = permit, now + self._call_timeout
        permit.call = call
        if permit.stage is MemberStage.ABSENT:
            permit.pod = pod
            if permit.is_created_counted and not permit.is_call_counted:
                permit.is_call_counted = True
                gang.progress_at = now
            gang.set_stage(member.name, MemberStage.WAITING)
        return outputs + self._advance(gang)

    def record_result(
        self, gang: str, attempt: int, member: str, uid: str, error: str, now: float
    ) -> list[PermitOutput]:
        """Record the outcome of a Binding; without an error the pod is bound. Ignored once the attempt is over."""
        known = self.gangs.get(gang)
        permit = known.members.get(member) if known is not None and known.attempt == attempt else None
        if known is None or permit is None or permit.stage is not MemberStage.BINDING or permit.uid != uid:
            orphan = self._orphans.pop((gang, attempt, uid), None)
            return [BindResponse(orphan, error)] if orphan is not None else []
        error = POD_DELETED if permit.is_pod_deleted and not error else error
        outputs = self._respond(permit, error)
        if error:
            known.reset(member)
            _wait_again(known)
        else:
            known.set_stage(member, MemberStage.BOUND)
            if not permit.is_bound_counted:
                permit.is_bound_counted = True
                known.progress_at = now
        return outputs + self._advance(known)

    def remove_pod(self, gang: str, member: str, uid: str) -> list[PermitOutput]:
        """Handle a pod that is deleted, finished or being deleted: its member becomes ABSENT."""
        known = self.gangs.get(gang)
        permit = known.members.get(member) if known is not None else None
        if known is None or permit is None or permit.stage is MemberStage.ABSENT or permit.uid != uid:
            return []
        if permit.stage is MemberStage.BINDING:
            permit.is_pod_deleted = True
            return []
        outputs = self._respond(permit, POD_DELETED)
        known.reset(member)
        _wait_again(known)
        return outputs

    def note_progress(self, gang: str, attempt: int, member: str, now: float) -> None:
        """Record that a pod was created for a member of this attempt, with the controller and requests of the gang."""
        known = self.gangs.get(gang)
        permit = known.members.get(member) if known is not None and known.attempt == attempt else None
        if known is not None and permit is not None and not permit.is_created_counted:
            permit.is_created_counted = True
            known.progress_at = now

    def has_progress(self, gang: str) -> bool:
        """Reports whether any pod of the present attempt counted as progress."""
        known = self.gangs.get(gang)
        return known is not None and any(
            member.is_created_counted or member.stage is MemberStage.BOUND for member in known.members.values()
        )

    def reject(self, gang: str) -> list[PermitOutput]:
        """Post nothing more for this attempt. `AttemptRejected` follows when no Binding is in flight any more.

        If these Bindings bind the last members, `GangBound` follows instead, and the gang can be rejected again.
        """
        known = self.gangs.get(gang)
        return self._reject(known) if known is not None else []

    def reassign(self, gang: str, nodes: Mapping[str, str]) -> tuple[list[PermitOutput], set[str]]:
        """Assign other nodes and return the members that got one. A member that is BINDING or BOUND keeps its node."""
        known = self.gangs.get(gang)
        if known is None or known.phase is PermitPhase.REJECTED:
            return [], set()
        placement = {member: state.node for member, state in known.members.items()}
        free = {member for member in nodes.keys() & placement if known.members[member].stage not in _FIXED_STAGES}
        reassigned = {member: node for member, node in nodes.items() if member in free}
        return self._update_members(known, placement | reassigned), free

    def has_bindings_in_flight(self, gang: str) -> bool:
        """Reports whether a Binding of the gang is in flight."""
        known = self.gangs.get(gang)
        return known is not None and bool(known.binding)

    def tick(self, now: float) -> list[PermitOutput]:
        """Handle timeouts; call it a few times per second."""
        return self._expire_calls(now) + self._reject_stalled(now)

    def stop(self) -> list[PermitOutput]:
        """Answer all calls and forget all gangs."""
        calls = sorted([*self._calls, *self._orphans.values()])
        self._calls, self._orphans, self.gangs = {}, {}, {}
        return [BindResponse(call, STOPPING) for call in calls]

    def statistics(self) -> PermitStatistics:
        phases = [gang.phase for gang in self.gangs.values()]
        posted = sum(len(gang.binding) for gang in self.gangs.values())
        return PermitStatistics(
            {phase: phases.count(phase) for phase in PermitPhase}, len(self._calls) + len(self._orphans), posted
        )

    def _update_members(self, gang: GangPermit, nodes: Mapping[str, str]) -> list[PermitOutput]:
        """Make the members follow the placement."""
        outputs: list[PermitOutput] = []
        if gang.nodes == nodes:
            return outputs
        gang.nodes = dict(nodes)
        for member in [member for member in gang.members if member not in nodes]:
            outputs += self._remove_member(gang, gang.members[member], UNKNOWN_MEMBER)
            gang.remove(member)
        for member, node in nodes.items():
            permit = gang.members.get(member)
            if permit is None:
                gang.members[member] = MemberPermit(node)
                gang.set_stage(member, MemberStage.ABSENT)
                continue
            if permit.stage is MemberStage.WAITING and permit.node != node:
                outputs += self._respond(permit, WRONG_NODE)
                gang.reset(member)
            permit.node = node
        return outputs

    def _mark_bound(self, gang: GangPermit, bound: Mapping[str, str]) -> list[PermitOutput]:
        """Mark bound members. A member that is BINDING waits for its own outcome."""
        outputs: list[PermitOutput] = []
        for member in [member for member in gang.unbound if member in bound]:
            permit, uid = gang.members[member], bound[member]
            if permit.stage is MemberStage.BINDING:
                continue
            outputs += self._respond(permit, "" if permit.uid == uid else SECOND_POD)
            gang.reset(member)
            permit.bound_uid = uid
            gang.set_stage(member, MemberStage.BOUND)
        return outputs

    def _update_phase(self, gang: GangPermit, was_bound: bool) -> None:
        """Derive the phase from the bound members: if some are bound, the gang only goes forward.

        A gang that lost a pod before it was complete was never bound: it must become complete or be rejected.
        """
        if was_bound:
            gang.phase, gang.is_reported = PermitPhase.BOUND, False
            return
        if gang.phase is PermitPhase.BOUND and gang.unbound:
            gang.phase = PermitPhase.WAITING
        if gang.phase is PermitPhase.WAITING and len(gang.unbound) < len(gang.members):
            gang.phase = PermitPhase.BINDING

    def _advance(self, gang: GangPermit) -> list[PermitOutput]:
        if gang.phase is PermitPhase.WAITING and gang.members and not gang.absent:
            gang.phase = PermitPhase.BINDING
        outputs: list[PermitOutput] = []
        if gang.phase in (PermitPhase.BINDING, PermitPhase.BOUND):
            outputs += [bindings] if (bindings := gang.start_bindings()) is not None else []
        is_open = gang.phase is PermitPhase.BINDING or (gang.phase is PermitPhase.REJECTED and not gang.is_reported)
        if is_open and gang.is_all_bound:
            gang.phase = PermitPhase.BOUND
            outputs.append(GangBound(gang.key, gang.attempt))
        return outputs + _report_rejection(gang)

    def _expire_calls(self, now: float) -> list[PermitOutput]:
        expired: list[MemberPermit] = []
        for permit, expires_at in self._calls.values():
            if expires_at > now:
                break
            if permit.stage is not MemberStage.BINDING:
                expired.append(permit)
        return [output for permit in expired for output in self._respond(permit, NOT_COMPLETE)]

    def _reject_stalled(self, now: float) -> list[PermitOutput]:
        return [
            output
            for gang in self.gangs.values()
            if gang.phase in (PermitPhase.WAITING, PermitPhase.BINDING)
            and (now - gang.progress_at >= self._bind_timeout or now - gang.admitted_at >= self._longest(gang))
            for output in self._reject(gang)
        ]

    def _longest(self, gang: GangPermit) -> float:
        return self._admitted_timeout * max(1.0, len(gang.members) / MEMBERS_PER_TIMEOUT)

    def _reject(self, gang: GangPermit) -> list[PermitOutput]:
        gang.phase = PermitPhase.REJECTED
        waiting = [permit for permit in gang.members.values() if permit.stage is MemberStage.WAITING]
        outputs = [output for permit in waiting for output in self._respond(permit, REJECTED)]
        return outputs + _report_rejection(gang)

    def _remove_gang(self, gang: GangPermit | None, error: str) -> list[PermitOutput]:
        if gang is None:
            return []
        return [output for permit in gang.members.values() for output in self._remove_member(gang, permit, error)]

    def _remove_member(self, gang: GangPermit, permit: MemberPermit, error: str) -> list[PermitOutput]:
        """Remove a member. A call whose Binding is in flight waits for the outcome."""
        if permit.stage is not MemberStage.BINDING or permit.call is None:
            return self._respond(permit, error)
        self._orphans[gang.key, gang.attempt, permit.uid] = permit.call
        del self._calls[permit.call]
        return []

    def _respond(self, permit: MemberPermit, error: str) -> list[PermitOutput]:
        call, permit.call = permit.call, None
        if call is None:
            return []
        del self._calls[call]
        return [BindResponse(call, error)]


def _rejection(gang: GangPermit | None, member: GangMember, pod: BindRequest) -> str:
    """Returns why the pod's call is rejected; an empty text if it is accepted."""
    if gang is None:
        return NOT_ADMITTED
    if gang.attempt != member.attempt:
        return WRONG_ATTEMPT
    if gang.phase is PermitPhase.REJECTED:
        return REJECTED
    permit = gang.members.get(member.name)
    if permit is None:
        return UNKNOWN_MEMBER
    if permit.stage is not MemberStage.ABSENT and permit.uid != pod.uid:
        return SECOND_POD
    at = permit.pod.node if permit.pod is not None else permit.node
    return WRONG_NODE if at != pod.node else ""


def _wait_again(gang: GangPermit) -> None:
    """Return a gang to WAITING if nothing is bound for it after all."""
    if gang.phase is PermitPhase.BINDING and gang.is_none_bound:
        gang.phase = PermitPhase.WAITING


def _report_rejection(gang: GangPermit) -> list[PermitOutput]:
    if gang.phase is not PermitPhase.REJECTED or gang.is_reported or gang.binding:
        return []
    gang.is_reported = True
    return [AttemptRejected(gang.key, gang.attempt)]
