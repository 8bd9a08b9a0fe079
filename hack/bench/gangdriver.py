"""Creates all objects of a measurement and observes its bound pods, in the same way for both contenders."""

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

from bench.gangplane import THREADS, Plane
from bench.jobs import PODS
from bench.watcher import Watcher
from localcluster.api import RefusedError
from localcluster.follower import Existing, Follower

_LIMIT_SECONDS = 180.0
_BOUND = {"fieldSelector": "spec.nodeName!="}
_LIST_SECONDS = 60.0

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Round:
    """The figures of a round, in seconds.

    `total` is from the first create of anything to the last pod bound; `latency` the median over gangs from the first
    create of one of its pods until all are bound; `spreads` for each gang from its first pod bound to its last; `cpu`
    the CPU time of each program.
    """

    total: float
    latency: float
    spreads: Sequence[float]
    cpu: Mapping[str, float]

    @property
    def spread_p95(self) -> float:
        return sorted(self.spreads)[int(0.95 * (len(self.spreads) - 1))]

    @property
    def cpu_seconds(self) -> float:
        return sum(self.cpu.values())


def round_of(
    begin: float,
    created: Mapping[str, float],
    bound: Mapping[str, Mapping[str, float]],
    cpu: Mapping[str, float],
) -> Round:
    """Computes a round from the times when each gang's first pod was created and when each pod was bound."""
    times = {gang: sorted(pods.values()) for gang, pods in bound.items()}
    latencies = [pods[-1] - created.get(gang, begin) for gang, pods in times.items()]
    spreads = [pods[-1] - pods[0] for pods in times.values()]
    return Round(max(pods[-1] for pods in times.values()) - begin, statistics.median(latencies), spreads, cpu)


class Driver:
    """Creates objects and observes bound pods in one namespace. Thread-safe."""

    def __init__(self, plane: Plane, namespace: str) -> None:
        self.namespace = namespace
        self._plane = plane
        self._pool = ThreadPoolExecutor(THREADS)
        self._open = contextlib.ExitStack()
        self._watcher = Watcher(plane.control.kubeconfig, PODS.format(namespace), _BOUND, "gang")
        self._lock = threading.Lock()
        self._created: dict[str, float] = {}
        self._begin = 0.0
        self._cpu_before: Mapping[str, float] = {}

    def __enter__(self) -> Self:
        self._open.enter_context(self._watcher)
        self._open.callback(self._pool.shutdown, cancel_futures=True)
        self._cpu_before = self._plane.cpu_seconds()
        self._begin = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def follow(self, path: str, take: Callable[[Object], None]) -> None:
        """Watches a path until the driver ends."""
        follower = Follower(self._plane.api, path, Existing(take))
        self._open.callback(follower.stop)
        follower.start()
        follower.is_listed.wait(_LIST_SECONDS)

    def create_all(self, path: str, bodies: Sequence[Object]) -> None:
        """Creates all objects and waits for the responses. Raises RefusedError, and urllib3's HTTPError."""
        list(self._pool.map(lambda body: self._plane.api.create(path, body), bodies))

    def create_pod(self, gang: str, body: Object) -> None:
        """Creates a pod on the thread pool; `round` raises an error."""
        self._pool.submit(self._create_pod, gang, body)

    def round(self, pods: int) -> Round:
        """Waits until so many pods are bound and returns the figures. Raises TimeoutError, and errors of creates."""
        self._watcher.wait_for(pods, _LIMIT_SECONDS)
        cpu = {name: seconds - self._cpu_before[name] for name, seconds in self._plane.cpu_seconds().items()}
        with self._lock:
            return round_of(self._begin, self._created, self._watcher.times(), cpu)

    def _create_pod(self, gang: str, body: Object) -> None:
        with self._lock:
            self._created.setdefault(gang, time.monotonic())
        try:
            self._plane.api.create(PODS.format(self.namespace), body)
        except (RefusedError, urllib3.exceptions.HTTPError, OSError) as error:
            self._watcher.fail(error)
