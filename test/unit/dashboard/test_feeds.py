"""What the readers of one feed share."""

from __future__ import annotations

import asyncio

import pytest

from helpers.fakeclock import FakeClock
from helpers.scripted import ScriptedRequester
from tfjob_controller.dashboard.feeds import JobFeed, Notifier
from tfjob_controller.dashboard.users import User
from unit.dashboard.test_jobrows import row


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def feed(clock: FakeClock) -> JobFeed:
    """A feed that has not started."""
    user = User("me", ScriptedRequester(), "ns", "there", clock)
    return JobFeed(user, "ns", Notifier(asyncio.new_event_loop()), clock)


def test_a_table_is_made_once_for_all_readers_of_a_selection(feed: JobFeed) -> None:
    tables = iter(("first", "second"))
    assert [feed.content("all", lambda: next(tables)) for _ in range(3)] == ["first"] * 3
    assert feed.content("failed jobs", lambda: next(tables)) == "second"


def test_a_table_is_made_again_after_a_change_and_after_a_moment(feed: JobFeed, clock: FakeClock) -> None:
    tables = iter(("first", "changed", "later"))
    assert feed.content("all", lambda: next(tables)) == "first"
    feed.changes.version += 1
    assert feed.content("all", lambda: next(tables)) == "changed"
    clock.advance(6)
    assert feed.content("all", lambda: next(tables)) == "later"


def test_only_finite_losses_are_kept(feed: JobFeed) -> None:
    for loss in (3.0, float("nan"), float("nan"), float("inf"), 2.0):
        feed.on_add(row("a", loss=loss), is_initial=False)
    assert feed.losses("a") == (3.0, 2.0)


def test_a_table_that_could_not_be_made_is_not_kept(feed: JobFeed) -> None:
    def fail() -> str:
        raise ValueError("once")

    with pytest.raises(ValueError, match="once"):
        feed.content("all", fail)
    assert feed.content("all", lambda: "table") == "table"
