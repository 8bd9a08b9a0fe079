"""How pods are evicted, with an API server in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.fakeclock import FakeClock
from helpers.memoryapi import Fault, MemoryApi, Request, no_answer, refusal
from helpers.poll import eventually
from tfjob_controller.gangscheduler.binding.evictor import RETRY_CAP_SECONDS, Eviction, Evictor

KEY = "team/p-1"
PATH = "/api/v1/namespaces/team/pods/p-1/eviction"
DEADLINE = 15.0


class Server(MemoryApi):
    """Accepts every eviction that no fault refuses, and keeps the pod."""

    def apply(self, request: Request) -> bytes:
        assert request.method == "POST"
        return b"{}"

    @property
    def options(self) -> list[object]:
        return [each.body["deleteOptions"] for each in self.sent]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def evictor(server: Server, clock: FakeClock) -> Iterator[Evictor]:
    evictor = Evictor(server, clock, threads=2)
    evictor.start()
    yield evictor
    assert evictor.stop(10)


def eviction(clock: FakeClock, *, grace: int | None = None, uid: str = "u-1") -> Eviction:
    return Eviction(KEY, uid, grace, clock.monotonic() + DEADLINE)


def is_idle(evictor: Evictor) -> bool:
    queue = evictor.statistics()
    return queue.queued + queue.processing == 0


def test_a_pod_is_evicted_by_its_uid_with_its_own_grace_period(
    evictor: Evictor, server: Server, clock: FakeClock
) -> None:
    evictor.evict([eviction(clock)])
    eventually(lambda: server.sent)
    assert server.sent[0].path == PATH
    assert server.sent[0].body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p-1", "namespace": "team"},
        "deleteOptions": {"preconditions": {"uid": "u-1"}},
    }


def test_a_grace_period_replaces_its_own(evictor: Evictor, server: Server, clock: FakeClock) -> None:
    evictor.evict([eviction(clock, grace=30)])
    eventually(lambda: server.options == [{"preconditions": {"uid": "u-1"}, "gracePeriodSeconds": 30}])


@pytest.mark.parametrize(
    "fault", [refusal(429, "TooManyRequests"), refusal(500), no_answer(applied=False)], ids=["budget", "500", "lost"]
)
def test_an_eviction_that_failed_is_repeated_until_its_deadline(
    evictor: Evictor, server: Server, clock: FakeClock, fault: Fault
) -> None:
    server.always = fault
    evictor.evict([eviction(clock)])
    eventually(lambda: server.sent)

    def is_over() -> bool:
        """Time passes in small steps, so that no thread sees it jump."""
        clock.advance(0.5)
        queue = evictor.statistics()
        return queue.queued + queue.processing + queue.delayed == 0

    eventually(is_over, period=0.005)
    assert len(server.sent) >= 3
    assert clock.monotonic() >= DEADLINE


@pytest.mark.parametrize(("status", "reason"), [(404, "NotFound"), (409, "Conflict"), (403, "Forbidden")])
def test_what_would_fail_again_is_not_repeated(
    evictor: Evictor, server: Server, clock: FakeClock, status: int, reason: str
) -> None:
    """The pod is gone, another one has its name, or a right or policy is missing."""
    server.always = refusal(status, reason)
    evictor.evict([eviction(clock)])
    eventually(lambda: len(server.sent) == 1)
    eventually(lambda: is_idle(evictor))
    clock.advance(DEADLINE)
    assert len(server.sent) == 1


def test_the_last_word_on_a_pod_that_is_being_tried_counts(evictor: Evictor, server: Server, clock: FakeClock) -> None:
    server.script.append(refusal(429))
    evictor.evict([eviction(clock)])
    eventually(lambda: server.sent)
    evictor.evict([eviction(clock, grace=30)])
    clock.advance(RETRY_CAP_SECONDS)
    eventually(lambda: {"preconditions": {"uid": "u-1"}, "gracePeriodSeconds": 30} in server.options)
