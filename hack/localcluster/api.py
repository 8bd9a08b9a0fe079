"""A plain JSON client of the API server for tools, tests and stand-ins.

It deliberately shares no code with `tfjob_controller`, since what checks the controller must not fail together with it.
Thread-safe: each request takes a connection of the pool.
"""

from __future__ import annotations

import base64
import contextlib
import ssl
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import msgspec
import urllib3
import yaml

from localcluster.errors import LocalClusterError

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_STREAMING_LIST = {"watch": "true", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
# The annotation of the bookmark at the end of the existing objects.
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
# A watch that is silent for longer is considered dead, since bookmarks arrive every minute.
_WATCH_TIMEOUT_SECONDS = 90.0
_TIMEOUT = urllib3.Timeout(connect=5.0, read=60.0)

Object = dict[str, Any]


class RefusedError(LocalClusterError):
    """The server refused the request. `status` is the HTTP code, `body` the Status object, and the text its message."""

    def __init__(self, status: int, body: Object) -> None:
        super().__init__(f"{body.get('message', 'no message')} ({status} {body.get('reason', '')})")
        self.status = status
        self.body = body


class Api:
    """One API server as one user."""

    def __init__(self, server: str, *, ca: str | None, token: str = "", pool_size: int = 16) -> None:
        """`ca` is PEM text; None stands for the authorities that the system trusts."""
        context = ssl.create_default_context(cadata=ca)
        self._server = server
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._context = context
        self._pool = urllib3.PoolManager(
            maxsize=pool_size, block=False, ssl_context=context, retries=False, timeout=_TIMEOUT
        )

    @classmethod
    def from_kubeconfig(cls, path: str | Path, pool_size: int = 16) -> Self:
        """Returns a client for a kubeconfig with a token or a client certificate. Raises LocalClusterError."""
        config = yaml.safe_load(Path(path).read_text())
        context = _named(config, "contexts", config["current-context"])["context"]
        cluster = _named(config, "clusters", context["cluster"])["cluster"]
        user = _named(config, "users", context["user"])["user"]
        if not user.keys() & {"token", "client-certificate-data", "client-certificate"}:
            raise LocalClusterError(f"{path}: only tokens and client certificates are supported here")
        ca = _material(cluster, "certificate-authority")
        api = cls(cluster["server"], ca=ca, token=user.get("token", ""), pool_size=pool_size)
        api._use_client_certificate(_material(user, "client-certificate"), _material(user, "client-key"))
        return api

    def as_token(self, token: str) -> Api:
        """Returns a client of the same server with another token and its own connections."""
        other = Api.__new__(Api)
        other._server = self._server
        other._headers = {"Authorization": f"Bearer {token}"}
        other._context = self._context
        other._pool = urllib3.PoolManager(ssl_context=self._context, retries=False, timeout=_TIMEOUT)
        return other

    @property
    def server(self) -> str:
        return self._server

    def close(self) -> None:
        self._pool.clear()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Object:
        """Returns the decoded response. Raises RefusedError for a status above 299, and urllib3's HTTPError."""
        answer = self._pool.request(
            method,
            self._url(path, query),
            body=body if body is None or isinstance(body, bytes) else msgspec.json.encode(body),
            headers={**self._headers, "Content-Type": content_type, "Accept": accept},
        )
        decoded = _decode(answer.data)
        if answer.status >= 300:
            raise RefusedError(answer.status, decoded)
        return decoded

    def get(self, path: str) -> Object:
        return self.request("GET", path)

    def find(self, path: str) -> Object | None:
        """Like `get`, but returns None if there is no such object."""
        try:
            return self.get(path)
        except RefusedError as failure:
            if failure.status == 404:
                return None
            raise

    def list(self, path: str, selector: str = "") -> list[Object]:
        items: list[Object] = self.request("GET", path, query={"labelSelector": selector} if selector else None)[
            "items"
        ]
        return items

    def create(self, path: str, body: Any) -> Object:
        return self.request("POST", path, body)

    def create_if_missing(self, path: str, body: Any) -> bool:
        """Creates the object if it does not exist; returns whether it was created."""
        try:
            self.create(path, body)
        except RefusedError as failure:
            if failure.status != 409:
                raise
            return False
        return True

    def patch(self, path: str, body: Any, content_type: str = MERGE_PATCH) -> Object:
        return self.request("PATCH", path, body, content_type=content_type)

    def apply(self, path: str, body: Any, manager: str = "localcluster") -> Object:
        """Creates or changes the object with server-side apply."""
        query = {"fieldManager": manager, "force": "true"}
        return self.request("PATCH", path, body, query=query, content_type=APPLY_PATCH)

    def delete(self, path: str, **options: Any) -> bool:
        """Deletes with DeleteOptions such as `gracePeriodSeconds=0`; returns False if there was no such object."""
        try:
            self.request("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
        except RefusedError as failure:
            if failure.status != 404:
                raise
            return False
        return True

    def watch(self, path: str, query: Mapping[str, str] | None = None) -> Watch:
        """Opens one watch that begins with the existing objects. Raises RefusedError, and urllib3's HTTPError."""
        wanted = {"allowWatchBookmarks": "true", **(query or {})}
        try:
            return Watch(self._stream(path, {**_STREAMING_LIST, **wanted}))
        except RefusedError as error:
            if "sendInitialEvents" not in str(error):
                raise
        # Kubernetes 1.33 has no streaming lists: a list comes first.
        wanted = {name: value for name, value in wanted.items() if name not in _STREAMING_LIST}
        if "resourceVersion" in wanted:
            return Watch(self._stream(path, {"watch": "true", **wanted}))
        selectors = {name: value for name, value in wanted.items() if name.endswith("Selector")}
        found = self.request("GET", path, query=selectors)
        version = found["metadata"]["resourceVersion"]
        end = {"resourceVersion": version, "annotations": {INITIAL_EVENTS_END: "true"}}
        listed = [*(("ADDED", item) for item in found["items"]), ("BOOKMARK", {"metadata": end})]
        return Watch(self._stream(path, {"watch": "true", **wanted, "resourceVersion": version}), listed)

    def _stream(self, path: str, query: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        answer = self._pool.request(
            "GET",
            self._url(path, query),
            headers=self._headers,
            preload_content=False,
            timeout=urllib3.Timeout(connect=5.0, read=_WATCH_TIMEOUT_SECONDS),
        )
        if answer.status >= 300:
            with contextlib.closing(answer):
                raise RefusedError(answer.status, _decode(answer.data))
        return answer

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        return f"{self._server}{path}" + (f"?{urlencode(query)}" if query else "")

    def _use_client_certificate(self, certificate: str | None, key: str | None) -> None:
        if certificate is None or key is None:
            return
        with (
            tempfile.TemporaryDirectory() as folder
        ):  # ssl reads keys only from files; this one is private and short-lived
            pair = Path(folder) / "pair.pem"
            pair.touch(mode=0o600)
            pair.write_text(f"{certificate}\n{key}\n")
            self._context.load_cert_chain(pair)


class Watch:
    """Iterates over (ADDED | MODIFIED | DELETED | BOOKMARK | ERROR, object) until the server ends it.

    `listed` comes before the server's events. Raises urllib3's HTTPError if the watch breaks, is silent for too long,
    or is closed by another thread.
    """

    def __init__(self, answer: urllib3.BaseHTTPResponse, listed: Iterable[tuple[str, Object]] = ()) -> None:
        self._answer = answer
        self._listed = listed

    def __iter__(self) -> Iterator[tuple[str, Object]]:
        rest = b""
        with contextlib.closing(self._answer):
            yield from self._listed
            for chunk in self._answer.stream(None):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = msgspec.json.decode(line)
                    yield event["type"], event["object"]

    def close(self) -> None:
        """Ends the watch from any thread, and wakes the reading thread."""
        with contextlib.suppress(OSError, ValueError):  # it has ended already
            self._answer.shutdown()


def _decode(data: bytes) -> Object:
    """Decodes a JSON object; anything else (such as a proxy's page) becomes the message of one."""
    try:
        decoded = msgspec.json.decode(data)
    except msgspec.DecodeError:
        decoded = None
    return decoded if isinstance(decoded, dict) else {"message": data.decode(errors="replace")[:300]}


def _named(config: Object, kind: str, name: str) -> Object:
    for entry in config.get(kind) or ():
        if entry["name"] == name:
            found: Object = entry
            return found
    raise LocalClusterError(f"the kubeconfig has no {kind} entry {name!r}")


def _material(entry: Object, key: str) -> str | None:
    """Returns PEM text from the kubeconfig, or from a file that it names."""
    if f"{key}-data" in entry:
        return base64.b64decode(entry[f"{key}-data"]).decode()
    return Path(entry[key]).read_text() if key in entry else None
