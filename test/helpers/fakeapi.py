"""An API server in memory, for tests of writes and of the reaction to errors. A `kube.requester.Requester`.

It stores objects by path, counts versions and generations, merges patches, checks resourceVersion and uid, and sends
each change to watchers at once, or after `hold` only when a test requests it. Faults are scripted by method and path.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfjob_controller.kube.errors import ApiError

Object = dict[str, Any]
Watcher = Callable[[str, Object], None]


@dataclass(slots=True)
class Fault:
    """Responses to requests that match. With `carried_out` the request is processed, and only the response is lost."""

    error: ApiError
    method: str
    part: str
    times: int
    carried_out: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    method: str
    path: str
    body: Object = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)


class FakeApi:
    """Thread-safe."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.sent: list[Sent] = []
        self.version = 100
        self._faults: list[Fault] = []
        self._watchers: list[tuple[str, Watcher]] = []
        self._held: list[tuple[str, str, Object]] | None = None
        self._lock = threading.RLock()

    # Methods for tests

    def fail(
        self, status: int, reason: str = "", message: str = "no", *, method: str = "", part: str = "", times: int = 1,
        carried_out: bool = False, **details: Any,
    ) -> None:  # fmt: skip
        self._faults.append(Fault(ApiError(status, reason, message, **details), method, part, times, carried_out))

    def watch(self, collection: str, watcher: Watcher) -> None:
        """Calls `watcher` for changes of objects whose path contains `/<collection>/`."""
        self._watchers.append((collection, watcher))

    def hold(self) -> None:
        """From now on changes are held back, as by a watch that lags."""
        self._held = []

    def release(self) -> None:
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
            path = f"{collection}/{obj['metadata']['name']}"
            old = self.objects.get(path)
            return self._store(path, copy.deepcopy(obj), old)

    def change(self, path: str, patch: Object) -> Object:
        """Applies a merge patch of another client."""
        with self._lock:
            return self._store(path, _merged(self.objects[path], patch), self.objects[path])

    def remove(self, path: str) -> None:
        with self._lock:
            self._delete(path, {})

    def paths(self, part: str) -> list[str]:
        return sorted(path for path in self.objects if part in path)

    def requests(self, method: str = "", part: str = "") -> list[Sent]:
        return [sent for sent in self.sent if sent.method.startswith(method) and part in sent.path]

    # Methods for the program

    def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: bytes | None = None, **_: object
    ) -> bytes:
        parsed = json.loads(body) if body else {}
        with self._lock:
            self.sent.append(Sent(method, path, parsed, query or {}))
            fault = self._fault(method, path, parsed)
            if fault is None or fault.carried_out:
                one = (query or {}).get("fieldSelector", "").removeprefix("metadata.name=")
                answer = self._list_of_one(path, one) if one else self._handle(method, path, parsed)
            if fault is not None:
                raise fault.error
            return json.dumps(answer).encode()

    def stream(self, path: str, **_: object) -> Any:
        raise NotImplementedError("informers are not started here")

    # Implementation

    def _fault(self, method: str, path: str, body: Object) -> Fault | None:
        name = body.get("metadata", {}).get("name", "") if method == "POST" else ""
        for fault in self._faults:
            if fault.times > 0 and fault.method in ("", method) and fault.part in f"{path}/{name}":
                fault.times -= 1
                return fault
        return None

    def _handle(self, method: str, path: str, body: Object) -> Object:
        if method == "POST":
            return self._create(path, body)
        if method == "GET":
            return self._found(path)
        if method == "PATCH":
            return self._patch(path, body)
        return self._delete(path, body)

    def _list_of_one(self, collection: str, name: str) -> Object:
        found = self.objects.get(f"{collection}/{name}")
        return {"metadata": {"resourceVersion": str(self.version)}, "items": [] if found is None else [found]}

    def _create(self, collection: str, body: Object) -> Object:
        path = f"{collection}/{body['metadata']['name']}"
        if path in self.objects:
            raise ApiError(409, "AlreadyExists", f"{path} already exists")
        return self._store(path, body, None)

    def _patch(self, path: str, body: Object) -> Object:
        if path.endswith("/scale"):
            # This is the scale subresource of a TFJob. The response is not a Scale, but the program does not read it.
            path, workers = path.removesuffix("/scale"), body["spec"]["replicas"]
            body = {**body, "spec": {"workerReplicas": workers}}
        target, _, subresource = path.partition("/status")
        old = self._found(target)
        wanted = body.get("metadata", {})
        for name in ("resourceVersion", "uid"):
            if wanted.get(name, old["metadata"][name]) != old["metadata"][name]:
                raise ApiError(409, "Conflict", "the object has been modified")
        patch = {"status": body["status"]} if subresource or path.endswith("/status") else body
        patch = {**patch, "metadata": {k: v for k, v in wanted.items() if k != "resourceVersion"}}
        return self._store(target, _merged(old, patch), old)

    def _delete(self, path: str, body: Object) -> Object:
        old = self._found(path)
        for name, wanted in body.get("preconditions", {}).items():
            if wanted != old["metadata"][name]:
                raise ApiError(409, "Conflict", f"another {name}")
        del self.objects[path]
        self.version += 1
        gone = _merged(old, {"metadata": {"resourceVersion": str(self.version)}})
        self._notify(path, "DELETED", gone)
        return {"kind": "Status", "status": "Success"}

    def _found(self, path: str) -> Object:
        if path not in self.objects:
            raise ApiError(404, "NotFound", f"{path} not found")
        return self.objects[path]

    def _store(self, path: str, obj: Object, old: Object | None) -> Object:
        self.version += 1
        kept = {
            k: v for k, v in (old or {}).get("metadata", {}).items() if k in ("uid", "creationTimestamp", "namespace")
        }
        meta = obj["metadata"] = {**kept, **obj["metadata"]}
        meta["resourceVersion"] = str(self.version)
        meta.setdefault("uid", f"uid-{self.version}")
        meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        if path.split("/")[-3] != "namespaces" and "/namespaces/" in path:
            meta.setdefault("namespace", path.split("/namespaces/")[1].split("/")[0])
        changed = old is None or old.get("spec") != obj.get("spec")
        meta["generation"] = (old or {}).get("metadata", {}).get("generation", 0) + changed
        self.objects[path] = obj
        self._notify(path, "ADDED" if old is None else "MODIFIED", obj)
        return copy.deepcopy(obj)

    def _notify(self, path: str, kind: str, obj: Object) -> None:
        if self._held is None:
            self._tell(path, kind, obj)
        else:
            self._held.append((path, kind, copy.deepcopy(obj)))

    def _tell(self, path: str, kind: str, obj: Object) -> None:
        for collection, watcher in self._watchers:
            if f"/{collection}/" in path:
                watcher(kind, obj)


def _merged(old: Any, patch: Any) -> Any:
    """Applies a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged
