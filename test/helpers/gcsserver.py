"""A server on loopback with the part of Google Cloud Storage's JSON API that gcsfs uses, with one bucket."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from helpers.httpserver import Answer, HttpServer, Request, content_answer, json_answer

BUCKET = "ml-datasets"


class GcsServer(HttpServer):
    """Use as a context manager; `objects` may be changed at any time.

    Without `has_md5` they are like composed objects, which have only a CRC. `fault_of` returns the response that
    replaces the correct one.
    """

    def __init__(self, objects: dict[str, bytes], *, has_md5: bool = True) -> None:
        super().__init__(self._answer_for)
        self.objects = objects
        self.has_md5 = has_md5
        self.fault_of: Callable[[Request], Answer | None] = lambda request: None
        self._uploads: dict[str, bytearray] = {}

    @property
    def environ(self) -> Mapping[str, str]:
        return {"STORAGE_EMULATOR_HOST": self.url}

    def _answer_for(self, request: Request) -> Answer:
        fault = self.fault_of(request)
        if fault is not None:
            return fault
        found = re.fullmatch(r"(/upload|/download)?/storage/v1/b/([^/]+)(/o(/(.+))?)?", request.path)
        if not found or found[2] != BUCKET:
            return _error(404, "The specified bucket does not exist.")
        if found[1] == "/upload":
            return self._take(request)
        if not found[3]:
            return json_answer({"kind": "storage#bucket", "name": BUCKET})
        if not found[5]:
            return self._list(request)
        name = unquote(found[5])
        if name not in self.objects:
            return _error(404, "No such object")
        return (
            content_answer(request, self.objects[name])
            if request.query.get("alt") == "media"
            else json_answer(self._describe(name))
        )

    def _list(self, request: Request) -> Answer:
        prefix, delimiter = request.query.get("prefix", ""), request.query.get("delimiter", "")
        below = [name for name in sorted(self.objects) if name.startswith(prefix)]
        direct = [name for name in below if not delimiter or delimiter not in name[len(prefix) :]]
        folders = {prefix + name[len(prefix) :].split("/")[0] + "/" for name in below if name not in direct}
        return json_answer({"items": [self._describe(name) for name in direct], "prefixes": sorted(folders)})

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

    def _take(self, request: Request) -> Answer:
        """Receives a small object in one request, or a large one piece by piece (uploadType=resumable)."""
        if request.query.get("uploadType") == "multipart":
            boundary = request.headers["content-type"].partition("boundary=")[2].strip("\"'").encode()
            described, content = (part.split(b"\n\n", 1) for part in _parts(request.body, boundary))
            name = json.loads(described[1])["name"]
            self.objects[name] = content[1]
            return json_answer(self._describe(name))
        if "upload_id" not in request.query:
            name = request.query["name"]
            self._uploads[name] = bytearray()
            where = f"{self.url}/upload/storage/v1/b/{BUCKET}/o?upload_id={name}"
            return Answer(200, b"{}", {"Location": where})
        name = request.query["upload_id"]
        self._uploads[name] += request.body
        size = request.headers["content-range"].rpartition("/")[2]
        if size == "*" or len(self._uploads[name]) < int(size):
            return Answer(308, b"", {"Range": f"bytes=0-{len(self._uploads[name]) - 1}"})
        self.objects[name] = bytes(self._uploads.pop(name))
        return json_answer(self._describe(name))


def _parts(body: bytes, boundary: bytes) -> list[bytes]:
    """Splits a multipart body as gcsfs writes it, with JSON as its first part and lines that end with one character."""
    _, first, second, _ = body.split(b"--" + boundary)
    return [first, second.removesuffix(b"\n")]


def _error(status: int, message: str) -> Answer:
    return json_answer({"error": {"code": status, "message": message}}, status)
