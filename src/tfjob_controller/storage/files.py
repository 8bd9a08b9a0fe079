"""The files of a source: how each is described and verified, and the manifest of all files of one copy."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tfjob_controller.storage.errors import StorageError

# Reserved names in a target folder: marker, journal, partial files. A source's file must not have one.
OWN_PREFIX = ".tfjob-"

MD5, SHA256, GIT, CRC32C = "md5", "sha256", "git", "crc32c"


class Hash(Protocol):
    """The interface of hashlib's objects."""

    def update(self, data: bytes, /) -> object: ...

    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Digest:
    """The hash of a file's content as the source reports it; `value` is lower-case hex."""

    algorithm: str
    value: str

    @classmethod
    def from_base64(cls, algorithm: str, text: str) -> Digest:
        return cls(algorithm, base64.b64decode(text).hex())


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a source."""

    name: str
    """Relative to the target folder, with slashes."""
    location: str
    """The name by which the source finds the file."""
    size: int | None
    """Bytes; None if the source does not report it."""
    identity: str
    """Changes with the content: ETag, generation, hash, time. Empty if the source reports none of these."""
    digest: Digest | None = None


def identity_of(status: os.stat_result) -> str:
    """Returns the identity of a local file, which changes with its content."""
    return f"{status.st_mtime_ns} {status.st_size} {status.st_ino}"


def checked_name(name: str) -> str:
    """Returns a listed name if it stays within the target folder. Raises StorageError for any other."""
    parts = name.split("/")
    if "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise StorageError(f"the source has a file named {name!r}, which would leave the target folder: refused")
    return name


def is_own(name: str) -> bool:
    """Whether a name is reserved for markers, journals and partial files, which are never copied."""
    return name.rpartition("/")[2].startswith(OWN_PREFIX)


def new_hash(digest: Digest | None, size: int | None) -> Hash | None:
    """Returns a new hash of the digest's algorithm; None without a digest."""
    if digest is None:
        return None
    if digest.algorithm == CRC32C:
        return _crc32c()
    if digest.algorithm == GIT:
        return hashlib.sha1(b"blob %d\0" % (size or 0), usedforsecurity=False)
    return hashlib.new(digest.algorithm, usedforsecurity=False)


def _crc32c() -> Hash:
    import google_crc32c

    checksum: Any = google_crc32c.Checksum
    checksum = checksum()

    class Crc32c:
        def update(self, data: bytes, /) -> None:
            checksum.update(data)

        def hexdigest(self) -> str:
            return str(checksum.digest().hex())

    return Crc32c()


_UNITS = ("bytes", "kB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class Manifest:
    """All files of one copy."""

    files: tuple[RemoteFile, ...]

    @property
    def byte_count(self) -> int:
        """The sum of the sizes that the source reports."""
        return sum(file.size or 0 for file in self.files)


def manifest_of(files: Iterable[RemoteFile], where: object) -> Manifest:
    """The manifest without reserved names. Raises StorageError if it is empty or has names that cannot be written."""
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


def check_free_space(missing_bytes: int, folder: Path) -> None:
    """Raises StorageError if the bytes do not fit on the disk, so that a long download does not fail at its end."""
    free = shutil.disk_usage(folder).free
    if missing_bytes > free:
        raise StorageError(
            f"the disk is full: {folder} has {human_size(free)} free, and {human_size(missing_bytes)} are needed"
        )


def size_of_folder(folder: Path) -> int:
    """The bytes of all files below a folder."""
    found = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            found += os.lstat(os.path.join(parent, name)).st_size
    return found


def human_size(byte_count: float) -> str:
    for unit in _UNITS:
        if byte_count < 1000 or unit == _UNITS[-1]:
            return f"{byte_count:,.0f} {unit}" if unit == _UNITS[0] else f"{byte_count:,.1f} {unit}"
        byte_count /= 1000
    raise AssertionError
