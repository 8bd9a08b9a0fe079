"""Watches a namespace from outside and says what went wrong there.

It shares no code with the controller: own client, own watches, own rules (helpers/history.py). It sees every version
of every TFJob, Job, Service and Pod. A broken watch goes on where it stood; only where the server has forgotten that
(410) does it list anew.

    with Auditor(api, namespace) as auditor:
        ...
        auditor.await_no_violations()

Threads: one for each kind, gone after `stop`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import Self

import urllib3

from helpers.history import JOB, POD, SERVICE, TFJOB, History, Object, violations
from localcluster.api import Api, RefusedError, Watch

_PATHS = {
    TFJOB: "/apis/kubeflow.org/v1alpha1/namespaces/{}/tfjobs",
    JOB: "/apis/batch/v1/namespaces/{}/jobs",
    SERVICE: "/api/v1/namespaces/{}/services",
    POD: "/api/v1/namespaces/{}/pods",
}
_RETRY_SECONDS = 0.1
_LIST_ENDS = "k8s.io/initial-events-end"


class Auditor:
    """See the module. `start` returns when every kind has been listed."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.history = History()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._watchers = [
            _Watcher(api, kind, path.format(namespace), self.history, self._lock, self._stopping)
            for kind, path in _PATHS.items()
        ]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        for watcher in self._watchers:
            watcher.thread.start()
        for watcher in self._watchers:
            assert watcher.is_listed.wait(30), f"cannot watch {watcher.kind}: {watcher.problem}"

    def stop(self) -> None:
        self._stopping.set()
        for watcher in self._watchers:
            watcher.close()
        for watcher in self._watchers:
            watcher.thread.join(10)

    @property
    def count(self) -> int:
        """How many versions were seen so far."""
        return self.history.count

    @property
    def gaps(self) -> int:
        """How often the server had forgotten where a watch stood."""
        return sum(watcher.gaps for watcher in self._watchers)

    def violations(self, unfinished: Collection[str] = ()) -> list[str]:
        with self._lock:
            return violations(self.history, unfinished)

    def await_no_violations(self, timeout: float = 60.0, unfinished: Collection[str] = ()) -> None:
        """Jobs may need their time to end, and the garbage collector its own; what is left then has gone wrong."""
        deadline = time.monotonic() + timeout
        while found := self.violations(unfinished):
            if time.monotonic() > deadline:
                raise AssertionError(f"{len(found)} violations:\n" + "\n".join(found[:30]))
            self._stopping.wait(0.2)


class _Watcher:
    """One kind."""

    def __init__(
        self, api: Api, kind: str, path: str, history: History, lock: threading.Lock, stopping: threading.Event
    ) -> None:
        self.kind = kind
        self.thread = threading.Thread(target=self._run, name=f"auditor-{kind}", daemon=True)
        self.is_listed = threading.Event()
        self.problem = ""
        self.gaps = 0
        self._api = api
        self._path = path
        self._history = history
        self._lock = lock
        self._stopping = stopping
        self._open: Watch | None = None
        self._version = ""

    def close(self) -> None:
        if self._open is not None:
            self._open.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._watch()
            except RefusedError as error:
                self._refused(error)
            except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                self.problem = str(error)
                self._stopping.wait(_RETRY_SECONDS)

    def _refused(self, error: RefusedError) -> None:
        self.problem = str(error)
        if error.status == 410:
            self._forgotten()
        else:
            self._stopping.wait(_RETRY_SECONDS)

    def _forgotten(self) -> None:
        self.gaps += 1
        self._version = ""

    def _watch(self) -> None:
        """From where the last watch ended, or with all that is there."""
        resumed = {"resourceVersion": self._version, "sendInitialEvents": "false"} if self._version else {}
        present: set[str] | None = None if self._version else set()
        self._open = self._api.watch(self._path, resumed)
        if self._stopping.is_set():
            self._open.close()
        for event, obj in self._open:
            if event == "ERROR":
                raise RefusedError(int(obj.get("code", 500)), obj)
            with self._lock:
                present = self._take(event, obj, present)

    def _take(self, event: str, obj: Object, present: set[str] | None) -> set[str] | None:
        """Record an event; the uids of a list that still goes on, None if none does."""
        if event != "BOOKMARK":
            self._history.record(self.kind, event, obj)
            if present is not None:
                present.add(obj["metadata"]["uid"])
            else:
                self._version = obj["metadata"]["resourceVersion"]
            return present
        if present is not None:
            if _LIST_ENDS not in (obj["metadata"].get("annotations") or {}):
                return present
            self._history.record_absent(self.kind, present)
            self.is_listed.set()
        self._version = obj["metadata"]["resourceVersion"]
        return None
