"""The manifest of a checkpoint: what is written, and the checks of what is read.

A storage may be written by others, so a manifest is judged before anything in it is used: its length before it is
parsed, then the types, the number of files, and every name.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from tfjob_controller.storage.checkpoints.layout import (
    LONGEST_NAME,
    MOST_BYTES,
    MOST_DEPTH,
    MOST_FILES,
    MOST_MANIFEST_BYTES,
    ManifestName,
    data_prefix,
    problem_of_name,
)
from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import RemoteFile, checked_name, is_own, manifest_of

Kind = Literal["file", "folder"]
FILE: Final = "file"
FOLDER: Final = "folder"
_LONGEST_FILE_NAME = 4096


class BrokenCheckpointError(StorageError):
    """A checkpoint that cannot be restored; an older one may be whole."""


class CheckpointFile(msgspec.Struct, frozen=True):
    """One file; the name is relative to the checkpoint, or the checkpoint's own if it is a file."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST_FILE_NAME)]
    size: Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class CheckpointManifest(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One checkpoint in the storage."""

    version: Literal[1] = 1
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME)]
    upload_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    node: Annotated[int, msgspec.Meta(ge=0)]
    kind: Kind
    files: Annotated[tuple[CheckpointFile, ...], msgspec.Meta(min_length=1, max_length=MOST_FILES)]
    byte_count: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(name="bytes")
    time: Annotated[str, msgspec.Meta(max_length=40)]
    step: int | None

    @property
    def prefix(self) -> str:
        """Where its files are in the storage."""
        return data_prefix(self.name, self.upload_id)

    def encode(self) -> bytes:
        """The manifest as JSON. Raises StorageError if it is longer than a restore accepts."""
        content = msgspec.json.encode(self)
        if len(content) > MOST_MANIFEST_BYTES:
            raise StorageError(f"{self.name}: the names of its files are too long together: save fewer files")
        return content

    def has_same_content(self, sizes: dict[str, int]) -> bool:
        """Whether it has files of exactly these names and sizes; their hashes may still differ."""
        return {file.name: file.size for file in self.files} == sizes


def read_manifest(content: bytes, written_as: ManifestName) -> CheckpointManifest:
    """Parses and checks a manifest. Raises BrokenCheckpointError."""
    try:
        found = msgspec.json.decode(content, type=CheckpointManifest)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BrokenCheckpointError(f"{written_as}: the manifest is not readable: {error}") from None
    problem = problem_of_name(found.name)
    if problem:
        raise BrokenCheckpointError(f"{written_as}: the manifest is not usable: {problem}")
    if found.upload_id != written_as.upload_id:
        raise BrokenCheckpointError(f"{written_as}: the manifest is that of another upload")
    if found.kind == FILE and [file.name for file in found.files] != [found.name]:
        raise BrokenCheckpointError(f"{written_as}: the manifest of a file must list this file alone")
    _check_names(found, written_as)
    return found


def _check_names(manifest: CheckpointManifest, written_as: ManifestName) -> None:
    names = [file.name for file in manifest.files]
    if len(set(names)) != len(names):
        raise BrokenCheckpointError(f"{written_as}: the manifest lists a file twice")
    if sum(file.size for file in manifest.files) != manifest.byte_count:
        raise BrokenCheckpointError(f"{written_as}: the sizes in the manifest contradict each other")
    for name in names:
        try:
            checked_name(name).encode()
        except (StorageError, UnicodeEncodeError):
            raise BrokenCheckpointError(f"{written_as}: the manifest has a file {name[:100]!r}: refused") from None
        if any(is_own(part) for part in name.split("/")) or name.count("/") > MOST_DEPTH:
            raise BrokenCheckpointError(f"{written_as}: the manifest has a file {name[:100]!r}: refused")
    try:
        manifest_of((RemoteFile(name, name, None, "") for name in names), written_as)
    except StorageError as error:
        raise BrokenCheckpointError(str(error)) from None
