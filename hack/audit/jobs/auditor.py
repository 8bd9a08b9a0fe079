"""The auditor of jobs: watches fill a history, which is judged at the end by the rules in `audit.jobs.judge`.

    signals = Signals()
    with Auditor(api, paths_in(""), Limits(), settle_seconds, signals) as auditor:   # all kinds are listed
        auditor.watch()                                                              # until signals.stop is set
        report = auditor.report()

It shares no code with the product: it has its own client, watches and parsers. Not thread-safe, except for `count`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import urllib3

from audit.flags import Signals
from audit.jobs.facts import is_ours
from audit.jobs.history import CHILDREN, GANGS, JOBS, OWNERS, TFJOBS, TRAINJOBS, History, Object
from audit.jobs.judge import CATEGORIES, Limits, final, pending
from audit.jobs.trim import trimmed
from audit.watches import Watches
from localcluster.api import Api
from localcluster.errors import LocalClusterError

# Where the API of a kind is, if it is not in the core group.
_CORE = "/api/v1"
_GROUPS = {
    TFJOBS: "/apis/kubeflow.org/v1alpha1",
    TRAINJOBS: "/apis/kubeflow.org/v2alpha1",
    JOBS: "/apis/batch/v1",
    GANGS: "/apis/scheduling.kubeflow.org/v1alpha1",
}
_POLL_SECONDS = 0.05
_OLD = "OLD"
_SETTLE_POLL_SECONDS = 1.0
_RETRY_SECONDS = 0.5
_LIST_SECONDS = 60.0
_CATCH_UP_SECONDS = 30.0


class Auditor:
    """Records what watches deliver and judges it (see the module)."""

    def __init__(
        self, api: Api, paths: Mapping[str, str], limits: Limits, settle_seconds: float, signals: Signals
    ) -> None:
        self._api = api
        self._paths = paths
        self._limits = limits
        self._settle_seconds = settle_seconds
        self._signals = signals
        self._watches = Watches(api, paths)
        self._history = History()
        self._outages: list[float] = []
        self._gaps = 0
        self._began = 0.0

    def __enter__(self) -> Self:
        """Starts the watches and waits for their lists. Raises TimeoutError if the cluster cannot be read."""
        self._began = time.time()
        self._watches.start(self._signals.stop)
        self._work(is_old=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._watches.stop()

    @property
    def count(self) -> int:
        """The number of observed versions, including those of other objects that are still queued."""
        return self._history.count + self._watches.events.qsize()

    @property
    def gaps(self) -> int:
        """The number of times that the server had compacted a watch's version, so that changes were missed."""
        return self._watches.gaps

    def watch(self) -> None:
        """Records events until `signals.stop` is set."""
        while not self._signals.stop.is_set:
            time.sleep(_POLL_SECONDS)
            self._work()

    def report(self) -> dict[str, object]:
        """Ends the watches and returns the report of `audit.jobs.__main__`. Call it after `watch`.

        Raises TimeoutError if the cluster cannot be read.
        """
        self._catch_up()
        self._settle()
        self._watches.stop()
        self._record_lists()
        findings = [
            *final(self._history, self._limits, self._outages),
            *pending(self._history, self._limits, time.time(), self._outages),
        ]
        return {
            **{category: sum(finding.category == category for finding in findings) for category in CATEGORIES},
            "violations": [str(finding) for finding in findings],
            "versions_seen": self._history.count,
            "jobs": sum(1 for _ in self._history.of(*OWNERS)),
            "gaps": self.gaps,
            "seconds": round(time.time() - self._began, 1),
        }

    def keep(self, path: Path) -> None:
        """Writes all observed versions to a file, to investigate a violation. Raises OSError."""
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.writelines(f"{json.dumps(row)}\n" for row in self._history.rows())

    def _work(self, *, is_old: bool = False) -> None:
        """Records the queued events; `is_old` means that they happened before all kinds were listed."""
        now = time.time()
        if self._watches.gaps > self._gaps:
            self._gaps = self._watches.gaps
            self._history.note_gap(now)
        if self._signals.outage.take():
            self._outages.append(now)
        for event in self._watches.arrived():
            change = _OLD if is_old and event.change == "ADDED" else event.change
            if _is_recorded(event.kind, event.obj):
                self._history.record(event.kind, change, trimmed(event.kind, event.obj), event.at)

    def _catch_up(self) -> None:
        """Waits until the watches have delivered what lists return now, for a limited time."""
        deadline = time.time() + _CATCH_UP_SECONDS
        for kind in (*OWNERS, *CHILDREN):
            listed = self._listed(kind, time.time() + _LIST_SECONDS)["items"]
            existing = [obj for obj in listed if _is_recorded(kind, obj)]
            while not all(map(self._history.knows, existing)) and time.time() < deadline:
                time.sleep(_POLL_SECONDS)
                self._work()

    def _settle(self) -> None:
        """Waits until no violation is left that may still be corrected, for a limited time."""
        deadline = time.time() + self._settle_seconds
        while time.time() < deadline:
            self._work()
            if not pending(self._history, self._limits, time.time(), self._outages):
                return
            time.sleep(_SETTLE_POLL_SECONDS)

    def _record_lists(self) -> None:
        self._work()
        deadline = time.time() + _LIST_SECONDS
        for kind in (*OWNERS, *CHILDREN):
            listed = self._listed(kind, deadline)
            objects = [trimmed(kind, obj) for obj in listed["items"] if _is_recorded(kind, obj)]
            self._history.record_list(kind, objects, int(listed["metadata"]["resourceVersion"]), time.time())

    def _listed(self, kind: str, deadline: float) -> Object:
        while True:
            try:
                return self._api.get(self._paths[kind])
            except (LocalClusterError, urllib3.exceptions.HTTPError, OSError) as error:
                if time.time() > deadline:
                    raise TimeoutError(f"cannot list {kind}: {error}") from error
                time.sleep(_RETRY_SECONDS)


def paths_in(namespace: str) -> dict[str, str]:
    """Returns the path of each kind in a namespace; in all namespaces if it is empty."""
    middle = f"/namespaces/{namespace}" if namespace else ""
    return {kind: f"{_GROUPS.get(kind, _CORE)}{middle}/{kind}" for kind in (*OWNERS, *CHILDREN)}


def _is_recorded(kind: str, obj: Object) -> bool:
    return kind in OWNERS or is_ours(obj)
