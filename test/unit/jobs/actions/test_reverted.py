"""Changes that another client keeps reverting are delayed more and more, and named."""

from __future__ import annotations

import pytest

from tfjob_controller.api.common.core import JOBS, SECRETS, SERVICES
from tfjob_controller.jobs.actions.model import Actions, Create, Delete, Patch, SetSuspend
from tfjob_controller.jobs.actions.reverted import (
    ACCEPTED_SECONDS,
    ADMISSION,
    FIRST_DELAY_SECONDS,
    KUEUE,
    MAX_DELAY_SECONDS,
    ChangeTracker,
    RevertedChange,
    reverted_message,
)

RESUME = Actions(suspends=(SetSuspend("a", False),))
SUSPEND = Actions(suspends=(SetSuspend("a", True),))
CREATE = Actions(creates=(Create(JOBS, "a", {}),))
NOTHING = Actions()


def write(tracker: ChangeTracker, actions: Actions, now: float, *, lost: bool = False) -> bool:
    """One sync whose writes succeed; returns whether all of them were allowed."""
    allowed = tracker.allowed(actions, now, has_lost_children=lost)
    tracker.record(
        now=now,
        has_lost_children=lost,
        created=allowed.creates,
        deleted=allowed.deletes,
        changed=(*allowed.suspends, *allowed.patches),
    )
    return allowed == actions


def times_of_writes(tracker: ChangeTracker, actions: Actions, seconds: int, *, lost: bool = False) -> list[int]:
    """The seconds of the writes to a child that is reverted at once, each time."""
    return [now for now in range(seconds) if write(tracker, actions, float(now), lost=lost)]


PATCH = Actions(patches=(Patch(JOBS, "a", {"spec": {"parallelism": 2, "completions": 2}}),))


@pytest.mark.parametrize(
    ("actions", "lost"),
    [(RESUME, False), (SUSPEND, False), (PATCH, False), (CREATE, True)],
    ids=["resume", "suspend", "patch", "create"],
)
def test_two_equal_writes_are_free_and_further_ones_wait_twice_as_long_each_time(actions: Actions, lost: bool) -> None:
    assert times_of_writes(ChangeTracker(), actions, 2200, lost=lost) == [0, 1, 61, 181, 421, 901, 1501, 2101]


def test_a_value_in_between_ends_the_count() -> None:
    tracker = ChangeTracker()
    for now in range(20):
        assert write(tracker, RESUME if now % 2 else SUSPEND, float(now))
    assert tracker.reverted() == []


def test_children_that_the_controller_deleted_itself_are_recreated_at_once() -> None:
    tracker = ChangeTracker()
    delete = Actions(deletes=(Delete(JOBS, "a", "uid"),))
    for now in range(20):
        assert write(tracker, CREATE if now % 2 else delete, float(now), lost=True)


def test_first_creates_are_not_counted() -> None:
    tracker = ChangeTracker()
    assert all(write(tracker, CREATE, float(now)) for now in range(10))


def test_kinds_that_are_not_watched_may_be_created_again_at_any_time() -> None:
    tracker = ChangeTracker()
    secret = Actions(creates=(Create(SECRETS, "a", {}),))
    assert all(write(tracker, secret, float(now), lost=True) for now in range(10))


def test_while_one_resume_waits_no_other_job_is_resumed_but_all_else_is_written() -> None:
    tracker = ChangeTracker()
    times_of_writes(tracker, RESUME, 5)
    others = Actions(
        creates=(Create(SERVICES, "b", {}),),
        suspends=(SetSuspend("a", False), SetSuspend("b", False), SetSuspend("c", True)),
    )
    allowed = tracker.allowed(others, 6.0, has_lost_children=False)
    assert allowed == Actions(creates=(Create(SERVICES, "b", {}),), suspends=(SetSuspend("c", True),))


