"""All members of a gang are bound together, or none: who has come, who is missing, and what to do now. Pure.

Theory of operation. kube-scheduler calls `bind` for one pod after the other; each call waits until the last member of
its gang has come. A gang that was admitted has a *seat* for each placed member, with the node that it was placed on:

    EMPTY --arrive--> ARRIVED --the gang's turn--> POSTED --result--> BOUND
      ^                  |                            |                 |
      +----- the pod is gone, another node, a Binding failed, `lost` ---+

A call may end before its member is bound (kube-scheduler's patience is limited): then its seat stays ARRIVED as long as
the pod and the node are the same, and the next call of the same pod takes its place. The gang itself is

    GATHERING   until no seat is empty. No Binding is posted before. Then, in one step,
    BINDING     all that have arrived are posted. From here on there is only one way, forward: a member whose Binding
                failed comes again and is posted at once, alone.
    BOUND       every seat is bound; said once, by `AllBound`. A later pod of a member (a replacement, or a member that
                was added) is posted at once.
    GIVEN_UP    GATHERING or BINDING saw no progress for `bind_timeout_seconds`: nothing is posted any more. Once the
                Bindings under way have ended `GiveUp` says so, once; unless they happened to bind the last ones.

Progress is a pod's first arrival, a pod that was bound, and what the caller says is one (`progress`: a pod of the gang
was created). The same pod's coming again is none: else a pod that can never be bound would keep a half-bound gang.

What is not a member's of this attempt gets an answer at once, in constant words. Only a new attempt, or `forget`, ends
an attempt; `expect` of the same attempt is its placement as it is now: moved members lose their arrival (kube-scheduler
has to filter them again: to bind a pod to another node than it assumed can make it exit), all others keep theirs.

Every method takes the time and returns what is to be done. Nothing here waits, reads a clock, or does I/O; one caller
at a time. After a restart the caller says who is bound (`expect`), and kube-scheduler brings the others again.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tfjob_controller.extender.bindcalls import (
    CALLED_AGAIN,
    GAVE_UP,
    NOT_ADMITTED,
    NOT_COMPLETE,
    OTHER_ATTEMPT,
    OTHER_NODE,
    POD_GONE,
    SECOND_POD,
    STOPPING,
    UNKNOWN_MEMBER,
    AllBound,
    Answer,
    BindAll,
    GiveUp,
    MemberOfGang,
    Output,
    PodToBind,
)


class Phase(enum.StrEnum):
    GATHERING = "gathering"
    BINDING = "binding"
    BOUND = "bound"
    GIVEN_UP = "given up"


class _Stage(enum.Enum):
    EMPTY = "empty"
    ARRIVED = "arrived"
    POSTED = "posted"
    BOUND = "bound"


@dataclass(slots=True)
class _Seat:
    node: str
    """Where the placement wants the member; the pod's own node may differ once it is posted or bound."""
    stage: _Stage = _Stage.EMPTY
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
class _Gang:
    key: str
    attempt: int
    progress_at: float
    phase: Phase = Phase.GATHERING
    nodes: dict[str, str] = field(default_factory=dict)
    """The placement as it was said last: it is said often, and changes rarely."""
    seats: dict[str, _Seat] = field(default_factory=dict)
    empty: set[str] = field(default_factory=set)
    posted: set[str] = field(default_factory=set)
    unbound: set[str] = field(default_factory=set)
    has_said: bool = False
    """GiveUp has been said."""

    def put(self, member: str, stage: _Stage) -> None:
        """Change a seat's stage, and the sets that follow from it."""
        self.seats[member].stage = stage
        for members, belongs in (
            (self.empty, stage is _Stage.EMPTY),
            (self.posted, stage is _Stage.POSTED),
            (self.unbound, stage is not _Stage.BOUND),
        ):
            (members.add if belongs else members.discard)(member)

    def vacate(self, member: str) -> None:
        seat = self.seats[member]
        seat.pod, seat.bound_uid, seat.call, seat.is_lost = None, "", None, False
        self.put(member, _Stage.EMPTY)

    def remove(self, member: str) -> None:
        del self.seats[member]
        for members in (self.empty, self.posted, self.unbound):
            members.discard(member)

    @property
    def is_all_bound(self) -> bool:
        return bool(self.seats) and not self.unbound


