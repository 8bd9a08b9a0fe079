"""One request and its whole answer, over a connection that is open already.

Theory of operation. urllib3 opens connections: TLS, client certificates, proxies, every way in which that can fail.
Once one is open, a write to the API server is a few hundred bytes each way, and urllib3 with http.client takes three
times as long over it as the socket does (0.5 ms of CPU instead of 0.16, much of it for headers that nobody reads). A
controller that creates thousands of children has one interpreter for all of it. So `exchange` takes a connection that
is open from urllib3's pool, writes the request, reads the answer (RFC 9112: a length, chunks or the end of the
connection), and puts it back. Where none is open, or anything is out of the ordinary (a proxy, a target that would
have to be quoted), it answers None, and urllib3 does it all.

Errors: urllib3's ProtocolError where the answer breaks off or is no HTTP, TimeoutError where none comes in time. A
connection on which anything went wrong is closed and opened anew by the next request.
"""

from __future__ import annotations

import re
import socket
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import urllib3
from urllib3.exceptions import ProtocolError
from urllib3.util import Timeout

# What a server may send of headers; Go's own limit is 1 MB, and nobody sends a tenth of this.
_MAX_HEAD_BYTES = 65536
_READ_BYTES = 65536
# Everything else would need quoting, which is urllib3's.
_PLAIN_TARGET = re.compile(r"/[A-Za-z0-9\-._~!$&'()*+,;=:@%/?]*")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: .*)?")
_GZIP = zlib.MAX_WBITS | 16


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whatever the status; `headers` by name in lower case."""

    status: int
    headers: Mapping[str, str]
    data: bytes


def exchange(
    pool: urllib3.HTTPConnectionPool,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes | None,
    timeout: Timeout,
) -> Answer | None:
    """The answer; None if urllib3 has to do it, and then nothing was sent."""
    if pool.proxy is not None or not _PLAIN_TARGET.fullmatch(target):
        return None
    request = _request(pool, method, target, headers, body)
    # Private, but the same since urllib3 1.0: the pool's own way to lend connections, which also tests if one is dead.
    read_seconds = timeout.read_timeout
    connection = pool._get_conn(read_seconds)
    keep = False
    try:
        sock: socket.socket | None = getattr(connection, "sock", None)
        if sock is None:
            keep = True
            return None
        sock.settimeout(read_seconds)
        sock.sendall(request)
        answer, keep = read_answer(sock.recv)
        return answer
    except OSError as error:
        if isinstance(error, TimeoutError):
            raise
        raise ProtocolError("Connection aborted.", error) from error
    finally:
        if not keep:
            connection.close()
        pool._put_conn(connection)


def read_answer(receive: Callable[[int], bytes]) -> tuple[Answer, bool]:
    """The next answer of a connection, and whether that can be used again. `receive` is a socket's `recv`."""
    reader = _Reader(receive)
    version, status, headers = _read_head(reader)
    while 100 <= status < 200:  # the real one follows
        version, status, headers = _read_head(reader)
    data, has_end = _read_body(reader, status, headers)
    if headers.get("content-encoding", "identity") == "gzip":
        data = _unpacked(data)
    keep = has_end and version == 1 and headers.get("connection", "").lower() != "close" and not reader.left
    return Answer(status, headers, data), keep


class _Reader:
    """Bytes as they are asked for; ProtocolError where the connection ends before."""

    def __init__(self, receive: Callable[[int], bytes]) -> None:
        self._receive = receive
        self.left = b""

    def through(self, mark: bytes, limit: int) -> bytes:
        """All before the mark, which is taken too."""
        while (end := self.left.find(mark)) < 0:
            if len(self.left) > limit:
                raise ProtocolError(f"more than {limit} bytes of headers")
            self._more()
        taken, self.left = self.left[:end], self.left[end + len(mark) :]
        return taken

    def exactly(self, count: int) -> bytes:
        if len(self.left) < count:
            parts, have = [self.left], len(self.left)
            while have < count:
                self.left = b""
                self._more()
                parts.append(self.left)
                have += len(self.left)
            self.left = b"".join(parts)
        taken, self.left = self.left[:count], self.left[count:]
        return taken

    def to_end(self) -> bytes:
        parts = [self.left]
        while data := self._receive(_READ_BYTES):
            parts.append(data)
        self.left = b""
        return b"".join(parts)

    def _more(self) -> None:
        data = self._receive(_READ_BYTES)
        if not data:
            raise ProtocolError("the server closed the connection without an answer, or in the middle of one")
        self.left = self.left + data if self.left else data


def _request(
    pool: urllib3.HTTPConnectionPool, method: str, target: str, headers: Mapping[str, str], body: bytes | None
) -> bytes:
    host = f"[{pool.host}]" if ":" in pool.host and not pool.host.startswith("[") else pool.host
    if pool.port is not None and pool.port != (443 if pool.scheme == "https" else 80):
        host = f"{host}:{pool.port}"
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in headers.items())]
    if body is not None or method != "GET":
        lines.append(f"Content-Length: {len(body or b'')}")
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header with a line break")  # and not a word of what it holds
    return "\r\n".join((*lines, "", "")).encode("latin-1") + (body or b"")


def _read_head(reader: _Reader) -> tuple[int, int, dict[str, str]]:
    """Minor version, status and headers; of two of one name the last."""
    first, *lines = reader.through(b"\r\n\r\n", _MAX_HEAD_BYTES).split(b"\r\n")
    found = _STATUS_LINE.fullmatch(first)
    if found is None:
        raise ProtocolError("what the server sent is no HTTP")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return int(found[1]), int(found[2]), headers


def _read_body(reader: _Reader, status: int, headers: Mapping[str, str]) -> tuple[bytes, bool]:
    """The body, and whether it said itself where it ends."""
    if status in (204, 304):
        return b"", True
    try:
        if "transfer-encoding" in headers:
            return _read_chunks(reader, headers["transfer-encoding"]), True
        if "content-length" in headers:
            return reader.exactly(_length(headers["content-length"], 10)), True
    except ValueError as error:
        raise ProtocolError("an answer of unknown length") from error
    return reader.to_end(), False


def _read_chunks(reader: _Reader, encoding: str) -> bytes:
    if encoding.lower() != "chunked":
        raise ValueError(encoding)
    parts: list[bytes] = []
    while count := _length(reader.through(b"\r\n", _MAX_HEAD_BYTES).partition(b";")[0].decode("latin-1").strip(), 16):
        parts.append(reader.exactly(count))
        if reader.exactly(2) != b"\r\n":
            raise ValueError("a chunk without its end")
    while reader.through(b"\r\n", _MAX_HEAD_BYTES):
        pass  # trailers
    return b"".join(parts)


def _length(text: str, base: int) -> int:
    """Digits alone: `int` would take signs, blanks and underscores too."""
    if not re.fullmatch(r"[0-9a-fA-F]+", text):
        raise ValueError(text)
    return int(text, base)


def _unpacked(data: bytes) -> bytes:
    try:
        return zlib.decompress(data, _GZIP)
    except zlib.error as error:
        raise ProtocolError("the answer is no gzip, though it says so") from error