def test_a_change_is_reported_from_its_first_delay_until_it_has_been_accepted_for_a_while() -> None:
    tracker = ChangeTracker()
    write(tracker, RESUME, 0.0)
    write(tracker, RESUME, 1.0)
    assert tracker.reverted() == []
    assert not write(tracker, RESUME, 2.0)
    expected = RevertedChange(JOBS, "a", ("spec.suspend",), False)
    assert tracker.reverted() == [expected]
    assert tracker.seconds_until_change(2.0) == FIRST_DELAY_SECONDS - 1
    assert write(tracker, RESUME, 61.0)
    assert tracker.seconds_until_change(61.0) == ACCEPTED_SECONDS
    tracker.allowed(NOTHING, 61.0 + ACCEPTED_SECONDS - 1, has_lost_children=False)
    assert tracker.reverted() == [expected]
    tracker.allowed(NOTHING, 61.0 + ACCEPTED_SECONDS, has_lost_children=False)
    assert tracker.reverted() == []
    assert tracker.seconds_until_change(130.0) is None


def test_a_client_that_gives_up_while_a_write_waits_does_not_wake_the_job_for_ever() -> None:
    tracker = ChangeTracker()
    times_of_writes(tracker, RESUME, 1000)
    tracker.allowed(NOTHING, 1010.0, has_lost_children=False)
    assert tracker.seconds_until_change(1010.0) == ACCEPTED_SECONDS - 11
    tracker.allowed(NOTHING, 1060.0, has_lost_children=False)
    assert tracker.seconds_until_change(1060.0) is None


def test_counts_are_forgotten_after_a_quiet_time() -> None:
    tracker = ChangeTracker()
    times_of_writes(tracker, RESUME, 62)
    assert not write(tracker, RESUME, 62.0)
    later = 62.0 + 4 * FIRST_DELAY_SECONDS
    assert [write(tracker, RESUME, later + each) for each in range(3)] == [True, True, False]


def test_a_new_process_waits_before_its_first_write_if_the_status_says_so() -> None:
    tracker = ChangeTracker(was_reverted=True)
    assert times_of_writes(tracker, RESUME, 200) == [int(FIRST_DELAY_SECONDS), 180]
    accepted = ChangeTracker(was_reverted=True)
    accepted.allowed(NOTHING, 0.0, has_lost_children=False)
    assert write(accepted, RESUME, 1.0)


def test_a_change_of_the_job_by_its_user_ends_the_current_delay() -> None:
    tracker = ChangeTracker()
    times_of_writes(tracker, RESUME, 300)
    assert not write(tracker, RESUME, 300.0)
    tracker.retry_now()
    assert write(tracker, RESUME, 300.0)
    assert not write(tracker, RESUME, 300.0 + 3 * FIRST_DELAY_SECONDS)


def test_the_client_is_looked_up_once() -> None:
    tracker = ChangeTracker()
    times_of_writes(tracker, RESUME, 5)
    (found,) = tracker.reverted()
    assert tracker.needs_editor(found)
    tracker.set_editor(found, "")
    assert not tracker.needs_editor(found)


SUSPENDED = RevertedChange(JOBS, "a", ("spec.suspend",), False)


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        ([SUSPENDED], "another client keeps suspending Job a; the controller tries again"),
        ([RevertedChange(JOBS, "a", ("spec.suspend",), True, "x")], "another client (x) keeps resuming Job a;"),
        ([RevertedChange(SERVICES, "a", (), True)], "another client keeps deleting (or relabelling) Service a;"),
        (
            [RevertedChange(JOBS, "a", ("spec.parallelism", "spec.completions"), {})],
            "another client keeps changing spec.parallelism, spec.completions of Job a;",
        ),
        (
            [SUSPENDED, RevertedChange(JOBS, "b", ("spec.suspend",), False)],
            "another client keeps suspending Job a (and 1 more);",
        ),
    ],
)
def test_the_message_names_the_child_the_field_and_the_client(changes: list[RevertedChange], begins: str) -> None:
    message = reverted_message(changes)
    assert message.startswith(begins)
    assert message.endswith("Stop that client, or exclude the children of this job from it")
    assert f"up to {MAX_DELAY_SECONDS / 60:.0f} minutes" in message


@pytest.mark.parametrize(
    ("editor", "begins"), [(KUEUE, "another client (kueue) keeps"), (ADMISSION, "an admission webhook keeps")]
)
def test_the_message_says_what_to_configure_in_kueue(editor: str, begins: str) -> None:
    message = reverted_message([RevertedChange(JOBS, "a", ("spec.suspend",), False, editor)])
    assert message.startswith(begins)
    assert "externalFrameworks" in message
    assert "managedJobsNamespaceSelector" in message


def test_nothing_reverted_is_no_message() -> None:
    assert reverted_message([]) == ""
