"""The extender's routes, and the server that kube-scheduler calls.

Every verb's response has status 200, and carries an `Error` if something is wrong, because kube-scheduler reports only
the number of any other status. The exception is 503 until the cluster's state has been read.

A client that can call `bind` can bind pods. The server therefore listens on loopback or requires client certificates.

Threads: everything runs in the server's thread.
Source: kubernetes pkg/scheduler/extender.go (its client has no retries and no limit on connections).
"""

from __future__ import annotations

import ipaddress
import resource
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

import httptools
import structlog

from tfjob_controller.gangscheduler.extender.verbs import NOT_SYNCED, ExtenderVerbs
from tfjob_controller.gangscheduler.extender.wire import (
    BadRequestError,
    BindResult,
    FilterResult,
    decode_bind_args,
    decode_filter_args,
    encode_answer,
)
from tfjob_controller.httpserver.app import JSON, TEXT, App, Limits, PeerCheck, Reply, Request
from tfjob_controller.httpserver.server import HttpServer, ListenAddress, ListenError
from tfjob_controller.util.clock import Clock

log = structlog.get_logger(__name__)

# The names of 15,000 nodes and the largest pod that etcd stores (1.5 MB) take less than 3 MB.
MAX_BODY_BYTES = 4 * 1024 * 1024
# A filter of a usual pod is read at once. Only kube-scheduler can send requests.
_PIPELINED_BYTES = 8 * 1024
INTERNAL_ERROR = "internal error of the gang scheduler; see its log"
_TOO_LONG = f"the body is longer than {MAX_BODY_BYTES} bytes"

_Result = FilterResult | BindResult
# Processes a request body and passes the result to the callback, at once or later. Raises BadRequestError.
_Verb = Callable[[bytes, Callable[[_Result], None]], None]


# Observes each response, in the server's thread: the verb, whether the call failed, and the seconds from the request's
# head to its response, including the wait of bind.
ObserveCall = Callable[[str, bool, float], None]


def new_app(service: ExtenderVerbs, prefix: str, observe: ObserveCall) -> App:
    """Returns the routes `POST <prefix>/filter`, `POST <prefix>/bind` and `GET /healthz`."""

    def run_filter(body: bytes, answer: Callable[[FilterResult], None]) -> None:
        answer(service.filter(decode_filter_args(body)))

    def run_bind(body: bytes, answer: Callable[[BindResult], None]) -> None:
        service.bind(decode_bind_args(body), answer)

    endpoints: dict[bytes, App] = {
        f"{prefix}/filter".encode(): _endpoint("filter", service, run_filter, FilterResult, observe),
        f"{prefix}/bind".encode(): _endpoint("bind", service, run_bind, BindResult, observe),
        b"/healthz": lambda _, reply: reply(200, b"ok\n", TEXT),
    }

    def respond(request: Request, reply: Reply) -> None:
        endpoint = endpoints.get(request.target) or endpoints.get(_path(request.target))
        if endpoint is None:
            reply(404, b"not found\n", TEXT)
        else:
            endpoint(request, reply)

    return respond


def _endpoint(name: str, service: ExtenderVerbs, verb: _Verb, result_type: type[_Result], observe: ObserveCall) -> App:
    def respond(request: Request, reply: Reply) -> None:
        def answer(result: _Result, is_error: bool = False) -> None:
            observe(name, is_error, time.monotonic() - request.begin)
            reply(200, encode_answer(result), JSON)

        if request.method != b"POST":
            reply(405, b"POST only\n", TEXT)
            return
        if not service.is_synced():
            reply(503, NOT_SYNCED.encode(), TEXT)
            return
        try:
            if request.is_too_long:
                raise BadRequestError(_TOO_LONG)
            verb(request.body, answer)
        except BadRequestError as error:
            answer(result_type(error=str(error)), True)
        except Exception:
            log.exception("call failed", verb=name)
            answer(result_type(error=INTERNAL_ERROR), True)

    return respond


def _path(target: bytes) -> bytes:
    """Returns the path without query and escapes."""
    try:
        return unquote_to_bytes(httptools.parse_url(target).path or b"")
    except httptools.HttpParserInvalidURLError:
        return b""


# Each waiting call has its own connection; the usual soft limit of 1,024 files would not allow a gang of a thousand.
_WANTED_FILES = 65_536
_NAME_KINDS = ("commonName", "DNS")
_FILES_FOR_OTHERS = 256


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files."""

    certificate: str
    key: str
    client_ca: str
    """Signs the certificates of clients."""
    client_name: str
    """The common name or DNS name of the client whose requests are answered."""


def new_server(
    address: ListenAddress,
    service: ExtenderVerbs,
    clock: Clock,
    *,
    prefix: str = "",
    tls: TlsFiles | None = None,
    observe: ObserveCall = lambda verb, is_error, seconds: None,
    connection_limit: int | None = None,
) -> HttpServer:
    """Returns a server of `POST <prefix>/filter` and `/bind`, `GET /healthz`, which listens. Raises ListenError.

    By default, `connection_limit` is derived from the limit of open files, which is raised as far as allowed.
    """
    context = _tls_context(address, tls)
    settings = None if context is None else lambda: context
    limits = Limits(
        connection_limit or _connection_limit(),
        MAX_BODY_BYTES,
        replaces_busy=False,
        rate=None,
        pipelined_bytes=_PIPELINED_BYTES,
    )
    app = new_app(service, prefix.rstrip("/"), observe)
    return HttpServer(
        "extender-http", address, app, limits, clock, tls=settings, check_peer=_check_of(tls), on_stop=service.stop
    )


def _tls_context(address: ListenAddress, tls: TlsFiles | None) -> ssl.SSLContext | None:
    if tls is None:
        if not _is_loopback(address.host):
            raise ListenError(
                f"will not listen on {address} without TLS, because any client that reaches it could bind pods. Give "
                "a certificate, its key and the CA of client certificates, or listen on 127.0.0.1"
            )
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(tls.certificate, tls.key)
        context.load_verify_locations(tls.client_ca)
    except (OSError, ssl.SSLError) as error:
        raise ListenError(f"cannot use {tls.certificate}, {tls.key} and {tls.client_ca}: {error}") from None
    return context


def _check_of(tls: TlsFiles | None) -> PeerCheck | None:
    """Returns the check of a client's name; the CA may have signed certificates of others, such as kubelets."""
    if tls is None:
        return None

    def check(certificate: Mapping[str, Any]) -> str:
        subject = [pair for parts in certificate.get("subject", ()) for pair in parts]
        names = [value for kind, value in (*subject, *certificate.get("subjectAltName", ())) if kind in _NAME_KINDS]
        if tls.client_name in names:
            return ""
        log.warning("client refused: its certificate has another name", names=names, expected=tls.client_name)
        return f"the client certificate does not have the name {tls.client_name}"

    return check


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _connection_limit() -> int:
    """Raises the limit of open files and returns the number of connections that it allows; others get a 503."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(_WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return max(1, (wanted if soft == resource.RLIM_INFINITY else soft) - _FILES_FOR_OTHERS)
