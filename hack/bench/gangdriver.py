"""Creates all objects of a measurement and observes its bound pods, in the same way for every contender."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

import urllib3

from bench.boundpods import Bound, BoundPods
from bench.gangplane import THREADS, Plane
from localcluster.api import RefusedError
from localcluster.follower import Existing, Follower

LIMIT_SECONDS = 180.0
PODS = "/api/v1/namespaces/{}/pods"

_LIST_SECONDS = 60.0

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Round:
    """The figures of a round, in seconds.

    `total` is from the first create of anything to the last pod bound; `latency` the median over gangs from the first
    create of one of its pods until all are bound; `spreads` for each gang from its first pod bound to its last.
    """

    total: float
    latency: float
    spreads: Sequence[float]

    @property
    def spread_p95(self) -> float:
        return sorted(self.spreads)[int(0.95 * (len(self.spreads) - 1))]

    @property
    def partly_bound(self) -> float:
        """The sum of the spreads, in gang-seconds."""
        return sum(self.spreads)


def round_of(begin: float, created: Mapping[str, float], bound: Mapping[str, Mapping[str, float]]) -> Round:
    """Computes a round from the times when each gang's first pod was created and when each pod was bound."""
    times = {gang: sorted(pods.values()) for gang, pods in bound.items()}
    latencies = [found[-1] - created.get(gang, begin) for gang, found in times.items()]
    spreads = [found[-1] - found[0] for found in times.values()]
    return Round(max(found[-1] for found in times.values()) - begin, statistics.median(latencies), spreads)


class Driver:
    """Creates objects and observes bound pods in one namespace. Thread-safe."""

    def __init__(self, plane: Plane, namespace: str) -> None:
        self.api = plane.api
        self.namespace = namespace
        self._pool = ThreadPoolExecutor(THREADS)
        self._followers = contextlib.ExitStack()
        self._watcher = BoundPods(plane.control.kubeconfig, namespace)
        self._thread = threading.Thread(target=self._watch, name="bench-bound", daemon=True)
        self._changed = threading.Condition()
        self._created: dict[str, float] = {}
        self._bound: dict[str, dict[str, float]] = {}
        self._count = 0
        self._failure: Exception | None = None
        self._has_ended = False
        self._begin = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        self._begin = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._has_ended = True
        self._followers.close()
        self._watcher.close()
        self._thread.join(5.0)
        self._pool.shutdown(cancel_futures=True)

    def follow(self, path: str, take: Callable[[Object], None]) -> None:
        """Watches a path until the driver ends."""
        follower = Follower(self.api, path, Existing(take))
        self._followers.callback(follower.stop)
        follower.start()
        follower.is_listed.wait(_LIST_SECONDS)

    def create_all(self, path: str, bodies: Sequence[Object]) -> None:
        """Creates all objects and waits for the responses. Raises RefusedError, and urllib3's HTTPError."""
        list(self._pool.map(lambda body: self.api.create(path, body), bodies))

    def create_pod(self, gang: str, body: Object) -> None:
        """Creates a pod on the thread pool, unless the driver has ended; the method that waits raises an error."""
        with self._changed:
            if not self._has_ended:
                self._pool.submit(self._create_pod, gang, body)

    def wait_bound(self, pods: int, timeout_seconds: float = LIMIT_SECONDS) -> None:
        """Waits until so many pods are bound. Raises TimeoutError, and the error of a create."""
        with self._changed:
            is_done = self._changed.wait_for(lambda: self._failure or self._count >= pods, timeout_seconds)
            if self._failure is not None:
                raise self._failure
            if not is_done:
                raise TimeoutError(f"{self._count} of {pods} pods bound after {timeout_seconds:.0f} s")

    def round(self, pods: int) -> Round:
        """Waits until so many pods are bound and returns the figures. Raises like `wait_bound`."""
        self.wait_bound(pods)
        with self._changed:
            return round_of(self._begin, self._created, self._bound)

    def _create_pod(self, gang: str, body: Object) -> None:
        with self._changed:
            self._created.setdefault(gang, time.monotonic())
        try:
            self.api.create(PODS.format(self.namespace), body)
        except (RefusedError, urllib3.exceptions.HTTPError, OSError) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Records the first error for the methods that wait."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def _watch(self) -> None:
        for bound in self._watcher:
            self._take(bound)
        self._fail(RuntimeError("the process that watches pods has ended"))

    def _take(self, bound: Bound) -> None:
        with self._changed:
            self._bound.setdefault(bound.gang, {})[bound.name] = bound.at
            self._count += 1
            self._changed.notify_all()
