"""An API server in memory, for faults that cannot be produced with a real one, and for tests of what is written.

It stores objects by path, counts versions and generations, merges patches, checks resourceVersion and uid, and sends
each change to watchers and streams at once, or after `hold` only when a test requests it. The contract tests
(leasecontract.py, eventcontract.py, informercontract.py) run against it and against a real API server.

Faults are those of `fail`, by method and path, or of a script: each request takes the next one. A fault's `before` runs
before the request is processed, its `after` after that and before the response; either may raise `ApiError`, move a
fake clock, or call back.
"""

from __future__ import annotations

import copy
import json
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from helpers.answering import Answering, Lines, Request
from helpers.fakeclock import FakeClock
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.requester import MERGE_PATCH
from tfjob_controller.util.timestamps import format_time

Object = dict[str, Any]
Watcher = Callable[[str, Object], None]
Hook = Callable[["Request"], None]
# /apis/<group>/<version>/namespaces/<namespace>/<plural>, and /api/<version>/… of the core group; a list of all
# namespaces has two parts less.
_COLLECTION_SLASHES = {"apis": 6, "api": 5}


_CREATED_AT = "2026-01-01T00:00:00Z"
# Of a pod whose template names none.
_GRACE_SECONDS = 30

_NAMESPACE = re.compile(r"/namespaces/[^/]+(?=/)")


@dataclass(frozen=True, slots=True)
class Fault:
    before: Hook | None = None
    after: Hook | None = None


@dataclass(slots=True)
class _Repeated:
    """A fault of the next `times` requests that match."""

    fault: Fault
    method: str
    part: str
    times: int

    def takes(self, request: Request) -> bool:
        name = request.body.get("metadata", {}).get("name", "") if request.method == "POST" else ""
        is_match = self.method in ("", request.method) and self.part in f"{request.path}/{name}"
        return self.times > 0 and is_match