@dataclass(slots=True)
class _Call:
    gang: str
    member: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """For metrics and tests."""

    gangs: Mapping[Phase, int]
    calls: int
    """Parked now."""
    posted: int


class Barrier:
    """See the module. Times are seconds on one monotonic scale."""

    def __init__(self, *, call_timeout_seconds: float, bind_timeout_seconds: float) -> None:
        """`call_timeout_seconds`: how long a call may wait, less than kube-scheduler's httpTimeout."""
        self._call_timeout = call_timeout_seconds
        self._bind_timeout = bind_timeout_seconds
        self._gangs: dict[str, _Gang] = {}
        # In the order of their coming, which is that of their end.
        self._calls: dict[int, _Call] = {}

    def expect(
        self,
        gang: str,
        attempt: int,
        nodes: Mapping[str, str],
        now: float,
        *,
        bound: Mapping[str, str] | None = None,
        was_bound: bool = False,
    ) -> list[Output]:
        """An attempt and its placement (node by member), new or changed; members not in `nodes` are not waited for.

        `bound` is the uid of each member's pod that is known to be bound; `was_bound` says that the gang was bound
        once (its phase is Bound), so that a pod which is missing now is a replacement. An older attempt is ignored.
        """
        known = self._gangs.get(gang)
        if known is not None and known.attempt > attempt:
            return []
        outputs: list[Output] = []
        if known is None or known.attempt < attempt:
            outputs += self._dismiss(known, OTHER_ATTEMPT)
            known = self._gangs[gang] = _Gang(gang, attempt, now)
        if known.phase is Phase.GIVEN_UP:
            return outputs
        outputs += self._seat(known, nodes)
        outputs += self._mark_bound(known, bound or {})
        self._set_out(known, was_bound)
        return outputs + self._advance(known)

    def forget(self, gang: str, error: str = NOT_ADMITTED) -> list[Output]:
        """The gang is not admitted any more, or gone. What was posted goes on to its end, and nobody is told."""
        return self._dismiss(self._gangs.pop(gang, None), error)

    def arrive(self, call: int, who: MemberOfGang, pod: PodToBind, now: float) -> list[Output]:
        """A bind call: it is answered by one of these outputs or by later ones, exactly once. `call` is new."""
        gang = self._gangs.get(who.gang)
        refusal = _refusal(gang, who, pod)
        if refusal or gang is None:
            return [Answer(call, refusal)]
        seat = gang.seats[who.member]
        if seat.stage is _Stage.BOUND:
            return [Answer(call)]
        outputs = self._answer(seat, CALLED_AGAIN)
        self._calls[call] = _Call(who.gang, who.member, now + self._call_timeout)
        seat.call = call
        if seat.stage is _Stage.EMPTY:
            self._take_seat(gang, who.member, pod, now)
        return outputs + self._advance(gang)

    def result(self, gang: str, attempt: int, member: str, uid: str, error: str, now: float) -> list[Output]:
        """How a Binding ended; without an error the pod is bound. Of no interest once the attempt is over."""
        known = self._gangs.get(gang)
        seat = known.seats.get(member) if known is not None and known.attempt == attempt else None
        if known is None or seat is None or seat.stage is not _Stage.POSTED or seat.uid != uid:
            return []
        error = POD_GONE if seat.is_lost and not error else error
        outputs = self._answer(seat, error)
        if error:
            known.vacate(member)
        else:
            known.put(member, _Stage.BOUND)
            known.progress_at = now
        return outputs + self._advance(known)

    def lost(self, gang: str, member: str, uid: str) -> list[Output]:
        """The member's pod is deleted, finished, or to be deleted: its seat is for another."""
        known = self._gangs.get(gang)
        seat = known.seats.get(member) if known is not None else None
        if known is None or seat is None or seat.stage is _Stage.EMPTY or seat.uid != uid:
            return []
        if seat.stage is _Stage.POSTED:
            seat.is_lost = True
            return []
        outputs = self._answer(seat, POD_GONE)
        known.vacate(member)
        return outputs

    def progress(self, gang: str, now: float) -> None:
        """Something came nearer that the barrier does not see, such as a pod that was created."""
        known = self._gangs.get(gang)
        if known is not None:
            known.progress_at = now

    def wind_up(self, gang: str) -> list[Output]:
        """Post nothing more for this attempt, whatever it has come to; `GiveUp` when no Binding is under way any more.

        If those under way bind the last members, it is `AllBound` instead, and the attempt can be wound up once more.
        """
        known = self._gangs.get(gang)
        return self._end_attempt(known) if known is not None else []

    def move(self, gang: str, nodes: Mapping[str, str]) -> tuple[list[Output], set[str]]:
        """Give members other nodes; who has got one. A member whose Binding is under way, or done, keeps its own."""
        known = self._gangs.get(gang)
        if known is None or known.phase is Phase.GIVEN_UP:
            return [], set()
        free = (_Stage.EMPTY, _Stage.ARRIVED)
        moved = {member: node for member, node in nodes.items() if _stage_of(known, member) in free}
        return self._seat(known, {each: seat.node for each, seat in known.seats.items()} | moved), set(moved)

    def is_posting(self, gang: str) -> bool:
        """Whether a Binding is under way for it."""
        known = self._gangs.get(gang)
        return known is not None and bool(known.posted)

    def tick(self, now: float) -> list[Output]:
        """What is due; call it a few times in a second."""
        return self._expire(now) + self._give_up(now)

    def stop(self) -> list[Output]:
        """Answer all calls, and forget everything."""
        calls, self._calls = self._calls, {}
        self._gangs = {}
        return [Answer(call, STOPPING) for call in calls]

    def missing(self, gang: str) -> tuple[str, ...]:
        """The placed members of which no pod has come, in the order of the placement."""
        known = self._gangs.get(gang)
        return tuple(member for member in known.seats if member in known.empty) if known is not None else ()

    def phase(self, gang: str) -> Phase | None:
        known = self._gangs.get(gang)
        return known.phase if known is not None else None

    def statistics(self) -> Statistics:
        phases = [gang.phase for gang in self._gangs.values()]
        posted = sum(len(gang.posted) for gang in self._gangs.values())
        return Statistics({phase: phases.count(phase) for phase in Phase}, len(self._calls), posted)

    def _seat(self, gang: _Gang, nodes: Mapping[str, str]) -> list[Output]:
        """Make the seats follow the placement."""
        outputs: list[Output] = []
        if gang.nodes == nodes:
            return outputs
        gang.nodes = dict(nodes)
        for member in [member for member in gang.seats if member not in nodes]:
            outputs += self._answer(gang.seats[member], UNKNOWN_MEMBER)
            gang.remove(member)
        for member, node in nodes.items():
            seat = gang.seats.get(member)
            if seat is None:
                gang.seats[member] = _Seat(node)
                gang.put(member, _Stage.EMPTY)
                continue
            if seat.stage is _Stage.ARRIVED and seat.node != node:
                outputs += self._answer(seat, OTHER_NODE)
                gang.vacate(member)
            seat.node = node
        return outputs

    def _mark_bound(self, gang: _Gang, bound: Mapping[str, str]) -> list[Output]:
        """Take over who is bound. A seat that a Binding was posted for waits for its own result."""
        outputs: list[Output] = []
        for member in [member for member in gang.unbound if member in bound]:
            seat, uid = gang.seats[member], bound[member]
            if seat.stage is _Stage.POSTED:
                continue
            outputs += self._answer(seat, "" if seat.uid == uid else SECOND_POD)
            gang.vacate(member)
            seat.bound_uid = seat.last_uid = uid
            gang.put(member, _Stage.BOUND)
        return outputs

    def _set_out(self, gang: _Gang, was_bound: bool) -> None:
        """Where some are bound there is only one way, forward.

        A gang that lost a pod before anybody saw it whole has never been bound: it must become complete, or go back.
        """
        if was_bound:
            gang.phase = Phase.BOUND
            return
        if gang.phase is Phase.BOUND and gang.unbound:
            gang.phase = Phase.GATHERING
        if gang.phase is Phase.GATHERING and len(gang.unbound) < len(gang.seats):
            gang.phase = Phase.BINDING

    def _take_seat(self, gang: _Gang, member: str, pod: PodToBind, now: float) -> None:
        seat = gang.seats[member]
        seat.pod = pod
        if seat.last_uid != pod.uid:
            seat.last_uid = pod.uid
            gang.progress_at = now
        gang.put(member, _Stage.ARRIVED)

    def _advance(self, gang: _Gang) -> list[Output]:
        if gang.phase is Phase.GATHERING and gang.seats and not gang.empty:
            gang.phase = Phase.BINDING
        outputs: list[Output] = []
        if gang.phase in (Phase.BINDING, Phase.BOUND):
            outputs += _post(gang)
        is_open = gang.phase is Phase.BINDING or (gang.phase is Phase.GIVEN_UP and not gang.has_said)
        if is_open and gang.is_all_bound:
            gang.phase = Phase.BOUND
            outputs.append(AllBound(gang.key, gang.attempt))
        return outputs + _say_given_up(gang)

    def _expire(self, now: float) -> list[Output]:
        over: list[int] = []
        for call, parked in self._calls.items():
            if parked.expires_at > now:
                break
            over.append(call)
        return [output for call in over for output in self._end(call, NOT_COMPLETE)]

    def _give_up(self, now: float) -> list[Output]:
        return [
            output
            for gang in self._gangs.values()
            if gang.phase in (Phase.GATHERING, Phase.BINDING) and now - gang.progress_at >= self._bind_timeout
            for output in self._end_attempt(gang)
        ]

    def _end_attempt(self, gang: _Gang) -> list[Output]:
        gang.phase = Phase.GIVEN_UP
        waiting = [seat for seat in gang.seats.values() if seat.stage is _Stage.ARRIVED]
        return self._answer_all(waiting, GAVE_UP) + _say_given_up(gang)

    def _dismiss(self, gang: _Gang | None, error: str) -> list[Output]:
        return self._answer_all(gang.seats.values(), error) if gang is not None else []

    def _answer_all(self, seats: Iterable[_Seat], error: str) -> list[Output]:
        return [output for seat in seats for output in self._answer(seat, error)]

    def _answer(self, seat: _Seat, error: str) -> list[Output]:
        call, seat.call = seat.call, None
        if call is None:
            return []
        del self._calls[call]
        return [Answer(call, error)]

    def _end(self, call: int, error: str) -> list[Output]:
        parked = self._calls[call]
        return self._answer(self._gangs[parked.gang].seats[parked.member], error)


