"""The target folder of an initializer: partial files, the journal of complete files, and the marker of a full copy.

Theory of operation. A file is written under a temporary name in the folder of its final one. The temporary name
contains a hash of the source's description of the file, so that a download continues only the same version. A complete
and verified file is synced and renamed, and the journal records its version. After a kill at any point, a file with its
final name is complete, a partial file can be continued, and the journal lists the complete files of this source. Once
all files are complete, the marker is written and the journal is removed.

Symbolic links in the folder are never followed. Several threads may use one `FilledFolder`, each for another file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import OWN_PREFIX, RemoteFile, checked_name, new_hash
from tfjob_controller.storage.uris import StorageUri

MARKER = ".tfjob-initialized.json"
JOURNAL = ".tfjob-initializing.jsonl"
_PART_SUFFIX = ".part"
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL)

_log = structlog.get_logger(__name__)


class FilledFolder:
    """The target folder, locked where the file system supports locks. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        # The path of the folder itself may be a link; paths below it may not.
        self.root = Path(os.path.realpath(path))
        self._journal: dict[str, list[Any]] = {}
        self._writing = threading.Lock()
        self._held = -1

    def __enter__(self) -> Self:
        self.root.mkdir(parents=True, exist_ok=True)
        self._held = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        _lock(self._held, self.root)
        self._journal = dict(_read_journal(self.root / JOURNAL))
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._held)

    def is_filled_from(self, uri: StorageUri) -> bool:
        """Whether the marker records a complete copy of this URI."""
        try:
            marker = json.loads((self.root / MARKER).read_text())
        except (OSError, ValueError):
            return False
        return isinstance(marker, dict) and marker.get("key") == uri.key

    def is_whole(self, file: RemoteFile) -> bool:
        """Whether this version of the file is complete under its final name.

        Reads the file if only its hash can decide.
        """
        path = self._path_of(file.name)
        if not path.is_file() or path.is_symlink() or file.size is None or path.stat().st_size != file.size:
            return False
        if file.identity and self._journal.get(file.name) == [file.identity, file.size]:
            return True
        return file.digest is not None and _hash_of(path, file) == file.digest.value

    def part_of(self, file: RemoteFile) -> PartialFile:
        """Returns the partial file of this version, with the content that an earlier run has fetched."""
        name = hashlib.sha256(f"{file.name}\0{file.identity}\0{file.size}".encode("utf-8", "surrogateescape"))
        parent = self._path_of(file.name).parent
        parent.mkdir(parents=True, exist_ok=True)
        self._check_inside(parent)
        return PartialFile(parent / f"{OWN_PREFIX}{name.hexdigest()[:20]}{_PART_SUFFIX}", file)

    def accept(self, part: PartialFile, file: RemoteFile) -> None:
        """Renames a complete and verified partial file to its final name, and records it in the journal."""
        path = self._path_of(file.name)
        if path.is_dir() and not path.is_symlink():
            raise StorageError(f"{file.name!r} is a file, and the folder has a folder of this name")
        part.keep_as(path)
        with self._writing, (self.root / JOURNAL).open("a") as journal:
            journal.write(json.dumps([file.name, file.identity, part.size]) + "\n")

    def finish(self, uri: StorageUri, what: str, files: Iterable[RemoteFile], byte_count: int) -> None:
        """Writes the marker after all files are complete and durable, and removes what is no longer needed."""
        names = [file.name for file in files]
        for left in self.root.rglob(f"{OWN_PREFIX}*{_PART_SUFFIX}"):
            left.unlink()
        for folder in sorted({self._path_of(name).parent for name in names}):
            _sync(folder)
        marker = {
            "what": what,
            "uri": str(uri),
            "key": uri.key,
            "files": len(names),
            "bytes": byte_count,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        _write_whole(self.root / MARKER, json.dumps(marker, indent=1) + "\n")
        (self.root / JOURNAL).unlink(missing_ok=True)
        _sync(self.root)

    def unmark(self) -> None:
        """Removes the marker, before the content changes."""
        (self.root / MARKER).unlink(missing_ok=True)

    def _path_of(self, name: str) -> Path:
        path = self.root / checked_name(name)
        self._check_inside(path.parent)
        return path

    def _check_inside(self, folder: Path) -> None:
        """Raises StorageError for a symbolic link in any part of the path, since it can lead out of the folder."""
        if Path(os.path.realpath(folder)) != folder:
            raise StorageError(f"{folder} is or goes through a symbolic link: nothing is written there")


def _lock(descriptor: int, folder: Path) -> None:
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _log.info("waiting for another run that fills the folder", folder=str(folder))
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _read_journal(path: Path) -> Iterator[tuple[str, list[Any]]]:
    """Reads the journal, without a last line that a kill has cut off."""
    with contextlib.suppress(FileNotFoundError), path.open() as lines:
        for line in lines:
            with contextlib.suppress(ValueError):
                name, identity, size = json.loads(line)
                yield name, [identity, size]


def _hash_of(path: Path, file: RemoteFile) -> str:
    hashed = new_hash(file.digest, file.size)
    if hashed is None:
        return ""
    with path.open("rb") as content:
        while block := content.read(BLOCK_BYTES):
            hashed.update(block)
    return hashed.hexdigest()


def _write_whole(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}{_PART_SUFFIX}")
    temporary.unlink(missing_ok=True)
    with temporary.open("x") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


BLOCK_BYTES = 8 * 2**20
# A power failure can lose at most this many bytes, although the length of the file does not show it.
SYNC_EVERY_BYTES = 4 * BLOCK_BYTES


class PartialFile:
    """An incomplete file of `size` bytes, and the hash of its content. A context manager, for one thread.

    The content of an earlier run is continued if the source still describes the file in the same way. Without a hash to
    verify, the last bytes are fetched again, since a power failure may have damaged them unnoticed.
    """

    def __init__(self, path: Path, file: RemoteFile, *, sync_every_bytes: int = SYNC_EVERY_BYTES) -> None:
        self.path = path
        self.size = 0
        self._file = file
        self._sync_every = sync_every_bytes
        self._synced = 0
        self._descriptor = -1
        self._hash = new_hash(file.digest, file.size)

    def __enter__(self) -> Self:
        # O_NOFOLLOW: a symbolic link of this name is an error.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o666)
        self._read_earlier_content()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._descriptor)
        self._descriptor = -1

    def append(self, block: bytes) -> None:
        """Adds a block. If the file becomes longer than announced, discards the content and raises StorageError."""
        if self._file.size is not None and self.size + len(block) > self._file.size:
            self.restart()
            raise self._wrong(f"received more than the {self._file.size} bytes that the source announced")
        written = 0
        while written < len(block):
            written += os.write(self._descriptor, memoryview(block)[written:])
        self.size += len(block)
        if self._hash is not None:
            self._hash.update(block)
        if self.size - self._synced >= self._sync_every:
            os.fdatasync(self._descriptor)
            self._synced = self.size

    def restart(self) -> None:
        """Discards the content."""
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self.size = self._synced = 0
        self._hash = new_hash(self._file.digest, self._file.size)

    def check_size(self) -> None:
        """Raises StorageError unless the file has the size that the source announced."""
        if self._file.size is not None and self.size != self._file.size:
            raise self._wrong(f"received only {self.size} of {self._file.size} bytes")

    def has_right_hash(self) -> bool:
        digest = self._file.digest
        return digest is None or self._hash is None or self._hash.hexdigest() == digest.value

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def keep_as(self, path: Path) -> None:
        """Renames the file; an existing file of that name is replaced."""
        self.path.replace(path)

    def _wrong(self, what: str) -> StorageError:
        return StorageError(f"{self._file.name}: {what}", is_transient=True)

    def _read_earlier_content(self) -> None:
        kept_bytes = os.fstat(self._descriptor).st_size
        if not self._file.identity or kept_bytes > (self._file.size or 0):
            kept_bytes = 0
        elif self._file.digest is None:
            kept_bytes = max(0, kept_bytes - self._sync_every)
        os.ftruncate(self._descriptor, kept_bytes)
        while self.size < kept_bytes:
            block = os.read(self._descriptor, min(BLOCK_BYTES, kept_bytes - self.size))
            self.size += len(block)
            if self._hash is not None:
                self._hash.update(block)
        self._synced = self.size
