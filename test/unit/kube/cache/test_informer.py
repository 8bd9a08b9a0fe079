"""The rules of kube/cache/informer.py: threads are real, time is not."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.fakeclock import FakeClock
from helpers.informercontract import Diary
from helpers.poll import eventually, until
from helpers.scripted import FedRequester
from helpers.things import THINGS, Thing, bookmark, line, thing
from tfjob_controller.kube.cache.informer import Informer
from tfjob_controller.kube.errors import ApiError

A5, A7, A8, B6 = thing("a", 5), thing("a", 7), thing("a", 8), thing("b", 6)
LIST_OF_A = (line("ADDED", A5), bookmark(6, ends_list=True))


class Setup:
    def __init__(self, requester: FedRequester | None = None) -> None:
        self.clock = FakeClock()
        self.requester = requester or FedRequester()
        self.informer = Informer(self.requester, THINGS, clock=self.clock)

    def started(self, *lines: bytes) -> Informer[Thing]:
        self.informer.start()
        self.requester.feed(*lines)
        return self.informer


@pytest.fixture
def setup() -> Iterator[Setup]:
    setup = Setup()
    yield setup
    assert setup.informer.stop(60.0)


def test_a_handler_finds_in_the_store_the_notified_version_or_a_newer_one(setup: Setup) -> None:
    found: list[bool] = []

    class Reader(Diary):
        def on_update(self, old: Thing, new: Thing) -> None:
            stored = setup.informer.store.get("ns/a")
            found.append(
                stored is not None and int(stored.metadata.resource_version) >= int(new.metadata.resource_version)
            )

    setup.informer.add_handler(Reader())
    setup.started(*LIST_OF_A, *(line("MODIFIED", thing("a", version)) for version in range(7, 57)))
    eventually(lambda: len(found) == 50, timeout=5.0)
    assert all(found)


def test_it_is_synced_once_the_whole_list_is_there(setup: Setup) -> None:
    informer = setup.started(line("ADDED", A5))
    assert not informer.is_synced
    assert not informer.is_synced
    setup.requester.feed(bookmark(6, ends_list=True))
    eventually(lambda: informer.is_synced)
    assert informer.is_synced
    assert len(informer.store) == 1


def test_a_handler_has_synced_when_it_was_handed_the_whole_list(setup: Setup) -> None:
    go_on = threading.Event()

    class Slow(Diary):
        def on_add(self, obj: Thing, is_initial: bool) -> None:
            go_on.wait(60.0)

    registration = setup.informer.add_handler(Slow())
    informer = setup.started(*LIST_OF_A)
    eventually(lambda: informer.is_synced)
    assert not registration.has_synced
    go_on.set()
    assert eventually(lambda: registration.has_synced, timeout=5.0)


def test_a_slow_handler_delays_only_itself(setup: Setup) -> None:
    go_on = threading.Event()

    class Slow(Diary):
        def on_add(self, obj: Thing, is_initial: bool) -> None:
            go_on.wait(60.0)

    quick = Diary()
    slow = setup.informer.add_handler(Slow())
    setup.informer.add_handler(quick)
    setup.started(*LIST_OF_A, line("MODIFIED", A7))
    quick.comes_to(("add", "a", 0, True), ("update", "a", 0, 0))
    assert slow.statistics().delivered == 0
    go_on.set()


def test_what_a_handler_raises_is_counted_and_the_next_change_delivered(setup: Setup) -> None:
    class Buggy(Diary):
        def on_add(self, obj: Thing, is_initial: bool) -> None:
            super().on_add(obj, is_initial)
            raise RuntimeError("this handler has a bug")

    diary = Buggy()
    registration = setup.informer.add_handler(diary, name="buggy")
    setup.started(*LIST_OF_A, line("MODIFIED", A7))
    diary.comes_to(("add", "a", 0, True), ("update", "a", 0, 0))
    statistics = until(registration.statistics, lambda statistics: statistics.pending == 0)
    assert (statistics.failures, statistics.name, statistics.thread_restarts) == (1, "buggy", 0)


def test_stop_leaves_no_thread_also_while_blocked_in_a_read() -> None:
    before = set(threading.enumerate())
    setup = Setup()
    setup.informer.add_handler(Diary())
    informer = setup.started(*LIST_OF_A)
    eventually(lambda: informer.is_synced)
    assert {thread.name for thread in set(threading.enumerate()) - before} == {"informer-things", "handler-things-0"}
    assert informer.stop(60.0)
    assert set(threading.enumerate()) <= before


def test_stop_ends_a_delay_between_two_tries() -> None:
    class Down(FedRequester):
        def stream(self, path: str, **options: Any) -> Any:
            raise ApiError(0, "NotConnected", "connection refused")

    informer = Setup(requester=Down()).started()
    eventually(lambda: informer.last_error, timeout=5.0)
    assert informer.last_error.startswith("cannot watch things.example.com: connection refused")
    assert informer.stop(60.0)


def test_stop_before_start_and_stopping_twice_are_allowed() -> None:
    informer = Setup().informer
    assert informer.stop(60.0)
    assert informer.stop(60.0)


def test_an_informer_runs_once(setup: Setup) -> None:
    setup.informer.start()
    with pytest.raises(RuntimeError):
        setup.informer.start()
    setup.informer.stop(60.0)
    with pytest.raises(RuntimeError):
        setup.informer.add_handler(Diary())


def test_a_thread_that_dies_is_counted_and_started_again() -> None:
    class Buggy(FedRequester):
        def stream(self, path: str, **options: Any) -> Any:
            if not self.opened:
                self.opened += 1
                raise RuntimeError("a bug")
            return super().stream(path, **options)

    setup = Setup(requester=Buggy())
    informer = setup.started(*LIST_OF_A)
    eventually(lambda: setup.clock.advance(1.0) or informer.is_synced, timeout=5.0)
    assert informer.statistics().thread_restarts == 1
    assert informer.stop(60.0)
