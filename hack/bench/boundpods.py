"""Who sees pods bound, in a process of its own: the threads that create would keep it from looking in time.

    python -m bench.boundpods KUBECONFIG NAMESPACE LABEL

It prints an empty line when its watch is open, then one line for each pod that is or becomes bound: the moment by the
machine's monotonic clock, the value of the pod's label, its name.
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
    """One pod, and when it was seen."""

    moment: float
    gang: str
    name: str


class BoundPods:
    """One such process. Iterating blocks until it is closed, in another thread."""

    def __init__(self, kubeconfig: Path, namespace: str, label: str) -> None:
        """Returns once the watch is open. Raises RuntimeError."""
        command = [sys.executable, "-m", "bench.boundpods", str(kubeconfig), namespace, label]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if not self._line():
            raise RuntimeError("the process that watches pods has ended")

    def __iter__(self) -> Iterator[Bound]:
        while line := self._line():
            moment, gang, name = line.split()
            yield Bound(float(moment), gang, name)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        return self._process.stdout.readline() if self._process.stdout else ""


class Printer:
    """Prints each pod once, and knows where a watch of them would go on."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._seen: set[str] = set()
        self._version = ""

    @property
    def query(self) -> dict[str, str]:
        """Of the next watch: what is there already would come again, and late."""
        resumed = {"resourceVersion": self._version, "sendInitialEvents": "false"} if self._version else {}
        return {**_BOUND, **resumed}

    def take(self, kind: str, pod: dict[str, Any]) -> None:
        """Raises RuntimeError for an error that the server sends."""
        moment = time.monotonic()
        if kind == "ERROR":
            raise RuntimeError(f"the watch of pods: {pod}")
        metadata = pod["metadata"]
        # The first list is not in order: it is over with its bookmark.
        self._version = metadata["resourceVersion"] if kind == "BOOKMARK" or self._version else ""
        if kind in ("ADDED", "MODIFIED") and metadata["name"] not in self._seen:
            self._seen.add(metadata["name"])
            print(f"{moment} {metadata['labels'][self._label]} {metadata['name']}", flush=True)


def watch(api: Api, namespace: str, label: str) -> None:
    """Print until killed. The server ends a watch that does not keep pace: then it goes on where it stood.

    Raises urllib3's HTTPError when there is no server any more.
    """
    printer, path = Printer(label), _PATH.format(namespace)
    opened = api.watch(path, printer.query)
    print(flush=True)
    while True:
        with contextlib.suppress(urllib3.exceptions.HTTPError, OSError, ValueError):
            for kind, pod in opened:
                printer.take(kind, pod)
        progress(f"the watch of pods in {namespace} ended and continues")
        opened = api.watch(path, printer.query)


def main() -> None:
    kubeconfig, namespace, label = sys.argv[1:]
    watch(Api.from_kubeconfig(kubeconfig), namespace, label)


if __name__ == "__main__":
    main()
