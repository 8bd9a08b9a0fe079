"""At most one leads, whatever the network, the server and the clocks do.

Candidates run on clocks of their own, which are wrong, jump, and go too fast or too slow by up to a tenth. Each request
may be refused, be slow beyond its time-out, lose its answer, be carried out long after its sender gave up, or have the
others do something while it is on its way. After every step, and inside every request, at most one leads.
"""

from collections import deque
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from helpers.memoryapi import Fault, MemoryApi, Request
from tfjob_controller.kube.clock import FakeClock
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.lease import Candidate, LeaseLock, LeaseTimes, State

RATES = (0.9, 1.0, 1.1)
CANDIDATES = st.integers(0, len(RATES) - 1)
KINDS = ("ok", "ok", "refused", "slow before", "slow after", "lost", "late", "interleaved")


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens to one request."""

    kind: str
    seconds: float
    other: int


PLANS = st.lists(st.builds(Plan, st.sampled_from(KINDS), st.floats(0.0, 12.0), CANDIDATES), min_size=3, max_size=3)


@dataclass
class World:
    """True time, and what else all candidates share."""

    api: MemoryApi = field(default_factory=MemoryApi)
    clocks: list[FakeClock] = field(default_factory=lambda: [FakeClock() for _ in RATES])
    late: deque[Request] = field(default_factory=deque)

    def advance(self, seconds: float) -> None:
        for clock, rate in zip(self.clocks, RATES, strict=True):
            clock.advance(seconds * rate)


class ElectionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.incarnations = 0
        self.candidates = [self.new_candidate(n) for n in range(len(RATES))]

    def new_candidate(self, number: int) -> Candidate:
        self.incarnations += 1
        lock = LeaseLock(self.world.api, "default", "leader")
        name = f"candidate-{number}-{self.incarnations}"
        return Candidate(lock, self.world.clocks[number], name, times=LeaseTimes())

    @initialize(skews=st.tuples(*[st.floats(-1e6, 1e6)] * len(RATES)))
    def clocks_are_wrong(self, skews: tuple[float, ...]) -> None:
        for clock, skew in zip(self.world.clocks, skews, strict=True):
            clock.jump(skew)

    @rule(number=CANDIDATES)
    def renew_in_peace(self, number: int) -> None:
        self.candidates[number].try_acquire_or_renew()

    @rule(number=CANDIDATES, plans=PLANS)
    def attempt(self, number: int, plans: list[Plan]) -> None:
        self.world.api.script.extend(self.fault(plan) for plan in plans)
        self.candidates[number].try_acquire_or_renew()
        self.world.api.script.clear()

    @rule(seconds=st.floats(0.0, 20.0))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(number=CANDIDATES, seconds=st.floats(-1e5, 1e5))
    def clock_jumps(self, number: int, seconds: float) -> None:
        self.world.clocks[number].jump(seconds)

    @rule(number=CANDIDATES, plans=PLANS)
    def release(self, number: int, plans: list[Plan]) -> None:
        self.world.api.script.extend(self.fault(plan) for plan in plans)
        self.candidates[number].release()
        self.world.api.script.clear()
        self.candidates[number] = self.new_candidate(number)

    @rule(number=CANDIDATES)
    def restart_those_who_lost(self, number: int) -> None:
        if self.candidates[number].state is State.ENDED:
            self.candidates[number] = self.new_candidate(number)

    @rule(number=CANDIDATES)
    def deadline_is_watched(self, number: int) -> None:
        self.candidates[number].end_if_expired()

    @precondition(lambda self: self.world.late)
    @rule()
    def a_late_request_is_carried_out(self) -> None:
        self.carry_out_late()

    def carry_out_late(self) -> None:
        while self.world.late:
            try:
                self.world.api.apply(self.world.late.popleft())
            except ApiError:
                return

    def fault(self, plan: Plan) -> Fault:
        def no_answer() -> ApiError:
            return ApiError(NO_RESPONSE, "Timeout", "scripted", outcome_unknown=True)

        def rest(request: Request) -> None:
            """Mostly time-outs are kept, but nobody may count on it."""
            self.at_most_one_leads()
            self.world.advance(plan.seconds)
            self.at_most_one_leads()

        def lose(request: Request) -> None:
            rest(request)
            raise no_answer()

        def be_late(request: Request) -> None:
            self.world.late.append(request)
            raise no_answer()

        def interleave(request: Request) -> None:
            rest(request)
            script, self.world.api.script = self.world.api.script, deque()
            self.candidates[plan.other].end_if_expired()
            others = [candidate for candidate in self.candidates if not self.is_asking(candidate, request)]
            for candidate in others:
                candidate.try_acquire_or_renew()
                self.at_most_one_leads()
            self.carry_out_late()
            self.world.api.script = script

        return {
            "ok": Fault(),
            "refused": Fault(before=lose),
            "slow before": Fault(before=rest),
            "slow after": Fault(after=rest),
            "lost": Fault(after=lose),
            "late": Fault(before=be_late),
            "interleaved": Fault(before=interleave, after=rest),
        }[plan.kind]

    def is_asking(self, candidate: Candidate, request: Request) -> bool:
        """A candidate makes one request at a time. Who reads does not say who it is: then nobody else moves."""
        return not request.body or request.body["spec"]["holderIdentity"] in ("", candidate.identity)

    @invariant()
    def at_most_one_leads(self) -> None:
        leaders = [candidate.identity for candidate in self.candidates if candidate.is_leader]
        assert len(leaders) <= 1, f"{leaders} lead at the same time"

    @invariant()
    def a_leader_holds_the_lease(self) -> None:
        """Unless its renewal is under way: here nothing is."""
        for candidate in self.candidates:
            if candidate.is_leader:
                assert self.world.api.list("leases")[0]["spec"]["holderIdentity"] == candidate.identity


TestElection = ElectionMachine.TestCase
TestElection.settings = settings(
    max_examples=120, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


class RecoveryMachine(ElectionMachine):
    """The same, but all ends well: once the network is whole again, somebody leads within the lease and a retry."""

    def teardown(self) -> None:
        self.world.api.script.clear()
        for number, candidate in enumerate(self.candidates):
            if candidate.state is State.ENDED:
                self.candidates[number] = self.new_candidate(number)
        for _ in range(20):
            for candidate in self.candidates:
                candidate.try_acquire_or_renew()
            self.world.advance(1.0)
        assert any(candidate.is_leader for candidate in self.candidates)


TestRecovery = RecoveryMachine.TestCase
TestRecovery.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
