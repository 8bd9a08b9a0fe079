"""A cluster to measure on: the one that KUBECONFIG names, else one that ends with the benchmark."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.report import progress, size
from localcluster import process, stack, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.crds import install_crds
from localcluster.programs import Options

Item = TypeVar("Item")
Result = TypeVar("Result")

# Writers of what is there before a measurement begins.
_THREADS = 16
_LIMIT_SECONDS = 300.0
_POLL_SECONDS = 0.1
_QUIET_SECONDS = 1.0
_REST_LIMIT_SECONDS = float(size(60, tiny=0))


@dataclass(frozen=True, slots=True)
class Stage:
    kubeconfig: Path
    api: Api


@contextlib.contextmanager
def stage(options: Options | None = None) -> Iterator[Stage]:
    """A cluster with the project's CRDs."""
    existing = stack.existing_kubeconfig()
    if existing is not None:
        yield _with_crds(Path(existing))
        return
    # A name that test runs clean up after a crash, as they do with their own.
    folder = state.stack_dir(f"{stack.TEST_PREFIX}{os.getpid()}-bench")
    owner = process.identify(os.getpid())
    try:
        with ControlPlane(folder, options or Options(), owner=owner, report=progress) as plane:
            yield _with_crds(plane.kubeconfig)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def unique(name: str) -> str:
    """A namespace's name that no earlier run has left behind."""
    return f"{name}-{os.getpid()}"


@contextlib.contextmanager
def namespace(api: Api, name: str) -> Iterator[str]:
    """A namespace for one measurement. When it ends, the cluster has come to rest.

    What is in it is left where the cluster ends with the benchmark: to delete thousands of objects takes longer than
    all else. Somebody else's cluster is cleaned up.
    """
    path = f"/api/v1/namespaces/{name}"
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        yield name
    finally:
        if stack.existing_kubeconfig() is not None:
            api.delete(path)
    rest(api)


def rest(api: Api) -> None:
    """Until nothing was written for a second; in a large cluster there is no such second, so not for ever."""
    begin = time.monotonic()
    last, since = "", begin
    while time.monotonic() - since < _QUIET_SECONDS and time.monotonic() - begin < _REST_LIMIT_SECONDS:
        found = api.request("GET", "/api/v1/namespaces", query={"limit": "1"})["metadata"]["resourceVersion"]
        if found != last:
            last, since = found, time.monotonic()
        time.sleep(_POLL_SECONDS)


def in_parallel(what: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Do it for all, in a few threads; the results in order. The first error is raised."""
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(what, items))


def _with_crds(kubeconfig: Path) -> Stage:
    api = Api.from_kubeconfig(kubeconfig)
    install_crds(api)
    return Stage(kubeconfig, api)


def wait(is_so: Callable[[], bool], complaint: str) -> None:
    """Until it is so; TimeoutError with the complaint if it takes minutes."""
    begin = time.monotonic()
    while not is_so():
        if time.monotonic() - begin > _LIMIT_SECONDS:
            raise TimeoutError(f"{complaint} after {_LIMIT_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)
