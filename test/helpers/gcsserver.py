"""A server on loopback with the part of Google Cloud Storage's JSON API that gcsfs uses, with one bucket."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import unquote

from helpers.httpserver import Answer, HttpServer, Request

BUCKET = "ml-datasets"


@dataclass(slots=True)
class GcsServer:
    """Use as a context manager; `objects` may be changed at any time."""

    objects: dict[str, bytes]
    has_md5: bool = True
    """False as for composed objects, which have only a CRC."""
    fault_of: Callable[[Request], Answer | None] = lambda request: None
    uploads: dict[str, bytearray] = field(default_factory=dict)
    _server: HttpServer | None = None

    def __enter__(self) -> Self:
        self._server = HttpServer(self._respond)
        self._server.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.__exit__(*exc)

    @property
    def environ(self) -> Mapping[str, str]:
        assert self._server is not None
        return {"STORAGE_EMULATOR_HOST": self._server.url}

    @property
    def requests(self) -> list[Request]:
        assert self._server is not None
        return self._server.requests

    def _respond(self, request: Request) -> Answer:
        fault = self.fault_of(request)
        if fault is not None:
            return fault
        found = re.fullmatch(r"(/upload|/download)?/storage/v1/b/([^/]+)(/o(/(.+))?)?", request.path)
        if not found or found[2] != BUCKET:
            return _error(404, "The specified bucket does not exist.")
        if found[1] == "/upload":
            return self._take(request)
        if not found[3]:
            return _json({"kind": "storage#bucket", "name": BUCKET})
        if not found[5]:
            return self._list(request)
        name = unquote(found[5])
        if name not in self.objects:
            return _error(404, "No such object")
        return self._content(request, name) if request.query.get("alt") == "media" else _json(self._describe(name))

    def _list(self, request: Request) -> Answer:
        prefix, delimiter = request.query.get("prefix", ""), request.query.get("delimiter", "")
        below = [name for name in sorted(self.objects) if name.startswith(prefix)]
        direct = [name for name in below if not delimiter or delimiter not in name[len(prefix) :]]
        folders = {prefix + name[len(prefix) :].split("/")[0] + "/" for name in below if name not in direct}
        return _json({"items": [self._describe(name) for name in direct], "prefixes": sorted(folders)})

    def _describe(self, name: str) -> dict[str, Any]:
        import google_crc32c

        content = self.objects[name]
        md5 = base64.b64encode(hashlib.md5(content).digest()).decode()
        crc = google_crc32c.value(content)
        described = {
            "kind": "storage#object",
            "name": name,
            "bucket": BUCKET,
            "size": str(len(content)),
            "generation": md5,
            "crc32c": base64.b64encode(crc.to_bytes(4)).decode(),
            "updated": "2026-01-01T00:00:00.000Z",
        }
        return {**described, "md5Hash": md5} if self.has_md5 else described

    def _content(self, request: Request, name: str) -> Answer:
        content = self.objects[name]
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
        if not found:
            return Answer(200, content)
        first, last = int(found[1]), min(int(found[2] or len(content)), len(content) - 1)
        return Answer(206, content[first : last + 1], {"Content-Range": f"bytes {first}-{last}/{len(content)}"})

    def _take(self, request: Request) -> Answer:
        """Receives a small object in one request, or a large one piece by piece (uploadType=resumable)."""
        if request.query.get("uploadType") == "multipart":
            boundary = request.headers["content-type"].partition("boundary=")[2].strip("\"'").encode()
            described, content = (part.split(b"\n\n", 1) for part in _parts(request.body, boundary))
            name = json.loads(described[1])["name"]
            self.objects[name] = content[1]
            return _json(self._describe(name))
        assert self._server is not None
        if "upload_id" not in request.query:
            name = request.query["name"]
            self.uploads[name] = bytearray()
            where = f"{self._server.url}/upload/storage/v1/b/{BUCKET}/o?upload_id={name}"
            return Answer(200, b"{}", {"Location": where})
        name = request.query["upload_id"]
        self.uploads[name] += request.body
        size = request.headers["content-range"].rpartition("/")[2]
        if size == "*" or len(self.uploads[name]) < int(size):
            return Answer(308, b"", {"Range": f"bytes=0-{len(self.uploads[name]) - 1}"})
        self.objects[name] = bytes(self.uploads.pop(name))
        return _json(self._describe(name))


def _parts(body: bytes, boundary: bytes) -> list[bytes]:
    """Splits a multipart body as gcsfs writes it, with JSON as its first part and lines that end with one character."""
    _, first, second, _ = body.split(b"--" + boundary)
    return [first, second.removesuffix(b"\n")]


def _json(value: object) -> Answer:
    return Answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})


def _error(status: int, message: str) -> Answer:
    body = json.dumps({"error": {"code": status, "message": message}}).encode()
    return Answer(status, body, {"Content-Type": "application/json"})