class MemoryApi(Answering):
    """Thread-safe; hooks run without its lock, watchers with it.

    Streams are watches, also from streaming lists, and have no selectors. With a `kubelet_clock`, objects are created
    at its time, and a pod that is deleted while it runs stays for its grace period: until a test removes it.
    """

    def __init__(self, kubelet_clock: FakeClock | None = None) -> None:
        super().__init__()
        self._kubelet_clock = kubelet_clock
        self.script: deque[Fault] = deque()
        self.always: Fault | None = None  # applies to every request after the end of the script
        self.objects: dict[str, Object] = {}
        self.version = 100
        self._repeated: list[_Repeated] = []
        self._watchers: list[tuple[str, Watcher]] = []
        self._held: list[tuple[str, str, Object]] | None = None
        self._lagging = ""
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # Version, path, type and object of each change that streams show.
        self._history: list[tuple[int, str, str, Object]] = []
        self._compacted = 0
        self._streams: list[_Watch] = []

    # Methods for tests

    def fail(
        self, status: int, reason: str = "", message: str = "no", *, method: str = "", part: str = "", times: int = 1,
        carried_out: bool = False, **details: Any,
    ) -> None:  # fmt: skip
        """Fails the next requests that match. With `carried_out` they are processed, and only the response is lost."""
        before = refusal(status, reason, message, **details).before
        fault = Fault(after=before) if carried_out else Fault(before)
        self._repeated.append(_Repeated(fault, method, part, times))

    def watch(self, collection: str, watcher: Watcher) -> None:
        """Calls `watcher` for changes of objects whose path contains `/<collection>/`."""
        self._watchers.append((collection, watcher))

    def hold(self, collection: str = "") -> None:
        """From now on changes (of one collection) are held back, as by a watch that lags."""
        self._held, self._lagging = [], f"/{collection}/" if collection else ""

    def release(self) -> None:
        with self._lock:
            held, self._held = self._held or [], None
            for path, kind, obj in held:
                self._tell(path, kind, obj)

    def drop_held(self) -> None:
        """Drops the changes that were held back, as by a half-open connection."""
        self._held = None

    def put(self, collection: str, obj: Object) -> Object:
        """Creates or changes an object for another client; `collection` is the path of its list.

        Returns it as stored.
        """
        with self._lock:
            return copy.deepcopy(self._store(f"{collection}/{obj['metadata']['name']}", copy.deepcopy(obj)))

    def change(self, path: str, patch: Object) -> Object:
        """Applies a merge patch of another client."""
        with self._lock:
            return copy.deepcopy(self._store(path, merged(self.objects[path], patch)))

    def remove(self, path: str) -> None:
        with self._lock:
            self._remove(path)

    def cut(self) -> None:
        """Breaks the connections of all streams."""
        with self._changed:
            for stream in self._streams:
                stream.is_cut = True
            self._streams.clear()
            self._changed.notify_all()

    def expire(self) -> None:
        """Drops the history: watches from older versions are refused."""
        with self._lock:
            self._compacted = self.version

    def paths(self, part: str) -> list[str]:
        return sorted(path for path in self.objects if part in path)

    def list(self, plural: str) -> list[Object]:
        """Returns all objects of a kind, sorted by path."""
        with self._lock:
            return [obj for path, obj in sorted(self.objects.items()) if path.split("/")[-2] == plural]

    def requests(self, method: str = "", part: str = "") -> list[Request]:
        """Returns the requests whose method begins, and whose path goes on, like this, including failed ones."""
        with self._lock:
            return [each for each in self.sent if each.method.startswith(method) and part in each.path]

    def written(self, *methods: str) -> list[Request]:
        """Returns the requests with one of these methods, including failed ones."""
        with self._lock:
            return [each for each in self.sent if each.method in methods]

    # Methods for the program

    def answer(self, request: Request) -> bytes:
        with self._lock:
            fault = self._fault(request)
        if fault and fault.before:
            fault.before(request)
        answer = self.apply(request)
        if fault and fault.after:
            fault.after(request)
        return answer

    def apply(self, request: Request) -> bytes:
        """Processes a request now."""
        with self._lock:
            return json.dumps(_METHODS[request.method](self, request)).encode()

    def stream(
        self, path: str, *, query: Mapping[str, str], read_timeout_seconds: float, max_line_bytes: int = 0
    ) -> Lines:
        with self._lock:
            since, listed = int(query.get("resourceVersion") or 0), []
            if "sendInitialEvents" in query:
                since = self.version
                objects = [obj for at, obj in sorted(self.objects.items()) if at.startswith(f"{path}/")]
                listed = [*(_line("ADDED", obj) for obj in objects), _line("BOOKMARK", _list_end(since))]
            elif since < self._compacted:
                raise ApiError(410, "Expired", "too old resource version")
            stream = _Watch(self._changed, self._history, f"{path}/", since, listed)
            self._streams.append(stream)
            return stream

    # Implementation

    def _fault(self, request: Request) -> Fault | None:
        for each in self._repeated:
            if each.takes(request):
                each.times -= 1
                return each.fault
        return self.script.popleft() if self.script else self.always

    def _get(self, request: Request) -> Object:
        path = request.path
        slashes = _COLLECTION_SLASHES[path.split("/")[1]]
        if path.count("/") not in (slashes, slashes - 2):
            return self._found(path.removesuffix("/status"))
        name = request.query.get("fieldSelector", "").removeprefix("metadata.name=")
        items = [
            obj
            for at, obj in self.objects.items()
            if (at if path.count("/") == slashes else _NAMESPACE.sub("", at)).startswith(f"{path}/")
            and at.endswith(f"/{name}" * bool(name))
            and _selects(request.query.get("labelSelector", ""), obj["metadata"].get("labels", {}))
        ]
        return {"metadata": {"resourceVersion": str(self.version)}, "items": items}

    def _create(self, request: Request) -> Object:
        path = f"{request.path}/{request.body['metadata']['name']}"
        if path in self.objects:
            raise ApiError(409, "AlreadyExists", f"{path} already exists")
        return request.body if request.query.get("dryRun") else self._store(path, request.body)

    def _update(self, request: Request) -> Object:
        self._check(request.path, request.body["metadata"])
        return self._store(request.path, request.body)

    def _patch(self, request: Request) -> Object:
        if request.content_type != MERGE_PATCH:
            raise ApiError(415, "UnsupportedMediaType", request.content_type)
        path, body = request.path, request.body
        if path.endswith("/scale"):
            # This is the scale subresource of a TFJob. The response is not a Scale, but the program does not read it.
            path, body = path.removesuffix("/scale"), {**body, "spec": {"workerReplicas": body["spec"]["replicas"]}}
        target = path.removesuffix("/status")
        metadata = body.get("metadata", {})
        self._check(target, metadata)
        patch = {"status": body["status"]} if path != target else body
        patch = {**patch, "metadata": {name: each for name, each in metadata.items() if name != "resourceVersion"}}
        return self._store(target, merged(self.objects[target], patch))

    def _delete(self, request: Request) -> Object:
        self._check(request.path, request.body.get("preconditions", {}))
        found = self.objects[request.path]
        is_running = found.get("status", {}).get("phase") == "Running"
        if self._kubelet_clock is not None and "/pods/" in request.path and is_running:
            if "deletionTimestamp" in found["metadata"]:
                return found
            ends_at = self._kubelet_clock.now() + timedelta(seconds=_GRACE_SECONDS)
            deletion = {"deletionTimestamp": format_time(ends_at), "deletionGracePeriodSeconds": _GRACE_SECONDS}
            return self._store(request.path, merged(found, {"metadata": deletion}))
        self._remove(request.path)
        return {"kind": "Status", "status": "Success"}

    def _check(self, path: str, wanted: Mapping[str, Any]) -> None:
        """Raises `ApiError` unless the object is there, with the wanted version and uid."""
        metadata = self._found(path)["metadata"]
        for name in ("resourceVersion", "uid"):
            if wanted.get(name) not in ("", None, metadata.get(name)):
                raise ApiError(409, "Conflict", "the object has been modified; please apply your changes to the latest")

    def _found(self, path: str) -> Object:
        if path not in self.objects:
            raise ApiError(404, "NotFound", f"{path} not found")
        return self.objects[path]

    def _store(self, path: str, obj: Object) -> Object:
        old = self.objects.get(path, {})
        before = old.get("metadata", {})
        self.version += 1
        kept = {name: before[name] for name in ("uid", "creationTimestamp", "namespace") if name in before}
        metadata = {
            "uid": f"uid-{self.version}",
            "creationTimestamp": format_time(self._kubelet_clock.now()) if self._kubelet_clock else _CREATED_AT,
            **kept,
            **obj["metadata"],
        }
        metadata["resourceVersion"] = str(self.version)
        if path.split("/")[-3] != "namespaces" and "/namespaces/" in path:
            metadata.setdefault("namespace", path.split("/namespaces/")[1].split("/")[0])
        metadata["generation"] = before.get("generation", 0) + (not old or old.get("spec") != obj.get("spec"))
        self.objects[path] = {**obj, "metadata": metadata}
        self._notify(path, "MODIFIED" if old else "ADDED", self.objects[path])
        return self.objects[path]

    def _remove(self, path: str) -> None:
        old = self.objects.pop(path)
        self.version += 1
        self._notify(path, "DELETED", merged(old, {"metadata": {"resourceVersion": str(self.version)}}))

    def _notify(self, path: str, kind: str, obj: Object) -> None:
        if self._held is None or self._lagging not in path:
            self._tell(path, kind, obj)
        else:
            self._held.append((path, kind, copy.deepcopy(obj)))

    def _tell(self, path: str, kind: str, obj: Object) -> None:
        self._history.append((int(obj["metadata"]["resourceVersion"]), path, kind, obj))
        self._changed.notify_all()
        for collection, watcher in self._watchers:
            if f"/{collection}/" in path:
                watcher(kind, obj)


