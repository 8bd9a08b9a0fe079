"""A repository of the Hugging Face hub as the storage of checkpoints.

The files of a checkpoint and its manifest become visible in one commit, so nothing can be left of a killed upload.
Until then each file is in a temporary file, or uploaded as a large file (LFS) that no commit names yet. Removing files
is one commit too; the history of the repository keeps them.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from tfjob_controller.storage import hub
from tfjob_controller.storage.checkpoints.store import StoredFile
from tfjob_controller.storage.files import RemoteFile
from tfjob_controller.storage.objectstore import read_blocks
from tfjob_controller.storage.uris import DATASET, StorageUri


@dataclass(frozen=True, slots=True)
class _Pending:
    """A file of the next commit."""

    operation: Any
    size: int
    content: IO[bytes]


class HubStore:
    """Implements `CheckpointStore` below a folder of a repository."""

    def __init__(self, uri: StorageUri, environ: Mapping[str, str], subfolder: str) -> None:
        self._uri = uri
        self._root = "/".join(filter(None, (uri.path, subfolder, "")))
        self._api = hub.connect(environ)
        self._filesystem = hub.open_filesystem(environ)
        self._where = {"repo_id": uri.place, "repo_type": uri.repository_type, "revision": uri.revision or None}
        self._lock = threading.Lock()
        self._pending: dict[str, _Pending] = {}

    def put(self, name: str, size: int, blocks: Iterable[bytes]) -> None:
        from huggingface_hub import CommitOperationAdd

        self._create()
        # It is kept until the commit.
        content: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            for block in blocks:
                content.write(block)
            content.seek(0)
            operation = CommitOperationAdd(self._root + name, content)  # type: ignore[arg-type]
            self._api.preupload_lfs_files(additions=[operation], **self._where)
        except BaseException:
            content.close()
            raise
        if operation.path_or_fileobj is not content:
            # It has been uploaded as a large file.
            content.close()
        with self._lock:
            self._pending[name] = _Pending(operation, size, content)

    def put_whole(self, name: str, content: bytes) -> None:
        from huggingface_hub import CommitOperationAdd

        self._create()
        with self._lock:
            pending = list(self._pending.values())
        operations = [*(each.operation for each in pending), CommitOperationAdd(self._root + name, content)]
        self._commit(operations, "Checkpoint saved by tfjob-controller")
        with self._lock:
            self._drop(list(self._pending))

    def listing(self, prefix: str) -> list[StoredFile]:
        with self._lock:
            found = [StoredFile(name, each.size) for name, each in self._pending.items() if name.startswith(prefix)]
        tree = self._tree(f"{self._root}{prefix}".rstrip("/"))
        # Folders have no size.
        return found + [StoredFile(each.path[len(self._root) :], each.size) for each in tree if hasattr(each, "size")]

    def read(self, name: str, offset: int, size: int | None = None) -> Iterator[bytes]:
        kind = "datasets/" if self._uri.repository_type == DATASET else ""
        revision = self._api.repo_info(
            self._uri.place, repo_type=self._uri.repository_type, revision=self._uri.revision or None
        ).sha
        location = f"{kind}{self._uri.place}@{revision}/{self._root}{name}"
        return read_blocks(self._filesystem, RemoteFile(name, location, size, ""), offset)

    def delete(self, names: Sequence[str]) -> None:
        from huggingface_hub import CommitOperationDelete

        with self._lock:
            stored = [name for name in names if name not in self._pending]
            self._drop([name for name in names if name in self._pending])
        if stored:
            operations = [CommitOperationDelete(self._root + name, is_folder=False) for name in stored]
            self._commit(operations, "Old checkpoints removed by tfjob-controller")

    def _tree(self, path: str) -> list[Any]:
        from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError

        try:
            return list(self._api.list_repo_tree(path_in_repo=path, recursive=True, **self._where))
        except (EntryNotFoundError, RepositoryNotFoundError):
            return []

    def _create(self) -> None:
        """Creates the repository, as a private one, if there is none."""
        with self._lock, contextlib.suppress(FileExistsError):
            self._api.create_repo(self._uri.place, repo_type=self._uri.repository_type, private=True, exist_ok=True)

    def _commit(self, operations: list[Any], message: str) -> None:
        self._api.create_commit(operations=operations, commit_message=message, **self._where)

    def _drop(self, names: list[str]) -> None:
        for name in names:
            self._pending.pop(name).content.close()
