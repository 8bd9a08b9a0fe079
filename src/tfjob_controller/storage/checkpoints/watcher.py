"""Tells which checkpoints in a folder are complete.

Theory of operation. Every file or folder directly below the watched one is a checkpoint. A scan condenses it into a
fingerprint of the names, sizes and modification times of its files. It is complete once its fingerprint has not changed
for the settling time, or once it has a `.done` marker that is not older than its files. Times are those of the
monotonic clock at which a change was seen, so a clock that jumps settles nothing early.

A training program writes the folder, and it is not trusted. Scans use descriptors relative to a descriptor of the
folder and follow no links; count, depth and size are bounded, and a scan takes constant memory: fingerprints of files
are summed up.

A scan of a folder with many files is not free. A checkpoint that has settled is scanned at once if its own entry has
changed, and otherwise so rarely that scans use at most a five hundredth of the time.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from dataclasses import dataclass, field

from tfjob_controller.storage.checkpoints.layout import (
    DONE,
    MOST_BYTES,
    MOST_DEPTH,
    MOST_FILES,
    problem_of_name,
    step_of,
)
from tfjob_controller.util.clock import Clock

MOST_ENTRIES = 1000
# Scans of what does not change may use this part of the time.
_SHARE_OF_TIME = 1 / 500
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_OWN_PREFIX = ".tfjob-"
_MODULUS = 2**128


class FolderError(Exception):
    """A checkpoint, or the folder, that cannot be saved; one line."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What a scan has found. Two scans of an unchanged checkpoint are equal."""

    fingerprint: str = ""
    files: int = 0
    byte_count: int = 0
    newest_ns: int = 0
    """The latest modification time."""
    is_marked: bool = False
    """Whether the folder has a marker that is not older than its other files."""
    problem: str = ""
    """Why it cannot be saved; empty if it can."""

    @property
    def key(self) -> str:
        return self.fingerprint + self.problem


@dataclass(frozen=True, slots=True)
class CompleteCheckpoint:
    """A complete checkpoint."""

    name: str
    scan: Scan
    changed_at: float
    """Monotonic seconds at which its last change was seen."""

    @property
    def order(self) -> tuple[float, int, int, str]:
        """Larger for a newer checkpoint of the same folder."""
        step = step_of(self.name)
        return (self.changed_at, self.scan.newest_ns, -1 if step is None else step, self.name)


@dataclass(slots=True)
class _Entry:
    scan: Scan
    changed_at: float
    top: tuple[int, ...]
    next_scan: float = 0.0


@dataclass(slots=True)
class CheckpointWatcher:
    """Remembers the checkpoints of one folder between looks at it. For one thread."""

    path: str
    settle_seconds: float
    clock: Clock
    _entries: dict[str, _Entry] = field(default_factory=dict)

    def look(self) -> list[CompleteCheckpoint]:
        """The complete checkpoints that are there now, the oldest first; none if the folder does not exist yet.

        Raises FolderError if the folder cannot be watched, OSError.
        """
        root = open_root(self.path)
        if root is None:
            self._entries.clear()
            return []
        try:
            statuses = _list(root, self.path)
            self._entries = {name: entry for name, entry in self._entries.items() if name in statuses}
            changed = [entry for name, status in statuses.items() if (entry := self._update(root, name, status))]
        finally:
            os.close(root)
        # One time for all: the order in which a folder is listed does not depend on their age.
        listed_at = self.clock.monotonic()
        for entry in changed:
            entry.changed_at = listed_at
        complete = [
            CompleteCheckpoint(name, entry.scan, entry.changed_at)
            for name, entry in self._entries.items()
            if entry.scan.files and self._is_complete(name, entry, statuses)
        ]
        return sorted(complete, key=lambda checkpoint: checkpoint.order)

    def all(self) -> list[CompleteCheckpoint]:
        """All checkpoints that the last look has found, complete or not, the oldest first."""
        checkpoints = [
            CompleteCheckpoint(name, entry.scan, entry.changed_at)
            for name, entry in self._entries.items()
            if entry.scan.files
        ]
        return sorted(checkpoints, key=lambda checkpoint: checkpoint.order)

    def scan_afresh(self) -> None:
        """Makes the next look scan everything."""
        for entry in self._entries.values():
            entry.next_scan = 0.0

    def _update(self, root: int, name: str, status: os.stat_result) -> _Entry | None:
        """Scans a checkpoint if that is due; returns its entry if it has changed."""
        now = self.clock.monotonic()
        top = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
        entry = self._entries.get(name)
        if entry is not None and entry.top == top and now < entry.next_scan:
            return None
        scan = scan_checkpoint(root, name)
        if scan is None:
            self._entries.pop(name, None)
            return None
        scanned_at = self.clock.monotonic()
        if entry is None or entry.scan != scan:
            entry = self._entries[name] = _Entry(scan, scanned_at, top)
            return entry
        entry.top = top
        if scan.problem or now - entry.changed_at >= self.settle_seconds:
            entry.next_scan = scanned_at + (scanned_at - now) / _SHARE_OF_TIME
        return None

    def _is_complete(self, name: str, entry: _Entry, statuses: dict[str, os.stat_result]) -> bool:
        marker = statuses.get(name + DONE)
        if entry.scan.is_marked or (marker is not None and marker.st_mtime_ns >= entry.scan.newest_ns):
            return True
        return bool(entry.scan.problem) or self.clock.monotonic() - entry.changed_at >= self.settle_seconds


