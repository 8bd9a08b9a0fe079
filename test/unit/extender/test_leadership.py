"""Which gang scheduler works: the one whose pod's kube-scheduler holds the Lease."""

from __future__ import annotations

import pytest

from helpers.memoryapi import MemoryApi, no_answer
from tfjob_controller.extender.leadership import BLIND_SECONDS, LeaseFollower
from tfjob_controller.kube.clock import FakeClock

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class Pod:
    """One replica, on host `pod-1`."""

    def __init__(self) -> None:
        self.api = MemoryApi()
        self.clock = FakeClock()
        self.losses = 0
        self.follower = LeaseFollower(self.api, self.clock, "kube-system", "gang-scheduler", "pod-1", self._lose)

    def _lose(self) -> None:
        self.losses += 1

    def hold(self, holder: str) -> None:
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
        self.api.objects[f"{PATH}/gang-scheduler"] = {
            "metadata": {"name": "gang-scheduler", "namespace": "kube-system", "resourceVersion": "1"},
            "spec": spec,
        }


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
    pod.hold(holder)
    assert pod.follower.look()
    assert pod.follower.held.is_set() == works


def test_without_a_lease_it_waits(pod: Pod) -> None:
    assert pod.follower.look()
    assert not pod.follower.held.is_set()


def test_who_has_not_led_loses_nothing(pod: Pod) -> None:
    pod.hold("pod-2_x")
    pod.follower.look()
    pod.clock.advance(1000)
    pod.api.always = no_answer(applied=False)
    assert pod.follower.look()
    assert pod.losses == 0


@pytest.mark.parametrize("holder", ["pod-2_x", ""], ids=["another", "nobody"])
def test_as_soon_as_the_lease_names_another_it_is_over(pod: Pod, holder: str) -> None:
    pod.hold("pod-1_x")
    pod.follower.look()
    pod.hold(holder)
    assert not pod.follower.look()
    assert pod.losses == 1


def test_a_lease_that_cannot_be_read_is_believed_in_for_a_while(pod: Pod) -> None:
    pod.hold("pod-1_x")
    pod.follower.look()
    pod.api.always = no_answer(applied=False)
    pod.clock.advance(BLIND_SECONDS - 0.1)
    assert pod.follower.look()
    pod.clock.advance(0.1)
    assert not pod.follower.look()
    assert pod.losses == 1
