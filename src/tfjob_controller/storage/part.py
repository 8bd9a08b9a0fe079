"""A file that is not whole yet: it grows at its end, and knows its hash."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import RemoteFile, new_hash

BLOCK_BYTES = 8 * 2**20
# So much may be lost by a machine that loses power, although the file's length says otherwise.
SYNC_EVERY_BYTES = 4 * BLOCK_BYTES


class Part:
    """Open it as a context manager: `size` bytes are there already, and `append` adds to them. For one thread.

    What a run before left is gone on with if the source says of the file what it said then. Without a hash at the end
    nobody would see what a power cut did to the last bytes: they are fetched again.
    """

    def __init__(self, path: Path, file: RemoteFile, *, sync_every_bytes: int = SYNC_EVERY_BYTES) -> None:
        self.path = path
        self.size = 0
        self._file = file
        self._sync_every = sync_every_bytes
        self._synced = 0
        self._descriptor = -1
        self._hash = new_hash(file.digest, file.size)

    def __enter__(self) -> Self:
        # No link is followed, and whatever else has this name is in our way.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o666)
        self._go_on()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._descriptor)
        self._descriptor = -1

    def append(self, block: bytes) -> None:
        """Raises StorageError, and forgets all that is there, if the file grows longer than the source said."""
        if self._file.size is not None and self.size + len(block) > self._file.size:
            self.restart()
            raise self._wrong(f"more than the {self._file.size} bytes that were told have come")
        written = 0
        while written < len(block):
            written += os.write(self._descriptor, memoryview(block)[written:])
        self.size += len(block)
        if self._hash is not None:
            self._hash.update(block)
        if self.size - self._synced >= self._sync_every:
            os.fdatasync(self._descriptor)
            self._synced = self.size

    def restart(self) -> None:
        """Forget all that is there."""
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self.size = self._synced = 0
        self._hash = new_hash(self._file.digest, self._file.size)

    def check_size(self) -> None:
        """Raises StorageError unless as many bytes are there as the source said."""
        if self._file.size is not None and self.size != self._file.size:
            raise self._wrong(f"only {self.size} of {self._file.size} bytes have come")

    def has_right_hash(self) -> bool:
        digest = self._file.digest
        return digest is None or self._hash is None or self._hash.hexdigest() == digest.value

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def keep_as(self, path: Path) -> None:
        """Rename it; what had the name before is gone."""
        self.path.replace(path)

    def _wrong(self, what: str) -> StorageError:
        return StorageError(f"{self._file.name}: {what}", is_passing=True)

    def _go_on(self) -> None:
        there = os.fstat(self._descriptor).st_size
        if not self._file.identity or there > (self._file.size or 0):
            there = 0
        elif self._file.digest is None:
            there = max(0, there - self._sync_every)
        os.ftruncate(self._descriptor, there)
        while self.size < there:
            block = os.read(self._descriptor, min(BLOCK_BYTES, there - self.size))
            self.size += len(block)
            if self._hash is not None:
                self._hash.update(block)
        self._synced = self.size
