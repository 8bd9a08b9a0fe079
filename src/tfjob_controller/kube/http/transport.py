"""Requests to the API server: authenticated, with deadlines and rate limits, retried where that is safe.

Theory of operation. There are three pools of connections:

- *normal*: `pool_size` connections. When all are in use, a further caller waits instead of opening one more, since a
  TLS handshake costs 3 ms of CPU where the call itself takes 0.4 ms. So `pool_size` is the number of threads that send.
- *lease*: one connection, so that the renewal of a lease never waits for other requests.
- *streams*: each stream has its own connection as long as it lasts (HTTP/1.1).

Times: `timeout_seconds` is the limit of a whole call after the rate limit: every attempt with its connecting, sending
and receiving, and the delays between attempts. Waiting for the rate limit does not count, since a long queue is not the
server's fault.

Retries: there are two different permissions. The server may *ask* for a retry: 429 and 503 with `Retry-After` come from
filters that run before the request does (overload, shutdown), so nothing was carried out and any method may be sent
again. Or the request may be *repeatable*: then no response, any 5xx and a bare 429 are retried as well, with growing
delays. A request that is not repeatable and got no response is never sent twice: its outcome is unknown, and only the
caller can find out. After a 401 the call is repeated once if other credentials are available.

Requests of a sync carry its id (`trace.py`). If `verbose`, each attempt is a debug line with verb, path, code,
`duration_seconds` and `audit_id`, which finds it in the API server's audit log. `on_attempt` is called with verb,
target, code and seconds of each attempt.

Every failure is an `ApiError`. No message, repr or log line contains other headers.
Source: client-go rest/request.go (checkWait, at most 10 retries), rest/with_retry.go, rest/transport.go; apiserver
pkg/server/filters/{maxinflight,priority-and-fairness,with_retry_after}.go.
"""

from __future__ import annotations

import platform
import random
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from importlib import metadata
from urllib.parse import urlencode, urlsplit

from tfjob_controller.kube import trace
from tfjob_controller.kube.codec import api_error
from tfjob_controller.kube.config.kubeconfig import Config
from tfjob_controller.kube.errors import NO_RESPONSE, RESPONSE_TOO_LARGE, ApiError
from tfjob_controller.kube.flowcontrol import FlowControl, Priority
from tfjob_controller.kube.http.connectionpool import ConnectionPool
from tfjob_controller.kube.http.exchange import (
    HttpResponse,
    ResponseTooLargeError,
    encode_request,
    exchange,
    no_response_error,
)
from tfjob_controller.kube.http.linestream import HttpLineStream
from tfjob_controller.kube.requester import DEFAULT_TIMEOUT_SECONDS, JSON, TransportObserver
from tfjob_controller.util.clock import Clock, RealClock
from tfjob_controller.util.lazylog import get_logger

log = get_logger(__name__)

# Enough for some hundred jobs that start at once; beyond that the API server has its own fairness.
DEFAULT_QPS = 200.0
DEFAULT_BURST = 400
DEFAULT_POOL_SIZE = 16
# Idle connections kept for the next stream.
_STREAM_POOL_SIZE = 8
# The server's time is not taken from a response that took longer, if there is another one.
_PROMPT_SECONDS = 2.0
MAX_RETRIES = 10
# The first delay suits a connection that broke by chance, the last one an API server that restarts.
FIRST_DELAY_SECONDS = 0.1
MAX_DELAY_SECONDS = 2.0

# Kubernetes' own warnings have this code.
_WARNING = re.compile(r'\b299 \S+ "((?:[^"\\]|\\.)*)"')

# With Retry-After, the server sent these before it handled the request.
_NOT_CARRIED_OUT = (429, 503)


