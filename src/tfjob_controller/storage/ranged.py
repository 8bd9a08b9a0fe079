"""What the sources with ranges have in common: a file of an fsspec back end, read block by block from any byte on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import RemoteFile
from tfjob_controller.storage.part import BLOCK_BYTES

Info = Mapping[str, Any]


def read_ranged(
    filesystem: Any, file: RemoteFile, offset: int, identity_of: Callable[[Info], str] | None = None
) -> Iterator[bytes]:
    """One request for each block: a lost connection costs one block, and nothing is read ahead.

    With `identity_of` what the back end says of the file now is compared with what the listing said. Raises
    StorageError if it is another version.
    """
    with filesystem.open(file.location, "rb", block_size=BLOCK_BYTES, cache_type="none") as content:
        if identity_of is not None and identity_of(content.details) != file.identity:
            raise StorageError(f"{file.name}: the file has changed since it was listed", is_passing=True)
        content.seek(offset)
        while block := content.read(BLOCK_BYTES):
            yield block


def relative_files(
    found: Mapping[str, Info], below: str, describe: Callable[[str, str, Info], RemoteFile]
) -> list[RemoteFile]:
    """The files of a listing by their names relative to `below`; `below` itself is a file of its own last name.

    Buckets have no folders, but programs put empty objects there that end with a slash and stand for one.
    """
    files = []
    for location, info in found.items():
        if info.get("type", "file") != "file" or location.endswith("/"):
            continue
        name = location[len(below) + 1 :] if location != below else below.rpartition("/")[2]
        files.append(describe(name, location, info))
    return files
