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

from helpers.history import JOB, POD, SERVICE, TFJOB, History, Object, violations
from localcluster.api import Api
from localcluster.follower import Follower

_PATHS = {
    TFJOB: "/apis/kubeflow.org/v1alpha1/namespaces/{}/tfjobs",
    JOB: "/apis/batch/v1/namespaces/{}/jobs",
    SERVICE: "/api/v1/namespaces/{}/services",
    POD: "/api/v1/namespaces/{}/pods",
}
_POLL_SECONDS = 0.2


class Auditor:
    """See the module. `start` returns when every kind has been listed."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.history = History()
        self._lock = threading.Lock()
        self._followers = {
            kind: Follower(api, path.format(namespace), _Kind(kind, self.history, self._lock))
            for kind, path in _PATHS.items()
        }

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        for follower in self._followers.values():
            follower.start()
        for kind, follower in self._followers.items():
            assert follower.is_listed.wait(60), f"cannot watch {kind}: {follower.problem}"

    def stop(self) -> None:
        for follower in self._followers.values():
            follower.stop()

    @property
    def count(self) -> int:
        """How many versions were seen so far."""
        return self.history.count

    @property
    def gaps(self) -> int:
        """How often the server had forgotten where a watch stood."""
        return sum(follower.gaps for follower in self._followers.values())

    def violations(self, unfinished: Collection[str] = ()) -> list[str]:
        with self._lock:
            return violations(self.history, unfinished)

    def await_no_violations(self, timeout: float = 60.0, unfinished: Collection[str] = ()) -> None:
        """Jobs may need their time to end, and the garbage collector its own; what is left then has gone wrong."""
        deadline = time.monotonic() + timeout
        while found := self.violations(unfinished):
            if time.monotonic() > deadline:
                raise AssertionError(f"{len(found)} violations:\n" + "\n".join(found[:30]))
            time.sleep(_POLL_SECONDS)


class _Kind:
    """One kind's watch, written into the history."""

    def __init__(self, kind: str, history: History, lock: threading.Lock) -> None:
        self._kind = kind
        self._history = history
        self._lock = lock
        self._listed: set[str] | None = None

    def list_begins(self) -> None:
        self._listed = set()

    def take(self, change: str, obj: Object) -> None:
        with self._lock:
            self._history.record(self._kind, change, obj)
        if self._listed is not None:
            self._listed.add(obj["metadata"]["uid"])

    def list_ends(self, bookmark: Object) -> None:
        listed, self._listed = self._listed or set(), None
        with self._lock:
            self._history.record_absent(self._kind, listed)
