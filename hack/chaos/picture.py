"""What there is of gangs and their pods, as watches tell it.

Theory of operation. Each watch goes on where it stood when it breaks. Where the server does not know that place any
more (it was started again) all is listed anew, and what is not in the list has gone meanwhile.

Threads: one for each kind. `changed` is called in them, with the name of a gang, under no lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import urllib3

from localcluster.api import Api, RefusedError, Watch

Object = dict[str, Any]

PREFIX = "scheduling.kubeflow.org"
GANGS = f"/apis/{PREFIX}/v1alpha1/namespaces/{{}}/gangs"
PODS = "/api/v1/namespaces/{}/pods"

_RETRY_SECONDS = 0.2
_JOIN_SECONDS = 10.0
_GONE = 410
_LIST_ENDS = "k8s.io/initial-events-end"


class Mirror:
    """One kind. `group_of` says which group an object belongs to; None for one that is of no interest."""

    def __init__(
        self, api: Api, path: str, group_of: Callable[[Object], str | None], changed: Callable[[str], None]
    ) -> None:
        self._api = api
        self._path = path
        self._group_of = group_of
        self._changed = changed
        self._lock = threading.Lock()
        self._groups: dict[str, dict[str, Object]] = {}
        self._version = ""
        # While a list is under way: what it has held so far.
        self._listed: set[tuple[str, str]] | None = None
        self._stopping = threading.Event()
        self._open: Watch | None = None
        self._thread = threading.Thread(target=self._run, name=f"mirror-{path}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._open is not None:
            self._open.close()
        self._thread.join(_JOIN_SECONDS)

    def of(self, group: str) -> Mapping[str, Object]:
        """A group's objects, by name."""
        with self._lock:
            return dict(self._groups.get(group, {}))

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except RefusedError as error:
                if error.status == _GONE:
                    self._version = ""
                self._stopping.wait(_RETRY_SECONDS)
            except (urllib3.exceptions.HTTPError, ValueError, OSError):
                # The server ends a watch whose reader is slow.
                self._stopping.wait(_RETRY_SECONDS)

    def _follow(self) -> None:
        if not self._version:
            self.begin_list()
        resumed = {"resourceVersion": self._version, "sendInitialEvents": "false"} if self._version else {}
        self._open = self._api.watch(self._path, resumed)
        if self._stopping.is_set():
            self._open.close()
        for kind, obj in self._open:
            if kind == "ERROR":
                raise RefusedError(int(obj.get("code", 500)), obj)
            self.take(kind, obj)

    def begin_list(self) -> None:
        """What is taken from now on, until a bookmark ends it, is all that there is."""
        self._listed = set()

    def take(self, kind: str, obj: Object) -> None:
        """One event of the watch, which is no ERROR."""
        meta = obj["metadata"]
        if kind != "BOOKMARK":
            self._put(kind, obj)
        elif self._listed is not None and _LIST_ENDS in (meta.get("annotations") or {}):
            self._end_list(self._listed)
        if self._listed is None:
            self._version = str(meta["resourceVersion"])

    def _put(self, kind: str, obj: Object) -> None:
        group, name = self._group_of(obj), str(obj["metadata"]["name"])
        if group is None:
            return
        with self._lock:
            members = self._groups.setdefault(group, {})
            if kind == "DELETED":
                members.pop(name, None)
            else:
                members[name] = obj
        if self._listed is not None:
            self._listed.add((group, name))
        self._changed(group)

    def _end_list(self, listed: set[tuple[str, str]]) -> None:
        self._listed = None
        with self._lock:
            known = {(group, name) for group, members in self._groups.items() for name in members}
            for group, name in known - listed:
                del self._groups[group][name]
        for group in {group for group, _ in known - listed}:
            self._changed(group)
