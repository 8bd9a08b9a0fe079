"""Files of this machine as a source: file:// of an initializer, and the folder that is exported."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import structlog

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import RemoteFile, is_own
from tfjob_controller.storage.ranged import read_ranged

_log = structlog.get_logger(__name__)


class LocalSource:
    """All files below a folder, or one file. Links to files are read; links to folders are left out, and said.

    With `is_confined` a link that leads out of the folder is refused: a program that was trained in one container must
    not choose which files of another one are sent away.
    """

    def __init__(self, path: str, *, is_confined: bool = False) -> None:
        import fsspec

        self._root = path
        self._is_confined = is_confined
        self._filesystem = fsspec.filesystem("file")

    def files(self) -> Sequence[RemoteFile]:
        root = Path(self._root)
        if root.is_file():
            return [self._describe(root.name, root)]
        if not root.is_dir():
            raise FileNotFoundError(f"there is no file or folder {self._root}")
        return [self._describe(str(path.relative_to(root)), path) for path in _walk(root)]

    def read(self, file: RemoteFile, offset: int) -> Iterator[bytes]:
        yield from read_ranged(self._filesystem, file, offset)
        if _identity(os.stat(file.location)) != file.identity:
            raise StorageError(f"{file.location}: the file has changed while it was read", is_passing=True)

    def is_digest_of_content(self, file: RemoteFile) -> bool:
        return True

    def _describe(self, name: str, path: Path) -> RemoteFile:
        real = Path(os.path.realpath(path))
        if self._is_confined and not real.is_relative_to(os.path.realpath(self._root)):
            raise StorageError(f"{path} is a link that leads out of {self._root}: refused")
        status = path.stat()
        return RemoteFile(name, str(path), status.st_size, _identity(status))


def _walk(root: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise error

    for folder, subfolders, names in os.walk(root, onerror=refuse):
        for name in sorted(subfolders):
            if (link := Path(folder, name)).is_symlink():
                _log.warning("a link to a folder is left out", link=str(link))
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file() and not is_own(name):
                yield path
            elif path.is_symlink() and not path.exists():
                _log.warning("a link to nothing is left out", link=str(path))


def _identity(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns} {status.st_size} {status.st_ino}"
