"""The rules of jobs/status/checkpoints.py."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from tfjob_controller.api.common.checkpointstatus import (
    CheckpointFailure,
    CheckpointStatus,
    RestoredCheckpoint,
    SkippedCheckpoint,
)
from tfjob_controller.api.common.status import JobCondition
from tfjob_controller.jobs.state.observed import CheckpointLine, ReportedStep, SavedCheckpoint, UnsavedCheckpoint
from tfjob_controller.jobs.status.checkpoints import (
    checkpoint_events,
    next_checkpoint,
    size_text,
    unsaved_since,
    with_restored,
)
from tfjob_controller.jobs.trainingjob import TrainingStatus
from tfjob_controller.util.timestamps import format_time

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


def at(second: int) -> str:
    return f"2026-01-01T00:00:{second:02d}Z"


def saved(second: int, step: int | None) -> SavedCheckpoint:
    return SavedCheckpoint(f"checkpoint-{step}", step, at(second), 2048, f"s3://b/{step}")


def unsaved(second: int, reason: str = "no rights") -> UnsavedCheckpoint:
    return UnsavedCheckpoint("checkpoint-9", reason, at(second))


def after(*lines: CheckpointLine, old: CheckpointStatus | None = None) -> CheckpointStatus | None:
    return next_checkpoint(old, lines, NOW)


def notes(old: CheckpointStatus | None, new: CheckpointStatus | None) -> list[tuple[str, str, str]]:
    events = checkpoint_events(TrainingStatus(checkpoint=old), TrainingStatus(checkpoint=new))
    return [(each.type, each.reason, each.note) for each in events]


def test_a_job_that_has_saved_nothing_says_nothing() -> None:
    assert after() is None


def test_the_newest_checkpoint_is_shown_in_whatever_order_lines_come() -> None:
    lines = (saved(1, 10), saved(2, 20), saved(2, 21))
    expected = CheckpointStatus("checkpoint-21", 21, at(2), 2048, "s3://b/21", saved=3)
    for each in itertools.permutations(lines):
        assert after(*each) == expected


def test_an_older_one_never_replaces_a_newer_one_and_none_is_counted_twice() -> None:
    old = after(saved(5, 50))
    assert after(saved(5, 50), old=old) is old
    assert after(saved(4, 60), saved(5, 49), saved(5, None), old=old) is old
    newer = after(saved(6, 10), old=old)
    assert newer is not None
    assert (newer.step, newer.saved) == (10, 2)  # the job went back to an earlier step


def test_a_time_far_ahead_is_not_believed() -> None:
    ahead = SavedCheckpoint("x", 1, format_time(NOW + timedelta(minutes=6)), 1, "")
    assert after(ahead) is None
    assert after(ahead, saved(1, 10)) == after(saved(1, 10))
    near = SavedCheckpoint("x", 1, format_time(NOW + timedelta(minutes=4)), 1, "")
    assert (after(near) or CheckpointStatus()).name == "x"


def test_a_failure_stands_until_a_later_checkpoint_is_saved() -> None:
    failed = after(saved(1, 10), unsaved(2))
    assert failed is not None
    assert (failed.name, failed.failed) == ("checkpoint-10", 1)
    assert failed.failure == CheckpointFailure("checkpoint-9", "no rights", at(2))
    assert after(saved(1, 10), unsaved(2), old=failed) is failed
    assert after(unsaved(3), old=failed) != failed
    mended = after(saved(4, 20), old=failed)
    assert mended is not None
    assert (mended.failure, mended.failed, mended.saved) == (None, 1, 2)
    # Both are read again.
    assert after(unsaved(2), saved(4, 20), old=mended) is mended


def test_a_failure_that_was_over_before_it_was_seen_is_counted_and_not_shown() -> None:
    seen = after(unsaved(2), saved(3, 10))
    assert seen is not None
    assert (seen.failed, seen.failure) == (1, None)


def test_saved_and_failed_checkpoints_are_events_once() -> None:
    first, failed = after(saved(1, 10)), after(saved(1, 10), unsaved(2))
    assert notes(None, first) == [("Normal", "CheckpointSaved", "checkpoint-10 (step 10), 2.0 KiB, is saved")]
    assert notes(first, failed) == [("Warning", "CheckpointFailed", "checkpoint-9 is not saved: no rights")]
    assert notes(first, first) == notes(failed, failed) == []
    assert [each[1] for each in notes(None, failed)] == ["CheckpointSaved", "CheckpointFailed"]
    unnamed = after(SavedCheckpoint("best", None, at(1), 5, ""), UnsavedCheckpoint("", "it is no folder", at(2)))
    assert [each[2] for each in notes(None, unnamed)] == [
        "best, 5 B, is saved",
        "A checkpoint is not saved: it is no folder",
    ]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 * 2**30 // 2, "1.5 GiB"), (2**50, "1024.0 TiB")],
)
def test_sizes_in_words(size: int, text: str) -> None:
    assert size_text(size) == text


# What was restored


def restore(second: int, step: int | None = None, *skipped: SkippedCheckpoint) -> RestoredCheckpoint:
    name = "" if step is None else f"checkpoint-{step}"
    return RestoredCheckpoint(name, step, at(second), f"s3://b/{step}" if name else "", skipped=skipped)


def reported(second: int, step: int) -> ReportedStep:
    return ReportedStep(step, at(second))


def restored_after(
    what: RestoredCheckpoint | None, *steps: ReportedStep, old: CheckpointStatus | None = None
) -> CheckpointStatus | None:
    return with_restored(old, what, steps)


def repeated(status: CheckpointStatus | None) -> int:
    assert status is not None
    assert status.restored is not None
    return status.restored.repeated_steps


def test_a_first_start_has_restored_nothing() -> None:
    assert restored_after(None) is None
    assert restored_after(restore(1)) is None
    # Steps that are reported later are no steps of an earlier pod.
    assert restored_after(restore(1), reported(1, 5), reported(2, 10)) is None


def test_the_steps_after_the_restored_one_are_done_again() -> None:
    status = restored_after(restore(20, 30), reported(10, 37), reported(21, 31), old=after(saved(9, 30)))
    assert status is not None
    assert status.restored == RestoredCheckpoint("checkpoint-30", 30, at(20), "s3://b/30", repeated_steps=7)
    assert (status.name, status.saved) == ("checkpoint-30", 1)
    assert restored_after(restore(20, 30), reported(10, 37), reported(21, 99), old=status) is status


def test_without_a_checkpoint_all_steps_are_done_again() -> None:
    assert repeated(restored_after(restore(20), reported(10, 37))) == 37


def test_no_steps_are_done_again_if_none_are_known() -> None:
    assert repeated(restored_after(restore(20, 30))) == 0
    assert repeated(restored_after(restore(20, 30), reported(10, 30))) == 0
    assert repeated(restored_after(restore(20, 30), reported(10, 5))) == 0  # it counts differently
    unnumbered = RestoredCheckpoint("best", None, at(20))
    assert repeated(restored_after(unnumbered, reported(10, 37))) == 0


def test_steps_that_are_lost_once_are_counted_once() -> None:
    first = restored_after(restore(20, 30), reported(10, 37))
    # The second attempt has reported nothing before it was lost.
    second = restored_after(restore(30, 30), reported(10, 37), old=first)
    assert repeated(second) == 0
    third = restored_after(restore(40, 30), reported(35, 33), old=second)
    assert repeated(third) == 3


def test_an_earlier_restore_never_replaces_a_later_one() -> None:
    status = restored_after(restore(20, 30))
    assert restored_after(restore(19, 40), old=status) is status
    assert restored_after(None, old=status) is status


def test_a_restore_is_an_event_that_says_what_is_done_again_and_what_was_skipped() -> None:
    broken = (SkippedCheckpoint("checkpoint-40", "a file is missing"), SkippedCheckpoint("checkpoint-35", "x"))
    texts = [
        (restored_after(restore(20, 30)), "Training continues from checkpoint-30 (step 30)"),
        (
            restored_after(restore(20, 30), reported(1, 31)),
            "Training continues from checkpoint-30 (step 30); 1 step is done again",
        ),
        (
            restored_after(restore(20), reported(1, 37)),
            "Training starts from the beginning, because there is no checkpoint; 37 steps are done again",
        ),
    ]
    for status, text in texts:
        assert notes(None, status) == [("Normal", "CheckpointRestored", text)]
        assert notes(status, status) == []
    assert notes(None, restored_after(restore(20, 30, *broken))) == [
        (
            "Warning",
            "CheckpointRestored",
            "Training continues from checkpoint-30 (step 30). "
            "checkpoint-40 (and 1 more) could not be restored: a file is missing",
        )
    ]
    assert notes(None, restored_after(restore(20, None, *broken)))[0][0] == "Warning"


# Since when nothing is saved


def running(second: int, status: str = "True") -> tuple[JobCondition, ...]:
    return (JobCondition("Running", status, "", "", at(second)),)


@pytest.mark.parametrize(
    ("began", "saved_at", "since"), [(5, None, 5), (5, 9, 9), (5, 3, 5)], ids=["none", "since", "before a restart"]
)
def test_training_is_not_saved_since_its_last_checkpoint_or_a_later_start(
    began: int, saved_at: int | None, since: int
) -> None:
    checkpoint = after(saved(saved_at, 1)) if saved_at is not None else None
    found = unsaved_since(TrainingStatus(conditions=running(began), checkpoint=checkpoint))
    assert found == NOW.replace(minute=0, second=since)


def test_a_job_that_does_not_run_has_nothing_to_save() -> None:
    assert unsaved_since(TrainingStatus()) is None
    assert unsaved_since(TrainingStatus(conditions=running(5, "False"))) is None
    assert unsaved_since(TrainingStatus(conditions=running(5), completion_time=at(9))) is None
