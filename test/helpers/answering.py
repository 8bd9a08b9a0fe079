"""The common part of all `Requester`s of tests: it records each request, and subclasses answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from tfjob_controller.kube.flowcontrol import Priority
from tfjob_controller.kube.requester import JSON, LineStream


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    # Both empty if there is none.
    body: dict[str, Any]
    query: Mapping[str, str]
    content_type: str
    timeout_seconds: float
    priority: Priority
    retry: bool | None


class Lines:
    """The lines of a stream."""

    def __init__(self, lines: Iterable[bytes] = ()) -> None:
        self._lines = lines
        self.is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._lines)

    def close(self) -> None:
        self.is_closed = True


class Answering:
    """A `Requester`. `sent` has the requests in the order of their arrival, also of those that were refused."""

    def __init__(self) -> None:
        self.sent: list[Request] = []
        # The time of the server, once one is set.
        self.now: datetime | None = None

    def answer(self, request: Request) -> bytes:
        """Returns the body of the response, or raises `ApiError`. Runs in the thread of the request."""
        raise AssertionError(f"no {request.method} {request.path} is expected here")

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_seconds: float = 30.0,
        priority: Priority = Priority.NORMAL,
        retry: bool | None = None,
    ) -> bytes:
        parsed = json.loads(body) if body else {}
        request = Request(method, path, parsed, query or {}, content_type, timeout_seconds, priority, retry)
        self.sent.append(request)
        return self.answer(request)

    def server_time(self) -> datetime | None:
        return self.now

    def stream(
        self, path: str, *, query: Mapping[str, str], read_timeout_seconds: float, max_line_bytes: int = 0
    ) -> LineStream:
        raise NotImplementedError("nobody streams from this one")
