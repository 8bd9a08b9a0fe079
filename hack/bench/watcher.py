"""Observes when objects appear in a collection, in a separate process, which threads that create them cannot delay.

    python -m bench.watcher KUBECONFIG PATH QUERY LABEL

It prints a line for each object that the query (as JSON) selects or comes to select: the time by the monotonic clock,
the value of its label, and its name. An empty line follows those that exist.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from localcluster.api import Api, Object
from localcluster.follower import Existing, Follower

_NO_LABEL = "-"


class Watcher:
    """Runs such a process. Thread-safe."""

    def __init__(self, kubeconfig: Path, path: str, query: Mapping[str, str], label: str) -> None:
        self._path = path
        command = [sys.executable, "-m", "bench.watcher", str(kubeconfig), path, json.dumps(query), label]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read, name="bench-watcher", daemon=True)
        self._changed = threading.Condition()
        self._times: dict[str, dict[str, float]] = {}
        self._count = 0
        self._is_listed = False
        self._failure: Exception | None = None
        self.last = 0.0

    def __enter__(self) -> Self:
        """Returns once the objects that exist are known. Raises RuntimeError."""
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._is_listed)
            if self._failure is not None:
                raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join(5.0)

    def fail(self, error: Exception) -> None:
        """Lets the methods that wait raise the first error."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def wait_for(self, count: int, timeout_seconds: float) -> float:
        """Waits for so many objects and returns the time of the last one. Raises TimeoutError, and what failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._count >= count, timeout_seconds)
            if self._failure is not None:
                raise self._failure
            if self._count < count:
                raise TimeoutError(f"{self._count} of {count} {self._path} after {timeout_seconds:.0f} s")
            return self.last

    def wait_for_label(self, value: str, timeout_seconds: float) -> float:
        """Waits for the first object whose label has this value, and returns its time. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: value in self._times, timeout_seconds):
                raise TimeoutError(f"no child of {value} after {timeout_seconds:.0f} s")
            return min(self._times[value].values())

    def times(self) -> dict[str, dict[str, float]]:
        """Returns the times so far by label and name."""
        with self._changed:
            return {value: dict(names) for value, names in self._times.items()}

    def _read(self) -> None:
        for line in self._process.stdout or ():
            with self._changed:
                if line.strip():
                    self._take(*line.split())
                else:
                    self._is_listed = True
                self._changed.notify_all()
        self.fail(RuntimeError(f"the process that watches {self._path} has ended"))

    def _take(self, at: str, value: str, name: str) -> None:
        self._times.setdefault(value, {})[name] = self.last = float(at)
        self._count += 1


class Printer:
    """Prints each object once."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._printed: set[str] = set()

    def take(self, obj: Object) -> None:
        now, metadata = time.monotonic(), obj["metadata"]
        if metadata["name"] not in self._printed:
            self._printed.add(metadata["name"])
            print(f"{now} {metadata.get('labels', {}).get(self._label) or _NO_LABEL} {metadata['name']}", flush=True)


def main() -> None:
    """Prints until killed."""
    kubeconfig, path, query, label = sys.argv[1:]
    follower = Follower(Api.from_kubeconfig(kubeconfig), path, Existing(Printer(label).take), json.loads(query))
    follower.start()
    follower.is_listed.wait()
    print(flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
