"""Events of several watches come in the server's order."""

from __future__ import annotations

from audit.order import Event, Order


def event(version: int, at: float = 0.0) -> Event:
    return Event("pods", "ADDED", {"metadata": {"resourceVersion": str(version)}}, at)


def versions(order: Order, now: float) -> list[int]:
    return [each.version for each in order.due(now)]


def test_events_come_by_version_once_they_have_rested() -> None:
    order = Order(lag_seconds=1.0)
    for number in (5, 3, 10):
        order.add(event(number, at=1.0))
    assert versions(order, 1.9) == []
    assert versions(order, 2.0) == [3, 5, 10]
    assert order.late == 0


def test_one_that_has_not_rested_keeps_later_ones_back() -> None:
    order = Order(lag_seconds=1.0)
    order.add(event(5, at=1.0))
    order.add(event(3, at=1.5))
    assert versions(order, 2.0) == []
    assert versions(order, 2.5) == [3, 5]


def test_one_that_comes_too_late_is_given_out_and_counted() -> None:
    order = Order(lag_seconds=1.0)
    order.add(event(5, at=1.0))
    assert versions(order, 2.0) == [5]
    order.add(event(4, at=2.0))
    assert versions(order, 3.0) == [4]
    assert order.late == 1
