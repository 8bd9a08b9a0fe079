"""The interface of a transport, for everything that sends requests, and of its observers.

Modules take a `Requester`, so that they do not depend on HTTP and tests can script one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Protocol

from tfjob_controller.kube.flowcontrol import Priority

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"

DEFAULT_TIMEOUT_SECONDS = 30.0


class Requester(Protocol):
    """Sends requests to one API server. `http.transport.Transport` is the one that programs use."""

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
        """Send one request and return the body of its response.

        `retry`: with True the request may be repeated even if it may have been carried out, with None only a GET may,
        and with False there is no second attempt. Raises `ApiError` for everything but 2xx.
        """

    def stream(
        self, path: str, *, query: Mapping[str, str], read_timeout_seconds: float, max_line_bytes: int = 0
    ) -> LineStream:
        """Open a long-lived GET. Raises `ApiError`; there is no second attempt except after a 401.

        Longer lines than `max_line_bytes` are cut, so that they take no more memory; with 0 no line is.
        """

    def server_time(self) -> datetime | None:
        """The present time of the API server, to a second, by its last response; None if no response had a time."""


def server_now(requester: Requester) -> datetime:
    """The API server's time by its last response; before the first one that has a time, that of this machine."""
    return requester.server_time() or datetime.now(UTC)


class LineStream(Protocol):
    """The lines of a long-lived response, such as a watch."""

    def __enter__(self) -> LineStream: ...
    def __exit__(self, *exc: object) -> None: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...


class TransportObserver(Protocol):
    """Observes a transport's requests, in the calling thread. `code` is the HTTP status, or `<error>` without one."""

    def request_finished(self, method: str, host: str, code: str, seconds: float) -> None:
        """One attempt ended: `seconds` from sending to the complete response, or to the headers of a stream."""

    def request_retried(self, method: str, host: str, code: str) -> None:
        """An attempt failed with `code` and will be repeated."""

    def rate_limited(self, method: str, host: str, seconds: float) -> None:
        """A request waited for the client-side rate limit, possibly for 0 seconds."""
