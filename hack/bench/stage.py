"""A cluster to measure on: the one that KUBECONFIG names, else one that ends with the benchmark."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.report import progress
from localcluster import process, stack, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.programs import Options

CRDS = Path(__file__).resolve().parents[2] / "manifests" / "base" / "crds"
# Writers of what is there before a measurement begins.
_THREADS = 16


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


@contextlib.contextmanager
def namespace(api: Api, name: str) -> Iterator[str]:
    """A namespace that goes with all that is in it."""
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    api.delete(f"/api/v1/namespaces/{name}")


def in_parallel(what: Callable[[Any], object], items: Iterable[Any]) -> None:
    """Do it for all, in a few threads; the first error is raised."""
    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(what, items):
            pass


def controller_command(kubeconfig: Path, *flags: str) -> list[str]:
    """The command line of the controller as a process of its own."""
    return [sys.executable, "-m", "tfjob_controller", "run", f"--kubeconfig={kubeconfig}", *flags]


def _with_crds(kubeconfig: Path) -> Stage:
    api = Api.from_kubeconfig(kubeconfig)
    for path in sorted(CRDS.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            api.apply(
                f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{document['metadata']['name']}", document
            )
    return Stage(kubeconfig, api)
