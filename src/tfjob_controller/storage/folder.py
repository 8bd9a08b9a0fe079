"""The folder that is filled: where a file goes, what is whole there already, and the mark that says all of it is.

Theory of operation. A file grows under a name of our own beside its final one; the name holds a hash of what the source
says of the file, so what is left of another version is never gone on with. When the part is whole and right it is
synced and renamed, and a line in the journal says which version it was. So after a kill at any point: a final name
means whole, a part may be gone on with, and the journal says which whole files belong to this source. At the end comes
the marker, and the journal goes.

No symbolic link in the folder is followed. Threads: `FilledFolder` may be used by several, one for each file.
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
from typing import Any, Self

import structlog

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import OWN_PREFIX, RemoteFile, checked_name, new_hash
from tfjob_controller.storage.part import BLOCK_BYTES, Part
from tfjob_controller.storage.uris import StorageUri

MARKER = ".tfjob-initialized.json"
JOURNAL = ".tfjob-initializing.jsonl"
_PART_SUFFIX = ".part"
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL)

_log = structlog.get_logger(__name__)


class FilledFolder:
    """Use as a context manager: it is held alone, as far as the file system has locks."""

    def __init__(self, path: Path) -> None:
        # The folder itself may be given by a link; what is below it may not.
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
        """Does the marker say that this URI's files are all here?"""
        try:
            marker = json.loads((self.root / MARKER).read_text())
        except (OSError, ValueError):
            return False
        return isinstance(marker, dict) and marker.get("key") == uri.key

    def is_whole(self, file: RemoteFile) -> bool:
        """Is this version of the file here under its final name? Reads it if only its hash can tell."""
        path = self._path_of(file.name)
        if not path.is_file() or path.is_symlink() or file.size is None or path.stat().st_size != file.size:
            return False
        if file.identity and self._journal.get(file.name) == [file.identity, file.size]:
            return True
        return file.digest is not None and _hash_of(path, file) == file.digest.value

    def part_of(self, file: RemoteFile) -> Part:
        """Where this version of the file grows; what a run before left of it is there."""
        name = hashlib.sha256(f"{file.name}\0{file.identity}\0{file.size}".encode("utf-8", "surrogateescape"))
        parent = self._path_of(file.name).parent
        parent.mkdir(parents=True, exist_ok=True)
        self._check_inside(parent)
        return Part(parent / f"{OWN_PREFIX}{name.hexdigest()[:20]}{_PART_SUFFIX}", file)

    def accept(self, part: Part, file: RemoteFile) -> None:
        """Give a part, which is whole and right, its final name."""
        path = self._path_of(file.name)
        if path.is_dir() and not path.is_symlink():
            raise StorageError(f"{file.name!r} is a file, and the folder has a folder of this name")
        part.keep_as(path)
        with self._writing, (self.root / JOURNAL).open("a") as journal:
            journal.write(json.dumps([file.name, file.identity, part.size]) + "\n")

    def finish(self, uri: StorageUri, what: str, files: Iterable[RemoteFile], byte_count: int) -> None:
        """All files are here: remove what is no longer needed, make all of it durable, and say so."""
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
        """What is here will no longer be what the marker says."""
        (self.root / MARKER).unlink(missing_ok=True)

    def _path_of(self, name: str) -> Path:
        path = self.root / checked_name(name)
        self._check_inside(path.parent)
        return path

    def _check_inside(self, folder: Path) -> None:
        """No part of the way may be a symbolic link: what is behind it is not ours to write."""
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
    """A line that a kill has torn is none."""
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
