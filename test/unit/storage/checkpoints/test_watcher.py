"""When a checkpoint is complete, and what a hostile folder cannot do."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path
from typing import cast

import pytest

from helpers.checkpoints import write
from helpers.fakeclock import FakeClock
from tfjob_controller.storage.checkpoints import watcher as watching
from tfjob_controller.storage.checkpoints.watcher import CheckpointWatcher, FolderError
from tfjob_controller.util.clock import Clock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def watcher(tmp_path: Path, clock: FakeClock) -> CheckpointWatcher:
    return CheckpointWatcher(str(tmp_path), 10.0, clock)


def complete(watcher: CheckpointWatcher) -> list[str]:
    return [each.name for each in watcher.look()]


def test_a_checkpoint_is_complete_after_the_settling_time(
    watcher: CheckpointWatcher, tmp_path: Path, clock: FakeClock
) -> None:
    write(tmp_path, {"checkpoint-1/model": b"1", "last.pt": b"2"})
    assert complete(watcher) == []
    clock.advance(9.9)
    assert complete(watcher) == []
    clock.advance(0.1)
    assert sorted(complete(watcher)) == ["checkpoint-1", "last.pt"]


@pytest.mark.parametrize("change", ["content", "new file", "removed file", "time"])
def test_each_change_deep_in_a_folder_begins_the_settling_time_anew(
    change: str, watcher: CheckpointWatcher, tmp_path: Path, clock: FakeClock
) -> None:
    write(tmp_path, {"c/sub/a": b"1", "c/sub/b": b"1"})
    complete(watcher)
    clock.advance(9.0)
    sub = tmp_path / "c/sub"
    match change:
        case "content":
            (sub / "a").write_bytes(b"longer")
        case "new file":
            (sub / "new").write_bytes(b"")
        case "removed file":
            (sub / "a").unlink()
        case "time":
            os.utime(sub / "a", ns=(1, 1))
    assert complete(watcher) == []
    clock.advance(9.0)
    assert complete(watcher) == []
    clock.advance(1.0)
    assert complete(watcher) == ["c"]


def test_wall_clocks_that_jump_settle_nothing(watcher: CheckpointWatcher, tmp_path: Path, clock: FakeClock) -> None:
    write(tmp_path, {"a": b"1"})
    os.utime(tmp_path / "a", (1, 1))
    complete(watcher)
    clock.jump(3600)
    clock.advance(9)
    assert complete(watcher) == []


def test_a_marker_completes_at_once(watcher: CheckpointWatcher, tmp_path: Path) -> None:
    write(tmp_path, {"folder/x": b"1", "file.pt": b"2", "other": b"3"})
    write(tmp_path, {"folder/.done": b"", "file.pt.done": b""})
    assert sorted(complete(watcher)) == ["file.pt", "folder"]


def test_a_marker_that_is_older_than_its_checkpoint_does_not_count(watcher: CheckpointWatcher, tmp_path: Path) -> None:
    write(tmp_path, {"folder/x": b"1", "folder/.done": b"", "file.pt": b"2", "file.pt.done": b""})
    for marker in ("folder/.done", "file.pt.done"):
        os.utime(tmp_path / marker, (1, 1))
    assert complete(watcher) == []


def test_hidden_names_links_markers_pipes_and_empty_folders_are_no_checkpoints(
    watcher: CheckpointWatcher, tmp_path: Path, clock: FakeClock
) -> None:
    write(tmp_path, {".tmp/x": b"1", "x.done": b"", "c-1/x": b"1"})
    (tmp_path / "latest").symlink_to("c-1")
    (tmp_path / "empty/sub").mkdir(parents=True)
    os.mkfifo(tmp_path / "pipe")
    complete(watcher)
    clock.advance(10)
    assert complete(watcher) == ["c-1"]


def test_a_folder_that_is_not_there_yet_is_waited_for(tmp_path: Path, clock: FakeClock) -> None:
    watcher = CheckpointWatcher(str(tmp_path / "not/yet"), 10.0, clock)
    assert watcher.look() == []
    write(tmp_path / "not/yet", {"a": b"1"})
    watcher.look()
    clock.advance(10)
    assert complete(watcher) == ["a"]


def test_the_oldest_change_comes_first(watcher: CheckpointWatcher, tmp_path: Path, clock: FakeClock) -> None:
    write(tmp_path, {"b": b"1", "c": b"1"})
    os.utime(tmp_path / "c", (1, 1))
    complete(watcher)
    clock.advance(1)
    write(tmp_path, {"a": b"1"})
    # Seen later, so newer, whatever its time says.
    os.utime(tmp_path / "a", (0, 0))
    complete(watcher)
    clock.advance(10)
    assert complete(watcher) == ["c", "b", "a"]


class TickingClock:
    """A clock that goes on a little with each reading, as a real one does."""

    def __init__(self) -> None:
        self._ticks = itertools.count()

    def monotonic(self) -> float:
        return next(self._ticks) * 1e-6


def test_of_those_that_are_seen_at_once_the_time_and_then_the_step_decide(tmp_path: Path) -> None:
    """Not the order in which the folder is listed, nor that of the letters."""
    watcher = CheckpointWatcher(str(tmp_path), 0.0, cast(Clock, TickingClock()))
    names = [f"checkpoint-{step}" for step in (8, 9, 10, 11, 100)]
    for name in random.Random(3).sample(names, len(names)):
        write(tmp_path, {f"{name}/model": b"1"})
        os.utime(tmp_path / name / "model", ns=(5, 5))
        os.utime(tmp_path / name, ns=(5, 5))
    write(tmp_path, {"checkpoint-200/model": b"1"})
    os.utime(tmp_path / "checkpoint-200" / "model", ns=(4, 4))
    os.utime(tmp_path / "checkpoint-200", ns=(4, 4))
    watcher.look()
    assert complete(watcher) == ["checkpoint-200", *names]


def test_a_path_through_a_link_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(FolderError, match="symbolic link"):
        CheckpointWatcher(str(tmp_path / "link"), 10.0, clock).look()


def test_bounds_are_problems_of_the_checkpoint(
    watcher: CheckpointWatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "MOST_FILES", 10)
    deep = tmp_path / "deep" / "/".join("d" * 101)
    deep.mkdir(parents=True)
    write(tmp_path, {f"many/{number}": b"" for number in range(11)})
    write(tmp_path, {"a\nb": b""})
    with (tmp_path / "big").open("wb") as file:
        file.truncate(6 * 2**40)
    problems = {each.name: each.scan.problem for each in watcher.look()}
    assert problems == {
        "deep": "its folders are nested 100 levels deep or more",
        "many": "it has more than 10 files",
        "a\nb": "its name contains control characters",
        "big": "it is larger than 5 TiB",
    }


def test_too_many_entries_are_a_problem_of_the_folder(
    watcher: CheckpointWatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "MOST_ENTRIES", 3)
    write(tmp_path, {str(number): b"" for number in range(4)})
    with pytest.raises(FolderError, match="more than 3 files"):
        watcher.look()


def test_a_link_within_a_checkpoint_is_not_followed(watcher: CheckpointWatcher, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    write(outside, {str(number): b"" for number in range(3)})
    write(tmp_path, {"c/a": b"1", "c/.done": b""})
    (tmp_path / "c/loop").symlink_to(".")
    (tmp_path / "c/out").symlink_to(outside)
    os.utime(tmp_path / "c/.done", ns=(2**62, 2**62))
    (found,) = watcher.look()
    assert (found.scan.files, found.scan.problem) == (2, "")
