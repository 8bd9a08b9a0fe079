"""The storage of checkpoints: one interface for all schemes, with names relative to the URI."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.uris import StorageUri


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a listing."""

    name: str
    size: int
    modified: datetime | None = None
    """By the clock of the storage; None if it tells none."""


class CheckpointStore(Protocol):
    """A storage, for several threads. Every method can raise errors of its library: see errors.explain.

    A missing file is a FileNotFoundError. Names are those of layout.py: relative, with slashes, without `..`.
    """

    def put(self, name: str, size: int, blocks: Iterable[bytes]) -> None:
        """Writes a new file of this size. If `blocks` raises an exception, a part of the file may be left."""

    def put_whole(self, name: str, content: bytes) -> None:
        """Writes a small file, which is visible with all of its content or not at all."""

    def listing(self, prefix: str) -> list[StoredFile]:
        """All files whose names begin with the prefix, which ends with a slash; up to date, in no order."""

    def read(self, name: str, offset: int, size: int | None = None) -> Iterator[bytes]:
        """The content from this offset, in blocks of a few megabytes. A caller that knows the file's size tells it."""

    def delete(self, names: Sequence[str]) -> None:
        """Removes files. Those that are not there are ignored, except by the hub."""


def subfolder_of(node: int, per_node: bool) -> str:
    """The folder of a node below the URI; empty if all nodes share the checkpoints of node 0."""
    return f"node-{node}" if per_node else ""


def open_store(uri: StorageUri, environ: Mapping[str, str], store_path: str, subfolder: str = "") -> CheckpointStore:
    """The storage of a URI, or of a folder below it. Imports the library of its scheme.

    Raises ImportError, StorageError.
    """
    if uri.scheme in ("file", "pvc"):
        from tfjob_controller.storage.checkpoints.localstore import LocalStore

        return LocalStore(os.path.join(uri.path if uri.scheme == "file" else store_path, subfolder))
    if uri.scheme in ("s3", "gs"):
        from tfjob_controller.storage.checkpoints.bucketstore import open_bucket

        return open_bucket(uri, environ, subfolder)
    if uri.scheme == "hf":
        from tfjob_controller.storage.checkpoints.hubstore import HubStore

        return HubStore(uri, environ, subfolder)
    raise StorageError(f"{uri}: checkpoints cannot be kept on a web server: use s3://, gs://, hf://, file:// or pvc://")


def read_small(store: CheckpointStore, name: str, most_bytes: int) -> bytes:
    """The content of a file. Raises ValueError if it is longer than this, before more is read."""
    content = bytearray()
    for block in store.read(name, 0):
        content += block
        if len(content) > most_bytes:
            raise ValueError(f"{name} is longer than {most_bytes:,} bytes")
    return bytes(content)
