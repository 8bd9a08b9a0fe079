"""One file of a web server, by the aiohttp session of fsspec's HTTP back end.

fsspec itself accepts any response to a range request. This module checks the response, because a server may not support
ranges, or may have another version of the file by now. All requests are GETs, since a presigned URL is valid for one
method. The variables HTTP_PROXY, HTTPS_PROXY and NO_PROXY apply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import RemoteFile
from tfjob_controller.storage.uris import StorageUri

_CONNECT_SECONDS, _READ_SECONDS = 15.0, 60.0
_BLOCK_BYTES = 2**20
_CONTENT_RANGE = re.compile(r"bytes (?:(?P<start>\d+)-\d+|\*)/(?P<size>\d+|\*)")
_MAX_REDIRECTS, _REDIRECTS = 10, (301, 302, 303, 307, 308)
_OK, _PARTIAL, _UNSATISFIABLE = 200, 206, 416


class WebSource:
    """The file of one URL, named by the last part of its path."""

    def __init__(self, uri: StorageUri) -> None:
        import aiohttp
        from fsspec.implementations.http import HTTPFileSystem

        self._uri = uri
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS)
        # Compressed content stays compressed, because sizes are those of the bytes that the server sends.
        settings = {"timeout": timeout, "auto_decompress": False, "trust_env": True}
        self._filesystem = HTTPFileSystem(client_kwargs=settings, skip_instance_cache=True)

    def files(self) -> Sequence[RemoteFile]:
        with self._get(0, 0) as answer:
            if answer.status not in (_OK, _PARTIAL, _UNSATISFIABLE):
                answer.raise_for_status()
            size, identity = _size_of(answer), _identity_of(answer)
        name = unquote(urlsplit(self._uri.text).path.rpartition("/")[2])
        return [RemoteFile(name, str(self._uri), size, identity)]

    def read(self, file: RemoteFile, offset: int) -> Iterator[bytes]:
        if file.size == 0:
            return
        with self._get(offset, None) as answer:
            if answer.status == _UNSATISFIABLE or (answer.ok and not _is_still(file, answer)):
                raise StorageError(f"{file.location}: the file has changed while it was read", is_transient=True)
            answer.raise_for_status()
            skip = offset - _start_of(answer)
            if skip < 0:
                raise StorageError(
                    f"{file.location}: the server returned another range than was requested", is_transient=True
                )
            while block := self._filesystem_sync(_block_of(answer)):
                rest = block[skip:]
                skip = max(0, skip - len(block))
                if rest:
                    yield rest

    def is_digest_of_content(self, file: RemoteFile) -> bool:
        return True

    @contextmanager
    def _get(self, start: int, end: int | None) -> Iterator[Any]:
        headers = {"Accept-Encoding": "identity"}
        if start or end is not None:
            headers["Range"] = f"bytes={start}-{'' if end is None else end}"
        answer = self._filesystem_sync(self._ask(headers))
        try:
            yield answer
        finally:
            self._filesystem.loop.call_soon_threadsafe(answer.close)

    async def _ask(self, headers: dict[str, str]) -> Any:
        from yarl import URL

        session = await self._filesystem.set_session()
        # The signature of a presigned URL covers it as it is written, so the URL must not be quoted again.
        url = URL(self._uri.text, encoded=True)
        for _ in range(_MAX_REDIRECTS):
            answer = await session.get(url, headers=headers, allow_redirects=False)
            if answer.status not in _REDIRECTS or "Location" not in answer.headers:
                return answer
            target = url.join(URL(answer.headers["Location"], encoded=True))
            answer.close()
            if target.scheme not in ("http", "https") or (url.scheme == "https" and target.scheme != "https"):
                raise StorageError(f"{self._uri}: the server redirects to {target.scheme}://, which is not encrypted")
            url = target
        raise StorageError(f"{self._uri}: the server redirects more than {_MAX_REDIRECTS} times")

    def _filesystem_sync(self, task: Any) -> Any:
        from fsspec.asyn import sync

        return sync(self._filesystem.loop, _awaited, task)


async def _awaited(task: Any) -> Any:
    return await task


async def _block_of(answer: Any) -> bytes:
    """Returns up to a megabyte.

    If the connection is lost after some bytes, returns them; the next call raises the error.
    """
    block = bytearray()
    while len(block) < _BLOCK_BYTES:
        try:
            piece = await answer.content.readany()
        except Exception:
            if block:
                return bytes(block)
            raise
        if not piece:
            break
        block += piece
    return bytes(block)


def _size_of(answer: Any) -> int | None:
    if answer.status == _OK:
        return int(answer.headers["Content-Length"]) if "Content-Length" in answer.headers else None
    content_range = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    return int(content_range["size"]) if content_range and content_range["size"] != "*" else None


def _is_still(file: RemoteFile, answer: Any) -> bool:
    size, identity = _size_of(answer), _identity_of(answer)
    return (file.size is None or size is None or size == file.size) and (not file.identity or identity == file.identity)


def _start_of(answer: Any) -> int:
    if answer.status == _OK:
        return 0
    content_range = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    return int(content_range["start"]) if content_range and content_range["start"] else -1


def _identity_of(answer: Any) -> str:
    return str(answer.headers.get("ETag") or answer.headers.get("Last-Modified") or "")
