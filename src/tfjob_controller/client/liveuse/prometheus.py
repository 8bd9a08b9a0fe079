"""Instant queries to a Prometheus, or to a server with its HTTP API such as Thanos or Mimir.

The time of a query and the size of its response are bounded. Redirects are not followed, because they could lead the
token elsewhere. Messages of errors name neither the URL nor what the server has sent, except for its word for the type
of an error.

Source: prometheus.io/docs/prometheus/latest/querying/api (instant queries, format overview).
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import msgspec
import urllib3

from tfjob_controller.client.errors import ClientError

# Labels of a few hundred bytes for each GPU of a large namespace.
MAX_RESPONSE_BYTES = 4_000_000
_CONNECT_SECONDS, _ANSWER_SECONDS = 2.0, 5.0
_CHUNK_BYTES = 65_536
_MAX_URL, _MAX_TOKEN_BYTES = 2000, 65_536
_CONNECTIONS = 4
# What a header of HTTP may contain (RFC 6750, b64token), which ends no line.
_TOKEN = re.compile(rb"[A-Za-z0-9._~+/=-]+")
_ERROR_TYPE = re.compile(r"[a-z_]{1,40}")
_URL_TEXT = re.compile(r"[!-~]+")


class PrometheusError(Exception):
    """A query has no result. The message is the end of a sentence about Prometheus."""


class SeriesLabels(msgspec.Struct, frozen=True):
    """The labels of a series that are read here, and its value.

    A Prometheus that does not keep the labels of an exporter (`honor_labels: false`) renames them to `exported_…`,
    because its own labels say which pod the exporter is.
    """

    name: str = msgspec.field(default="", name="__name__")
    namespace: str = ""
    pod: str = ""
    exported_namespace: str = ""
    exported_pod: str = ""


class Sample(msgspec.Struct, frozen=True):
    """`value` is a time and a number as text."""

    metric: SeriesLabels
    value: tuple[float, str]

    @property
    def pod(self) -> tuple[str, str]:
        """The namespace and the name of the pod that the sample is about."""
        labels = self.metric
        if labels.exported_pod:
            return labels.exported_namespace, labels.exported_pod
        return labels.namespace, labels.pod

    @property
    def number(self) -> float:
        """The value; NaN if it is no number."""
        try:
            return float(self.value[1])
        except ValueError:
            return float("nan")


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str = ""
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    status: str = ""
    error_type: str = ""
    data: _Data = _Data()


_decode = msgspec.json.Decoder(_Answer).decode
_decode_samples = msgspec.json.Decoder(list[Sample]).decode


class Queries(Protocol):
    """What answers queries."""

    def query(self, expression: str) -> Sequence[Sample]:
        """The series that an expression selects now. Raises `PrometheusError`."""


class Prometheus:
    """A Prometheus at a URL. Thread-safe.

    `ca_file` has the authorities of its certificate, by default those of the system. The bearer token in `token_file`
    is read for each query, since such files are replaced. Raises `ClientError` for a setting that cannot be used.
    """

    def __init__(self, url: str, ca_file: str = "", token_file: str = "") -> None:
        self._url = f"{_checked(url, has_token=bool(token_file))}/api/v1/query"
        if ca_file and not Path(ca_file).is_file():
            raise ClientError(f"--prometheus-ca-file: there is no file {ca_file}")
        self._token_file = token_file
        if token_file:
            try:
                self._headers()
            except PrometheusError as error:
                raise ClientError(f"--prometheus-token-file: {error}") from None
        self._pool = urllib3.PoolManager(maxsize=_CONNECTIONS, ca_certs=ca_file or None)

    def query(self, expression: str) -> Sequence[Sample]:
        deadline = time.monotonic() + _ANSWER_SECONDS
        try:
            response = self._pool.request(
                "POST",
                self._url,
                fields={"query": expression, "timeout": f"{_ANSWER_SECONDS:.0f}s"},
                encode_multipart=False,
                headers=self._headers(),
                preload_content=False,
                redirect=False,
                retries=False,
                timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=_ANSWER_SECONDS),
            )
            try:
                body = _body(response, deadline)
            finally:
                response.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise PrometheusError(_reason(error)) from None
        return _samples(response.status, body)

    def _headers(self) -> dict[str, str]:
        if not self._token_file:
            return {"Accept": "application/json"}
        try:
            with Path(self._token_file).open("rb") as file:
                token = file.read(_MAX_TOKEN_BYTES).strip()
        except OSError as error:
            raise PrometheusError(f"the file of its token cannot be read: {error.strerror}") from None
        if not _TOKEN.fullmatch(token):
            raise PrometheusError("the file of its token contains no bearer token")
        return {"Accept": "application/json", "Authorization": f"Bearer {token.decode()}"}


def _checked(url: str, *, has_token: bool) -> str:
    """The URL without a slash at its end. Raises `ClientError`; its message does not contain the URL."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if len(url) > _MAX_URL or not _URL_TEXT.fullmatch(url) or parts.scheme not in ("http", "https") or not host:
        raise ClientError("--prometheus-url must be like https://prometheus.example:9090")
    if parts.username is not None or parts.password is not None:
        raise ClientError("--prometheus-url must not contain a user or a password: use --prometheus-token-file")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise ClientError("--prometheus-url must end before ? and #: it is the address before /api/v1/query")
    if has_token and parts.scheme == "http" and not _is_loopback(host):
        raise ClientError("--prometheus-token-file requires --prometheus-url with https://, so that nobody reads it")
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _body(response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
    """Raises `PrometheusError` beyond the bounds. Each piece takes at most the time-out of the connection."""
    pieces, size = [], 0
    while piece := response.read1(_CHUNK_BYTES, decode_content=False):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_RESPONSE_BYTES or time.monotonic() > deadline:
            response.close()
            is_large = size > MAX_RESPONSE_BYTES
            raise PrometheusError("its response is too large" if is_large else "it did not respond in time")
    return b"".join(pieces)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib3.exceptions.SSLError):
        return "TLS failed: check its certificate and --prometheus-ca-file"
    # Of a connection that is refused, urllib3's error is one of a time-out as well.
    if isinstance(error, urllib3.exceptions.TimeoutError) and not isinstance(
        error, urllib3.exceptions.NewConnectionError
    ):
        return "it did not respond in time"
    return "it cannot be reached"


def _samples(status: int, body: bytes) -> Sequence[Sample]:
    if status in (401, 403):
        raise PrometheusError(f"it refused the query (HTTP {status}): check --prometheus-token-file")
    if 300 <= status < 400:
        raise PrometheusError(f"it redirects (HTTP {status}): set --prometheus-url to the address where it is")
    try:
        answer = _decode(body)
        if answer.status == "success" and answer.data.result_type == "vector":
            return _decode_samples(answer.data.result)
    except msgspec.MsgspecError:
        raise PrometheusError(f"its response (HTTP {status}) is not of Prometheus' API") from None
    reason = answer.error_type if _ERROR_TYPE.fullmatch(answer.error_type) else "no result"
    raise PrometheusError(f"the query failed (HTTP {status}, {reason})")
