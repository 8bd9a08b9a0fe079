"""Common parts of the sources over fsspec: objects below a prefix of a bucket, read in blocks from any offset."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import Digest, RemoteFile
from tfjob_controller.storage.folder import BLOCK_BYTES
from tfjob_controller.storage.uris import StorageUri


@dataclass(frozen=True, slots=True)
class ObjectTraits:
    """How a service describes an object: its version, and possibly a hash of its content."""

    identity_of: Callable[[Info], str]
    digest_of: Callable[[Info], Digest | None]
    is_of_content: Callable[[Any, str], bool]
    """Takes the filesystem and the object's location."""


class BucketSource:
    """All objects below a prefix, or one object."""

    def __init__(self, uri: StorageUri, filesystem: Any, dialect: ObjectTraits) -> None:
        self._root = root_of(uri)
        self._filesystem = filesystem
        self._dialect = dialect

    def files(self) -> Sequence[RemoteFile]:
        return relative_files(self._filesystem.find(self._root, detail=True), self._root, self._describe)

    def read(self, file: RemoteFile, offset: int) -> Iterator[bytes]:
        return read_blocks(self._filesystem, file, offset, self._dialect.identity_of)

    def is_digest_of_content(self, file: RemoteFile) -> bool:
        return self._dialect.is_of_content(self._filesystem, file.location)

    def _describe(self, name: str, location: str, info: Info) -> RemoteFile:
        dialect = self._dialect
        return RemoteFile(name, location, int(info["size"]), dialect.identity_of(info), dialect.digest_of(info))


def root_of(uri: StorageUri) -> str:
    return f"{uri.place}/{uri.path}".rstrip("/")


def content_type_of(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def object_as_long_as(filesystem: Any, location: str, path: Path) -> Info | None:
    """The description of an object that may be a copy of this file; None unless one of the same size exists."""
    filesystem.invalidate_cache()
    try:
        info: Info = filesystem.info(location)
    except FileNotFoundError:
        return None
    return info if info.get("type") == "file" and int(info["size"]) == path.stat().st_size else None


Info = Mapping[str, Any]


def read_blocks(
    filesystem: Any, file: RemoteFile, offset: int, identity_of: Callable[[Info], str] | None = None
) -> Iterator[bytes]:
    """The blocks of a file from an offset. One request per block: a lost connection costs one block.

    With `identity_of` the version of the file is compared with that of the listing. Raises StorageError if they differ.
    """
    with filesystem.open(file.location, "rb", block_size=BLOCK_BYTES, cache_type="none") as content:
        if identity_of is not None and identity_of(content.details) != file.identity:
            raise StorageError(f"{file.name}: the file has changed since it was listed", is_transient=True)
        content.seek(offset)
        while block := content.read(BLOCK_BYTES):
            yield block


def relative_files(
    found: Mapping[str, Info], below: str, describe: Callable[[str, str, Info], RemoteFile]
) -> list[RemoteFile]:
    """The files of a listing, named relative to `below`; if `below` is a file, by its last name.

    Objects whose name ends with a slash are skipped: programs create them to represent folders.
    """
    files = []
    for location, info in found.items():
        if info.get("type", "file") != "file" or location.endswith("/"):
            continue
        name = location[len(below) + 1 :] if location != below else below.rpartition("/")[2]
        files.append(describe(name, location, info))
    return files
