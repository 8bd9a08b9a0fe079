"""One file, from a source to its place: tried again where that may help, and never taken for whole before it is."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from tfjob_controller.storage.errors import StorageError, explain
from tfjob_controller.storage.files import RemoteFile
from tfjob_controller.storage.folder import FilledFolder
from tfjob_controller.storage.part import Part
from tfjob_controller.storage.progress import Progress
from tfjob_controller.storage.redaction import Redactor
from tfjob_controller.storage.sources import Source
from tfjob_controller.util.backoff import DecorrelatedBackoff
from tfjob_controller.util.clock import Clock

# How often a content may be wrong to the last byte before nobody believes in a mishap.
_WRONG_CONTENTS = 2

_log = structlog.get_logger(__name__)


class Cancelled(BaseException):
    """Another file has failed, or the process ends. No fault that may pass, so not caught as one."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How faults that may pass are met. `retries` counts tries in a row that brought nothing."""

    retries: int
    clock: Clock
    stop: threading.Event
    redact: Redactor

    def try_again(self, where: str, attempt: Callable[[], bool]) -> None:
        """Call `attempt` until it returns True; False: it is not done, but got on. Raises StorageError, Cancelled."""
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
                if not fault.is_passing or failures > self.retries:
                    raise fault from error
                self._rest(fault, failures, backoff.next_seconds())
        raise Cancelled

    def _rest(self, fault: StorageError, failures: int, seconds: float) -> None:
        said = self.redact(str(fault))
        _log.warning("will try again", reason=said, failures=failures, delay_seconds=round(seconds, 1))
        self.clock.sleep(seconds, self.stop)


@dataclass(frozen=True, slots=True)
class Transfer:
    """Fetches files of one source into one folder. Safe from several threads, one for each file."""

    source: Source
    folder: FilledFolder
    progress: Progress
    patience: Patience
    is_hash_checked: bool = True

    def fetch(self, file: RemoteFile) -> None:
        """Have the file in its place. Raises StorageError, Cancelled."""
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

    def _fill(self, part: Part, file: RemoteFile) -> None:
        wrong = 0

        def attempt() -> bool:
            nonlocal wrong
            if not file.identity:
                # Nothing says that it is still the same file: there is no going on with a part of it.
                self._restart(part)
            before = part.size
            try:
                self._append(part, file)
            except Exception as error:
                if part.size > before and file.identity and explain(error, file.name).is_passing:
                    return False
                raise
            part.check_size()
            if part.has_right_hash() or not self.is_hash_checked or not self.source.is_digest_of_content(file):
                return True
            wrong += 1
            self._restart(part)
            raise StorageError(
                f"{file.name}: the content has not the hash that the source tells of it",
                is_passing=wrong < _WRONG_CONTENTS,
            )

        self.patience.try_again(file.name, attempt)

    def _append(self, part: Part, file: RemoteFile) -> None:
        if file.size is not None and part.size == file.size:
            return
        for block in self.source.read(file, part.size):
            if self.patience.stop.is_set():
                raise Cancelled
            part.append(block)
            self.progress.moved(len(block))

    def _restart(self, part: Part) -> None:
        self.progress.lost(part.size)
        part.restart()
