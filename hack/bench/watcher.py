"""Who sees objects appear: one watch, one thread, and the moment of each, by the same clock as everything else here."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import urllib3

from localcluster.api import Api, Watch


class Watcher:
    """Counts what is added under `path`, from now on and with what is there already."""

    def __init__(self, api: Api, path: str, selector: str = "") -> None:
        self._api = api
        self._path = path
        self._query = {"labelSelector": selector} if selector else {}
        self._changed = threading.Condition()
        self._count = 0
        self._first_by_job: dict[str, float] = {}
        self._watch: Watch | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch-{path.rpartition('/')[2]}", daemon=True)
        self.first = 0.0
        self.last = 0.0

    def __enter__(self) -> Self:
        self._watch = self._api.watch(self._path, self._query)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch is not None:
            self._watch.close()
        self._thread.join(5.0)

    def wait_for(self, count: int, timeout_seconds: float) -> float:
        """The moment (monotonic) when the last of so many appeared. TimeoutError if they do not."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._count >= count, timeout_seconds):
                raise TimeoutError(f"{self._count} of {count} {self._path} after {timeout_seconds:.0f} s")
            return self.last

    def wait_for_job(self, name: str, timeout_seconds: float) -> float:
        """The moment (monotonic) when the first child of the TFJob of that name appeared."""
        with self._changed:
            if not self._changed.wait_for(lambda: name in self._first_by_job, timeout_seconds):
                raise TimeoutError(f"no child of {name} after {timeout_seconds:.0f} s")
            return self._first_by_job[name]

    def _run(self) -> None:
        # It breaks when it is closed; if it does before, those who wait say so.
        with contextlib.suppress(urllib3.exceptions.HTTPError, OSError, ValueError):
            for obj in self._added():
                now = time.monotonic()
                with self._changed:
                    self._count += 1
                    self.first = self.first or now
                    self.last = now
                    self._first_by_job.setdefault(obj["metadata"].get("labels", {}).get("tf_job_name", ""), now)
                    self._changed.notify_all()

    def _added(self) -> Iterator[dict[str, Any]]:
        for kind, obj in self._watch or ():
            if kind == "ADDED":
                yield obj
