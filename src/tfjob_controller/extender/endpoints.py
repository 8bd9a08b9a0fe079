"""What is answered at which URL: the `httpconnection.App` round the `Service`.

Everything that a verb says is answered with 200, and with an `Error` where something is wrong: of any other status
kube-scheduler reports only the number. The one exception is 503, as long as the cluster's state has not been read.

Threads: the server's.
Source: kubernetes pkg/scheduler/extender.go.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol
from urllib.parse import unquote_to_bytes

import httptools
import structlog

from tfjob_controller.extender.httpconnection import JSON, MAX_BODY_BYTES, TEXT, App, Reply, Request
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

INTERNAL_ERROR = "internal error of the gang scheduler; its log says which"
_TOO_LONG = f"the body is longer than {MAX_BODY_BYTES} bytes"

_Result = FilterResult | BindResult
# Gives the answer to a body, at once or later. Raises BadRequestError.
_Verb = Callable[[bytes, Callable[[_Result], None]], None]


class Observer(Protocol):
    """Is told of each answer, in the server's thread."""

    def answered(self, verb: str, is_error: bool, seconds: float) -> None:
        """`verb` is filter or bind; `seconds` from the request's head to its answer, for bind the waiting too."""


def app(service: Service, prefix: str = "", observer: Observer | None = None) -> App:
    """`POST <prefix>/filter` and `/bind`, `GET /healthz`."""
    endpoints: dict[bytes, App] = {
        f"{prefix}/filter".encode(): _Endpoint("filter", service, _filter(service), observer),
        f"{prefix}/bind".encode(): _Endpoint("bind", service, _bind(service), observer),
        b"/healthz": lambda _, reply: reply(200, b"ok\n", TEXT),
    }

    def respond(request: Request, reply: Reply) -> None:
        endpoint = endpoints.get(request.target) or endpoints.get(_path(request.target))
        if endpoint is None:
            reply(404, b"not found\n", TEXT)
        else:
            endpoint(request, reply)

    return respond


class _Endpoint:
    """One verb."""

    def __init__(self, name: str, service: Service, verb: _Verb, observer: Observer | None) -> None:
        self._name = name
        self._service = service
        self._verb = verb
        self._observer = observer

    def __call__(self, request: Request, reply: Reply) -> None:
        if request.method != b"POST":
            reply(405, b"POST only\n", TEXT)
        elif not self._service.is_synced:
            reply(503, NOT_SYNCED.encode(), TEXT)
        else:
            self._run(request, reply)

    def _run(self, request: Request, reply: Reply) -> None:
        def answer(result: _Result, is_error: bool = False) -> None:
            if self._observer is not None:
                self._observer.answered(self._name, is_error, time.monotonic() - request.begin)
            reply(200, encode_answer(result), JSON)

        try:
            if request.is_too_long:
                raise BadRequestError(_TOO_LONG)
            self._verb(request.body, answer)
        except BadRequestError as error:
            answer(self._refusal(str(error)), True)
        except Exception:
            log.exception("call failed", verb=self._name)
            answer(self._refusal(INTERNAL_ERROR), True)

    def _refusal(self, error: str) -> _Result:
        return BindResult(error) if self._name == "bind" else FilterResult(error=error)


def _filter(service: Service) -> _Verb:
    return lambda body, answer: answer(service.filter(decode_filter_args(body)))


def _bind(service: Service) -> _Verb:
    return lambda body, answer: service.bind(decode_bind_args(body), answer)


def _path(target: bytes) -> bytes:
    """Without a query, nor escapes."""
    try:
        return unquote_to_bytes(httptools.parse_url(target).path or b"")
    except httptools.HttpParserInvalidURLError:
        return b""
