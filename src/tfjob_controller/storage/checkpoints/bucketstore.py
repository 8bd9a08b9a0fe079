"""A bucket of S3 or Google Cloud Storage as the storage of checkpoints.

An object becomes visible once its upload is complete. A small object takes one request; sizes are verified by a listing
at the end of a checkpoint, not object by object. The parts of a large object are sent while the next ones are read.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from tfjob_controller.storage.checkpoints.store import StoredFile
from tfjob_controller.storage.objectstore import Info, root_of
from tfjob_controller.storage.uris import StorageUri
from tfjob_controller.util.timestamps import parse_time_or_none

# The size of a part; S3 accepts 10,000 parts of an object.
_PART_BYTES = 16 * 2**20
_MOST_PARTS = 10_000
# Parts of one object that are sent at the same time; each is in memory.
_PARTS_AT_ONCE = 3
# A request for a part of an object is not free for the server.
_BLOCK_BYTES = 32 * 2**20
_BLOCKS_AT_ONCE = 2
_DELETIONS_AT_ONCE = 8

PutLarge = Callable[[Any, str, int, Iterable[bytes]], None]


def open_bucket(uri: StorageUri, environ: Mapping[str, str], subfolder: str) -> BucketStore:
    """The store of an s3:// or gs:// URI. Raises ImportError, StorageError."""
    root = f"{root_of(uri)}/{subfolder}".rstrip("/")
    if uri.scheme == "s3":
        from tfjob_controller.storage import s3

        return BucketStore(root, s3.connect(environ), _put_parts)
    from tfjob_controller.storage import gs

    return BucketStore(root, gs.connect(environ), _put_stream)


class BucketStore:
    """Implements `CheckpointStore` below a prefix of a bucket."""

    def __init__(self, root: str, filesystem: Any, put_large: PutLarge) -> None:
        self._root = root
        self._filesystem = filesystem
        self._put_large = put_large

    def put(self, name: str, size: int, blocks: Iterable[bytes]) -> None:
        location = f"{self._root}/{name}"
        if size < _PART_BYTES:
            self._filesystem.pipe_file(location, b"".join(blocks))
        else:
            self._put_large(self._filesystem, location, size, blocks)

    def put_whole(self, name: str, content: bytes) -> None:
        self._filesystem.pipe_file(f"{self._root}/{name}", content)

    def listing(self, prefix: str) -> list[StoredFile]:
        self._filesystem.invalidate_cache()
        try:
            found = self._filesystem.find(f"{self._root}/{prefix}", detail=True)
        except FileNotFoundError:
            # The bucket is missing, or nothing has been written yet: writing tells.
            return []
        skipped = len(self._root) + 1
        return [
            StoredFile(location[skipped:], int(info["size"]), _modified(info))
            for location, info in found.items()
            if info.get("type", "file") == "file" and not location.endswith("/")
        ]

    def read(self, name: str, offset: int, size: int | None = None) -> Iterator[bytes]:
        location = f"{self._root}/{name}"
        if size is None:
            self._filesystem.invalidate_cache()
            size = int(self._filesystem.info(location)["size"])
        starts = range(offset, size, _BLOCK_BYTES)
        if len(starts) == 1:
            yield self._block(location, offset, size)
            return
        with ThreadPoolExecutor(_BLOCKS_AT_ONCE) as pool:
            under_way: deque[Future[bytes]] = deque()
            for start in starts:
                under_way.append(pool.submit(self._block, location, start, size))
                if len(under_way) == _BLOCKS_AT_ONCE:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()

    def _block(self, location: str, start: int, size: int) -> bytes:
        found: bytes = self._filesystem.cat_file(location, start=start, end=min(size, start + _BLOCK_BYTES))
        return found

    def delete(self, names: Sequence[str]) -> None:
        # One by one: not all servers that speak S3 have the request for many, and its names would be patterns.
        with ThreadPoolExecutor(_DELETIONS_AT_ONCE) as pool:
            for done in [pool.submit(self._delete, name) for name in names]:
                done.result()

    def _delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.rm_file(f"{self._root}/{name}")


def _modified(info: Info) -> datetime | None:
    found = info.get("LastModified") or info.get("updated")
    if isinstance(found, datetime):
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    return parse_time_or_none(str(found)) if found else None


def _put_stream(filesystem: Any, location: str, size: int, blocks: Iterable[bytes]) -> None:
    content = filesystem.open(location, "wb", block_size=_PART_BYTES)
    try:
        for block in blocks:
            content.write(block)
    except BaseException:
        content.discard()
        # Otherwise the finalizer would try to complete the object.
        content.closed = True
        raise
    content.close()


def _put_parts(filesystem: Any, location: str, size: int, blocks: Iterable[bytes]) -> None:
    bucket, _, key = location.partition("/")
    where = {"Bucket": bucket, "Key": key}
    upload = filesystem.call_s3("create_multipart_upload", **where)["UploadId"]

    def send(number: int, part: bytes) -> dict[str, Any]:
        answer = filesystem.call_s3("upload_part", PartNumber=number, UploadId=upload, Body=part, **where)
        return {"PartNumber": number, "ETag": answer["ETag"]}

    try:
        with ThreadPoolExecutor(_PARTS_AT_ONCE) as pool:
            sent: list[Future[dict[str, Any]]] = []
            for number, part in enumerate(_parts(blocks, _part_bytes(size)), 1):
                if number > _PARTS_AT_ONCE:
                    sent[number - 1 - _PARTS_AT_ONCE].result()
                sent.append(pool.submit(send, number, part))
            parts = [each.result() for each in sent]
        filesystem.call_s3("complete_multipart_upload", UploadId=upload, MultipartUpload={"Parts": parts}, **where)
    except BaseException:
        with contextlib.suppress(Exception):
            filesystem.call_s3("abort_multipart_upload", UploadId=upload, **where)
        raise


def _part_bytes(size: int) -> int:
    part = _PART_BYTES
    while size > part * _MOST_PARTS:
        part *= 2
    return part


def _parts(blocks: Iterable[bytes], part_bytes: int) -> Iterator[bytes]:
    part = bytearray()
    for block in blocks:
        part += block
        while len(part) >= part_bytes:
            yield bytes(part[:part_bytes])
            del part[:part_bytes]
    if part:
        yield bytes(part)
