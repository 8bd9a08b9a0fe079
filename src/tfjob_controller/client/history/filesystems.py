"""Where a history is kept: a directory, or a prefix of a bucket of S3. Both have the same few calls.

In a directory, no link below the root is followed: whoever can write there leads nobody elsewhere.

Paths are relative to the root, with slashes, and made of parts that `store` has checked. What is written is visible
completely or not at all. Calls raise whatever the storage raises; `storage.errors.explain` makes one line of it.

Threads: any.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.uris import StorageUri, parse

_TEMPORARY = ".writing-"
# Only the user of the controller reads a directory: manifests and logs may have secrets.
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600


class _NoFolderError(NotADirectoryError):
    """A link, or a file, where a folder below the root should be."""


_ABSENT = (FileNotFoundError, _NoFolderError)


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
        """The files in the folders of a folder, by their paths relative to it; not those above and below."""

    def read(self, path: str, most: int) -> bytes:
        """The first `most` bytes of a file. Raises FileNotFoundError."""

    def write(self, path: str, content: bytes) -> None:
        """Creates or replaces a file, and the folders above it."""

    def remove(self, paths: Iterable[str]) -> None:
        """Removes files, and the folders that are empty then; files that do not exist are ignored."""

    def remove_unfinished(self, path: str, before: float) -> None:
        """Removes what processes that were killed have not finished to write in a folder, before a time in seconds."""


def open_filesystem(url: str, environ: Mapping[str, str]) -> Filesystem:
    """The filesystem at a directory, a file:// URI or an s3:// URI. Raises StorageError."""
    if "://" not in url:
        return _directory(Path(url).absolute())
    uri = parse(url)
    if uri.scheme == "file":
        return _directory(Path("/" + uri.path.strip("/")))
    if uri.scheme == "s3":
        return Bucket(uri, environ)
    raise StorageError(f"{uri}: a history is kept in a directory or at s3://bucket/prefix")


def _directory(root: Path) -> Directory:
    if not hasattr(os, "O_DIRECTORY"):
        raise StorageError("a history in a directory needs Linux or macOS; use s3://bucket/prefix")
    return Directory(root)


class Directory:
    """See `Filesystem`. Folders and files are created for this user alone."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __str__(self) -> str:
        return str(self._root)

    def folders(self, path: str) -> list[str]:
        with contextlib.suppress(*_ABSENT), self._folder(path) as folder, os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        return []

    def files(self, path: str) -> dict[str, int]:
        return {name: stored.size for name, stored in self._stored(path).items()}

    def tree(self, path: str) -> dict[str, Stored]:
        return {
            f"{folder}/{name}": stored
            for folder in self.folders(path)
            for name, stored in self._stored(f"{path}/{folder}").items()
        }

    def _stored(self, path: str) -> dict[str, Stored]:
        files: dict[str, Stored] = {}
        with contextlib.suppress(*_ABSENT), self._folder(path) as folder, os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_file(follow_symlinks=False) or entry.name.startswith(_TEMPORARY):
                    continue
                # A file that is removed meanwhile says nothing about the others.
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    files[entry.name] = Stored(status.st_size, status.st_mtime)
        return files

    def read(self, path: str, most: int) -> bytes:
        parent, _, name = path.rpartition("/")
        with self._folder(parent) as folder:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as content:
            return content.read(most)

    def write(self, path: str, content: bytes) -> None:
        parent, _, name = path.rpartition("/")
        part = f"{_TEMPORARY}{secrets.token_hex(8)}"
        self._make_root()
        with self._folder(parent, create=True) as folder:
            try:
                descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE, dir_fd=folder)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(part, dir_fd=folder)
                raise

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            parent, _, name = path.rpartition("/")
            with contextlib.suppress(*_ABSENT), self._folder(parent) as folder:
                os.unlink(name, dir_fd=folder)
            above, _, last = parent.rpartition("/")
            with contextlib.suppress(OSError), self._folder(above) as folder:
                os.rmdir(last, dir_fd=folder)

    def remove_unfinished(self, path: str, before: float) -> None:
        with contextlib.suppress(*_ABSENT), self._folder(path) as folder, os.scandir(folder) as entries:
            old = [entry.name for entry in entries if _is_unfinished(entry, before)]
            self.remove(f"{path}/{name}" for name in old)

    @contextlib.contextmanager
    def _folder(self, path: str, *, create: bool = False) -> Iterator[int]:
        """A descriptor of a folder, which is opened part by part: only so no part of the path can be a link."""
        descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in Path(path).parts:
                below = self._open(part, descriptor, create=create)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, part: str, folder: int, *, create: bool) -> int:
        try:
            return os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        except FileNotFoundError:
            if not create:
                raise
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                why = f"{part[:100]} is no folder; links are not followed: remove it"
                raise _NoFolderError(errno.ENOTDIR, why, str(self._root)) from None
            raise
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, _FOLDER_MODE, dir_fd=folder)
        return self._open(part, folder, create=False)

    def _make_root(self) -> None:
        """As `mkdir(parents=True)`, which would create the parents for everybody."""
        missing, folder = [], self._root
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for each in reversed(missing):
            with contextlib.suppress(FileExistsError):
                each.mkdir(mode=_FOLDER_MODE)


def _is_unfinished(entry: os.DirEntry[str], before: float) -> bool:
    if not (entry.name.startswith(_TEMPORARY) and entry.is_file(follow_symlinks=False)):
        return False
    with contextlib.suppress(FileNotFoundError):
        return entry.stat(follow_symlinks=False).st_mtime < before
    return False


class Bucket:
    """See `Filesystem`. A listing takes one request for each thousand objects."""

    def __init__(self, uri: StorageUri, environ: Mapping[str, str]) -> None:
        # These need modules that Windows lacks.
        from tfjob_controller.storage.objectstore import root_of
        from tfjob_controller.storage.s3 import connect

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
            if name != below and name[len(below) + 1 :].count("/") == 1
        }

    def read(self, path: str, most: int) -> bytes:
        try:
            content: bytes = self._filesystem.cat_file(self._at(path), start=0, end=most)
        except OSError as error:
            # S3 refuses a range of an empty object; the number of that error is that of many.
            if error.errno == errno.EINVAL and self._filesystem.info(self._at(path), refresh=True).get("size") == 0:
                return b""
            raise
        return content

    def write(self, path: str, content: bytes) -> None:
        self._filesystem.pipe_file(self._at(path), content)

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                self._filesystem.rm_file(self._at(path))

    def remove_unfinished(self, path: str, before: float) -> None:
        """Does nothing: S3 shows no object before it is complete."""

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]
