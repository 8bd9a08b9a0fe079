"""At most one candidate leads, under any faults of the network, the server and the clocks.

Candidates run on clocks of their own, which are wrong, jump, and go too fast or too slow by up to a tenth. Each request
may be refused, be slow beyond its time-out, lose its answer, be carried out long after its sender gave up, or have the
others do something while it or its answer is on the way. After every step, and inside every request, at most one leads.
"""

from collections import deque
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from helpers.examples import examples
from helpers.fakeclock import FakeClock
from helpers.memoryapi import Fault, MemoryApi, Request
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.leaderelection.lease import Candidate, CandidateState, LeaseLock, LeaseTimes

RATES = (0.9, 1.0, 1.1)
NUMBERS = st.integers(0, len(RATES) - 1)


@dataclass(frozen=True, slots=True)
class OthersTry:
    """The others attempt to get the lease, and what was late arrives."""


Happening = OthersTry | float  # or so many seconds pass


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens to one request: on its way, and to its answer. Its time-out is not kept: nobody may count on it."""

    before: tuple[Happening, ...]
    outcome: str
    after: tuple[Happening, ...]


# Mostly times at which something is about to be over (deadline 10, lease 15), since there the mistakes are.
SECONDS = st.one_of(st.sampled_from([1.0, 4.0, 6.0, 8.0, 9.0, 9.9]), st.floats(0.0, 16.0))
HAPPENINGS = st.lists(st.one_of(st.just(OthersTry()), SECONDS), max_size=3).map(tuple)
PLANS = st.lists(
    st.one_of(
        st.just(Plan((), "answered", ())),
        # The hard one: carried out and seen by the others long before its sender knows.
        st.builds(lambda seconds: Plan((), "answered", (OthersTry(), seconds)), SECONDS),
        st.builds(Plan, HAPPENINGS, st.sampled_from(["answered", "refused", "lost", "late"]), HAPPENINGS),
    ),
    min_size=3,
    max_size=3,
)


class ElectionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.api = MemoryApi()
        self.clocks = [FakeClock() for _ in RATES]
        self.late: deque[Request] = deque()
        self.busy: set[int] = set()  # a candidate makes one request at a time
        self.incarnations = 0
        self.candidates = [self.new_candidate(number) for number in range(len(RATES))]

    def new_candidate(self, number: int) -> Candidate:
        self.incarnations += 1
        lock = LeaseLock(self.api, "default", "leader")
        return Candidate(lock, self.clocks[number], f"{number}-{self.incarnations}", times=LeaseTimes())

    @initialize(skews=st.tuples(*[st.floats(-1e6, 1e6)] * len(RATES)))
    def clocks_are_wrong(self, skews: tuple[float, ...]) -> None:
        for clock, skew in zip(self.clocks, skews, strict=True):
            clock.jump(skew)

    @rule(number=NUMBERS)
    def attempt_in_peace(self, number: int) -> None:
        self.candidates[number].try_acquire_or_renew()

    @rule(number=NUMBERS, plans=PLANS)
    def attempt(self, number: int, plans: list[Plan]) -> None:
        self.with_faults(number, plans)
        self.candidates[number].try_acquire_or_renew()
        self.end_faults()

    @rule()
    def followers_attempt_in_peace(self) -> None:
        for candidate in self.candidates:
            if not candidate.is_leader:
                candidate.try_acquire_or_renew()

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        for clock, rate in zip(self.clocks, RATES, strict=True):
            clock.advance(seconds * rate)

    @rule(number=NUMBERS, seconds=st.floats(-1e5, 1e5))
    def clock_jumps(self, number: int, seconds: float) -> None:
        self.clocks[number].jump(seconds)

    @rule(number=NUMBERS, plans=PLANS)
    def release(self, number: int, plans: list[Plan]) -> None:
        self.with_faults(number, plans)
        self.candidates[number].release()
        self.end_faults()
        self.candidates[number] = self.new_candidate(number)

    @rule(number=NUMBERS)
    def restart_after_a_loss(self, number: int) -> None:
        if self.candidates[number].state is CandidateState.ENDED:
            self.candidates[number] = self.new_candidate(number)

    @rule(number=NUMBERS)
    def deadline_is_watched(self, number: int) -> None:
        self.candidates[number].end_if_expired()

    @precondition(lambda self: self.late)
    @rule()
    def late_requests_arrive(self) -> None:
        while self.late:
            try:
                self.api.apply(self.late.popleft())
            except ApiError:
                return

    def with_faults(self, number: int, plans: list[Plan]) -> None:
        self.busy.add(number)
        self.api.script.extend(self.fault(plan) for plan in plans)

    def end_faults(self) -> None:
        self.busy.clear()
        self.api.script.clear()

    def fault(self, plan: Plan) -> Fault:
        def before(request: Request) -> None:
            self.happen(plan.before)
            if plan.outcome == "late":
                self.late.append(request)
            if plan.outcome in ("late", "refused"):
                raise ApiError(NO_RESPONSE, "Timeout", "scripted", outcome_unknown=True)

        def after(_: Request) -> None:
            self.happen(plan.after)
            if plan.outcome == "lost":
                raise ApiError(NO_RESPONSE, "Timeout", "scripted", outcome_unknown=True)

        return Fault(before, after)

    def happen(self, happenings: tuple[Happening, ...]) -> None:
        for happening in happenings:
            if isinstance(happening, OthersTry):
                self.others_try()
            else:
                self.time_passes(happening)
            self.at_most_one_leads()

    def others_try(self) -> None:
        script, self.api.script = self.api.script, deque()
        for number, candidate in enumerate(self.candidates):
            if number not in self.busy:
                candidate.try_acquire_or_renew()
                self.at_most_one_leads()
        self.late_requests_arrive()
        self.api.script = script

    @invariant()
    def at_most_one_leads(self) -> None:
        leaders = [candidate.identity for candidate in self.candidates if candidate.is_leader]
        assert len(leaders) <= 1, f"{leaders} lead at the same time"

    @invariant()
    def a_leader_holds_the_lease(self) -> None:
        for candidate in self.candidates:
            if candidate.is_leader:
                assert self.api.list("leases")[0]["spec"]["holderIdentity"] == candidate.identity

    def teardown(self) -> None:
        """Once all is well again somebody leads, within a lease and a retry."""
        self.end_faults()
        for number in range(len(RATES)):
            self.restart_after_a_loss(number)
        for _ in range(20):
            for candidate in self.candidates:
                candidate.try_acquire_or_renew()
            self.time_passes(1.0)
        assert any(candidate.is_leader for candidate in self.candidates)


TestElection = ElectionMachine.TestCase
TestElection.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
