"""Observes with a watch when objects are created, by the same clock as the rest of the benchmark."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import urllib3

from bench.report import progress
from localcluster.api import Api, Watch


class Watcher:
    """Counts the objects under `path`, existing and new ones."""

    def __init__(self, api: Api, path: str, selector: str = "") -> None:
        self._api = api
        self._path = path
        self._query = {"labelSelector": selector} if selector else {}
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._seen: set[str] = set()
        self._first_by_job: dict[str, float] = {}
        self._watch: Watch | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch-{path.rpartition('/')[2]}", daemon=True)
        self.first = 0.0
        self.last = 0.0

    def __enter__(self) -> Self:
        self._open()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        if self._watch is not None:
            self._watch.close()
        self._thread.join(5.0)

    def wait_for(self, count: int, timeout_seconds: float) -> float:
        """Waits for so many objects and returns the time of the last one. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._seen) >= count, timeout_seconds):
                raise TimeoutError(f"{len(self._seen)} of {count} {self._path} after {timeout_seconds:.0f} s")
            return self.last

    def wait_for_job(self, name: str, timeout_seconds: float) -> float:
        """Waits for the first child of the TFJob of that name and returns its time. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: name in self._first_by_job, timeout_seconds):
                raise TimeoutError(f"no child of {name} after {timeout_seconds:.0f} s")
            return self._first_by_job[name]

    def _open(self) -> None:
        self._watch = self._api.watch(self._path, self._query)

    def _run(self) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(urllib3.exceptions.HTTPError, OSError, ValueError):
                self._follow()
            if not self._closed.is_set():
                # The new watch starts with the existing objects: none is missed, but the times of some are too late.
                progress(f"the watch of {self._path} ended and was opened again")
                self._open()

    def _follow(self) -> None:
        for obj in self._added():
            now = time.monotonic()
            with self._changed:
                if obj["metadata"]["uid"] in self._seen:
                    continue
                self._seen.add(obj["metadata"]["uid"])
                self.first = self.first or now
                self.last = now
                self._first_by_job.setdefault(obj["metadata"].get("labels", {}).get("tf_job_name", ""), now)
                self._changed.notify_all()

    def _added(self) -> Iterator[dict[str, Any]]:
        for kind, obj in self._watch or ():
            if kind == "ADDED":
                yield obj
