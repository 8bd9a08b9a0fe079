"""The source of an exporter: a folder that an untrusted program has written.

Theory of operation. The exporter has the credentials of the storage, in its environment and in files of its container.
The program cannot read them, but could make the exporter upload them: by links in the folder, by making the folder
itself a link, or by replacing a file with a link after the file was listed. So the folder is opened once, without
following links in any part of its path. Everything in it is listed and opened relative to that descriptor, again
without following links, and only regular files that are still as they were listed are read. Callers that need a path
get the path of the open descriptor.

A link to a file within the folder is uploaded as that file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import resource
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import structlog

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import RemoteFile, identity_of, is_own
from tfjob_controller.storage.folder import BLOCK_BYTES

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
# Listing keeps a descriptor open for each level.
_MAX_DEPTH = 100
_MAX_FILES = 1_000_000
# The descriptors that connections and the process itself need.
_OTHER_DESCRIPTORS = 100

_log = structlog.get_logger(__name__)


class ConfinedSource:
    """All regular files below a folder, or one file. Implements `sources.Source`; usable by several threads."""

    def __init__(self, path: str) -> None:
        """Raises StorageError if the path is or goes through a link, FileNotFoundError if nothing is there."""
        path = os.path.abspath(path)
        if not os.path.lexists(path):
            raise FileNotFoundError(f"there is no file or folder {path}")
        is_file = stat.S_ISREG(os.lstat(path).st_mode)
        self._path, self._only = os.path.split(path) if is_file else (path, "")
        self._root = _open_folder(self._path)

    def files(self) -> Sequence[RemoteFile]:
        """Raises StorageError for a link that leads out of the folder."""
        names = [self._only] if self._only else self._names()
        return [file for file in map(self._describe, names) if file is not None]

    def read(self, file: RemoteFile, offset: int) -> Iterator[bytes]:
        with self.opened(file) as path, path.open("rb") as content:
            content.seek(offset)
            while block := content.read(BLOCK_BYTES):
                yield block
            if identity_of(os.fstat(content.fileno())) != file.identity:
                raise StorageError(f"{file.name}: the file has changed while it was read", is_transient=True)

    def sha256_of(self, file: RemoteFile) -> str:
        """The SHA-256 of the content in hexadecimal. Raises as `read`."""
        hashed = hashlib.sha256()
        for block in self.read(file, 0):
            hashed.update(block)
        return hashed.hexdigest()

    def is_digest_of_content(self, file: RemoteFile) -> bool:
        return True

    @contextlib.contextmanager
    def opened(self, file: RemoteFile) -> Iterator[Path]:
        """Opens a listed file, and yields a path that stands for the open file whatever happens to its name.

        Raises StorageError if it is another file by now.
        """
        descriptor = self._open(file.location)
        if descriptor is None:
            raise StorageError(f"{file.name}: it is no longer a regular file")
        try:
            if identity_of(os.fstat(descriptor)) != file.identity:
                raise StorageError(f"{file.name}: the file has changed since it was listed", is_transient=True)
            yield Path(f"/dev/fd/{descriptor}")
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def all_opened(self, files: Sequence[RemoteFile]) -> Iterator[dict[str, Path]]:
        """Opens all of these files at once; yields their paths by name."""
        _allow_descriptors(len(files) + _OTHER_DESCRIPTORS)
        with contextlib.ExitStack() as stack:
            yield {file.name: stack.enter_context(self.opened(file)) for file in files}

    def _names(self) -> Iterator[str]:
        count = 0
        for folder, subfolders, names, descriptor in os.fwalk(".", dir_fd=self._root, onerror=_refuse):
            below = os.path.normpath(folder)
            if below.count("/") >= _MAX_DEPTH:
                raise StorageError(f"{self._path}: folders are nested more than {_MAX_DEPTH} levels deep")
            for name in sorted(subfolders):
                if stat.S_ISLNK(_status(name, descriptor).st_mode):
                    _log.warning("a link to a folder is skipped", link=os.path.join(self._path, below, name))
            for name in sorted(names):
                if not is_own(name):
                    count += 1
                    yield os.path.normpath(os.path.join(below, name))
            if count > _MAX_FILES:
                raise StorageError(f"{self._path}: it holds more than {_MAX_FILES:,} files")

    def _describe(self, name: str) -> RemoteFile | None:
        """Returns the file under this name; None, with a warning, if it is not to be sent."""
        path, location = os.path.join(self._path, name), name
        if os.path.islink(path):
            try:
                location = os.path.relpath(os.path.realpath(path), self._path)
            except OSError:
                raise StorageError(f"{path}: it has changed while it was listed", is_transient=True) from None
            if location.split("/")[0] == "..":
                raise StorageError(f"{path} is a link that leads out of {self._path}: refused")
        try:
            descriptor = self._open(location)
        except FileNotFoundError:
            _log.warning("a broken link is skipped", link=path)
            return None
        if descriptor is None:
            _log.warning("only regular files are sent", left_out=path)
            return None
        try:
            status = os.fstat(descriptor)
            return RemoteFile(name, location, status.st_size, identity_of(status))
        finally:
            os.close(descriptor)

    def _open(self, location: str) -> int | None:
        """Returns a descriptor of a file, whose path has no link; None unless it is a regular file."""
        folder, _, name = location.rpartition("/")
        above = _open_folder(folder, self._root) if folder else os.dup(self._root)
        try:
            if not stat.S_ISREG(_status(name, above).st_mode):
                return None
            # By now the name may belong to another kind of file, such as a pipe, whose opening must not block.
            descriptor = os.open(name, _FLAGS | os.O_NONBLOCK, dir_fd=above)
        except OSError as error:
            raise _explained(error, location) from None
        finally:
            os.close(above)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        return None


def _open_folder(path: str, above: int | None = None) -> int:
    """Opens a folder part by part, without following links. Raises StorageError if there are any."""
    descriptor = os.open("/", _FLAGS | os.O_DIRECTORY) if above is None else os.dup(above)
    for part in filter(None, path.split("/")):
        try:
            below = os.open(part, _FLAGS | os.O_DIRECTORY, dir_fd=descriptor)
        except OSError as error:
            raise _explained(error, path) from None
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def _explained(error: OSError, path: str) -> OSError | StorageError:
    # With O_DIRECTORY, opening a link fails with ENOTDIR.
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return StorageError(f"{path} is or goes through a symbolic link: nothing is sent")
    return error


def _status(name: str, folder: int) -> os.stat_result:
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def _refuse(error: OSError) -> None:
    raise error


def _allow_descriptors(count: int) -> None:
    """Raises the limit of open files to what is needed. Raises StorageError if the hard limit is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise StorageError(f"there are {count} files, and the process may open {hard}: send fewer, larger files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
