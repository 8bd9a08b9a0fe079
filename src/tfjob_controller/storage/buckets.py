"""What S3 and Google Cloud Storage have in common, as fsspec shows them: objects below a prefix of a bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfjob_controller.storage.files import Digest, RemoteFile
from tfjob_controller.storage.ranged import Info, read_ranged, relative_files
from tfjob_controller.storage.uris import StorageUri


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a service says of an object: its version, and what may be a hash of its content."""

    identity_of: Callable[[Info], str]
    digest_of: Callable[[Info], Digest | None]
    is_of_content: Callable[[Any, str], bool]
    """Asked with the filesystem and the object's location."""


class BucketSource:
    """All objects below a prefix, or one object."""

    def __init__(self, uri: StorageUri, filesystem: Any, dialect: Dialect) -> None:
        self._root = root_of(uri)
        self._filesystem = filesystem
        self._dialect = dialect

    def files(self) -> Sequence[RemoteFile]:
        return relative_files(self._filesystem.find(self._root, detail=True), self._root, self._describe)

    def read(self, file: RemoteFile, offset: int) -> Iterator[bytes]:
        return read_ranged(self._filesystem, file, offset, self._dialect.identity_of)

    def is_digest_of_content(self, file: RemoteFile) -> bool:
        return self._dialect.is_of_content(self._filesystem, file.location)

    def _describe(self, name: str, location: str, info: Info) -> RemoteFile:
        dialect = self._dialect
        return RemoteFile(name, location, int(info["size"]), dialect.identity_of(info), dialect.digest_of(info))


def root_of(uri: StorageUri) -> str:
    return f"{uri.place}/{uri.path}".rstrip("/")


def object_as_long_as(filesystem: Any, location: str, path: Path) -> Info | None:
    """What the bucket says now of an object that may be a copy of this file; None if it is none."""
    filesystem.invalidate_cache()
    try:
        info: Info = filesystem.info(location)
    except FileNotFoundError:
        return None
    return info if info.get("type") == "file" and int(info["size"]) == path.stat().st_size else None
