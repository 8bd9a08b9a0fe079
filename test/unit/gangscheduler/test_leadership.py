"""Which gang scheduler works: the one whose pod's kube-scheduler holds the Lease."""

from __future__ import annotations

import itertools

import pytest

from helpers.fakeclock import FakeClock
from helpers.memoryapi import MemoryApi, no_answer
from tfjob_controller.gangscheduler.leadership import RENEWAL_FRACTION, LeaseFollower

DURATION = 15
BELIEVED_SECONDS = RENEWAL_FRACTION * DURATION
PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class Pod:
    """One replica, on host `pod-1`."""

    def __init__(self) -> None:
        self.api = MemoryApi()
        self.clock = FakeClock()
        self.losses = 0
        self._renewals = itertools.count()
        self.follower = LeaseFollower(self.api, self.clock, "kube-system", "gang-scheduler", "pod-1", self._lose)

    def _lose(self) -> None:
        self.losses += 1

    def hold(self, holder: str, duration: int = DURATION) -> None:
        """Somebody takes the Lease, or renews it."""
        spec = {"holderIdentity": holder, "leaseDurationSeconds": duration, "renewTime": f"t{next(self._renewals)}"}
        self.api.objects[f"{PATH}/gang-scheduler"] = {
            "metadata": {"name": "gang-scheduler", "namespace": "kube-system", "resourceVersion": "1"},
            "spec": spec,
        }

    def see(self, holder: str, duration: int = DURATION) -> bool:
        """A renewal, and a look at it."""
        self.hold(holder, duration)
        return self.follower.check()


@pytest.fixture
def pod() -> Pod:
    return Pod()


@pytest.mark.parametrize(
    ("holder", "works"),
    [
        pytest.param("pod-1_2b7c", True, id="ours"),
        pytest.param("pod-1", True, id="ours, by name alone"),
        pytest.param("pod-10_2b7c", False, id="one whose name begins as ours"),
        pytest.param("pod-2_2b7c", False, id="another"),
        pytest.param("", False, id="nobody"),
    ],
)
def test_it_works_while_the_holder_is_of_its_own_pod(pod: Pod, holder: str, works: bool) -> None:
    pod.see(holder)
    assert pod.see(holder)
    assert pod.follower.held.is_set() == works


def test_without_a_lease_it_waits(pod: Pod) -> None:
    assert pod.follower.check()
    assert not pod.follower.held.is_set()


def test_a_lease_that_is_not_seen_renewed_may_be_a_dead_ones(pod: Pod) -> None:
    pod.hold("pod-1_x")
    for _ in range(3):
        assert pod.follower.check()
        pod.clock.advance(1)
    assert not pod.follower.held.is_set()
    pod.see("pod-1_x")
    assert pod.follower.held.is_set()


@pytest.mark.parametrize("before", ["", "pod-2_x"], ids=["nobody's", "another's"])
def test_a_lease_that_changes_hands_is_fresh(pod: Pod, before: str) -> None:
    if before:
        pod.hold(before)
    pod.follower.check()
    pod.see("pod-1_x")
    assert pod.follower.held.is_set()


def test_a_process_that_wakes_after_its_lease_expired_does_not_lead_before_it_has_read_the_lease(pod: Pod) -> None:
    assert not pod.follower.is_renewed
    pod.see("pod-1_x")
    pod.see("pod-1_x")
    assert pod.follower.is_renewed
    pod.clock.advance(BELIEVED_SECONDS)
    assert not pod.follower.is_renewed


def test_a_follower_loses_no_lease(pod: Pod) -> None:
    pod.see("pod-2_x")
    pod.clock.advance(1000)
    pod.api.always = no_answer(applied=False)
    assert pod.follower.check()
    assert pod.losses == 0


@pytest.mark.parametrize("holder", ["pod-2_x", ""], ids=["another", "nobody"])
def test_as_soon_as_the_lease_names_another_it_is_over(pod: Pod, holder: str) -> None:
    pod.see("pod-1_x")
    pod.see("pod-1_x")
    assert not pod.see(holder)
    assert pod.losses == 1


@pytest.mark.parametrize(
    ("duration", "believed", "is_readable"),
    [
        pytest.param(DURATION, BELIEVED_SECONDS, True, id="not renewed"),
        pytest.param(3, 2.0, False, id="a short one, not readable"),
    ],
)
def test_a_renewal_is_believed_in_for_a_while(pod: Pod, duration: int, believed: float, is_readable: bool) -> None:
    pod.see("pod-1_x", duration)
    pod.see("pod-1_x", duration)
    if not is_readable:
        pod.api.always = no_answer(applied=False)
    pod.clock.advance(believed - 0.1)
    assert pod.follower.check()
    pod.clock.advance(0.1)
    assert not pod.follower.check()
    assert pod.losses == 1
