"""A folder of this machine, or of a mounted volume, as the storage of checkpoints.

Files are synced before their manifest is written, so a power failure cannot leave a manifest without its files. Links
are not followed, because others may write the volume.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tfjob_controller.storage.checkpoints.store import StoredFile
from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.folder import BLOCK_BYTES

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_PART_SUFFIX = ".part"


class LocalStore:
    """Implements `CheckpointStore` in a folder, which is created when the first file is written."""

    def __init__(self, root: str) -> None:
        self._root = Path(os.path.realpath(root))

    def put(self, name: str, size: int, blocks: Iterable[bytes]) -> None:
        path = self._path_of(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write(path, blocks)
        self._sync_folders(path.parent)

    def put_whole(self, name: str, content: bytes) -> None:
        path = self._path_of(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        # The names of manifests are unique, and so are those of their parts.
        part = path.with_name(path.name + _PART_SUFFIX)
        part.unlink(missing_ok=True)
        self._write(part, [content])
        part.replace(path)
        self._sync_folders(path.parent)

    def listing(self, prefix: str) -> list[StoredFile]:
        found = []
        for folder, _, names in os.walk(self._path_of(prefix.rstrip("/")), onerror=_refuse_unless_missing):
            for name in names:
                path = Path(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    status = path.lstat()
                    modified = datetime.fromtimestamp(status.st_mtime, UTC)
                    found.append(StoredFile(path.relative_to(self._root).as_posix(), status.st_size, modified))
        return found

    def read(self, name: str, offset: int, size: int | None = None) -> Iterator[bytes]:
        with open(os.open(self._path_of(name), _READ), "rb") as file:
            file.seek(offset)
            while block := file.read(BLOCK_BYTES):
                yield block

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._delete(name)

    def _delete(self, name: str) -> None:
        path = self._path_of(name)
        path.unlink(missing_ok=True)
        # Folders that have become empty are removed, up to those of the layout.
        for parent in path.parents[: len(Path(name).parents) - 2]:
            try:
                parent.rmdir()
            except OSError:
                return

    def _path_of(self, name: str) -> Path:
        path = self._root / name
        if Path(os.path.realpath(path.parent)) != path.parent:
            raise StorageError(f"{path} goes through a symbolic link, which is not followed")
        return path

    def _write(self, path: Path, blocks: Iterable[bytes]) -> None:
        with open(os.open(path, _NEW, 0o666), "wb", buffering=0) as file:
            for block in blocks:
                left = memoryview(block)
                while left:
                    left = left[file.write(left) :]
            os.fsync(file.fileno())

    def _sync_folders(self, folder: Path) -> None:
        """Syncs a folder and those above it, which may be new."""
        for each in (folder, *folder.parents):
            descriptor = os.open(each, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if each == self._root:
                return


def _refuse_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
