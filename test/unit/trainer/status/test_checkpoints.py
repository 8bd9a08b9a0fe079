"""The rules of trainer/status/checkpoints.py."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from tfjob_controller.api.common.checkpointstatus import CheckpointFailure, CheckpointStatus
from tfjob_controller.api.common.status import TrainingStatus
from tfjob_controller.trainer.state.observed import CheckpointLine, SavedCheckpoint, UnsavedCheckpoint
from tfjob_controller.trainer.status.checkpoints import checkpoint_events, next_checkpoint, size_text
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