class _Unobserved:
    def request_finished(self, method: str, host: str, code: str, seconds: float) -> None: ...
    def request_retried(self, method: str, host: str, code: str) -> None: ...
    def rate_limited(self, method: str, host: str, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class TransportStatistics:
    """Counted since the start.

    `requests` are attempts sent, streams included; `retries` those that were not the first.
    """

    requests: int = 0
    retries: int = 0
    open_streams: int = 0


@dataclass(frozen=True, slots=True)
class _Call:
    """The part of a call that all its attempts share."""

    method: str
    target: str
    body: bytes | None
    headers: dict[str, str] = field(repr=False)  # contains the token
    priority: Priority
    repeatable: bool


class _Pools:
    """The connection pools, for one generation of the client certificate."""

    def __init__(self, config: Config, pool_size: int) -> None:
        self.generation = config.credentials.certificate_generation
        self.normal = ConnectionPool(config, pool_size, block=True)
        self.lease = ConnectionPool(config, 1, block=False)
        self.streams = ConnectionPool(config, _STREAM_POOL_SIZE, block=False)

    def close(self) -> None:
        for pool in (self.normal, self.lease, self.streams):
            pool.close()


class Transport:
    """Sends requests to one API server; a `Requester`. Thread-safe; one per process.

    `qps` of zero or less means no limit. `pool_size` limits the number of concurrent requests. `verbose`: see
    the module; even a debug line that is not written would cost 9 µs per request. A response that is no stream and has
    more than `max_response_bytes` is an `ApiError` with the reason `RESPONSE_TOO_LARGE`; with 0 there is no bound.
    `on_warning` gets each warning of a response, in the thread of the request.
    """

    def __init__(
        self,
        config: Config,
        *,
        qps: float = DEFAULT_QPS,
        burst: int = DEFAULT_BURST,
        pool_size: int = DEFAULT_POOL_SIZE,
        user_agent: str = "",
        clock: Clock | None = None,
        observer: TransportObserver | None = None,
        verbose: bool = False,
        on_attempt: Callable[[str, str, str, float], None] | None = None,
        on_warning: Callable[[str], None] | None = None,
        max_response_bytes: int = 0,
    ) -> None:
        self._clock = clock or RealClock()
        self._credentials = config.credentials
        self._config = config
        self._pool_size = pool_size
        self._user_agent = user_agent or default_user_agent()
        self._flow = FlowControl(qps, burst, self._clock)
        self._observer: TransportObserver = observer or _Unobserved()
        self._verbose = verbose
        self._on_attempt = on_attempt
        self._on_warning = on_warning
        self._max_bytes = max_response_bytes
        self._lock = threading.Lock()
        self._pools = _Pools(config, pool_size)
        self._stop = threading.Event()
        self._streams: set[HttpLineStream] = set()
        self._requests = self._retries = 0
        # The date of the last response that came at once, and when it arrived.
        self._date: tuple[datetime | None, float] = (None, 0.0)
        url = urlsplit(config.host)
        self._host = url.netloc
        self._prefix = config.request_prefix
        self._acting = config.impersonation.headers()

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
        """See `Requester.request`."""
        headers = {"Accept": accept, "User-Agent": self._user_agent, "Accept-Encoding": "gzip"}
        if body is not None:
            headers["Content-Type"] = content_type
        repeatable = method == "GET" if retry is None else retry
        call = _Call(method, self._target(path, query), body, headers, priority, repeatable)
        self._take_token(call)
        return self._send(call, timeout_seconds, 0 if retry is not False else None)

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        read_timeout_seconds: float,
        max_line_bytes: int = 0,
        accept: str = JSON,
    ) -> HttpLineStream:
        """See `Requester.stream`. Never compressed: a compressor would hold events back."""
        headers = {"Accept": accept, "User-Agent": self._user_agent, "Accept-Encoding": "identity"}
        call = _Call("GET", self._target(path, query), None, headers, Priority.NORMAL, False)
        self._take_token(call)
        response = self._authenticated(call, read_timeout_seconds, is_stream=True)
        assert response.unread is not None  # noqa: S101 - every 2xx response to a stream's request has it
        stream = HttpLineStream(response.unread, read_timeout_seconds, self._forget_stream, max_line_bytes)
        with self._lock:
            self._streams.add(stream)
        if self._stop.is_set():
            stream.close()
        return stream

    def server_time(self) -> datetime | None:
        """See `Requester.server_time`."""
        date, arrival = self._date
        return None if date is None else date + timedelta(seconds=self._clock.monotonic() - arrival)

    def close(self) -> None:
        """End all streams, close idle connections, refuse further requests. Running requests finish or time out."""
        self._stop.set()
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.close()
        self._pools.close()

    def statistics(self) -> TransportStatistics:
        with self._lock:
            return TransportStatistics(self._requests, self._retries, len(self._streams))

    def _target(self, path: str, query: Mapping[str, str] | None) -> str:
        return f"{self._prefix}{path}?{urlencode(query)}" if query else self._prefix + path

    def _take_token(self, call: _Call) -> None:
        self._observer.rate_limited(call.method, self._host, self._flow.acquire(call.priority, self._stop))

    def _send(self, call: _Call, timeout_seconds: float, retries: int | None) -> bytes:
        """Make attempts until one succeeds or no further is allowed; `retries` is None if there is only one."""
        deadline = self._clock.monotonic() + timeout_seconds
        while True:
            left_seconds = max(0.001, deadline - self._clock.monotonic())
            try:
                return self._authenticated(call, left_seconds).data
            except ApiError as error:
                if retries is None:
                    raise
                left_seconds = deadline - self._clock.monotonic()
                rest_seconds = retry_delay_seconds(
                    error, retries, repeatable=call.repeatable, left_seconds=left_seconds
                )
                if rest_seconds is None or self._clock.sleep(rest_seconds, self._stop):
                    raise
                self._observer.request_retried(call.method, self._host, str(error.status or "<error>"))
            retries += 1
            with self._lock:
                self._retries += 1
            self._take_token(call)

    def _authenticated(self, call: _Call, seconds: float, *, is_stream: bool = False) -> HttpResponse:
        """One attempt, and after a 401 a second one if there are other credentials than those refused."""
        authorization = self._credentials.authorization()
        try:
            return self._attempt(call, authorization, seconds, is_stream=is_stream)
        except ApiError as error:
            if not error.is_unauthorized or not self._credentials.renew(authorization):
                raise
        return self._attempt(call, self._credentials.authorization(), seconds, is_stream=is_stream)

    def _attempt(self, call: _Call, authorization: str | None, seconds: float, *, is_stream: bool) -> HttpResponse:
        if self._stop.is_set():
            raise ApiError(NO_RESPONSE, "Closed", "the transport is closed")
        if authorization is not None:
            call.headers["Authorization"] = authorization
        if (work := trace.current()) is not None:
            call.headers[trace.AUDIT_ID_HEADER] = work.next_audit_id()
        with self._lock:
            self._requests += 1
        begin = self._clock.monotonic()
        code = "<error>"
        try:
            request = encode_request(self._host, call.method, call.target, call.body, call.headers, self._acting)
            response = exchange(
                self._pool_for(call, is_stream), request, seconds, is_stream=is_stream, max_bytes=self._max_bytes
            )
            code = str(response.status)
            self._note_date(response.headers.get("date"), begin, self._clock.monotonic())
            if self._on_warning is not None:
                for warning in parse_warnings(response.headers.get("warning", "")):
                    self._on_warning(warning)
        except ResponseTooLargeError as error:
            is_unknown = call.method != "GET"
            raise ApiError(413, RESPONSE_TOO_LARGE, f"{self._host}: {error}", outcome_unknown=is_unknown) from error
        except OSError as error:
            raise no_response_error(call.method, self._host, error) from error
        finally:
            self._tell(call, code, self._clock.monotonic() - begin)
        if 200 <= response.status < 300:
            return response
        raise self._refused(call.method, response)

    def _note_date(self, date: str | None, begin: float, arrival: float) -> None:
        """The server writes the date before the body, so that of a response which takes long is of the past."""
        if date and (arrival - begin <= _PROMPT_SECONDS or self._date[0] is None):
            self._date = (_parse_date(date), arrival)

    def _tell(self, call: _Call, code: str, seconds: float) -> None:
        self._observer.request_finished(call.method, self._host, code, seconds)
        if self._on_attempt is not None:
            self._on_attempt(call.method, call.target, code, seconds)
        if self._verbose:
            sent = {"audit_id": call.headers.get(trace.AUDIT_ID_HEADER, "")}
            log.debug("request", verb=call.method, path=call.target, code=code, duration_seconds=seconds, **sent)

    def _pool_for(self, call: _Call, is_stream: bool) -> ConnectionPool:
        pools = self._current_pools()
        if is_stream:
            return pools.streams
        return pools.normal if call.priority is Priority.NORMAL else pools.lease

    def _current_pools(self) -> _Pools:
        pools = self._pools
        return pools if pools.generation == self._credentials.certificate_generation else self._renewed_pools()

    def _renewed_pools(self) -> _Pools:
        """Pools with the new client certificate, since open connections keep using the old one."""
        with self._lock:
            if self._pools.generation != self._credentials.certificate_generation:
                self._pools.close()
                self._pools = _Pools(self._config, self._pool_size)
            return self._pools

    def _refused(self, method: str, response: HttpResponse) -> ApiError:
        retry_after_seconds = parse_retry_after(response.headers.get("retry-after"), self._clock.now())
        return api_error(
            response.status,
            response.data,
            retry_after_seconds=retry_after_seconds,
            outcome_unknown=is_outcome_unknown(method, response.status, retry_after_seconds),
        )

    def _forget_stream(self, stream: HttpLineStream) -> None:
        with self._lock:
            self._streams.discard(stream)