class _Watch(Lines):
    """The lines of a list, and then the changes since a version."""

    def __init__(
        self,
        changed: threading.Condition,
        history: Sequence[tuple[int, str, str, Object]],
        folder: str,
        since: int,
        listed: Sequence[bytes],
    ) -> None:
        super().__init__()
        self._changed = changed
        self._history = history
        self._folder = folder
        self._since = since
        self._listed = listed
        self.is_cut = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self._listed
        while (line := self._next()) is not None:
            yield line

    def close(self) -> None:
        with self._changed:
            super().close()
            self._changed.notify_all()

    def _next(self) -> bytes | None:
        """Waits for the next change; returns None once the stream is closed."""
        with self._changed:
            while not self.is_closed:
                if self.is_cut:
                    raise ApiError(0, "ConnectionBroken", "the stream broke off")
                for version, path, kind, obj in self._history:
                    if version > self._since and path.startswith(self._folder):
                        self._since = version
                        return _line(kind, obj)
                self._changed.wait()
            return None


def _line(kind: str, obj: Object) -> bytes:
    """Returns a line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode()


def _list_end(version: int) -> Object:
    """Returns the bookmark that ends a streaming list."""
    return {"metadata": {"resourceVersion": str(version), "annotations": {"k8s.io/initial-events-end": "true"}}}


_METHODS = {
    "GET": MemoryApi._get,
    "POST": MemoryApi._create,
    "PUT": MemoryApi._update,
    "PATCH": MemoryApi._patch,
    "DELETE": MemoryApi._delete,
}


# The terms `a`, `a=b` and `a in (b,c)` of a label selector.
_TERM = re.compile(r"([^,= ]+)(?:=([^,]*)| in \(([^)]*)\))?(?:,|$)")


def _selects(selector: str, labels: Mapping[str, str]) -> bool:
    return all(
        labels.get(name) in (values or value).split(",") if value or values else name in labels
        for name, value, values in _TERM.findall(selector)
    )


def merged(old: Any, patch: Any) -> Any:
    """Applies a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
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
