"""What an upload leaves in the storage, and what it removes."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from helpers.checkpoints import contents, restore, resumed, save, uploader, wanted, write
from helpers.fakeclock import FakeClock
from tfjob_controller.storage.checkpoints.localstore import LocalStore
from tfjob_controller.storage.checkpoints.report import UploadReport
from tfjob_controller.storage.checkpoints.store import StoredFile

FILES = {"model.bin": os.urandom(100_000), "sub/config.json": b"{}", "empty": b""}


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "store"))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@dataclass(slots=True)
class MeddlingStore:
    """A store that calls a function once, before its first `put`."""

    store: LocalStore
    meddle: object
    listing: object = field(init=False)
    read: object = field(init=False)
    delete: object = field(init=False)
    put_whole: object = field(init=False)

    def __post_init__(self) -> None:
        self.listing, self.read = self.store.listing, self.store.read
        self.delete, self.put_whole = self.store.delete, self.store.put_whole

    def put(self, name: str, size: int, blocks: Iterable[bytes]) -> None:
        meddle, self.meddle = self.meddle, None
        if callable(meddle):
            meddle()
        self.store.put(name, size, blocks)


def names(store: LocalStore) -> list[str]:
    """The names of the checkpoints in the storage, the oldest first."""
    found = sorted(file.name for file in store.listing("manifests/"))
    return [json.loads(b"".join(store.read(name, 0)))["name"] for name in found]


def test_a_folder_is_stored_with_its_manifest(store: LocalStore, work: Path, tmp_path: Path) -> None:
    write(work / "checkpoint-500", FILES)
    (report,) = save(store, work, "checkpoint-500")
    assert (report.outcome, report.step, report.byte_count) == ("saved", 500, 100_002)
    assert contents(tmp_path / f"store/data/checkpoint-500/{report.upload_id}") == FILES
    assert report.uri == f"file:///store/data/checkpoint-500/{report.upload_id}"
    restore(store, tmp_path / "new")
    assert resumed(tmp_path / "new") == FILES


def test_a_file_is_a_checkpoint_too(store: LocalStore, work: Path, tmp_path: Path) -> None:
    write(work, {"last.pt": b"weights"})
    save(store, work, "last.pt")
    restore(store, tmp_path / "new")
    assert resumed(tmp_path / "new") == {"": b"weights"}


def test_clocks_do_not_decide_which_is_newest(store: LocalStore, work: Path, tmp_path: Path) -> None:
    write(work, {"first": b"1", "second": b"2"})
    save(store, work, "first")
    (manifest,) = store.listing("manifests/")
    # As if it had been saved by a node whose clock was ten years ahead.
    path = tmp_path / "store" / manifest.name
    path.rename(path.with_name(path.name.replace("-2", "-3", 1)))
    save(store, work, "second")
    assert names(store) == ["first", "second"]


@pytest.mark.parametrize("change", ["content", "new file", "removed"])
def test_a_checkpoint_that_changes_while_it_is_uploaded_is_dropped(change: str, store: LocalStore, work: Path) -> None:
    write(work, {"c/a": b"1", "c/b": b"2"})

    def meddle() -> None:
        match change:
            case "content":
                (work / "c/a").write_bytes(b"another")
                (work / "c/b").write_bytes(b"another")
            case "new file":
                (work / "c/new").write_bytes(b"")
            case "removed":
                (work / "c/b").unlink()
                (work / "c/a").unlink()

    reports: list[UploadReport] = []
    uploader(MeddlingStore(store, meddle), work, reports).run([wanted(work, "c")])  # type: ignore[arg-type]
    assert [report.outcome for report in reports] == ["dropped"]
    assert store.listing("data/") == store.listing("manifests/") == []


@pytest.mark.parametrize("kind", ["file outside", "environment", "hard to name"])
def test_a_checkpoint_that_leads_out_of_its_folder_is_unusable(
    kind: str, store: LocalStore, work: Path, tmp_path: Path
) -> None:
    write(tmp_path, {"secret": b"secret"})
    write(work, {"c/a": b"1"})
    match kind:
        case "file outside":
            (work / "c/link").symlink_to(tmp_path / "secret")
        case "environment":
            (work / "c/link").symlink_to("/proc/self/environ")
        case "hard to name":
            Path(os.fsdecode(os.fsencode(work / "c") + b"/\xff")).write_bytes(b"")
    (report,) = save(store, work, "c")
    assert report.outcome == "unusable"
    assert "out of" in report.reason or "UTF-8" in report.reason
    assert store.listing("data/") == []


def test_a_pipe_is_left_out_and_blocks_nothing(store: LocalStore, work: Path, tmp_path: Path) -> None:
    write(work, {"c/a": b"1"})
    os.mkfifo(work / "c/pipe")
    assert save(store, work, "c")[0].outcome == "saved"
    restore(store, tmp_path / "new")
    assert resumed(tmp_path / "new") == {"a": b"1"}


def test_a_broken_checkpoint_does_not_keep_the_next_from_being_saved(store: LocalStore, work: Path) -> None:
    write(work, {"c-1/a": b"1", "c-2/a": b"1"})
    (work / "c-1/link").symlink_to("/etc/passwd")
    assert [report.outcome for report in save(store, work, "c-1", "c-2")] == ["unusable", "saved"]


def test_what_the_storage_has_is_not_uploaded_again(store: LocalStore, work: Path, tmp_path: Path) -> None:
    write(work / "c-2", FILES)
    save(store, work, "c-2")
    restore(store, tmp_path / "new")
    (report,) = save(store, tmp_path / "new", "c-2", from_start=True)
    assert report.outcome == "unchanged"
    (tmp_path / "new/c-2/model.bin").write_bytes(os.urandom(100_000))
    assert save(store, tmp_path / "new", "c-2", from_start=True)[0].outcome == "saved"


def test_what_was_there_before_the_newest_stored_one_is_never_uploaded(store: LocalStore, work: Path) -> None:
    write(work, {"c-1/a": b"1", "c-2/a": b"2", "c-3/a": b"3"})
    save(store, work, "c-2")
    reports = save(store, work, "c-1", "c-2", "c-3", from_start=True)
    assert {report.name: report.outcome for report in reports} == {
        "c-1": "superseded",
        "c-2": "unchanged",
        "c-3": "saved",
    }
    assert names(store) == ["c-2", "c-3"]


def test_more_than_keep_at_once_are_not_uploaded(store: LocalStore, work: Path) -> None:
    write(work, {f"c-{number}/a": b"1" for number in range(5)})
    reports = save(store, work, *(f"c-{number}" for number in range(5)), keep=2)
    assert [report.outcome for report in reports] == ["superseded"] * 3 + ["saved"] * 2


def test_files_without_a_manifest_are_removed_when_they_are_an_hour_old(
    store: LocalStore, work: Path, tmp_path: Path
) -> None:
    old, young = "a" * 32, "b" * 32
    write(tmp_path / "store/data", {f"c/{old}/x": b"", f"c/{young}/x": b"", f"c/{young}/y": b""})
    hours_ago = time.time() - 2 * 3600
    for path in (f"c/{old}/x", f"c/{young}/x"):
        os.utime(tmp_path / "store/data" / path, (hours_ago, hours_ago))
    write(work, {"c/a": b"1"})
    (report,) = save(store, work, "c")
    left = {file.name.split("/")[2] for file in store.listing("data/")}
    assert left == {young, report.upload_id}


@pytest.mark.parametrize(
    "skew", [timedelta(0), timedelta(hours=-3), timedelta(hours=3)], ids=["right", "behind", "ahead"]
)
def test_the_age_at_which_they_are_removed_can_be_set_and_is_by_the_clock_of_the_storage(
    skew: timedelta, store: LocalStore, work: Path, tmp_path: Path
) -> None:
    old, young = "a" * 32, "b" * 32
    write(tmp_path / "store/data", {f"c/{old}/x": b"", f"c/{young}/x": b""})
    minutes_ago = time.time() - 120
    os.utime(tmp_path / "store/data" / f"c/{old}/x", (minutes_ago, minutes_ago))
    clock = FakeClock(datetime.now(UTC) + skew)
    changed = dataclasses.replace(uploader(store, work, []), leftover_age=timedelta(minutes=1), clock=clock)
    changed.run([])
    assert [file.name.split("/")[2] for file in store.listing("data/")] == [young]


def test_what_an_own_upload_has_left_is_removed_at_once(store: LocalStore, work: Path, tmp_path: Path) -> None:
    left = "a" * 32
    write(tmp_path / "store/data", {f"c/{left}/x": b""})
    reports: list[UploadReport] = []
    uploader(store, work, reports).run([], [left])
    assert store.listing("data/") == []


def test_a_storage_that_is_full_or_denied_is_a_failure_that_leaves_nothing(work: Path, tmp_path: Path) -> None:
    write(tmp_path, {"store": b"a file where the storage should be"})
    write(work, {"c/a": b"1"})
    reports = save(LocalStore(str(tmp_path / "store")), work, "c")
    (failed,) = [report for report in reports if report.outcome == "failed"]
    assert (failed.name, failed.is_transient) == ("c", False)
    assert "Not a directory" in failed.reason


def test_a_manifest_never_describes_other_bytes(work: Path, store: LocalStore) -> None:
    """A program that writes while its file is read, and sets the time back."""
    write(work, {"c/a": b"1" * 100, "c/b": b"1"})
    status = (work / "c/a").stat()

    def meddle() -> None:
        (work / "c/a").write_bytes(b"2" * 100)
        os.utime(work / "c/a", ns=(status.st_atime_ns, status.st_mtime_ns))

    reports: list[UploadReport] = []
    # One file after the other: a read that sees the file between the write and the change of its time drops it all.
    uploader(MeddlingStore(store, meddle), work, reports, parallel=1).run([wanted(work, "c")])  # type: ignore[arg-type]
    assert [report.outcome for report in reports] == ["saved"]
    found = restore(store, work.parent / "new")
    assert not found.skipped
    assert found.manifest is not None


def test_listings_have_names_relative_to_the_storage(store: LocalStore) -> None:
    store.put_whole("manifests/x", b"12")
    (found,) = store.listing("manifests/")
    assert isinstance(found, StoredFile)
    assert (found.name, found.size) == ("manifests/x", 2)
