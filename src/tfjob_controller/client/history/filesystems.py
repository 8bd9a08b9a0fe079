"""Where a history is kept: a directory, or a prefix of a bucket of S3. Both have the same few calls.

Paths are relative to the root, with slashes, and made of parts that `store` has checked. What is written is visible
completely or not at all. Calls raise whatever the storage raises; `storage.errors.explain` makes one line of it.

Threads: any.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.objectstore import root_of
from tfjob_controller.storage.s3 import connect
from tfjob_controller.storage.uris import StorageUri, parse

_TEMPORARY = ".writing-"
# Only the user of the controller reads a directory: manifests and logs may have secrets.
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600


class Stored(NamedTuple):
    """A file: its bytes, and when it was written, in seconds since 1970."""

    size: int
    written: float


class Filesystem(Protocol):
    """See the module."""

    def folders(self, path: str) -> list[str]:
        """The names of the folders in a folder; none if it does not exist."""

    def files(self, path: str) -> dict[str, int]:
        """The names and sizes of the files in a folder, not below; none if it does not exist."""

    def tree(self, path: str) -> dict[str, Stored]:
        """All files below a folder, by their paths relative to it."""

    def read(self, path: str, most: int) -> bytes:
        """The first `most` bytes of a file. Raises FileNotFoundError."""

    def write(self, path: str, content: bytes) -> None:
        """Creates or replaces a file, and the folders above it."""

    def remove(self, paths: Iterable[str]) -> None:
        """Removes files, and the folders that are empty then; files that do not exist are ignored."""


def open_filesystem(url: str, environ: Mapping[str, str]) -> Filesystem:
    """The filesystem at a directory, a file:// URI or an s3:// URI. Raises StorageError."""
    if "://" not in url:
        return Directory(Path(url).absolute())
    uri = parse(url)
    if uri.scheme == "file":
        return Directory(Path("/" + uri.path.strip("/")))
    if uri.scheme == "s3":
        return Bucket(uri, environ)
    raise StorageError(f"{uri}: a history is kept in a directory or at s3://bucket/prefix")


class Directory:
    """See `Filesystem`. Folders and files are created for this user alone."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __str__(self) -> str:
        return str(self._root)

    def folders(self, path: str) -> list[str]:
        with contextlib.suppress(FileNotFoundError), os.scandir(self._root / path) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        return []

    def files(self, path: str) -> dict[str, int]:
        return {name: stored.size for name, stored in self._stored(path).items()}

    def tree(self, path: str) -> dict[str, Stored]:
        found = self._stored(path)
        for folder in self.folders(path):
            found |= {f"{folder}/{name}": stored for name, stored in self.tree(f"{path}/{folder}").items()}
        return found

    def _stored(self, path: str) -> dict[str, Stored]:
        found: dict[str, Stored] = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(self._root / path) as entries:
            for entry in entries:
                if not entry.is_file(follow_symlinks=False) or entry.name.startswith(_TEMPORARY):
                    continue
                # A file that is removed meanwhile says nothing about the others.
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    found[entry.name] = Stored(status.st_size, status.st_mtime)
        return found

    def read(self, path: str, most: int) -> bytes:
        # Who can write to the directory must not make a reader follow a link elsewhere.
        descriptor = os.open(self._root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as content:
            return content.read(most)

    def write(self, path: str, content: bytes) -> None:
        target = self._root / path
        self._make_folders(target.parent)
        part = target.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}")
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.rename(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            target = self._root / path
            target.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                target.parent.rmdir()

    def _make_folders(self, folder: Path) -> None:
        """As `mkdir(parents=True)`, which would create the parents for everybody."""
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for each in reversed(missing):
            with contextlib.suppress(FileExistsError):
                each.mkdir(mode=_FOLDER_MODE)


class Bucket:
    """See `Filesystem`. A listing takes one request for each thousand objects."""

    def __init__(self, uri: StorageUri, environ: Mapping[str, str]) -> None:
        self._root = root_of(uri)
        self._uri = uri
        self._filesystem = connect(environ, keeps_listings=False)

    def __str__(self) -> str:
        return str(self._uri)

    def folders(self, path: str) -> list[str]:
        return [_last(info["name"]) for info in self._listed(path) if info["type"] == "directory"]

    def files(self, path: str) -> dict[str, int]:
        return {_last(info["name"]): int(info["size"]) for info in self._listed(path) if info["type"] == "file"}

    def _listed(self, path: str) -> list[Mapping[str, Any]]:
        try:
            listed: list[Mapping[str, Any]] = self._filesystem.ls(self._at(path), detail=True, refresh=True)
        except FileNotFoundError:
            return []
        return listed

    def tree(self, path: str) -> dict[str, Stored]:
        below = self._at(path)
        found = self._filesystem.find(below, detail=True)
        return {
            name[len(below) + 1 :]: Stored(int(info["size"]), info["LastModified"].timestamp())
            for name, info in found.items()
            if name != below
        }

    def read(self, path: str, most: int) -> bytes:
        content: bytes = self._filesystem.cat_file(self._at(path), start=0, end=most)
        return content

    def write(self, path: str, content: bytes) -> None:
        self._filesystem.pipe_file(self._at(path), content)

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                self._filesystem.rm_file(self._at(path))

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]
