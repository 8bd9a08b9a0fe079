"""The layout of a history in a directory: what is listed, read, written and removed, and what is refused."""

from __future__ import annotations

import contextlib
import gzip
import os
import stat
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tfjob_controller.client.history.filesystems import Directory, open_filesystem
from tfjob_controller.client.history.reading import LISTING_SECONDS, History
from tfjob_controller.client.history.record import (
    MAX_LOG_BYTES,
    MAX_RECORD_BYTES,
    Entry,
    HistoryError,
    LogFile,
    Record,
    entry_of,
    lines_of,
)
from tfjob_controller.client.history.store import HistoryStore
from tfjob_controller.storage.errors import StorageError

LOG = LogFile("master-0", "tensorflow", 5)


def record(number: int = 1, *, name: str = "train", namespace: str = "team", kind: str = "TFJob") -> Record:
    ended = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
    return Record("kubeflow.org/v1", kind, namespace, name, f"uid-{number}", "Succeeded", ended, logs=[LOG])


@pytest.fixture
def store(tmp_path: Path) -> HistoryStore:
    return HistoryStore(Directory(tmp_path / "a" / "history"))


def test_what_is_written_is_listed_newest_first_and_read_back(store: HistoryStore) -> None:
    for number in (2, 1, 3):
        store.write(record(number))
    assert [entry.uid for entry in store.entries("team")] == ["uid-3", "uid-2", "uid-1"]
    assert store.read(store.entries("team")[0]) == record(3)
    assert store.namespaces() == ["team"]
    assert store.entries("another") == []


def test_writing_a_job_again_replaces_its_record(store: HistoryStore) -> None:
    for _ in range(2):
        store.write(record())
        store.write_log(record().entry, LOG, b"hello")
    assert len(store.entries("team")) == 1
    assert store.read_log(record().entry, LOG) == b"hello"


def test_logs_without_a_record_are_not_listed_but_found_as_leftovers(store: HistoryStore) -> None:
    store.write_log(record(1).entry, LOG, b"hello")
    store.write_log(record(2).entry, LOG, b"hello")
    size = store.write(record(2))
    assert [entry.uid for entry in store.entries("team")] == ["uid-2"]
    contents = store.contents("team")
    assert [entry.uid for entry in contents.sizes] == ["uid-2"]
    assert contents.sizes[record(2).entry] > size
    (paths,) = contents.leftovers.values()
    store.remove_files(paths)
    assert store.contents("team").leftovers == {}


