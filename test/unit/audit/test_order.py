"""Tests of audit.order: events of several watches are yielded in the order of the server."""

from __future__ import annotations

from audit.order import Event, Order


def event(version: int, at: float = 0.0) -> Event:
    return Event("pods", "ADDED", {"metadata": {"resourceVersion": str(version)}}, at)


def versions(order: Order, now: float) -> list[int]:
    return [due.version for due in order.due(now)]


def test_events_are_yielded_by_version_after_the_lag() -> None:
    order = Order(lag_seconds=1.0)
    for number in (5, 3, 10):
        order.add(event(number, at=1.0))
    assert versions(order, 1.9) == []
    assert versions(order, 2.0) == [3, 5, 10]
    assert order.late == 0


def test_a_recent_event_delays_later_versions() -> None:
    order = Order(lag_seconds=1.0)
    order.add(event(5, at=1.0))
    order.add(event(3, at=1.5))
    assert versions(order, 2.0) == []
    assert versions(order, 2.5) == [3, 5]


def test_a_late_event_is_yielded_and_counted() -> None:
    order = Order(lag_seconds=1.0)
    order.add(event(5, at=1.0))
    assert versions(order, 2.0) == [5]
    order.add(event(4, at=2.0))
    assert versions(order, 3.0) == [4]
    assert order.late == 1
