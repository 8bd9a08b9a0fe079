"""Observes with a watch when objects are created, by the same clock as the rest of the benchmark."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from localcluster.api import Api, Object
from localcluster.follower import Existing, Follower

_LIST_SECONDS = 60.0


class Watcher:
    """Counts the objects under `path`, existing and new ones."""

    def __init__(self, api: Api, path: str, selector: str = "") -> None:
        self._path = path
        query = {"labelSelector": selector} if selector else {}
        self._follower = Follower(api, path, Existing(self._see), query)
        self._changed = threading.Condition()
        self._seen: set[str] = set()
        self._first_by_job: dict[str, float] = {}
        self.first = 0.0
        self.last = 0.0

    def __enter__(self) -> Self:
        self._follower.start()
        self._follower.is_listed.wait(_LIST_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._follower.stop()

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

    def _see(self, obj: Object) -> None:
        now = time.monotonic()
        with self._changed:
            if obj["metadata"]["uid"] in self._seen:
                return
            self._seen.add(obj["metadata"]["uid"])
            self.first = self.first or now
            self.last = now
            self._first_by_job.setdefault(obj["metadata"].get("labels", {}).get("tf_job_name", ""), now)
            self._changed.notify_all()