@pytest.mark.parametrize("above", ["deep", "logs/deep"])
def test_folders_of_any_depth_do_not_keep_a_namespace_from_being_read(
    store: HistoryStore, tmp_path: Path, above: str
) -> None:
    store.write(record())
    top = tmp_path / "a/history/v1/team" / above
    top.mkdir(parents=True)
    folder = os.open(top, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    contents = store.contents("team")
    assert (list(contents.sizes), contents.leftovers) == ([record().entry], {})
    subprocess.run(["rm", "-r", top], check=True)  # pytest's own removal is recursive


def test_old_files_that_a_killed_process_has_not_finished_are_removed(store: HistoryStore, tmp_path: Path) -> None:
    store.write(record())
    store.write_log(record().entry, LOG, b"hello")
    above, unfinished = tmp_path / "a/history/v1/team", []
    (above / "logs/uid-2").mkdir()
    for folder in ("jobs", "logs/uid-1", "logs/uid-2"):
        for age in (10, 7200):
            unfinished.append(above / folder / f".writing-{age}")
            unfinished[-1].write_text("part")
            os.utime(unfinished[-1], (1e9 - age, 1e9 - age))
    store.remove_unfinished("team", datetime.fromtimestamp(1e9 - 3600, UTC))
    assert {path.name for path in unfinished if path.exists()} == {".writing-10"}
    assert store.read_log(record().entry, LOG) == b"hello"
    store.remove_unfinished("team", datetime.fromtimestamp(1e9, UTC))
    assert not any(path.exists() for path in unfinished)
    assert not (above / "logs/uid-2").exists()


def test_a_file_that_vanishes_during_a_listing_hides_no_other(
    store: HistoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        store.write(record(number))
        store.write_log(record(number).entry, LOG, b"hello")
    (vanishing,) = tmp_path.rglob("*~uid-2~*")
    scandir = os.scandir

    @contextlib.contextmanager
    def scanned(folder: int) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(folder) as scan:
            entries = list(scan)
            if vanishing.name in {entry.name for entry in entries}:
                vanishing.unlink()
            yield iter(entries)

    monkeypatch.setattr(os, "scandir", scanned)
    contents = store.contents("team")
    assert sorted(entry.uid for entry in contents.sizes) == ["uid-0", "uid-1", "uid-3", "uid-4"]
    assert list(contents.leftovers) == ["uid-2"]


def test_a_removed_job_leaves_nothing(store: HistoryStore, tmp_path: Path) -> None:
    store.write_log(record().entry, LOG, b"hello")
    store.write(record())
    store.remove(record().entry)
    store.remove(record().entry)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert not list(tmp_path.rglob("uid-1"))


def test_only_the_user_of_the_controller_may_read(store: HistoryStore, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store.write(record())
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a").rglob("*")}
    assert modes == {0o600, 0o700}


def test_only_the_end_of_a_log_is_kept(store: HistoryStore) -> None:
    store.write_log(record().entry, LOG, b"a" * 10 + b"b" * MAX_LOG_BYTES)
    assert store.read_log(record().entry, LOG) == b"b" * MAX_LOG_BYTES


def test_a_log_that_unpacks_to_more_is_cut(store: HistoryStore, tmp_path: Path) -> None:
    store.write_log(record().entry, LOG, b"x")
    (path,) = tmp_path.rglob("*.log.gz")
    path.write_bytes(gzip.compress(b"\0" * 50 * MAX_LOG_BYTES))
    assert len(store.read_log(record().entry, LOG)) == MAX_LOG_BYTES
    path.write_bytes(b"no gzip")
    with pytest.raises(ValueError, match="damaged"):
        store.read_log(record().entry, LOG)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is empty"),
        (b"{", "not a record"),
        (b"[" * 100_000, "not a record"),
        (b" " * (MAX_RECORD_BYTES + 1), "more than"),
        (b'{"apiVersion": "a", "kind": "TFJob", "namespace": "team", "name": "x", "uid": "1"}', "not a record"),
    ],
)
def test_what_is_no_record_is_refused(store: HistoryStore, tmp_path: Path, content: bytes, why: str) -> None:
    store.write(record())
    (path,) = tmp_path.rglob("*.json")
    path.write_bytes(content)
    with pytest.raises(ValueError, match=why):
        store.read(record().entry)
    with pytest.raises(HistoryError, match=why):
        History(store).job("train", "team")


@pytest.mark.parametrize("body", [b'{"a": 1e999999}', b'"text"', b"[]", b'{"a": "\xff"}', b"null"])
def test_a_manifest_that_is_none_is_told_in_one_line(store: HistoryStore, body: bytes) -> None:
    store.write(replace(record(), body=msgspec.Raw(body)))
    kept = History(store).job("train", "team")
    with pytest.raises(HistoryError, match=r"^the manifest of train cannot be read: .+$"):
        _ = kept.manifest


def test_a_record_under_the_name_of_another_job_is_refused(store: HistoryStore, tmp_path: Path) -> None:
    store.write(record(1))
    store.write(record(2, namespace="other"))
    (mine,) = tmp_path.rglob("team/jobs/*")
    (other,) = tmp_path.rglob("other/jobs/*")
    mine.write_bytes(other.read_bytes())
    with pytest.raises(ValueError, match="another job"):
        store.read(record(1).entry)


def test_a_link_in_the_directory_is_not_followed(store: HistoryStore, tmp_path: Path) -> None:
    store.write(record())
    (path,) = tmp_path.rglob("*.json")
    secret = tmp_path / "secret"
    path.rename(secret)
    path.symlink_to(secret)
    assert store.entries("team") == []
    with pytest.raises(OSError, match="symbolic links"):
        store.read(record().entry)


@pytest.mark.parametrize("linked", ["v1", "v1/team", "v1/team/jobs", "v1/team/logs", "v1/team/logs/uid-1"])
def test_a_linked_folder_is_neither_listed_nor_read_nor_written_nor_emptied(
    store: HistoryStore, tmp_path: Path, linked: str
) -> None:
    store.write_log(record().entry, LOG, b"hello")
    store.write(record())
    folder, elsewhere = tmp_path / "a/history" / linked, tmp_path / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    before = sorted(path for path in elsewhere.rglob("*"))
    assert (store.entries("team") == []) is ("logs" not in linked)
    assert store.contents("team").leftovers == {} or linked == "v1/team/jobs"
    store.remove(record().entry)
    with pytest.raises(NotADirectoryError, match="links are not followed"):
        store.read(record().entry) if "logs" not in linked else store.read_log(record().entry, LOG)
    with pytest.raises(NotADirectoryError, match="links are not followed"):
        store.write(record()) if "logs" not in linked else store.write_log(record().entry, LOG, b"x")
    assert folder.is_symlink()
    assert sorted(path for path in elsewhere.rglob("*")) == before


def test_the_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "volume")
    store = HistoryStore(Directory(tmp_path / "root"))
    store.write(record())
    assert store.read(record().entry) == record()


