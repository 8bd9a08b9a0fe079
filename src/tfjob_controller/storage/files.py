"""A file of a source, and what proves that a copy of it is right."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Any, Protocol

from tfjob_controller.storage.errors import StorageError

# Names of our own in a target folder: marker, journal, parts. No source's file may have one.
OWN_PREFIX = ".tfjob-"

MD5, SHA256, GIT, CRC32C = "md5", "sha256", "git", "crc32c"


class Hash(Protocol):
    """What hashlib gives."""

    def update(self, data: bytes, /) -> object: ...

    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Digest:
    """What a source says of a file's content; `value` is lower-case hex."""

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
    """What the source finds it by."""
    size: int | None
    """Bytes; None if the source does not say."""
    identity: str
    """Changes with the content: ETag, generation, hash, time. Empty if the source has nothing of the kind."""
    digest: Digest | None = None


def checked_name(name: str) -> str:
    """A listed name that stays within the target folder. Raises StorageError for any other."""
    parts = name.split("/")
    if "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise StorageError(f"the source has a file named {name!r}, which would leave the target folder: refused")
    return name


def is_own(name: str) -> bool:
    """Is it a marker, journal or part of ours, which no copy takes along?"""
    return name.rpartition("/")[2].startswith(OWN_PREFIX)


def new_hash(digest: Digest | None, size: int | None) -> Hash | None:
    """An empty hash of the digest's kind; None if there is nothing to compare with."""
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
