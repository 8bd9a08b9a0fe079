"""S3 and services with a compatible API, by s3fs: a source, and a sink.

Credentials and endpoint come from where Amazon's SDK finds them (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN, AWS_ENDPOINT_URL, AWS_REGION, a web identity, the instance). Without credentials, the bucket is read
anonymously.

The ETag of an object that was uploaded in one piece is the MD5 of its content, unless it was encrypted with a key of
the customer's or of KMS; whether it was is requested only if the two differ. Reads send the ETag (If-Match), so an
object that changes meanwhile causes an error instead of a mixed file.
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
# The size of the parts of an upload. Two parts of each of four files are in memory; S3 accepts 10,000 parts at most.
_PART_BYTES = 8 * 2**20
_MOST_PARTS = 10_000
_PARTS_AT_ONCE = 2


def connect(environ: Mapping[str, str], *, keeps_listings: bool = True) -> Any:
    """An s3fs.S3FileSystem. Raises ImportError. With `keeps_listings` each folder is listed once."""
    import s3fs

    settings: dict[str, Any] = {
        "connect_timeout": _CONNECT_SECONDS,
        "read_timeout": _READ_SECONDS,
        # s3fs and this package retry already; retries of botocore would multiply theirs.
        "retries": {"max_attempts": 1},
    }
    if "AWS_REQUEST_CHECKSUM_CALCULATION" not in environ:
        # Servers other than Amazon's often do not support the newer checksums; sizes and ETags are compared anyway.
        settings["request_checksum_calculation"] = "when_required"
    return s3fs.S3FileSystem(
        anon=not _has_credentials(),
        config_kwargs=settings,
        use_listings_cache=keeps_listings,
        skip_instance_cache=True,
    )


def _has_credentials() -> bool:
    """Whether Amazon's SDK finds credentials; a request to the instance's metadata server may take a second."""
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
    """Puts files below a prefix. An object becomes visible once its upload is complete."""

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
            raise StorageError(
                f"{name}: the size in the bucket differs from that of the uploaded file", is_transient=True
            )
        if not self.has(path, name) and is_etag_md5(self._filesystem, location):
            raise StorageError(
                f"{name}: the hash in the bucket differs from that of the uploaded file", is_transient=True
            )


def _part_bytes(size: int) -> int:
    part = _PART_BYTES
    while size > part * _MOST_PARTS:
        part *= 2
    return part


def _etag_of(path: Path) -> str:
    """Returns the ETag of a file that `put` uploads: s3fs uploads less than two parts in one piece."""
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
