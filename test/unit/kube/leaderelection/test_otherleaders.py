"""When a program waits for another installation, and when it begins."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from helpers.fakeclock import FakeClock
from helpers.memoryapi import MemoryApi
from tfjob_controller.kube.leaderelection.lease import LEASES
from tfjob_controller.kube.leaderelection.otherleaders import POLL_SECONDS, OtherLeaders
from tfjob_controller.util.timestamps import format_micro_time

NAME = "tfjob-controller"


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def write_lease(api: MemoryApi, clock: FakeClock, namespace: str, *, acquired: int = 0, **spec: Any) -> None:
    """Acquired so many seconds before now, and renewed now."""
    now = clock.now()
    given = {
        "holderIdentity": f"{namespace}-one",
        "leaseDurationSeconds": 15,
        "acquireTime": format_micro_time(now - timedelta(seconds=acquired)),
        "renewTime": format_micro_time(now),
    }
    path = LEASES.path(namespace, NAME)
    found = api.objects.get(path, {"metadata": {"namespace": namespace, "name": NAME}})
    api.version += 1
    metadata = {**found["metadata"], "resourceVersion": str(api.version)}
    api.objects[path] = {**found, "metadata": metadata, "spec": {**given, **spec}}


def others(api: MemoryApi, clock: FakeClock, own_namespace: str = "") -> OtherLeaders:
    return OtherLeaders(api, clock, NAME, own_namespace)


def test_a_program_without_a_lease_waits_for_the_holder_of_one(api: MemoryApi, clock: FakeClock) -> None:
    write_lease(api, clock, "tfjob-system")
    assert others(api, clock).reason() == (
        "tfjob-system-one holds the Lease tfjob-system/tfjob-controller and does the same work: this program starts "
        "when that one has stopped; to stop it: kubectl scale deployment tfjob-controller -n tfjob-system --replicas=0"
    )


def test_a_lease_that_is_renewed_stays_held_and_one_that_is_not_does_not(api: MemoryApi, clock: FakeClock) -> None:
    found = others(api, clock)
    for _ in range(10):
        write_lease(api, clock, "tfjob-system")
        assert found.reason()
        clock.advance(10)
    assert found.reason()
    clock.advance(16)
    assert found.reason() == ""


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"holderIdentity": ""}, id="released"),
        pytest.param({"renewTime": "2025-12-31T23:00:00.000000Z"}, id="abandoned an hour ago"),
    ],
)
def test_a_lease_that_nobody_holds_is_not_waited_for(api: MemoryApi, clock: FakeClock, spec: dict[str, str]) -> None:
    write_lease(api, clock, "tfjob-system", **spec)
    assert others(api, clock).reason() == ""


def test_of_two_installations_exactly_the_one_that_led_first_works(api: MemoryApi, clock: FakeClock) -> None:
    write_lease(api, clock, "first", acquired=60)
    write_lease(api, clock, "second", acquired=1)
    assert others(api, clock, "first").reason() == ""
    assert "first/tfjob-controller" in others(api, clock, "second").reason()


def test_two_that_began_in_the_same_moment_do_not_wait_for_each_other(api: MemoryApi, clock: FakeClock) -> None:
    for namespace in ("a", "b"):
        write_lease(api, clock, namespace)
    reasons = [others(api, clock, namespace).reason() for namespace in ("a", "b")]
    assert [bool(reason) for reason in reasons] == [False, True]


def test_whoever_may_not_list_leases_begins_at_once(api: MemoryApi, clock: FakeClock) -> None:
    write_lease(api, clock, "tfjob-system")
    api.fail(403, "Forbidden", part="leases")
    assert others(api, clock).reason() == ""


def test_it_waits_until_the_other_has_stopped(api: MemoryApi, clock: FakeClock) -> None:
    write_lease(api, clock, "tfjob-system")
    notes: list[str] = []
    stop = threading.Event()
    waiting = threading.Thread(target=lambda: notes.append(str(others(api, clock).wait(notes.append, stop))))
    waiting.start()
    for _ in range(5):
        clock.await_waiters(1)
        clock.advance(POLL_SECONDS)
    waiting.join(60)
    assert notes[0].startswith("tfjob-system-one holds")
    assert notes[-2:] == ["", "True"]
