"""When a program waits for the leader of the default installation, and when it begins."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from helpers.fakeclock import FakeClock
from helpers.memoryapi import MemoryApi
from tfjob_controller.kube.leaderelection.lease import LEASES
from tfjob_controller.kube.leaderelection.otherleader import POLL_SECONDS, OtherLeader
from tfjob_controller.util.timestamps import format_micro_time

NAME, SYSTEM = "tfjob-controller", "tfjob-system"


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def other(api: MemoryApi, clock: FakeClock) -> OtherLeader:
    return OtherLeader(api, clock, SYSTEM, NAME)


def renew(api: MemoryApi, clock: FakeClock, **spec: Any) -> None:
    given = {"holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": format_micro_time(clock.now())}
    lease = {"metadata": {"namespace": SYSTEM, "name": NAME}, "spec": {**given, **spec}}
    api.put(LEASES.path(SYSTEM), lease)


def test_the_reason_names_the_holder_and_how_to_stop_it(api: MemoryApi, clock: FakeClock, other: OtherLeader) -> None:
    renew(api, clock)
    assert other.reason() == (
        "one holds the Lease tfjob-system/tfjob-controller and does the same work: this program starts when that one "
        "has stopped; to stop it: kubectl scale deployment tfjob-controller -n tfjob-system --replicas=0"
    )


def test_a_lease_that_is_renewed_stays_held_and_one_that_is_not_does_not(
    api: MemoryApi, clock: FakeClock, other: OtherLeader
) -> None:
    for _ in range(10):
        renew(api, clock)
        assert other.reason()
        clock.advance(10)
    assert other.reason()
    clock.advance(16)
    assert other.reason() == ""


def test_a_released_lease_and_none_are_not_waited_for(api: MemoryApi, clock: FakeClock, other: OtherLeader) -> None:
    assert other.reason() == ""
    renew(api, clock, holderIdentity="")
    assert other.reason() == ""


@pytest.mark.parametrize(("status", "waits"), [(403, False), (503, True), (429, True)])
def test_only_a_missing_right_is_not_waited_for(
    status: int, waits: bool, api: MemoryApi, clock: FakeClock, other: OtherLeader
) -> None:
    renew(api, clock)
    api.fail(status, part="leases")
    assert ("cannot be read" in other.reason()) == waits


def test_it_waits_until_the_other_has_stopped(api: MemoryApi, clock: FakeClock, other: OtherLeader) -> None:
    renew(api, clock)
    notes: list[str] = []
    waiting = threading.Thread(target=lambda: notes.append(str(other.wait(notes.append, threading.Event()))))
    waiting.start()
    for _ in range(5):
        clock.await_waiters(1)
        clock.advance(POLL_SECONDS)
    waiting.join(60)
    assert notes[0].startswith("one holds")
    assert notes[-2:] == ["", "True"]
