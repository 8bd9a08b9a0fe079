"""The contract of kube/leaderelection/lease.py on an API server in memory, and under faults."""

import pytest

from helpers.fakeclock import FakeClock
from helpers.leasecontract import TIMES, LeaseRules, Start
from helpers.memoryapi import Fault, MemoryApi, Request, no_answer, refusal, slow
from tfjob_controller.kube.flowcontrol import Priority
from tfjob_controller.kube.leaderelection.lease import Candidate, CandidateState, LeaseLock, LeaseTimes


@pytest.fixture
def requester() -> MemoryApi:
    return MemoryApi()


@pytest.fixture
def namespace() -> str:
    return "default"


ERRORS = {
    "lost answer": no_answer(applied=True),
    "conflict": refusal(409, "Conflict"),
    "no namespace": refusal(404, "NotFound"),
}
every_error = pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS.keys())


class TestLease(LeaseRules):
    @pytest.fixture
    def leader(self, candidate: Start) -> Candidate:
        leader = candidate()
        assert leader.try_acquire_or_renew()
        return leader

    def test_requests_pass_the_rate_limit_are_short_and_not_repeated_by_the_transport(
        self, leader: Candidate, requester: MemoryApi
    ) -> None:
        leader.try_acquire_or_renew()
        leader.release()
        assert [request.method for request in requester.sent] == ["GET", "POST", "PUT", "PUT"]
        assert {request.priority for request in requester.sent} == {Priority.LEASE}
        assert {request.retry for request in requester.sent} == {False}
        assert max(request.timeout_seconds for request in requester.sent) <= TIMES.renew_deadline / 2

    def test_no_request_of_a_leader_outlasts_its_deadline(
        self, leader: Candidate, requester: MemoryApi, clock: FakeClock
    ) -> None:
        clock.advance(8.5)
        requester.always = no_answer(applied=False)
        requester.sent.clear()
        leader.try_acquire_or_renew()
        assert [request.timeout_seconds for request in requester.sent] == [1.5, 1.5]

    def test_an_error_makes_nobody_a_leader(self, candidate: Start, requester: MemoryApi) -> None:
        first = candidate()
        requester.always = no_answer(applied=True)
        assert not first.try_acquire_or_renew()
        assert not first.is_leader

    @every_error
    def test_after_an_error_the_next_attempt_succeeds(
        self, candidate: Start, requester: MemoryApi, error: Fault
    ) -> None:
        first = candidate()
        requester.script.extend([error, error])
        first.try_acquire_or_renew()
        requester.script.clear()
        assert first.is_leader or first.try_acquire_or_renew()

    @every_error
    def test_one_error_ends_no_leader(self, leader: Candidate, requester: MemoryApi, error: Fault) -> None:
        requester.script.append(error)
        assert leader.try_acquire_or_renew()  # at the second try, after reading the lease

    @every_error
    def test_errors_end_a_leader_at_its_deadline_and_not_before(
        self, leader: Candidate, requester: MemoryApi, clock: FakeClock, error: Fault
    ) -> None:
        requester.always = error
        for _ in range(4):
            clock.advance(2.0)
            assert not leader.try_acquire_or_renew()
            assert leader.is_leader
        clock.advance(2.0)
        assert not leader.is_leader
        assert leader.end_if_expired()
        assert not leader.end_if_expired()  # it is over already
        requester.always = None
        assert not leader.try_acquire_or_renew()

    @pytest.mark.parametrize("error", [no_answer(applied=False), no_answer(applied=True)], ids=["not", "but"])
    def test_a_takeover_whose_answer_is_lost_leads_only_once_it_is_confirmed(
        self, candidate: Start, requester: MemoryApi, error: Fault
    ) -> None:
        first, second = candidate(), candidate()
        requester.script.extend([Fault(), error])
        assert not first.try_acquire_or_renew()
        assert not first.is_leader
        assert first.try_acquire_or_renew()
        assert not second.try_acquire_or_renew()

    def test_of_two_that_take_a_lease_at_the_same_moment_one_leads(
        self, candidate: Start, requester: MemoryApi
    ) -> None:
        first, second = candidate(), candidate()
        requester.script.extend([Fault(), Fault(before=lambda _: second.try_acquire_or_renew() and None)])
        assert not first.try_acquire_or_renew()
        assert second.is_leader

    def test_of_two_that_take_an_expired_lease_at_the_same_moment_one_leads(
        self, candidate: Start, requester: MemoryApi, clock: FakeClock
    ) -> None:
        dead, first, second = candidate(), candidate(), candidate()
        for each in (dead, first, second):
            each.try_acquire_or_renew()
        clock.advance(15.0)
        requester.script.extend([Fault(), Fault(before=lambda _: second.try_acquire_or_renew() and None)])
        assert not first.try_acquire_or_renew()
        assert (dead.is_leader, first.is_leader, second.is_leader) == (False, False, True)

    def test_a_write_that_is_confirmed_too_late_to_be_safe_does_not_count(
        self, candidate: Start, requester: MemoryApi, clock: FakeClock
    ) -> None:
        first = candidate()
        requester.script.extend([Fault(), Fault(after=lambda _: clock.advance(10.0))])
        assert not first.try_acquire_or_renew()
        assert not first.is_leader
        assert first.try_acquire_or_renew()

    def test_leading_is_counted_from_when_a_renewal_was_sent_not_from_its_answer(
        self, leader: Candidate, requester: MemoryApi, clock: FakeClock
    ) -> None:
        requester.script.append(slow(clock, 4.0))
        assert leader.try_acquire_or_renew()
        assert leader.seconds_left == 6.0

    def test_a_renewal_that_is_confirmed_after_the_deadline_does_not_make_a_leader_again(
        self, leader: Candidate, requester: MemoryApi, clock: FakeClock
    ) -> None:
        clock.advance(9.0)
        requester.script.append(Fault(after=lambda _: clock.advance(1.0)))
        assert not leader.try_acquire_or_renew()
        assert leader.state is CandidateState.ENDED

    def test_a_leader_that_is_late_writes_nothing_more(
        self, leader: Candidate, requester: MemoryApi, clock: FakeClock
    ) -> None:
        requester.script.extend([no_answer(applied=False), Fault(after=lambda _: clock.advance(10.0))])
        requester.sent.clear()
        assert not leader.try_acquire_or_renew()
        assert [request.method for request in requester.sent] == ["PUT", "GET"]

    def test_a_follower_counts_from_the_answer_in_which_it_saw_the_lease(
        self, candidate: Start, requester: MemoryApi, clock: FakeClock
    ) -> None:
        """The holder may have renewed while the answer was on its way to us."""
        first, second = candidate(), candidate()
        first.try_acquire_or_renew()
        requester.script.append(slow(clock, 4.0))
        second.try_acquire_or_renew()
        clock.advance(14.9)
        assert not second.try_acquire_or_renew()
        clock.advance(0.1)
        assert second.try_acquire_or_renew()

    @pytest.mark.parametrize("answer", [b"<html>login</html>", b'{"spec": {"leaseTransitions": "many"}}'])
    def test_an_answer_that_is_no_lease_is_an_error_like_any_other(self, clock: FakeClock, answer: bytes) -> None:
        class Proxy(MemoryApi):
            def apply(self, request: Request) -> bytes:
                return answer

        candidate = Candidate(LeaseLock(Proxy(), "default", "x"), clock, "me", times=TIMES)
        assert not candidate.try_acquire_or_renew()
        assert candidate.state is CandidateState.FOLLOWING

    @every_error
    def test_a_release_that_fails_is_tried_once_more_with_what_the_lease_says_then(
        self, candidate: Start, requester: MemoryApi, error: Fault
    ) -> None:
        first, second = candidate(), candidate()
        first.try_acquire_or_renew()
        requester.script.append(error)
        first.release()
        assert second.try_acquire_or_renew()

    def test_a_release_finds_that_a_renewal_was_carried_out_though_its_answer_was_lost(
        self, candidate: Start, requester: MemoryApi
    ) -> None:
        first, second = candidate(), candidate()
        first.try_acquire_or_renew()
        requester.script.extend([no_answer(applied=True), no_answer(applied=False)])
        assert not first.try_acquire_or_renew()
        assert first.release()
        assert second.try_acquire_or_renew()

    def test_a_release_takes_nothing_from_a_successor(
        self, leader: Candidate, requester: MemoryApi, namespace: str
    ) -> None:
        self.edit(requester, namespace, holderIdentity="somebody else")
        assert not leader.release()
        assert self.read(requester, namespace)["spec"]["holderIdentity"] == "somebody else"

    def test_a_release_ends_leading_before_it_is_sent(self, leader: Candidate, requester: MemoryApi) -> None:
        seen = []
        requester.script.append(Fault(before=lambda _: seen.append(leader.is_leader)))
        assert leader.release()
        assert seen == [False]


@pytest.mark.parametrize(
    ("lease", "renew_deadline", "retry"),
    [
        pytest.param(10.0, 10.0, 2.0, id="no time between deadline and lease"),
        pytest.param(15.0, 2.0, 2.0, id="no time to try twice"),
        pytest.param(15.0, 10.0, 0.0, id="no rest"),
        pytest.param(15.5, 10.0, 2.0, id="half a second"),
    ],
)
def test_times_that_cannot_be_kept_are_refused(lease: float, renew_deadline: float, retry: float) -> None:
    with pytest.raises(ValueError, match="lease seconds"):
        LeaseTimes(lease, renew_deadline, retry)


def test_a_candidate_needs_a_name() -> None:
    with pytest.raises(ValueError, match="identity"):
        Candidate(LeaseLock(MemoryApi(), "default", "x"), FakeClock(), "", times=TIMES)
