"""Google Cloud Storage by gcsfs: a source, and a sink.

Credentials come from where Google's libraries find them: GOOGLE_APPLICATION_CREDENTIALS (the path of a file or, since a
Secret's variable cannot hold a file, its JSON), a workload identity, or the instance. Without credentials, the bucket
is read anonymously. STORAGE_EMULATOR_HOST names another server.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import CRC32C, MD5, Digest
from tfjob_controller.storage.objectstore import (
    BucketSource,
    Info,
    ObjectTraits,
    content_type_of,
    object_as_long_as,
    root_of,
)
from tfjob_controller.storage.uris import StorageUri

_CREDENTIALS = "GOOGLE_APPLICATION_CREDENTIALS"
_PART_BYTES = 8 * 2**20


def connect(environ: Mapping[str, str]) -> Any:
    """A gcsfs.GCSFileSystem. Raises ImportError, StorageError."""
    # Otherwise gcsfs requests the type of each bucket over gRPC, which emulators do not support, and gRPC writes to the
    # log.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    import gcsfs

    return gcsfs.GCSFileSystem(token=_token(environ), skip_instance_cache=True)


def _token(environ: Mapping[str, str]) -> Any:
    value = environ.get(_CREDENTIALS, "").strip()
    if environ.get("STORAGE_EMULATOR_HOST") and not value:
        return "anon"
    if not value.startswith("{"):
        # With a path no other credentials are tried, since the user has chosen these.
        return value or None
    try:
        return json.loads(value)
    except ValueError:
        raise StorageError(f"{_CREDENTIALS} is neither a file's path nor JSON") from None


def gs_source(uri: StorageUri, environ: Mapping[str, str]) -> BucketSource:
    """All objects below a prefix, or one object."""
    dialect = ObjectTraits(_identity, _digest, is_of_content=lambda *_: True)
    return BucketSource(uri, connect(environ), dialect)


def _identity(info: Info) -> str:
    return str(info.get("generation") or info.get("etag") or "")


def _digest(info: Info) -> Digest | None:
    """Returns the MD5, or the CRC32C of a composed object, which has no MD5."""
    if info.get("md5Hash"):
        return Digest.from_base64(MD5, info["md5Hash"])
    return Digest.from_base64(CRC32C, info["crc32c"]) if info.get("crc32c") else None


class GsSink:
    """Puts files below a prefix. An object becomes visible once its upload is complete."""

    def __init__(self, uri: StorageUri, environ: Mapping[str, str]) -> None:
        self._root = root_of(uri)
        self._filesystem = connect(environ)

    def has(self, path: Path, name: str) -> bool:
        info = object_as_long_as(self._filesystem, f"{self._root}/{name}", path)
        if info is None:
            return False
        with path.open("rb") as content:
            digest = hashlib.file_digest(content, "md5").digest()
        return bool(info.get("md5Hash") == base64.b64encode(digest).decode())

    def put(self, path: Path, name: str) -> None:
        self._filesystem.put_file(
            str(path), f"{self._root}/{name}", chunksize=_PART_BYTES, content_type=content_type_of(name)
        )
        if not self.has(path, name):
            raise StorageError(
                f"{name}: the hash in the bucket differs from that of the uploaded file", is_transient=True
            )
