"""The contract of kube/leaderelection/lease.py, for an API server in memory (unit) and a real one (integration).

Both run on a fake clock, since a candidate uses only its own clock: 15 seconds pass at once.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from helpers.fakeclock import FakeClock
from tfjob_controller.kube.leaderelection.lease import LEASES, Candidate, CandidateState, LeaseLock, LeaseTimes
from tfjob_controller.kube.requester import Requester

TIMES = LeaseTimes(lease=15.0, renew_deadline=10.0, retry=2.0)
MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")

Start = Callable[..., Candidate]


class LeaseContract:
    """What candidates write and read; the fixtures `requester` and `namespace` of a subclass name the API server."""

    name = "leader"

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def candidate(self, requester: Requester, namespace: str, clock: FakeClock) -> Start:
        """Returns a new candidate, with the common clock or one of its own."""
        numbers = itertools.count(1)

        def new(clock: FakeClock = clock) -> Candidate:
            lock = LeaseLock(requester, namespace, self.name)
            return Candidate(lock, clock, f"candidate-{next(numbers)}", times=TIMES)

        return new

    def read(self, requester: Requester, namespace: str) -> dict[str, Any]:
        return json.loads(requester.request("GET", LEASES.path(namespace, self.name)))

    def edit(self, requester: Requester, namespace: str, **spec: object) -> None:
        """Edits the Lease as an administrator or another implementation could."""
        lease = self.read(requester, namespace)
        lease["spec"].update(spec)
        requester.request("PUT", LEASES.path(namespace, self.name), body=json.dumps(lease).encode())

    def test_who_comes_first_creates_the_lease_and_leads(
        self, candidate: Start, requester: Requester, namespace: str
    ) -> None:
        first = candidate()
        assert first.try_acquire_or_renew()
        assert first.is_leader
        spec = self.read(requester, namespace)["spec"]
        assert spec["holderIdentity"] == first.leader == "candidate-1"
        assert (spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (15, 0)
        assert spec["acquireTime"] == spec["renewTime"] == "2026-01-01T00:00:00.000000Z"

    def test_a_renewal_changes_the_renew_time_alone(
        self, candidate: Start, requester: Requester, namespace: str, clock: FakeClock
    ) -> None:
        first = candidate()
        first.try_acquire_or_renew()
        before = self.read(requester, namespace)["spec"]
        clock.advance(2.0)
        assert first.try_acquire_or_renew()
        assert self.read(requester, namespace)["spec"] == {**before, "renewTime": "2026-01-01T00:00:02.000000Z"}

    def test_a_silent_holder_is_replaced_when_its_lease_has_run_out_since_it_was_last_seen_to_change(
        self, candidate: Start, requester: Requester, namespace: str, clock: FakeClock
    ) -> None:
        first, second = candidate(), candidate()
        first.try_acquire_or_renew()
        clock.advance(5.0)
        assert not second.try_acquire_or_renew()  # sees it for the first time
        clock.advance(14.9)
        assert not second.try_acquire_or_renew()
        clock.advance(0.1)
        assert second.try_acquire_or_renew()
        spec = self.read(requester, namespace)["spec"]
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("candidate-2", 1)
        assert spec["acquireTime"] == spec["renewTime"] == "2026-01-01T00:00:20.000000Z"

    def test_a_released_lease_is_taken_at_once(
        self, candidate: Start, requester: Requester, namespace: str, clock: FakeClock
    ) -> None:
        first, second = candidate(), candidate()
        first.try_acquire_or_renew()
        assert not second.try_acquire_or_renew()
        assert first.release()
        assert not first.is_leader
        spec = self.read(requester, namespace)["spec"]
        assert (spec.get("holderIdentity"), spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("", 1, 0)
        assert second.try_acquire_or_renew()
        spec = self.read(requester, namespace)["spec"]
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("candidate-2", 1)

    def test_what_others_put_on_the_lease_stays(self, candidate: Start, requester: Requester, namespace: str) -> None:
        first = candidate()
        first.try_acquire_or_renew()
        lease = self.read(requester, namespace)
        lease["metadata"].update(labels={"app": "x"}, annotations={"note": "y"})
        requester.request("PUT", LEASES.path(namespace, self.name), body=json.dumps(lease).encode())
        assert first.try_acquire_or_renew()
        assert first.try_acquire_or_renew()
        metadata = self.read(requester, namespace)["metadata"]
        assert (metadata["labels"], metadata["annotations"]) == ({"app": "x"}, {"note": "y"})

    def test_a_lease_made_by_hand_without_a_holder_is_taken(
        self, candidate: Start, requester: Requester, namespace: str
    ) -> None:
        lease = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": {"name": self.name}, "spec": {}}
        requester.request("POST", LEASES.path(namespace), body=json.dumps(lease).encode())
        first = candidate()
        assert first.try_acquire_or_renew()
        spec = self.read(requester, namespace)["spec"]
        assert spec["leaseTransitions"] == 1
        assert MICRO_TIME.fullmatch(spec["renewTime"])

    def test_a_leader_whose_lease_was_deleted_makes_it_anew(
        self, candidate: Start, requester: Requester, namespace: str
    ) -> None:
        first = candidate()
        first.try_acquire_or_renew()
        requester.request("DELETE", LEASES.path(namespace, self.name))
        assert first.try_acquire_or_renew()
        assert self.read(requester, namespace)["spec"]["holderIdentity"] == "candidate-1"


class LeaseRules(LeaseContract):
    """The contract, and decisions of candidates that do not depend on the API server."""

    def test_a_held_lease_is_left_to_its_holder(self, candidate: Start) -> None:
        first, second = candidate(), candidate()
        first.try_acquire_or_renew()
        assert not second.try_acquire_or_renew()
        assert (second.is_leader, second.leader) == (False, "candidate-1")

    def test_a_leader_who_renews_leads_for_as_long_as_it_does(self, candidate: Start, clock: FakeClock) -> None:
        first, second = candidate(), candidate()
        first.try_acquire_or_renew()
        for _ in range(20):
            clock.advance(9.0)
            assert first.try_acquire_or_renew()
            assert not second.try_acquire_or_renew()

    def test_a_leader_who_does_not_renew_leads_until_the_deadline(self, candidate: Start, clock: FakeClock) -> None:
        first = candidate()
        first.try_acquire_or_renew()
        clock.advance(9.9)
        assert first.is_leader
        clock.advance(0.1)
        assert not first.is_leader
        assert not first.try_acquire_or_renew()
        assert first.state is CandidateState.ENDED

    def test_the_holder_s_promise_counts_not_the_own_setting(
        self, candidate: Start, requester: Requester, namespace: str, clock: FakeClock
    ) -> None:
        candidate().try_acquire_or_renew()
        self.edit(requester, namespace, leaseDurationSeconds=60)
        second = candidate()
        second.try_acquire_or_renew()
        clock.advance(59.9)
        assert not second.try_acquire_or_renew()
        clock.advance(0.1)
        assert second.try_acquire_or_renew()

    @pytest.mark.parametrize("skew", [timedelta(hours=-5), timedelta(hours=5)], ids=["behind", "ahead"])
    def test_wrong_clocks_change_nothing(self, candidate: Start, clock: FakeClock, skew: timedelta) -> None:
        first, other_clock = candidate(), FakeClock(clock.now() + skew)
        second = candidate(other_clock)
        first.try_acquire_or_renew()
        assert not second.try_acquire_or_renew()
        other_clock.advance(14.9)
        assert not second.try_acquire_or_renew()
        other_clock.advance(0.1)
        assert second.try_acquire_or_renew()

    @pytest.mark.parametrize("jump", [-1e7, 1e7], ids=["back", "forward"])
    def test_a_clock_that_jumps_changes_nothing(self, candidate: Start, clock: FakeClock, jump: float) -> None:
        first, second = candidate(), candidate()
        first.try_acquire_or_renew()
        second.try_acquire_or_renew()
        clock.jump(jump)
        assert first.is_leader
        assert not second.try_acquire_or_renew()
        assert first.try_acquire_or_renew()

    def test_who_has_released_never_leads_again(self, candidate: Start) -> None:
        first = candidate()
        first.try_acquire_or_renew()
        first.release()
        assert not first.try_acquire_or_renew()
        assert first.state is CandidateState.ENDED

    def test_who_does_not_lead_releases_nothing(self, candidate: Start, requester: Requester, namespace: str) -> None:
        first, second = candidate(), candidate()
        first.try_acquire_or_renew()
        second.try_acquire_or_renew()
        assert not second.release()
        assert self.read(requester, namespace)["spec"]["holderIdentity"] == "candidate-1"

    def test_who_has_lost_the_lease_leaves_it_to_run_out(
        self, candidate: Start, requester: Requester, namespace: str, clock: FakeClock
    ) -> None:
        first = candidate()
        first.try_acquire_or_renew()
        clock.advance(10.0)
        assert not first.release()
        assert self.read(requester, namespace)["spec"]["holderIdentity"] == "candidate-1"

    def test_a_leader_whose_lease_was_taken_ends_at_its_next_renewal(
        self, candidate: Start, requester: Requester, namespace: str
    ) -> None:
        first = candidate()
        first.try_acquire_or_renew()
        self.edit(requester, namespace, holderIdentity="somebody else")
        assert not first.try_acquire_or_renew()
        assert (first.state, first.leader) == (CandidateState.ENDED, "somebody else")

    def test_a_leader_whose_lease_was_freed_by_another_ends_too(
        self, candidate: Start, requester: Requester, namespace: str
    ) -> None:
        """Another instance may have led meanwhile."""
        first = candidate()
        first.try_acquire_or_renew()
        self.edit(requester, namespace, holderIdentity="")
        assert not first.try_acquire_or_renew()
        assert first.state is CandidateState.ENDED
        assert not self.read(requester, namespace)["spec"].get("holderIdentity")

    def test_a_deleted_lease_is_not_taken_from_a_holder_who_was_seen(
        self, candidate: Start, requester: Requester, namespace: str, clock: FakeClock
    ) -> None:
        first, second = candidate(), candidate()
        first.try_acquire_or_renew()
        second.try_acquire_or_renew()
        requester.request("DELETE", LEASES.path(namespace, self.name))
        clock.advance(14.9)
        assert not second.try_acquire_or_renew()
        clock.advance(0.1)
        assert second.try_acquire_or_renew()
