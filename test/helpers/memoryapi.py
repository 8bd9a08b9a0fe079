"""An API server in memory, for faults that cannot be produced with a real one.

It supports objects in namespaces, resource versions, optimistic locking and merge patches, as far as the contract tests
(leasecontract.py, eventcontract.py) need them, which also run against a real API server.

Faults are in a script: each request takes the next one. A fault's `before` runs before the request is processed, its
`after` after that and before the response; either may raise `ApiError`, move a fake clock, or call back.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from helpers.fakeclock import FakeClock
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.flowcontrol import Priority
from tfjob_controller.kube.requester import JSON, MERGE_PATCH, LineStream

Object = dict[str, Any]
# /apis/<group>/<version>/namespaces/<namespace>/<plural>, and /api/<version>/… of the core group.
_COLLECTION_SLASHES = {"apis": 6, "api": 5}
Hook = Callable[["Request"], None]


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: Object
    content_type: str
    timeout_seconds: float
    priority: Priority
    retry: bool | None


@dataclass(frozen=True, slots=True)
class Fault:
    before: Hook | None = None
    after: Hook | None = None


@dataclass
class MemoryApi:
    """A `Requester`. Thread-safe; hooks run without its lock."""

    script: deque[Fault] = field(default_factory=deque)
    always: Fault | None = None  # applies to every request after the end of the script
    requests: list[Request] = field(default_factory=list)
    objects: dict[str, Object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._version = 0

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
        request = Request(
            method, path, json.loads(body) if body else {}, content_type, timeout_seconds, priority, retry
        )
        with self._lock:
            self.requests.append(request)
            fault = self.script.popleft() if self.script else self.always
        if fault and fault.before:
            fault.before(request)
        answer = self.apply(request)
        if fault and fault.after:
            fault.after(request)
        return answer

    def stream(self, path: str, *, query: Mapping[str, str], read_timeout_seconds: float) -> LineStream:
        raise NotImplementedError("nobody streams from this one")

    def apply(self, request: Request) -> bytes:
        """Processes a request now."""
        with self._lock:
            answer = _METHODS[request.method](self, request)
        return json.dumps(answer).encode()

    def list(self, plural: str) -> list[Object]:
        """Returns all objects of a kind, sorted by path."""
        with self._lock:
            return [obj for path, obj in sorted(self.objects.items()) if path.split("/")[-2] == plural]

    def written(self, *methods: str) -> list[Request]:
        """Returns the requests with one of these methods, including failed ones."""
        with self._lock:
            return [request for request in self.requests if request.method in methods]

    def _get(self, request: Request) -> Object:
        if request.path.count("/") == _COLLECTION_SLASHES[request.path.split("/")[1]]:
            return {"items": [obj for path, obj in self.objects.items() if path.startswith(f"{request.path}/")]}
        path = request.path.removesuffix("/status")
        if path not in self.objects:
            raise ApiError(404, "NotFound", f"{path} not found")
        return self.objects[path]

    def _create(self, request: Request) -> Object:
        path = f"{request.path}/{request.body['metadata']['name']}"
        if path in self.objects:
            raise ApiError(409, "AlreadyExists", f"{path} already exists")
        return self._store(path, request.body)

    def _update(self, request: Request) -> Object:
        old = self._get(request)
        if request.body["metadata"].get("resourceVersion") not in ("", None, old["metadata"]["resourceVersion"]):
            raise ApiError(409, "Conflict", "the object has been modified; please apply your changes to the latest")
        return self._store(request.path, request.body)

    def _patch(self, request: Request) -> Object:
        if request.content_type != MERGE_PATCH:
            raise ApiError(415, "UnsupportedMediaType", request.content_type)
        old = self._get(request)
        if request.body.get("metadata", {}).get("resourceVersion") not in (
            "",
            None,
            old["metadata"]["resourceVersion"],
        ):
            raise ApiError(409, "Conflict", "the object has been modified; please apply your changes to the latest")
        return self._store(request.path.removesuffix("/status"), _merged(old, request.body))

    def _delete(self, request: Request) -> Object:
        self._get(request)
        return self.objects.pop(request.path)

    def _store(self, path: str, obj: Object) -> Object:
        self._version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self._version)}
        self.objects[path] = {**obj, "metadata": metadata}
        return self.objects[path]


_METHODS = {
    "GET": MemoryApi._get,
    "POST": MemoryApi._create,
    "PUT": MemoryApi._update,
    "PATCH": MemoryApi._patch,
    "DELETE": MemoryApi._delete,
}


def _merged(old: Object, patch: Object) -> Object:
    """Applies a merge patch (RFC 7386)."""
    result = dict(old)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            inner = result.get(key)
            result[key] = _merged(inner if isinstance(inner, dict) else {}, value)
        else:
            result[key] = value
    return result


def refusal(status: int, reason: str = "", message: str = "scripted", **details: Any) -> Fault:
    """Returns a fault with which the server refuses the request."""

    def refuse(request: Request) -> None:
        raise ApiError(status, reason, message, **details)

    return Fault(before=refuse)


def no_answer(*, applied: bool) -> Fault:
    """Returns a fault that breaks the connection before the request is processed, or (`applied`) after it."""

    def lose(request: Request) -> None:
        raise ApiError(NO_RESPONSE, "ConnectionBroken", "scripted", outcome_unknown=request.method != "GET")

    return Fault(after=lose) if applied else Fault(before=lose)


def slow(clock: FakeClock, seconds: float, *, applied: bool = True) -> Fault:
    """Returns a fault that delays the response, which is lost after the caller's timeout.

    `applied`: processed before.
    """

    def delay(request: Request) -> None:
        clock.advance(min(seconds, request.timeout_seconds))
        if seconds >= request.timeout_seconds:
            raise ApiError(NO_RESPONSE, "Timeout", "no answer in time", outcome_unknown=request.method != "GET")

    return Fault(after=delay) if applied else Fault(before=delay)