def retry_delay_seconds(
    error: ApiError, retries: int, *, repeatable: bool, left_seconds: float, jitter: float | None = None
) -> float | None:
    """The delay before the next attempt, None if there is none.

    `retries` counts those made so far. `left_seconds` is what is left of the call's time: a delay that would use it up
    is not begun, since the present error is better than a time-out. `jitter` from 0 to 1 is random if not given.
    """
    if retries >= MAX_RETRIES:
        return None
    if error.retry_after_seconds is not None and error.status in _NOT_CARRIED_OUT:
        delay_seconds = error.retry_after_seconds
    elif repeatable and error.is_retryable:
        drawn = random.random() if jitter is None else jitter  # noqa: S311 - spreads load, guards nothing
        delay_seconds = min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0**retries) * (0.5 + 0.5 * drawn)
    else:
        return None
    return delay_seconds if delay_seconds < left_seconds else None


def is_outcome_unknown(method: str, status: int, retry_after_seconds: float | None) -> bool:
    """Whether the server may have carried out, or may still carry out, a write with this response.

    A 5xx can come from a proxy that lost the response, from etcd's time-out after the write, or from the API server's
    own time-out while the handler continues.
    """
    return method != "GET" and status >= 500 and not (status == 503 and retry_after_seconds is not None)


def parse_warnings(header: str) -> list[str]:
    """The texts of a Warning header. Source: apimachinery pkg/util/net/http.go (ParseWarningHeaders)."""
    texts = (text.encode("latin-1").decode("utf-8", "replace") for text in _WARNING.findall(header))
    return [re.sub(r"\\(.)", r"\1", text) for text in texts]


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """The seconds of a `Retry-After` header, which has seconds or a date (RFC 9110 10.2.3); None if invalid."""
    if not value:
        return None
    if value.isascii() and value.strip().isdigit():
        return float(value.strip())  # strip knows more white space than float does
    date = _parse_date(value)
    return None if date is None else max(0.0, (date - now).total_seconds())


def _parse_date(text: str) -> datetime | None:
    """The time in a header (RFC 9110 5.6.7); None for any other text."""
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return date.replace(tzinfo=date.tzinfo or UTC)


def default_user_agent(program: str = "tfjob-controller") -> str:
    """`program/version (os/arch) python/version`."""
    try:
        version = metadata.version(program)
    except metadata.PackageNotFoundError:
        version = "unknown"
    system, machine = platform.system().lower(), platform.machine().lower()
    return f"{program}/{version} ({system}/{machine}) python/{platform.python_version()}"
