"""What the log says of a copy: a line for each finished file, and now and then how far all of it is.

Threads: any.
"""

from __future__ import annotations

import threading

import structlog

from tfjob_controller.storage.files import RemoteFile
from tfjob_controller.util.clock import Clock

LINE_EVERY_SECONDS = 10.0
# Where there are more files, one line for each would bury all others.
MOST_LINES = 500

_log = structlog.get_logger(__name__)


class Progress:
    """Counts bytes and files of one copy."""

    def __init__(self, files: int, byte_count: int, clock: Clock) -> None:
        self.moved_bytes = 0
        """Since the start of this run: what was there before is not among them."""
        self._files, self._bytes = files, byte_count
        self._clock = clock
        self._lock = threading.Lock()
        self.present_bytes = 0
        """What is in place or in a part, from whichever run."""
        self._files_done = 0
        self._started = self._last_line = clock.monotonic()

    def found(self, byte_count: int) -> None:
        """So many bytes were there already."""
        with self._lock:
            self.present_bytes += byte_count

    def moved(self, byte_count: int) -> None:
        with self._lock:
            self.moved_bytes += byte_count
            self.present_bytes += byte_count

    def lost(self, byte_count: int) -> None:
        """So many bytes are to be moved again."""
        with self._lock:
            self.present_bytes -= byte_count

    def file_done(self, file: RemoteFile, byte_count: int, *, was_there: bool) -> None:
        with self._lock:
            self._files_done += 1
        if self._files <= MOST_LINES:
            _log.info("file already there" if was_there else "file done", file=file.name, bytes=byte_count)

    def tick(self) -> None:
        """Say how far it is, if the last line is long enough ago."""
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
