"""The rules of gangscheduler/state/shared.py: what is told reaches the loop, once, and wakes it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from helpers.fakeclock import FakeClock
from tfjob_controller.api.gang import ADMITTED, BOUND, WAITING, Gang, GangSpec, GangStatus, NodePlacement
from tfjob_controller.gangscheduler.bindrequests import GangMember
from tfjob_controller.gangscheduler.state.shared import SharedState
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.meta import ObjectMeta

KEY = "team/one"
WHO = GangMember(KEY, 1, "worker-0")


def gang(name: str, phase: str, node: str = "n1", attempt: int = 1) -> Gang:
    meta = ObjectMeta(name=name, namespace="team", uid=f"u-{name}", resource_version="1")
    status = GangStatus(phase=phase, attempt=attempt, placement=(NodePlacement(node, ("worker-0",)),))
    return Gang(meta, GangSpec(), status)


def state(*gangs: Gang) -> SharedState:
    store: Store[Gang] = Store()
    for each in gangs:
        store.upsert(each)
    return SharedState(store, FakeClock())


def test_enqueued_gangs_are_taken_once() -> None:
    told = state()
    told.enqueue("team/a")
    told.enqueue("team/b")
    told.enqueue("team/a")
    assert told.take() == {"team/a", "team/b"}
    assert told.take() == set()


@pytest.mark.parametrize(
    "tell",
    [
        pytest.param(lambda told: told.enqueue(KEY), id="a gang has changed"),
        pytest.param(lambda told: told.capacity_changed(), id="room has changed"),
        pytest.param(lambda told: told.attempt_rejected(KEY, 1), id="an attempt was given up"),
        pytest.param(lambda told: told.node_rejected(WHO, "n1"), id="a node was refused"),
    ],
)
def test_the_loop_is_woken_by_every_enqueued_change(tell: Callable[[SharedState], None]) -> None:
    clock = FakeClock()
    told = SharedState(Store(), clock)
    waits = threading.Thread(target=told.wait, args=(30.0,), daemon=True)
    waits.start()
    clock.await_waiters(1)
    tell(told)
    waits.join(60.0)
    assert not waits.is_alive()


def test_a_change_before_the_loop_waits_is_not_waited_for() -> None:
    told = state()
    told.enqueue(KEY)
    waits = threading.Thread(target=told.wait, args=(30.0,), daemon=True)
    waits.start()
    waits.join(60.0)
    assert not waits.is_alive()


def test_a_node_that_became_unsuitable_affects_only_members_that_are_not_bound_yet() -> None:
    told = state(gang("to-come", ADMITTED), gang("elsewhere", ADMITTED, "n2"), gang("there", BOUND), gang("w", WAITING))
    told.node_degraded("n1")
    assert told.take() == {"team/to-come"}


def test_only_the_first_refusal_of_a_node_is_news() -> None:
    told = state()
    told.node_rejected(WHO, "n1")
    assert told.take() == {KEY}
    told.node_rejected(WHO, "n1")
    assert told.take() == set()
    assert told.rejected_nodes.by_member(KEY) == {"worker-0": {"n1"}}


def test_only_the_attempt_that_was_given_up_is() -> None:
    told = state()
    one = gang("one", ADMITTED, attempt=2)
    assert not told.is_attempt_rejected(one)
    told.attempt_rejected(KEY, 2)
    assert told.take() == {KEY}
    assert told.is_attempt_rejected(one)
    assert not told.is_attempt_rejected(replace(one, status=replace(one.status, attempt=3)))


def test_of_a_gang_that_is_gone_nothing_is_kept() -> None:
    told = state()
    told.attempt_rejected(KEY, 1)
    told.node_rejected(WHO, "n1")
    told.forget(KEY)
    assert not told.is_attempt_rejected(gang("one", ADMITTED))
    assert told.rejected_nodes.by_member(KEY) == {}
