"""The machine in its surroundings: clock, binder, listener, threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from helpers.extenderparts import Bindings, Listener
from helpers.fakeclock import FakeClock
from helpers.poll import eventually
from tfjob_controller.gangscheduler.binding.binder import Binder
from tfjob_controller.gangscheduler.bindrequests import NOT_COMPLETE, STOPPING, BindRequest, GangMember
from tfjob_controller.gangscheduler.permit.members import PermitPhase
from tfjob_controller.gangscheduler.permit.permit import HTTP_TIMEOUT_FRACTION, TICK_SECONDS, Permit
from tfjob_controller.util.clock import RealClock

HTTP_TIMEOUT, BIND_TIMEOUT, ADMITTED_TIMEOUT = 300.0, 600.0, 3600.0
NODES = {"worker-0": "n0", "worker-1": "n1"}


class Parts:
    def __init__(self) -> None:
        self.clock, self.listener, self.bindings = FakeClock(), Listener(), Bindings()
        self.binder = Binder(self.bindings, RealClock(), threads=2)
        self.permit = Permit(
            self.binder.submit,
            self.listener,
            self.clock,
            http_timeout_seconds=HTTP_TIMEOUT,
            bind_timeout_seconds=BIND_TIMEOUT,
            admitted_timeout_seconds=ADMITTED_TIMEOUT,
        )
        self.answers: dict[str, list[str]] = {}

    def request_bind(self, member: str, gang: str = "ns/gang") -> None:
        pod = BindRequest("ns", member, f"uid-{member}", NODES[member])
        answers = self.answers.setdefault(member, [])
        self.permit.request_bind(GangMember(gang, 1, member), pod, answers.append)

    def pass_time(self, seconds: float) -> None:
        """Once the gate's thread rests, so that it sees the time that has come."""
        self.clock.await_waiters(1)
        self.clock.advance(seconds)


@pytest.fixture
def parts() -> Iterator[Parts]:
    parts = Parts()
    parts.binder.start()
    parts.permit.start()
    parts.permit.set_placement("ns/gang", 1, NODES)
    yield parts
    assert parts.permit.stop()
    assert parts.binder.stop()


def test_a_complete_gang_is_allowed_and_the_listener_is_notified(parts: Parts) -> None:
    parts.request_bind("worker-0")
    assert parts.permit.statistics().gangs[PermitPhase.WAITING] == 1
    parts.request_bind("worker-1")
    eventually(lambda: parts.listener.bound == ["ns/gang"])
    assert parts.answers == {"worker-0": [""], "worker-1": [""]}
    assert parts.bindings.bound == NODES
    assert parts.permit.statistics().gangs[PermitPhase.BOUND] == 1


def test_its_own_thread_ends_calls_in_time(parts: Parts) -> None:
    parts.request_bind("worker-0")
    parts.pass_time(HTTP_TIMEOUT_FRACTION * HTTP_TIMEOUT - TICK_SECONDS)
    parts.clock.await_waiters(1)
    assert parts.answers["worker-0"] == []
    parts.pass_time(TICK_SECONDS)
    eventually(lambda: parts.answers["worker-0"] == [NOT_COMPLETE])


def test_its_own_thread_gives_a_gang_up(parts: Parts) -> None:
    parts.pass_time(BIND_TIMEOUT)
    eventually(lambda: parts.listener.rejected_attempts == [("ns/gang", 1)])


def test_a_callback_may_call_back(parts: Parts) -> None:
    """None of them runs under the lock."""
    done = threading.Event()

    def on_response(error: str) -> None:
        parts.permit.forget("ns/gang")
        parts.permit.statistics()
        done.set()

    parts.permit.request_bind(GangMember("ns/none", 1, "x"), BindRequest("ns", "p", "u", "n"), on_response)
    assert done.wait(5.0)


def test_stop_answers_parked_calls_and_later_ones(parts: Parts) -> None:
    parts.request_bind("worker-0")
    assert parts.permit.stop()
    parts.request_bind("worker-1")
    assert parts.answers == {"worker-0": [STOPPING], "worker-1": [STOPPING]}


def test_calls_from_many_threads_are_each_answered_once(parts: Parts) -> None:
    members = [f"worker-{number}" for number in range(50)]
    nodes_of = dict.fromkeys(members, "n0")
    parts.permit.set_placement("ns/many", 1, nodes_of)
    answers: list[str] = []

    def come(member: str) -> None:
        for _ in range(5):
            pod = BindRequest("ns", member, f"uid-{member}", "n0")
            parts.permit.request_bind(GangMember("ns/many", 1, member), pod, answers.append)

    threads = [threading.Thread(target=come, args=[member]) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: len(answers) == 250)
    assert answers.count("") >= 50
    assert len(parts.bindings.bound) == len(parts.bindings.bodies) == 50
