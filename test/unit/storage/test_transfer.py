"""The rules of transfer.py, with a source that plays faults."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import structlog

from helpers.fakeclock import FakeClock
from helpers.scripted import PatientClock
from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import MD5, Digest, RemoteFile
from tfjob_controller.storage.folder import FilledFolder
from tfjob_controller.storage.transfer import (
    LINE_EVERY_SECONDS,
    MOST_LINES,
    Cancelled,
    RetryPolicy,
    Transfer,
    TransferProgress,
)
from tfjob_controller.storage.uris import Redactor

CONTENT = b"0123456789"
FILE = RemoteFile("a", "bucket/a", 10, "one")
HASHED = RemoteFile("a", "bucket/a", 10, "one", Digest(MD5, hashlib.md5(CONTENT).hexdigest()))


@dataclass(slots=True)
class Scripted:
    """Plays one entry of `script` at each read: how many bytes come before a fault, or a content that is wrong."""

    script: list[int | bytes]
    is_digest_meant: bool = True
    offsets: list[int] = field(default_factory=list)

    def files(self) -> Sequence[RemoteFile]:
        return [FILE]

    def read(self, file: RemoteFile, offset: int) -> Iterator[bytes]:
        self.offsets.append(offset)
        entry = self.script.pop(0) if self.script else len(CONTENT)
        content = entry if isinstance(entry, bytes) else CONTENT
        until = len(content) if isinstance(entry, bytes) else offset + entry
        for at in range(offset, min(until, len(content))):
            yield content[at : at + 1]
        if until < len(content):
            raise ConnectionResetError("reset")

    def is_digest_of_content(self, file: RemoteFile) -> bool:
        return self.is_digest_meant


def fetch(source: Scripted, file: RemoteFile, target: Path, *, retries: int = 2, checks: bool = True) -> PatientClock:
    clock = PatientClock()
    retry_policy = RetryPolicy(retries, clock, threading.Event(), Redactor({}))
    with FilledFolder(target) as folder:
        Transfer(source, folder, TransferProgress(1, 10, clock), retry_policy, checks).fetch(file)
    return clock


def test_a_download_continues_from_the_byte_where_the_connection_was_lost(tmp_path: Path) -> None:
    source = Scripted([3, 4])
    clock = fetch(source, FILE, tmp_path)
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert source.offsets == [0, 3, 7]
    # Each brought something: nobody rests.
    assert clock.slept == []


def test_consecutive_tries_without_progress_are_counted_and_have_delays_between(tmp_path: Path) -> None:
    source = Scripted([0, 0, 3, 0, 0])
    clock = fetch(source, FILE, tmp_path)
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert len(clock.slept) == 4
    assert all(0.5 <= rest <= 20.0 for rest in clock.slept)


def test_when_too_many_tries_bring_nothing_the_fault_is_one_that_may_pass(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="reset") as failed:
        fetch(Scripted([5, 0, 0, 0]), FILE, tmp_path)
    assert failed.value.is_transient
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("script", "is_meant", "checks", "is_taken"),
    [
        pytest.param([b"9876543210"], True, True, True, id="right at the second try"),
        pytest.param([b"9876543210"] * 2, True, True, False, id="wrong twice"),
        pytest.param([b"9876543210"], False, True, True, id="the source means something else by it"),
        pytest.param([b"9876543210"], True, False, True, id="told not to compare"),
    ],
)
def test_content_of_another_hash_is_fetched_once_more_and_then_refused(
    script: list[int | bytes], is_meant: bool, checks: bool, is_taken: bool, tmp_path: Path
) -> None:
    source = Scripted(script, is_digest_meant=is_meant)
    if is_taken:
        fetch(source, HASHED, tmp_path, checks=checks)
    else:
        with pytest.raises(StorageError, match="hash of the content differs") as refused:
            fetch(source, HASHED, tmp_path, checks=checks)
        assert not refused.value.is_transient
    assert (tmp_path / "a").exists() is is_taken


@pytest.mark.parametrize("content", [b"0123", b"0123456789x"], ids=["shorter", "longer"])
def test_content_of_another_size_is_never_taken(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(StorageError) as refused:
        fetch(Scripted([content] * 9), FILE, tmp_path)
    assert refused.value.is_transient
    assert not (tmp_path / "a").exists()


def test_a_transfer_that_is_stopped_leaves_what_has_come(tmp_path: Path) -> None:
    stop = threading.Event()
    clock = PatientClock()

    @dataclass
    class Stopping(Scripted):
        def read(self, file: RemoteFile, offset: int) -> Iterator[bytes]:
            yield CONTENT[:6]
            stop.set()
            yield CONTENT[6:]

    with FilledFolder(tmp_path) as folder:
        transfer = Transfer(
            Stopping([]), folder, TransferProgress(1, 10, clock), RetryPolicy(2, clock, stop, Redactor({}))
        )
        with pytest.raises(Cancelled):
            transfer.fetch(HASHED)
        (part,) = tmp_path.glob(".tfjob-*.part")
        assert part.read_bytes() == CONTENT[:6]


def test_the_reason_of_a_retry_shows_no_secret() -> None:
    clock = PatientClock()
    retry_policy = RetryPolicy(1, clock, threading.Event(), Redactor({"HF_TOKEN": "5ecret5ecret"}))

    def attempt() -> bool:
        raise ConnectionError("GET http://h/x?sig=abc with 5ecret5ecret")

    with structlog.testing.capture_logs() as lines, pytest.raises(StorageError):
        retry_policy.try_again("x", attempt)
    (line,) = lines
    assert line["reason"] == "x: GET http://h/x?*** with ***"


def test_progress_says_how_far_it_is_once_in_ten_seconds() -> None:
    clock = FakeClock()
    progress = TransferProgress(2, 200, clock)
    progress.found(50)
    with structlog.testing.capture_logs() as lines:
        for _ in range(25):
            clock.advance(1.0)
            progress.moved(2)
            progress.tick()
    assert [line["bytes_done"] for line in lines] == [70, 90]
    assert lines[0]["percent"] == 35.0
    assert lines[0]["bytes_per_second"] == 2
    assert LINE_EVERY_SECONDS == 10.0


def test_files_have_a_line_each_unless_there_are_very_many() -> None:
    with structlog.testing.capture_logs() as lines:
        TransferProgress(MOST_LINES, 1, FakeClock()).file_done(FILE, 10, was_there=False)
        TransferProgress(MOST_LINES + 1, 1, FakeClock()).file_done(FILE, 10, was_there=False)
    assert [line["file"] for line in lines] == ["a"]
