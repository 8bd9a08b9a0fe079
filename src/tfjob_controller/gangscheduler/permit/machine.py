"""All members of a gang are bound together, or none: who has come, who is missing, and what to do now. Pure.

Theory of operation. kube-scheduler calls `bind` for one pod after the other; each call waits until the last member of
its gang has come. A gang that was admitted has a *seat* for each placed member, with the node that it was placed on:

    EMPTY --arrive--> ARRIVED --the gang's turn--> POSTED --result--> BOUND
      ^                  |                            |                 |
      +----- the pod is gone, another node, a Binding failed, `lost` ---+

A call may end before its member is bound (kube-scheduler's patience is limited): then its seat stays ARRIVED as long as
the pod and the node are the same, and the next call of the same pod takes its place. The gang itself is

    GATHERING   until no seat is empty. No Binding is posted before. Then, in one step,
    BINDING     all that have arrived are posted. Once one is bound there is only one way, forward: a member whose
                Binding failed comes again and is posted at once, alone. Where all have failed it is GATHERING again.
    BOUND       every seat is bound; said once, by `AllBound`. A later pod of a member (a replacement, or a member that
                was added) is posted at once.
    GIVEN_UP    GATHERING or BINDING saw no progress for `bind_timeout_seconds`: nothing is posted any more. Once the
                Bindings under way have ended `GiveUp` says so, once; unless they happened to bind the last ones.

Progress is a pod's first arrival, a pod that was bound, and what the caller says is one (`progress`: a pod of the gang
was created). The same pod's coming again is none: else a pod that can never be bound would keep a half-bound gang.

A call whose Binding is under way is answered by the outcome of that and by nothing else, whatever becomes of its gang:
an earlier error would let kube-scheduler give the room to somebody else, who would meet the pod there.

What is not a member's of this attempt gets an answer at once, in constant words. Only a new attempt, or `forget`, ends
an attempt, and one that was wound up though it was bound goes on when it is expected as bound. `expect` of the same
attempt is its placement as it is now: moved members lose their arrival (kube-scheduler has to filter them again: to
bind a pod to another node than it assumed can make it exit), all others keep theirs.

Every method takes the time and returns what is to be done. Nothing here waits, reads a clock, or does I/O; one caller
at a time. After a restart the caller says who is bound (`expect`), and kube-scheduler brings the others again.
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


@dataclass(slots=True)
class _Call:
    gang: str
    member: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class PermitStatistics:
    """For metrics and tests."""

    gangs: Mapping[PermitPhase, int]
    calls: int
    """Parked now."""
    posted: int


class PermitMachine:
    """See the module. Times are seconds on one monotonic scale."""

    def __init__(self, *, call_timeout_seconds: float, bind_timeout_seconds: float) -> None:
        """`call_timeout_seconds`: how long a call may wait, less than kube-scheduler's httpTimeout."""
        self._call_timeout = call_timeout_seconds
        self._bind_timeout = bind_timeout_seconds
        self._gangs: dict[str, GangPermit] = {}
        # In the order of their coming, which is that of their end.
        self._calls: dict[int, _Call] = {}
        # Calls whose gang or seat went while their Bindings were under way, by gang, attempt and the pod's uid.
        self._orphans: dict[tuple[str, int, str], int] = {}

    def expect(
        self,
        gang: str,
        attempt: int,
        nodes: Mapping[str, str],
        now: float,
        *,
        bound: Mapping[str, str] | None = None,
        was_bound: bool = False,
    ) -> list[PermitOutput]:
        """An attempt and its placement (node by member), new or changed; members not in `nodes` are not waited for.

        `bound` is the uid of each member's pod that is known to be bound; `was_bound` says that the gang was bound
        once (its phase is Bound), so that a pod which is missing now is a replacement. An older attempt is ignored.
        """
        known = self._gangs.get(gang)
        if known is not None and known.attempt > attempt:
            return []
        outputs: list[PermitOutput] = []
        if known is None or known.attempt < attempt:
            outputs += self._dismiss(known, WRONG_ATTEMPT)
            known = self._gangs[gang] = GangPermit(gang, attempt, now)
        if known.phase is PermitPhase.GIVEN_UP and not was_bound:
            return outputs
        outputs += self._seat(known, nodes)
        outputs += self._mark_bound(known, bound or {})
        self._set_out(known, was_bound)
        return outputs + self._advance(known)

    def forget(self, gang: str, error: str = NOT_ADMITTED) -> list[PermitOutput]:
        """The gang is not admitted any more, or gone. What was posted goes on to its end, and nobody is told."""
        return self._dismiss(self._gangs.pop(gang, None), error)

    def arrive(self, call: int, who: GangMember, pod: BindRequest, now: float) -> list[PermitOutput]:
        """A bind call: it is answered by one of these outputs or by later ones, exactly once. `call` is new."""
        gang = self._gangs.get(who.gang)
        refusal = _refusal(gang, who, pod)
        if refusal or gang is None:
            return [BindResponse(call, refusal)]
        seat = gang.seats[who.member]
        if seat.stage is MemberStage.BOUND:
            return [BindResponse(call)]
        outputs = self._answer(seat, SUPERSEDED)
        self._calls[call] = _Call(who.gang, who.member, now + self._call_timeout)
        seat.call = call
        if seat.stage is MemberStage.EMPTY:
            self._take_seat(gang, who.member, pod, now)
        return outputs + self._advance(gang)

    def result(self, gang: str, attempt: int, member: str, uid: str, error: str, now: float) -> list[PermitOutput]:
        """How a Binding ended; without an error the pod is bound. Of no interest once the attempt is over."""
        known = self._gangs.get(gang)
        seat = known.seats.get(member) if known is not None and known.attempt == attempt else None
        if known is None or seat is None or seat.stage is not MemberStage.POSTED or seat.uid != uid:
            orphan = self._orphans.pop((gang, attempt, uid), None)
            return [BindResponse(orphan, error)] if orphan is not None else []
        error = POD_DELETED if seat.is_lost and not error else error
        outputs = self._answer(seat, error)
        if error:
            known.vacate(member)
            _gather_again(known)
        else:
            known.put(member, MemberStage.BOUND)
            known.progress_at = now
        return outputs + self._advance(known)

    def lost(self, gang: str, member: str, uid: str) -> list[PermitOutput]:
        """The member's pod is deleted, finished, or to be deleted: its seat is for another."""
        known = self._gangs.get(gang)
        seat = known.seats.get(member) if known is not None else None
        if known is None or seat is None or seat.stage is MemberStage.EMPTY or seat.uid != uid:
            return []
        if seat.stage is MemberStage.POSTED:
            seat.is_lost = True
            return []
        outputs = self._answer(seat, POD_DELETED)
        known.vacate(member)
        _gather_again(known)
        return outputs

    def progress(self, gang: str, now: float) -> None:
        """Something came nearer that the barrier does not see, such as a pod that was created."""
        known = self._gangs.get(gang)
        if known is not None:
            known.progress_at = now

    def wind_up(self, gang: str) -> list[PermitOutput]:
        """Post nothing more for this attempt, whatever it has come to; `GiveUp` when no Binding is under way any more.

        If those under way bind the last members, it is `AllBound` instead, and the attempt can be wound up once more.
        """
        known = self._gangs.get(gang)
        return self._end_attempt(known) if known is not None else []

    def move(self, gang: str, nodes: Mapping[str, str]) -> tuple[list[PermitOutput], set[str]]:
        """Give members other nodes; who has got one. A member whose Binding is under way, or done, keeps its own."""
        known = self._gangs.get(gang)
        if known is None or known.phase is PermitPhase.GIVEN_UP:
            return [], set()
        free = (MemberStage.EMPTY, MemberStage.ARRIVED)
        moved = {member: node for member, node in nodes.items() if known.stage_of(member) in free}
        return self._seat(known, {each: seat.node for each, seat in known.seats.items()} | moved), set(moved)

    def is_posting(self, gang: str) -> bool:
        """Whether a Binding is under way for it."""
        known = self._gangs.get(gang)
        return known is not None and bool(known.posted)

    def tick(self, now: float) -> list[PermitOutput]:
        """What is due; call it a few times in a second."""
        return self._expire(now) + self._give_up(now)

    def stop(self) -> list[PermitOutput]:
        """Answer all calls, and forget everything."""
        calls = sorted([*self._calls, *self._orphans.values()])
        self._calls, self._orphans, self._gangs = {}, {}, {}
        return [BindResponse(call, STOPPING) for call in calls]

    def missing(self, gang: str) -> tuple[str, ...]:
        """The placed members of which no pod has come, in the order of the placement."""
        known = self._gangs.get(gang)
        return tuple(member for member in known.seats if member in known.empty) if known is not None else ()

    def phase(self, gang: str) -> PermitPhase | None:
        known = self._gangs.get(gang)
        return known.phase if known is not None else None

    def statistics(self) -> PermitStatistics:
        phases = [gang.phase for gang in self._gangs.values()]
        posted = sum(len(gang.posted) for gang in self._gangs.values())
        return PermitStatistics(
            {phase: phases.count(phase) for phase in PermitPhase}, len(self._calls) + len(self._orphans), posted
        )

    def _seat(self, gang: GangPermit, nodes: Mapping[str, str]) -> list[PermitOutput]:
        """Make the seats follow the placement."""
        outputs: list[PermitOutput] = []
        if gang.nodes == nodes:
            return outputs
        gang.nodes = dict(nodes)
        for member in [member for member in gang.seats if member not in nodes]:
            outputs += self._leave(gang, gang.seats[member], UNKNOWN_MEMBER)
            gang.remove(member)
        for member, node in nodes.items():
            seat = gang.seats.get(member)
            if seat is None:
                gang.seats[member] = MemberPermit(node)
                gang.put(member, MemberStage.EMPTY)
                continue
            if seat.stage is MemberStage.ARRIVED and seat.node != node:
                outputs += self._answer(seat, WRONG_NODE)
                gang.vacate(member)
            seat.node = node
        return outputs

    def _mark_bound(self, gang: GangPermit, bound: Mapping[str, str]) -> list[PermitOutput]:
        """Take over who is bound. A seat that a Binding was posted for waits for its own result."""
        outputs: list[PermitOutput] = []
        for member in [member for member in gang.unbound if member in bound]:
            seat, uid = gang.seats[member], bound[member]
            if seat.stage is MemberStage.POSTED:
                continue
            outputs += self._answer(seat, "" if seat.uid == uid else SECOND_POD)
            gang.vacate(member)
            seat.bound_uid = seat.last_uid = uid
            gang.put(member, MemberStage.BOUND)
        return outputs

    def _set_out(self, gang: GangPermit, was_bound: bool) -> None:
        """Where some are bound there is only one way, forward.

        A gang that lost a pod before anybody saw it whole has never been bound: it must become complete, or go back.
        """
        if was_bound:
            gang.phase, gang.has_said = PermitPhase.BOUND, False
            return
        if gang.phase is PermitPhase.BOUND and gang.unbound:
            gang.phase = PermitPhase.GATHERING
        if gang.phase is PermitPhase.GATHERING and len(gang.unbound) < len(gang.seats):
            gang.phase = PermitPhase.BINDING

    def _take_seat(self, gang: GangPermit, member: str, pod: BindRequest, now: float) -> None:
        seat = gang.seats[member]
        seat.pod = pod
        if seat.last_uid != pod.uid:
            seat.last_uid = pod.uid
            gang.progress_at = now
        gang.put(member, MemberStage.ARRIVED)

    def _advance(self, gang: GangPermit) -> list[PermitOutput]:
        if gang.phase is PermitPhase.GATHERING and gang.seats and not gang.empty:
            gang.phase = PermitPhase.BINDING
        outputs: list[PermitOutput] = []
        if gang.phase in (PermitPhase.BINDING, PermitPhase.BOUND):
            outputs += [each] if (each := gang.post()) is not None else []
        is_open = gang.phase is PermitPhase.BINDING or (gang.phase is PermitPhase.GIVEN_UP and not gang.has_said)
        if is_open and gang.is_all_bound:
            gang.phase = PermitPhase.BOUND
            outputs.append(GangBound(gang.key, gang.attempt))
        return outputs + _say_given_up(gang)

    def _expire(self, now: float) -> list[PermitOutput]:
        over: list[int] = []
        for call, parked in self._calls.items():
            if parked.expires_at > now:
                break
            if self._gangs[parked.gang].stage_of(parked.member) is not MemberStage.POSTED:
                over.append(call)
        return [output for call in over for output in self._end(call, NOT_COMPLETE)]

    def _give_up(self, now: float) -> list[PermitOutput]:
        return [
            output
            for gang in self._gangs.values()
            if gang.phase in (PermitPhase.GATHERING, PermitPhase.BINDING)
            and now - gang.progress_at >= self._bind_timeout
            for output in self._end_attempt(gang)
        ]

    def _end_attempt(self, gang: GangPermit) -> list[PermitOutput]:
        gang.phase = PermitPhase.GIVEN_UP
        waiting = [seat for seat in gang.seats.values() if seat.stage is MemberStage.ARRIVED]
        outputs = [output for seat in waiting for output in self._answer(seat, REJECTED)]
        return outputs + _say_given_up(gang)

    def _dismiss(self, gang: GangPermit | None, error: str) -> list[PermitOutput]:
        if gang is None:
            return []
        return [output for seat in gang.seats.values() for output in self._leave(gang, seat, error)]

    def _leave(self, gang: GangPermit, seat: MemberPermit, error: str) -> list[PermitOutput]:
        """A seat goes. A call whose Binding is under way waits for its outcome: see the module."""
        if seat.stage is not MemberStage.POSTED or seat.call is None:
            return self._answer(seat, error)
        self._orphans[gang.key, gang.attempt, seat.uid] = seat.call
        del self._calls[seat.call]
        return []

    def _answer(self, seat: MemberPermit, error: str) -> list[PermitOutput]:
        call, seat.call = seat.call, None
        if call is None:
            return []
        del self._calls[call]
        return [BindResponse(call, error)]

    def _end(self, call: int, error: str) -> list[PermitOutput]:
        parked = self._calls[call]
        return self._answer(self._gangs[parked.gang].seats[parked.member], error)


def _refusal(gang: GangPermit | None, who: GangMember, pod: BindRequest) -> str:
    """Why this pod cannot take its member's seat; empty if it can."""
    if gang is None:
        return NOT_ADMITTED
    if gang.attempt != who.attempt:
        return WRONG_ATTEMPT
    if gang.phase is PermitPhase.GIVEN_UP:
        return REJECTED
    seat = gang.seats.get(who.member)
    if seat is None:
        return UNKNOWN_MEMBER
    if seat.stage is not MemberStage.EMPTY and seat.uid != pod.uid:
        return SECOND_POD
    at = seat.pod.node if seat.pod is not None else seat.node
    return WRONG_NODE if at != pod.node else ""


def _gather_again(gang: GangPermit) -> None:
    """Where nothing is bound for it after all, a gang need not go forward: its members come together again."""
    if gang.phase is PermitPhase.BINDING and gang.is_none_bound:
        gang.phase = PermitPhase.GATHERING


def _say_given_up(gang: GangPermit) -> list[PermitOutput]:
    if gang.phase is not PermitPhase.GIVEN_UP or gang.has_said or gang.posted:
        return []
    gang.has_said = True
    return [AttemptRejected(gang.key, gang.attempt)]
