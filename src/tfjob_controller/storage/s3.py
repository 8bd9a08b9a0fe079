"""S3 and what speaks its language, by s3fs: a source, and a sink.

Credentials and endpoint come from where every program with Amazon's SDK has them (AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_ENDPOINT_URL, AWS_REGION, a web identity, the instance). Without any, the
bucket is read as the public is.

The ETag of an object that was uploaded in one piece is the MD5 of its content, unless it was encrypted with a key of
the customer's or of KMS: that is asked for when the two differ. Reads name the ETag (If-Match), so a changed object is
an error and not a mixture.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import MD5, Digest
from tfjob_controller.storage.objectstore import (
    BucketSource,
    Info,
    ObjectTraits,
    content_type_of,
    object_as_long_as,
    root_of,
)
from tfjob_controller.storage.uris import StorageUri

_MD5 = re.compile(r"[0-9a-f]{32}")
_CONNECT_SECONDS, _READ_SECONDS = 15, 60
# Of an upload: two parts of four files at the same time are in memory. S3 takes 10,000 parts at most.
_PART_BYTES = 8 * 2**20
_MOST_PARTS = 10_000
_PARTS_AT_ONCE = 2


def connect(environ: Mapping[str, str]) -> Any:
    """An s3fs.S3FileSystem. Raises ImportError."""
    import s3fs

    settings: dict[str, Any] = {
        "connect_timeout": _CONNECT_SECONDS,
        "read_timeout": _READ_SECONDS,
        # s3fs and this package try again; three of them would multiply.
        "retries": {"max_attempts": 1},
    }
    if "AWS_REQUEST_CHECKSUM_CALCULATION" not in environ:
        # Servers other than Amazon's often do not know the newer checksums; sizes and ETags are compared anyway.
        settings["request_checksum_calculation"] = "when_required"
    return s3fs.S3FileSystem(
        anon=not _has_credentials(), config_kwargs=settings, use_listings_cache=True, skip_instance_cache=True
    )


def _has_credentials() -> bool:
    """Amazon's SDK looks in all its places, of which an instance's metadata may take a second."""
    import botocore.session

    return botocore.session.Session().get_credentials() is not None


def s3_source(uri: StorageUri, environ: Mapping[str, str]) -> BucketSource:
    """All objects below a prefix, or one object."""
    return BucketSource(uri, connect(environ), ObjectTraits(_etag, _digest, is_of_content=is_etag_md5))


def is_etag_md5(filesystem: Any, location: str) -> bool:
    bucket, _, key = location.partition("/")
    head = filesystem.call_s3("head_object", Bucket=bucket, Key=key)
    return "kms" not in head.get("ServerSideEncryption", "") and "SSECustomerAlgorithm" not in head


def _digest(info: Info) -> Digest | None:
    etag = _etag(info)
    return Digest(MD5, etag) if _MD5.fullmatch(etag) else None


def _etag(info: Info) -> str:
    return str(info.get("ETag") or "").strip('"').lower()


class S3Sink:
    """Puts files below a prefix. An object appears when it is whole, and not before."""

    def __init__(self, uri: StorageUri, environ: Mapping[str, str]) -> None:
        self._root = root_of(uri)
        self._filesystem = connect(environ)

    def has(self, path: Path, name: str) -> bool:
        info = object_as_long_as(self._filesystem, f"{self._root}/{name}", path)
        return info is not None and _etag(info) == _etag_of(path)

    def put(self, path: Path, name: str) -> None:
        location, size = f"{self._root}/{name}", path.stat().st_size
        self._filesystem.put_file(
            str(path),
            location,
            chunksize=_part_bytes(size),
            max_concurrency=_PARTS_AT_ONCE,
            ContentType=content_type_of(name),
        )
        self._filesystem.invalidate_cache()
        if int(self._filesystem.info(location)["size"]) != size:
            raise StorageError(f"{name}: the bucket has another size of it than was sent", is_transient=True)
        if not self.has(path, name) and is_etag_md5(self._filesystem, location):
            raise StorageError(f"{name}: the bucket has another hash of it than was sent", is_transient=True)


def _part_bytes(size: int) -> int:
    part = _PART_BYTES
    while size > part * _MOST_PARTS:
        part *= 2
    return part


def _etag_of(path: Path) -> str:
    """The ETag that S3 gives a file that `put` sends: s3fs sends less than two parts as one piece."""
    size = path.stat().st_size
    part_bytes = _part_bytes(size)
    is_one = size < 2 * part_bytes
    with path.open("rb") as content:
        if is_one:
            return hashlib.file_digest(content, "md5").hexdigest()
        parts = []
        while block := content.read(part_bytes):
            parts.append(hashlib.md5(block, usedforsecurity=False).digest())
    whole = hashlib.md5(b"".join(parts), usedforsecurity=False).hexdigest()
    return f"{whole}-{len(parts)}"
