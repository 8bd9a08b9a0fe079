"""Who comes first."""

from __future__ import annotations

from datetime import timedelta

import pytest

from helpers.gangs import NOW, a_gang
from tfjob_controller.api.gang import Gang, GangStatus
from tfjob_controller.scheduling.queue import queue_order


def moment(seconds: float) -> str:
    return (NOW + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("gangs", "order"),
    [
        pytest.param([a_gang("a", age_seconds=1), a_gang("b", age_seconds=2)], "ba", id="the older first"),
        pytest.param([a_gang("b"), a_gang("a")], "ab", id="then by name"),
        pytest.param([a_gang("a", age_seconds=9), a_gang("b", priority=1)], "ba", id="priority before age"),
        pytest.param([a_gang("a", suspend=True), a_gang("b")], "b", id="suspended ones do not wait"),
        pytest.param(
            [a_gang("a"), a_gang("b", status=GangStatus(queued_time=moment(-5)))],
            "ba",
            id="since it waits, if it says so",
        ),
        pytest.param(
            [a_gang("a", age_seconds=1), a_gang("b", age_seconds=2, status=GangStatus(queued_time="soon"))],
            "ba",
            id="nonsense is as if it were not there",
        ),
    ],
)
def test_order(gangs: list[Gang], order: str) -> None:
    assert [each.gang.metadata.name for each in queue_order(gangs)] == list(order)


@pytest.mark.parametrize(
    ("requeue_time", "rests"),
    [(None, False), (moment(1), True), (moment(0), False), (moment(-1), False), ("soon", False)],
)
def test_a_gang_rests_until_its_time_has_come(requeue_time: str | None, rests: bool) -> None:
    (queued,) = queue_order([a_gang("a", status=GangStatus(requeue_time=requeue_time))])
    assert queued.is_backing_off(NOW) is rests


@pytest.mark.parametrize(("age", "waited"), [(5.0, 5.0), (-5.0, 0.0)])
def test_how_long_it_has_waited(age: float, waited: float) -> None:
    (queued,) = queue_order([a_gang("a", age_seconds=age)])
    assert queued.waiting_seconds(NOW) == waited
