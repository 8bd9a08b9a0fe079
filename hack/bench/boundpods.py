"""Observes bound pods in a separate process, so that threads that create pods cannot delay it.

    python -m bench.boundpods KUBECONFIG NAMESPACE

It prints an empty line when its watch is open, then one line for each pod that is or becomes bound: the time by the
monotonic clock, the pod's gang (its label `gang`), and its name.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from localcluster.api import Api, Object
from localcluster.follower import Existing, Follower

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
    """Prints each pod once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def take(self, pod: Object) -> None:
        now, metadata = time.monotonic(), pod["metadata"]
        if metadata["name"] not in self._seen:
            self._seen.add(metadata["name"])
            print(f"{now} {metadata['labels']['gang']} {metadata['name']}", flush=True)


def main() -> None:
    """Prints until killed."""
    kubeconfig, namespace = sys.argv[1:]
    api, path = Api.from_kubeconfig(kubeconfig), _PATH.format(namespace)
    follower = Follower(api, path, Existing(Printer().take), _BOUND)
    follower.start()
    follower.is_listed.wait()
    print(flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
