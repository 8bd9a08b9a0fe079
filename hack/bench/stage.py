"""A cluster for measurements, that of KUBECONFIG or else one that ends with the benchmark; and the controller."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.report import progress, size
from localcluster import ports, stack
from localcluster.api import Api
from localcluster.crds import install_crds
from localcluster.ourprogram import METRICS, PROBES, OurProgram
from localcluster.programs import LOOPBACK, Options

Item = TypeVar("Item")
Result = TypeVar("Result")

# Threads that create objects before a measurement.
_THREADS = 16
_LIMIT_SECONDS = 300.0
_POLL_SECONDS = 0.1
_QUIET_SECONDS = 1.0
_STOP_SECONDS = 60.0
_REST_LIMIT_SECONDS = float(size(60, tiny=0))


@dataclass(frozen=True, slots=True)
class Stage:
    kubeconfig: Path
    api: Api


@contextlib.contextmanager
def stage() -> Iterator[Stage]:
    """Yields a cluster with the project's CRDs."""
    existing = stack.existing_kubeconfig()
    if existing is not None:
        yield _with_crds(Path(existing))
        return
    with stack.throwaway("bench", Options(), progress) as plane:
        yield _with_crds(plane.kubeconfig)


def unique(name: str) -> str:
    """Returns the name of a namespace that no earlier run can have left."""
    return f"{name}-{os.getpid()}"


@contextlib.contextmanager
def namespace(api: Api, name: str) -> Iterator[str]:
    """Yields a namespace for one measurement, and waits at its end until the cluster is idle.

    Its objects are left if the cluster ends with the benchmark, since deleting thousands of objects takes longer than
    everything else. In an existing cluster the namespace is deleted.
    """
    create_namespace(api, name)
    try:
        yield name
    finally:
        if stack.existing_kubeconfig() is not None:
            api.delete(f"/api/v1/namespaces/{name}")
    rest(api)


@contextlib.contextmanager
def controller(kubeconfig: Path, *flags: str) -> Iterator[OurProgram]:
    """Runs the controller as a process, as users do, with these flags until the end of the block."""
    with ports.reserve(2, LOOPBACK) as (probes, metrics):
        served = {PROBES: probes, METRICS: metrics}
        # Writing a log would affect the measurement.
        log = Path(os.devnull)
        program = OurProgram("run", kubeconfig, served, *flags, log=log, mark=kubeconfig.parent)
        program.start()
        try:
            yield program
        finally:
            program.end(grace_seconds=_STOP_SECONDS)


def create_namespace(api: Api, name: str) -> None:
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def rest(api: Api) -> None:
    """Waits until nothing was written for a second, for a limited time, since a large cluster is never idle."""
    begin = time.monotonic()
    last, since = "", begin
    while time.monotonic() - since < _QUIET_SECONDS and time.monotonic() - begin < _REST_LIMIT_SECONDS:
        found = api.request("GET", "/api/v1/namespaces", query={"limit": "1"})["metadata"]["resourceVersion"]
        if found != last:
            last, since = found, time.monotonic()
        time.sleep(_POLL_SECONDS)


def in_parallel(call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Calls a function for all items on a few threads; returns the results in order. The first error is raised."""
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(call, items))


def _with_crds(kubeconfig: Path) -> Stage:
    api = Api.from_kubeconfig(kubeconfig)
    install_crds(api)
    return Stage(kubeconfig, api)


def wait(condition: Callable[[], bool], message: str) -> None:
    """Waits for a condition. Raises TimeoutError with the message after some minutes."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > _LIMIT_SECONDS:
            raise TimeoutError(f"{message} after {_LIMIT_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)