def open_root(path: str) -> int | None:
    """A descriptor of the folder; None if there is none. Raises FolderError if the path goes through a link."""
    descriptor = os.open("/", _FLAGS | os.O_DIRECTORY)
    for part in filter(None, os.path.abspath(path).split("/")):
        above = descriptor
        try:
            descriptor = os.open(part, _FLAGS | os.O_DIRECTORY, dir_fd=above)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise FolderError(f"{path} is not a folder, or its path goes through a symbolic link") from None
            raise
        finally:
            os.close(above)
    return descriptor


def _list(root: int, path: str) -> dict[str, os.stat_result]:
    """Files and folders directly below the folder by name, with markers. Links and hidden names are no checkpoints."""
    statuses = {}
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
                    statuses[entry.name] = status
            if len(statuses) > MOST_ENTRIES:
                raise FolderError(f"{path} holds more than {MOST_ENTRIES:,} files and folders: remove old ones")
    return statuses


def scan_checkpoint(root: int, name: str) -> Scan | None:
    """The fingerprint of one checkpoint; None if it is gone, a link or a marker. Raises OSError."""
    scanner = _Scanner()
    try:
        status = os.stat(name, dir_fd=root, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            if name.endswith(DONE):
                return None
            scanner.add("", status)
        elif stat.S_ISDIR(status.st_mode):
            scanner.walk(name, root)
        else:
            return None
    except FolderError as problem:
        # The number of files is that of a checkpoint which exists.
        return Scan(fingerprint="", files=1, problem=str(problem))
    except PermissionError:
        return Scan(fingerprint="", files=1, problem="access is denied to a part of it")
    except (FileNotFoundError, NotADirectoryError):
        return None
    return scanner.scan(problem_of_name(name))


class _Scanner:
    def __init__(self) -> None:
        self._sum = self._files = self._bytes = self._newest = 0
        self._marked_ns = -1

    def scan(self, problem: str) -> Scan:
        is_marked = self._marked_ns >= self._newest
        return Scan(f"{self._sum:032x}", self._files, self._bytes, self._newest, is_marked, problem)

    def add(self, below: str, status: os.stat_result) -> None:
        identity = f"{below}\0{status.st_mode}\0{status.st_mtime_ns}\0{status.st_size}\0{status.st_ino}"
        hashed = hashlib.blake2b(os.fsencode(identity), digest_size=16).digest()
        self._sum = (self._sum + int.from_bytes(hashed)) % _MODULUS
        self._newest = max(self._newest, status.st_mtime_ns)
        if not stat.S_ISREG(status.st_mode):
            return
        self._files += 1
        self._bytes += status.st_size
        if self._files > MOST_FILES:
            raise FolderError(f"it has more than {MOST_FILES:,} files")
        if self._bytes > MOST_BYTES:
            raise FolderError("it is larger than 5 TiB")

    def walk(self, name: str, above: int, below: str = "", depth: int = 0) -> None:
        if depth >= MOST_DEPTH:
            raise FolderError(f"its folders are nested {MOST_DEPTH} levels deep or more")
        folder = os.open(name, _FLAGS | os.O_DIRECTORY, dir_fd=above)
        others = 0
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    others += 1
                    if others > 2 * MOST_FILES:
                        raise FolderError(f"it has more than {MOST_FILES:,} files")
                    self._see(entry, folder, below, depth)
        finally:
            os.close(folder)

    def _see(self, entry: os.DirEntry[str], folder: int, below: str, depth: int) -> None:
        if entry.name.startswith(_OWN_PREFIX):
            return
        status = entry.stat(follow_symlinks=False)
        path = f"{below}/{entry.name}"
        if stat.S_ISDIR(status.st_mode):
            self.walk(entry.name, folder, path, depth + 1)
        elif depth == 0 and entry.name == DONE:
            self._marked_ns = status.st_mtime_ns
            self.add(path, status)
        elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            self.add(path, status)
