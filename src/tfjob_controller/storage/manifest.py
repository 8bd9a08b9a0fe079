"""What is to be copied, looked at before the first byte moves."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import RemoteFile, checked_name, is_own

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class Manifest:
    """All files of one copy."""

    files: tuple[RemoteFile, ...]

    @property
    def byte_count(self) -> int:
        """As far as the source says sizes."""
        return sum(file.size or 0 for file in self.files)


def manifest_of(files: Iterable[RemoteFile], where: object) -> Manifest:
    """The files without our own markers. Raises StorageError if there are none, or names that cannot be written."""
    wanted = [file for file in files if not is_own(file.name)]
    if not wanted:
        raise StorageError(f"{where}: nothing is there: no file has this name or lies below it")
    names = {checked_name(file.name) for file in wanted}
    for name in names:
        above = name.rpartition("/")[0]
        while above:
            if above in names:
                raise StorageError(f"{where}: {above!r} is a file and, by {name!r}, a folder: no disk can hold both")
            above = above.rpartition("/")[0]
    return Manifest(tuple(wanted))


def check_room(missing_bytes: int, folder: Path) -> None:
    """Raises StorageError if so much cannot fit: hours of download would end the same."""
    free = shutil.disk_usage(folder).free
    if missing_bytes > free:
        raise StorageError(
            f"the disk is full: {folder} has {in_words(free)} free, and {in_words(missing_bytes)} are needed"
        )


def bytes_in(folder: Path) -> int:
    """What the files below a folder take; they are replaced, or gone on with."""
    found = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            found += os.lstat(os.path.join(parent, name)).st_size
    return found


def in_words(byte_count: float) -> str:
    for unit in _UNITS:
        if byte_count < 1000 or unit == _UNITS[-1]:
            return f"{byte_count:,.0f} {unit}" if unit == _UNITS[0] else f"{byte_count:,.1f} {unit}"
        byte_count /= 1000
    raise AssertionError
