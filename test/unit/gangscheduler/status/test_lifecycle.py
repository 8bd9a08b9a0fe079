"""Which pod counts where a member has more than one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from helpers.gangs import a_gang, a_pod, workers
from tfjob_controller.api.common.cluster import ScheduledPod
from tfjob_controller.api.gang import ADMITTED, GangStatus
from tfjob_controller.gangscheduler.status.lifecycle import pods_by_member


def made_at(second: int, pod: ScheduledPod) -> ScheduledPod:
    return replace(pod, metadata=replace(pod.metadata, creation_timestamp=f"2026-11-21T12:00:{second:02d}Z"))


def deleted(pod: ScheduledPod) -> ScheduledPod:
    return replace(pod, metadata=replace(pod.metadata, deletion_timestamp="2026-11-21T12:00:01Z"))


def of_worker(name: str, node: str = "", *, phase: str = "Pending", attempt: int = 1) -> ScheduledPod:
    return a_pod(name, node, gang="one", member="worker-0", phase=phase, attempt=attempt)


@pytest.mark.parametrize(
    ("older", "younger", "counts"),
    [
        pytest.param(of_worker("a"), of_worker("b"), "b", id="the younger of two that wait"),
        pytest.param(of_worker("a", "n"), of_worker("b"), "a", id="the one that is bound"),
        pytest.param(of_worker("a"), of_worker("b", "n"), "b", id="the one that is bound, if it is the younger"),
        pytest.param(of_worker("a", "n", phase="Failed"), of_worker("b"), "b", id="one that lives before one that did"),
        pytest.param(of_worker("a"), of_worker("b", "n", phase="Failed"), "a", id="though the other is younger"),
        pytest.param(deleted(of_worker("a", "n")), of_worker("b"), "b", id="not the one that is lost with its node"),
        pytest.param(of_worker("a"), of_worker("b", "n", attempt=2), "a", id="none of another attempt"),
    ],
)
def test_of_two_pods_of_a_member_one_counts(older: ScheduledPod, younger: ScheduledPod, counts: str) -> None:
    gang = a_gang("one", workers(1), status=GangStatus(phase=ADMITTED, attempt=1))
    pods = [made_at(1, older), made_at(2, younger)]
    assert pods_by_member(gang, pods)["worker-0"].metadata.name == counts
    assert pods_by_member(gang, reversed(pods))["worker-0"].metadata.name == counts
