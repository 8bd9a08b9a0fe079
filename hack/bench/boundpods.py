"""Observes bound pods in a separate process, so that threads that create pods cannot delay it.

    python -m bench.boundpods KUBECONFIG NAMESPACE

It prints an empty line when its watch is open, then one line for each pod that is or becomes bound: the time by the
monotonic clock, the pod's gang (its label `gang`), and its name.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import urllib3

from bench.report import progress
from localcluster.api import Api

_PATH = "/api/v1/namespaces/{}/pods"
_BOUND = {"fieldSelector": "spec.nodeName!="}


class Bound(NamedTuple):
    """A bound pod, and when it was observed."""

    at: float
    gang: str
    name: str


class BoundPods:
    """Runs such a process. Iteration blocks until another thread closes it."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        """Returns once the watch is open. Raises RuntimeError."""
        command = [sys.executable, "-m", "bench.boundpods", str(kubeconfig), namespace]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if not self._line():
            raise RuntimeError("the process that watches pods has ended")

    def __iter__(self) -> Iterator[Bound]:
        while line := self._line():
            at, gang, name = line.split()
            yield Bound(float(at), gang, name)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        return self._process.stdout.readline() if self._process.stdout else ""


class Printer:
    """Prints each pod once, and records the version from which a watch can resume."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._version = ""

    @property
    def query(self) -> dict[str, str]:
        """The query of the next watch, which omits what was already delivered."""
        resumed = {"resourceVersion": self._version, "sendInitialEvents": "false"} if self._version else {}
        return {**_BOUND, **resumed}

    def take(self, kind: str, pod: dict[str, Any]) -> None:
        """Processes an event. Raises RuntimeError for an error from the server."""
        now = time.monotonic()
        if kind == "ERROR":
            raise RuntimeError(f"the watch of pods: {pod}")
        metadata = pod["metadata"]
        # The first list is not ordered by version, so its bookmark gives the version.
        self._version = metadata["resourceVersion"] if kind == "BOOKMARK" or self._version else ""
        if kind in ("ADDED", "MODIFIED") and metadata["name"] not in self._seen:
            self._seen.add(metadata["name"])
            print(f"{now} {metadata['labels']['gang']} {metadata['name']}", flush=True)


def watch(api: Api, namespace: str) -> None:
    """Prints until killed. A watch that the server ends, because it is too slow, is resumed.

    Raises urllib3's HTTPError when the server has stopped.
    """
    printer, path = Printer(), _PATH.format(namespace)
    opened = api.watch(path, printer.query)
    print(flush=True)
    while True:
        with contextlib.suppress(urllib3.exceptions.HTTPError, OSError, ValueError):
            for kind, pod in opened:
                printer.take(kind, pod)
        progress(f"the watch of pods in {namespace} ended and continues")
        opened = api.watch(path, printer.query)


def main() -> None:
    kubeconfig, namespace = sys.argv[1:]
    watch(Api.from_kubeconfig(kubeconfig), namespace)


if __name__ == "__main__":
    main()
