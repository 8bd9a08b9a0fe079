"""What is answered at which URL: an ASGI application round the `Service`.

Everything that a verb says is answered with 200, and with an `Error` where something is wrong: of any other status
kube-scheduler reports only the number. The one exception is 503, as long as the cluster's state has not been read.

Threads: the server's.
Source: kubernetes pkg/scheduler/extender.go, ASGI 3 (its HTTP messages).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

import structlog

from tfjob_controller.extender.service import NOT_SYNCED, Service
from tfjob_controller.extender.wire import (
    BadRequestError,
    BindResult,
    FilterResult,
    decode_bind_args,
    decode_filter_args,
    encode_answer,
)

log = structlog.get_logger(__name__)

# Names of 15,000 nodes and the largest pod that etcd takes (1.5 MB) are less than 3 MB.
MAX_BODY_BYTES = 4 * 1024 * 1024
# A longer body is read to its end and dropped, so that its sender reads the answer; beyond this it is cut off.
_MAX_DROPPED_BYTES = 64 * 1024 * 1024

INTERNAL_ERROR = "internal error of the gang scheduler; its log says which"
_JSON, _TEXT = b"application/json", b"text/plain; charset=utf-8"

# As ASGI has them.
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_Verb = Callable[[bytes], Awaitable[bytes]]


class _DisconnectedError(Exception):
    """The caller has gone before its request was whole."""


class Observer(Protocol):
    """Is told of each answer, in the server's thread."""

    def answered(self, verb: str, is_error: bool, seconds: float) -> None:
        """`verb` is filter or bind; `seconds` from the request's head to its answer, for bind the waiting too."""


def app(service: Service, prefix: str = "", observer: Observer | None = None) -> App:
    """`POST <prefix>/filter` and `/bind`, `GET /healthz`."""
    verbs = {f"{prefix}/{name}": _Endpoint(name, service, observer) for name in _VERBS}

    async def respond(scope: Message, receive: Receive, send: Send) -> None:
        endpoint = verbs.get(scope["path"])
        if endpoint is not None:
            await endpoint(scope["method"], receive, send)
        elif scope["path"] == "/healthz":
            await _send(send, 200, b"ok\n", _TEXT)
        else:
            await _send(send, 404, b"not found\n", _TEXT)

    return respond


class _Endpoint:
    """One verb."""

    def __init__(self, verb: str, service: Service, observer: Observer | None) -> None:
        self._verb = verb
        self._service = service
        self._observer = observer
        self._run = _VERBS[verb](service)

    async def __call__(self, method: str, receive: Receive, send: Send) -> None:
        if method != "POST":
            await _send(send, 405, b"POST only\n", _TEXT)
        elif not self._service.is_synced:
            await _send(send, 503, NOT_SYNCED.encode(), _TEXT)
        else:
            answer = await self._answer(receive)
            if answer is not None:
                await _send(send, 200, answer, _JSON)

    async def _answer(self, receive: Receive) -> bytes | None:
        """None if nobody waits for it any more."""
        begin = time.monotonic()
        try:
            answer, is_error = await self._run(await _body(receive)), False
        except BadRequestError as error:
            answer, is_error = self._refusal(str(error)), True
        except _DisconnectedError:
            return None
        except Exception:
            log.exception("call failed", verb=self._verb)
            answer, is_error = self._refusal(INTERNAL_ERROR), True
        if self._observer is not None:
            self._observer.answered(self._verb, is_error, time.monotonic() - begin)
        return answer

    def _refusal(self, error: str) -> bytes:
        return encode_answer(BindResult(error) if self._verb == "bind" else FilterResult(error=error))


def _filter(service: Service) -> _Verb:
    async def run(body: bytes) -> bytes:
        return encode_answer(service.filter(decode_filter_args(body)))

    return run


def _bind(service: Service) -> _Verb:
    async def run(body: bytes) -> bytes:
        return encode_answer(await service.bind(decode_bind_args(body)))

    return run


_VERBS = {"filter": _filter, "bind": _bind}


async def _send(send: Send, status: int, body: bytes, media_type: bytes) -> None:
    headers = [(b"content-type", media_type), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _body(receive: Receive) -> bytes:
    """The body, if it is not too long. Never keeps more than is allowed."""
    body = bytearray()
    received = 0
    is_more = True
    while is_more and received <= _MAX_DROPPED_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _DisconnectedError
        chunk = message["body"]
        received += len(chunk)
        if received <= MAX_BODY_BYTES:
            body += chunk
        else:
            body.clear()
        is_more = message["more_body"]
    if received > MAX_BODY_BYTES:
        raise BadRequestError(f"the body is longer than {MAX_BODY_BYTES} bytes")
    return bytes(body)
