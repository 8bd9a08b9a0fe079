"""What the rest of this package needs of a transport, and what it tells about itself: seams, no code.

Modules take a `Requester`, so that a test can give them a scripted one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from tfjob_controller.kube.flowcontrol import Priority

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"

DEFAULT_TIMEOUT_SECONDS = 30.0


class Requester(Protocol):
    """What other modules need of a transport."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        priority: Priority = Priority.NORMAL,
        retry: bool | None = None,
    ) -> bytes:
        """Send one request and return the body of its answer.

        `retry`: True says that the request may be repeated although it may have been carried out, None says so of GET
        only, False forbids any second attempt. Raises `ApiError` for everything but 2xx.
        """

    def stream(self, path: str, *, query: Mapping[str, str], read_timeout_seconds: float) -> LineStream:
        """Open a long GET. Raises `ApiError` if it cannot be opened; never tries twice (but after a 401)."""


class LineStream(Protocol):
    """What other modules need of a stream: `http.linestream.HttpLineStream`, or a scripted one in tests."""

    def __enter__(self) -> LineStream: ...
    def __exit__(self, *exc: object) -> None: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...


class TransportObserver(Protocol):
    """Is told what the transport does, in the calling thread.

    `code` is the HTTP status, `<error>` if there was none.
    """

    def request_finished(self, method: str, host: str, code: str, seconds: float) -> None:
        """One attempt, from sending to the whole answer (of a stream: to its headers)."""

    def request_retried(self, method: str, host: str, code: str) -> None:
        """An attempt failed with `code` and will be followed by another."""

    def rate_limited(self, method: str, host: str, seconds: float) -> None:
        """A request waited for the client's own rate limit; also called with 0."""