@pytest.mark.parametrize(
    "file",
    [
        "",
        "x.json",
        "20260101T000000Z~TFJob~a~u~Succeeded",
        "20260101T000000Z~TFJob~../a~u~Succeeded.json",
        "20260101T000000Z~TFJob~a~u/..~Succeeded.json",
        ".writing-0123",
        "20260101T000000Z~TFJob~a~u~S\n.json",
        "99999999T999999Z~TFJob~a~u~Succeeded.json",
        "20260230T000000Z~TFJob~a~u~Succeeded.json",
    ],
)
def test_other_files_are_no_entries(file: str) -> None:
    assert entry_of("team", file) is None


def test_the_name_of_a_file_has_what_a_list_shows() -> None:
    entry = record(61).entry
    assert entry_of("team", entry.file) == entry
    longest = record_named("n" * 253)
    assert len(longest.entry.file) <= 255
    assert entry_of("team", longest.entry.file) == longest.entry


def record_named(name: str) -> Record:
    return Record(
        "trainer.kubeflow.org/v1alpha1", "TrainJob", "team", name, "0" * 36, "Succeeded", "2026-01-01T00:00:00Z"
    )


@pytest.mark.parametrize("log", [LogFile("../x", "c", 1), LogFile("a/b", "c", 1), LogFile("", "", 1)])
def test_the_name_of_a_log_leads_nowhere_else(store: HistoryStore, log: LogFile) -> None:
    with pytest.raises(ValueError, match="name of a log"):
        store.read_log(record().entry, log)


def test_a_namespace_is_no_path(store: HistoryStore) -> None:
    assert store.entries("../team") == []


@pytest.mark.parametrize("url", ["hf://a/b", "https://example.org/x", "ftp://x", "s3://"])
def test_other_places_are_refused_with_a_remedy(url: str) -> None:
    with pytest.raises(StorageError):
        open_filesystem(url, {})
    with pytest.raises(HistoryError):
        History.open(url, {})


def test_a_list_is_narrowed_by_text_and_kind(store: HistoryStore) -> None:
    store.write(record(1, name="bert"))
    store.write(record(2, name="bert-large", kind="PyTorchJob", namespace="other"))
    store.write(record(3, name="gpt"))
    history = History(store)
    assert [entry.name for entry in history.jobs()] == ["gpt", "bert-large", "bert"]
    assert [entry.name for entry in history.jobs(text="BERT")] == ["bert-large", "bert"]
    assert [entry.name for entry in history.jobs("team", text="bert")] == ["bert"]
    assert [entry.name for entry in history.jobs(kind="pytorchjob")] == ["bert-large"]


def test_of_two_jobs_of_a_name_the_one_that_ended_last_is_read(store: HistoryStore) -> None:
    store.write(record(1))
    store.write(record(2))
    history = History(store)
    assert history.job("train", "team").uid == "uid-2"
    assert history.job("train", "team", uid="uid-1").uid == "uid-1"
    with pytest.raises(HistoryError, match="has no job trai in namespace team"):
        history.job("trai", "team")


def test_jobs_whose_names_are_the_beginning_of_the_name_are_others(store: HistoryStore) -> None:
    store.write(record(1, name="train"))
    assert not record(1, name="train").entry.is_of("train-2")
    with pytest.raises(HistoryError, match="has no job train-2 in namespace team"):
        History(store).job("train-2", "team")
    for number, end in enumerate("ab"):
        store.write(record(number, name="n" * 130 + end))
    assert History(store).job("n" * 130 + "a", "team").uid == "uid-0"


def test_of_two_jobs_of_a_name_the_one_that_can_be_read_is_read(store: HistoryStore, tmp_path: Path) -> None:
    store.write(record(1))
    store.write(record(2))
    (path,) = tmp_path.rglob("*uid-2*.json")
    path.write_text("{")
    assert History(store).job("train", "team").uid == "uid-1"


def test_a_listing_is_kept_for_some_seconds(store: HistoryStore) -> None:
    now = [0.0]
    history = History(store, seconds=lambda: now[0])
    store.write(record(1))
    assert len(history.jobs("team")) == 1
    store.write(record(2))
    assert len(history.jobs("team")) == 1
    now[0] = LISTING_SECONDS
    assert len(history.jobs("team")) == 2


def test_a_record_that_was_removed_meanwhile_is_told(store: HistoryStore) -> None:
    store.write(record())
    history = History(store)
    entry: Entry = history.jobs("team")[0]
    store.remove(entry)
    with pytest.raises(HistoryError, match="it was removed"):
        history.read(entry)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a\nb", [b"a", b"b"]),
        (b"a\n\n", [b"a", b""]),
        (b"10%\r20%\x0b\x0c\x1c\xc2\x85\n", [b"10%\r20%\x0b\x0c\x1c\xc2\x85"]),
    ],
)
def test_only_a_line_feed_ends_a_line_of_a_log(content: bytes, lines: list[bytes]) -> None:
    assert lines_of(content) == lines
