"""Fetches one file from a source to its place: with retries, verification and progress reports."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from tfjob_controller.storage.errors import StorageError, explain
from tfjob_controller.storage.files import RemoteFile
from tfjob_controller.storage.folder import FilledFolder, PartialFile
from tfjob_controller.storage.sources import Source
from tfjob_controller.storage.uris import Redactor
from tfjob_controller.util.backoff import DecorrelatedBackoff
from tfjob_controller.util.clock import Clock

# After this many complete downloads with a wrong hash, the error is permanent.
_WRONG_CONTENTS = 2

_log = structlog.get_logger(__name__)


class Cancelled(BaseException):
    """Raised when another file has failed or the process ends. A BaseException, so that no retry catches it."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How transient errors are retried. `retries` limits consecutive attempts without progress."""

    retries: int
    clock: Clock
    stop: threading.Event
    redact: Redactor

    def try_again(self, where: str, attempt: Callable[[], bool]) -> None:
        """Calls `attempt` until it returns True; False means progress without completion.

        Raises StorageError, Cancelled.
        """
        backoff = DecorrelatedBackoff(self.clock, random.Random(), base_seconds=0.5, cap_seconds=20.0)  # noqa: S311
        failures = 0
        while not self.stop.is_set():
            try:
                if attempt():
                    return
                failures = 0
            except Exception as error:
                fault = explain(error, where)
                failures += 1
                if not fault.is_transient or failures > self.retries:
                    raise fault from error
                self._rest(fault, failures, backoff.next_seconds())
        raise Cancelled

    def _rest(self, fault: StorageError, failures: int, seconds: float) -> None:
        message = self.redact(str(fault))
        _log.warning("will try again", reason=message, failures=failures, delay_seconds=round(seconds, 1))
        self.clock.sleep(seconds, self.stop)


@dataclass(frozen=True, slots=True)
class Transfer:
    """Fetches files of one source into one folder. Several threads may use it, each for another file."""

    source: Source
    folder: FilledFolder
    progress: TransferProgress
    retry_policy: RetryPolicy
    is_hash_checked: bool = True

    def fetch(self, file: RemoteFile) -> None:
        """Fetches the file unless it is complete already. Raises StorageError, Cancelled."""
        if self.folder.is_whole(file):
            self.progress.found(file.size or 0)
            self.progress.file_done(file, file.size or 0, was_there=True)
            return
        with self.folder.part_of(file) as part:
            self.progress.found(part.size)
            self._fill(part, file)
            part.sync()
            self.folder.accept(part, file)
        self.progress.file_done(file, part.size, was_there=False)

    def _fill(self, part: PartialFile, file: RemoteFile) -> None:
        wrong = 0

        def attempt() -> bool:
            nonlocal wrong
            if not file.identity:
                # Without an identity, an earlier part may belong to another version: it cannot be continued.
                self._restart(part)
            before = part.size
            try:
                self._append(part, file)
            except Exception as error:
                if part.size > before and file.identity and explain(error, file.name).is_transient:
                    return False
                raise
            part.check_size()
            if part.has_right_hash() or not self.is_hash_checked or not self.source.is_digest_of_content(file):
                return True
            wrong += 1
            self._restart(part)
            raise StorageError(
                f"{file.name}: the hash of the content differs from the one that the source reports",
                is_transient=wrong < _WRONG_CONTENTS,
            )

        self.retry_policy.try_again(file.name, attempt)

    def _append(self, part: PartialFile, file: RemoteFile) -> None:
        if file.size is not None and part.size == file.size:
            return
        for block in self.source.read(file, part.size):
            if self.retry_policy.stop.is_set():
                raise Cancelled
            part.append(block)
            self.progress.moved(len(block))

    def _restart(self, part: PartialFile) -> None:
        self.progress.lost(part.size)
        part.restart()


LINE_EVERY_SECONDS = 10.0
# With more files, one line per file would hide all other lines.
MOST_LINES = 500

_log = structlog.get_logger(__name__)


class TransferProgress:
    """Counts bytes and files of one copy."""

    def __init__(self, files: int, byte_count: int, clock: Clock) -> None:
        self.moved_bytes = 0
        """Bytes that this run has transferred."""
        self._files, self._bytes = files, byte_count
        self._clock = clock
        self._lock = threading.Lock()
        self.present_bytes = 0
        """Bytes in complete and partial files, of this run and earlier ones."""
        self._files_done = 0
        self._started = self._last_line = clock.monotonic()

    def found(self, byte_count: int) -> None:
        """Counts bytes that an earlier run has transferred."""
        with self._lock:
            self.present_bytes += byte_count

    def moved(self, byte_count: int) -> None:
        with self._lock:
            self.moved_bytes += byte_count
            self.present_bytes += byte_count

    def lost(self, byte_count: int) -> None:
        """Counts bytes that must be transferred again."""
        with self._lock:
            self.present_bytes -= byte_count

    def file_done(self, file: RemoteFile, byte_count: int, *, was_there: bool) -> None:
        with self._lock:
            self._files_done += 1
        if self._files <= MOST_LINES:
            _log.info("file already there" if was_there else "file done", file=file.name, bytes=byte_count)

    def tick(self) -> None:
        """Logs the progress at most once per `LINE_EVERY_SECONDS`."""
        now = self._clock.monotonic()
        if now - self._last_line >= LINE_EVERY_SECONDS:
            self._last_line = now
            _log.info("progress", **self.figures())

    def figures(self) -> dict[str, object]:
        with self._lock:
            seconds = max(self._clock.monotonic() - self._started, 1e-3)
            percent = 100.0 * self.present_bytes / self._bytes if self._bytes else 100.0
            return {
                "files_done": self._files_done,
                "files": self._files,
                "bytes_done": self.present_bytes,
                "bytes": self._bytes,
                "percent": round(percent, 1),
                "bytes_per_second": round(self.moved_bytes / seconds),
                "duration_seconds": round(seconds, 1),
            }