def _refusal(gang: _Gang | None, who: MemberOfGang, pod: PodToBind) -> str:
    """Why this pod cannot take its member's seat; empty if it can."""
    if gang is None:
        return NOT_ADMITTED
    if gang.attempt != who.attempt:
        return OTHER_ATTEMPT
    if gang.phase is Phase.GIVEN_UP:
        return GAVE_UP
    seat = gang.seats.get(who.member)
    if seat is None:
        return UNKNOWN_MEMBER
    if seat.stage is not _Stage.EMPTY and seat.uid != pod.uid:
        return SECOND_POD
    at = seat.pod.node if seat.pod is not None else seat.node
    return OTHER_NODE if at != pod.node else ""


def _stage_of(gang: _Gang, member: str) -> _Stage | None:
    seat = gang.seats.get(member)
    return seat.stage if seat is not None else None


def _post(gang: _Gang) -> list[Output]:
    """All that have arrived, in the order of the placement."""
    arrived = [
        (member, seat.pod)
        for member, seat in (gang.seats.items() if gang.unbound - gang.empty - gang.posted else ())
        if seat.stage is _Stage.ARRIVED and seat.pod is not None
    ]
    for member, _ in arrived:
        gang.put(member, _Stage.POSTED)
    return [BindAll(gang.key, gang.attempt, tuple(arrived))] if arrived else []


def _say_given_up(gang: _Gang) -> list[Output]:
    if gang.phase is not Phase.GIVEN_UP or gang.has_said or gang.posted:
        return []
    gang.has_said = True
    return [GiveUp(gang.key, gang.attempt)]
