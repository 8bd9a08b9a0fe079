"""An HTTP response parser in Python, for installations without httptools, which parses in C.

`PureResponseParser` has the part of `httptools.HttpResponseParser` that `exchange.py` uses, so that the same code and
the same tests run with both. The protocol is h11's. A small response takes 0.12 ms of CPU instead of 0.01, which a
command or a notebook does not notice; the long-running programs require httptools.

Threads: one at a time. Source: RFC 9112; h11 docs, "API documentation".
"""

from __future__ import annotations

from typing import Protocol

import h11

# The head of a response. Go's net/http, and so the API server, sends less than this by far.
_MAX_HEAD_BYTES = 256 * 1024
# Every request of this project has a response with a body: HEAD and CONNECT are not sent.
_REQUEST = h11.Request(method="GET", target="/", headers=[("Host", "-")])


class PureParserError(Exception):
    """The bytes are no HTTP response, or more than one."""


class ResponseEvents(Protocol):
    """The receiver of what was parsed, as httptools calls it."""

    def on_message_begin(self) -> None: ...

    def on_header(self, name: bytes, value: bytes) -> None: ...

    def on_headers_complete(self) -> None: ...

    def on_body(self, body: bytes) -> None: ...

    def on_message_complete(self) -> None: ...


class PureResponseParser:
    """Parses one response, with the interim ones before it, as its bytes arrive."""

    def __init__(self, events: ResponseEvents) -> None:
        self._events = events
        self._status = 0
        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
        # h11 expects a response only after a request.
        self._connection.send(_REQUEST)
        self._connection.send(h11.EndOfMessage())

    def feed_data(self, data: bytes | memoryview) -> None:
        """Takes the next bytes, at least one. Raises PureParserError."""
        if self._has_ended():
            raise PureParserError("more bytes than the response has")
        try:
            self._connection.receive_data(bytes(data))
            while self._take(self._connection.next_event()):
                pass
        except h11.RemoteProtocolError as error:
            raise PureParserError(str(error)) from error
        if self._has_ended() and self._connection.trailing_data[0]:
            raise PureParserError("more bytes than the response has")

    def get_status_code(self) -> int:
        return self._status

    def should_keep_alive(self) -> bool:
        """Whether the connection can be used again after the response."""
        return self._connection.their_state is h11.DONE

    def _take(self, event: object) -> bool:
        """Reports an event; returns whether another one may follow."""
        if isinstance(event, h11.Data):
            self._events.on_body(bytes(event.data))
        elif isinstance(event, (h11.InformationalResponse, h11.Response)):
            self._report_head(event)
        elif isinstance(event, h11.EndOfMessage):
            self._events.on_message_complete()
        else:
            return False
        return not self._has_ended()

    def _has_ended(self) -> bool:
        return self._connection.their_state in (h11.DONE, h11.MUST_CLOSE)

    def _report_head(self, event: h11.InformationalResponse | h11.Response) -> None:
        self._status = event.status_code
        self._events.on_message_begin()
        for name, value in event.headers:
            self._events.on_header(name, value)
        self._events.on_headers_complete()
        if isinstance(event, h11.InformationalResponse):
            self._events.on_message_complete()
