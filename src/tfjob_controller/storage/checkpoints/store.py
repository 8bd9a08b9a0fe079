"""The storage of checkpoints: one interface for all schemes, with names relative to the URI."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


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


def read_small(store: CheckpointStore, name: str, most_bytes: int) -> bytes:
    """The content of a file. Raises ValueError if it is longer than this, before more is read."""
    content = bytearray()
    for block in store.read(name, 0):
        content += block
        if len(content) > most_bytes:
            raise ValueError(f"{name} is longer than {most_bytes:,} bytes")
    return bytes(content)
