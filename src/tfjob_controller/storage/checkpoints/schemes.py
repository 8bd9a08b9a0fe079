"""Which storage keeps the checkpoints of a URI."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tfjob_controller.storage.checkpoints.store import CheckpointStore
from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.uris import StorageUri


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
