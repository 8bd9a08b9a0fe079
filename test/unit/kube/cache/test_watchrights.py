"""What a program says of the rights of its watches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from helpers.answering import Request
from helpers.fakeclock import FakeClock
from helpers.memoryapi import MemoryApi, refusal
from helpers.poll import eventually
from tfjob_controller.api.common.core import JOBS, PODS
from tfjob_controller.kube.cache.watchrights import PERIOD_SECONDS, WatchRights

MISSING = "may not watch jobs.batch any more: its role or the binding is gone; apply the manifests again"


class Reviewing(MemoryApi):
    """Answers reviews: everything is allowed but what is in `denied`."""

    def __init__(self) -> None:
        super().__init__()
        self.denied: set[str] = set()
        self.asked: list[dict[str, Any]] = []

    def apply(self, request: Request) -> bytes:
        attributes = request.body["spec"]["resourceAttributes"]
        self.asked.append(attributes)
        return b'{"status": {"allowed": %s}}' % (b"false" if attributes["resource"] in self.denied else b"true")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def api() -> Reviewing:
    return Reviewing()


@pytest.fixture
def rights(api: Reviewing, clock: FakeClock) -> Iterator[WatchRights]:
    rights = WatchRights(api, [(JOBS, ""), (PODS, "team")], clock)
    rights.start()
    yield rights
    assert rights.stop(60)


def look_again(clock: FakeClock) -> None:
    clock.await_waiters(1)
    clock.advance(PERIOD_SECONDS)
    clock.await_waiters(1)


def test_it_asks_for_each_watch_in_its_namespace(rights: WatchRights, api: Reviewing, clock: FakeClock) -> None:
    look_again(clock)
    eventually(lambda: len(api.asked) >= 2)
    assert api.asked[:2] == [
        {"verb": "watch", "group": "batch", "resource": "jobs"},
        {"verb": "watch", "resource": "pods", "namespace": "team"},
    ]
    assert rights.problems() == []


def test_rights_that_vanish_are_a_problem_until_they_are_back(
    rights: WatchRights, api: Reviewing, clock: FakeClock
) -> None:
    api.denied = {"jobs"}
    look_again(clock)
    eventually(lambda: rights.problems() == [MISSING])
    api.denied = set()
    look_again(clock)
    eventually(lambda: rights.problems() == [])


def test_no_answer_changes_nothing(rights: WatchRights, api: Reviewing, clock: FakeClock) -> None:
    api.denied = {"jobs"}
    look_again(clock)
    eventually(lambda: rights.problems() == [MISSING])
    api.always = refusal(503)
    api.denied = set()
    look_again(clock)
    assert rights.problems() == [MISSING]
    assert rights.thread.restarts == 0
