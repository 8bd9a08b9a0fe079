"""An API server in memory behind real HTTP, for tests of the plugin's commands: objects can be read and changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.barekubeconfig import kubeconfig_for
from helpers.httpserver import Answer, HttpServer, Request, status_answer
from helpers.manifests import master, tfjob
from helpers.memoryapi import MemoryApi
from helpers.trainmanifests import trainjob
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import JSON
from tfjob_controller.kubectl import cli

NAMESPACE = "team"

Object = dict[str, Any]
# Exit code, standard output, standard error.
Run = Callable[..., tuple[int, str, str]]


def a_tfjob(name: str, phase: str = "", spec: Object | None = None, **status: object) -> Object:
    return _stored(tfjob(master(), name=name), name, phase, spec, status)


def a_trainjob(name: str, phase: str = "", spec: Object | None = None, **status: object) -> Object:
    return _stored(trainjob(name, 1), name, phase, spec, status)


def _stored(manifest: Object, name: str, phase: str, spec: Object | None, status: Object) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE, "uid": f"uid-of-{name}", "resourceVersion": "1"}
    body = {**manifest, "metadata": metadata, "status": {**({"phase": phase} if phase else {}), **status}}
    return {**body, "spec": {**body["spec"], **(spec or {})}}


def store(api: MemoryApi, *jobs: Object) -> None:
    for job in jobs:
        resource = TFJOBS if job["kind"] == "TFJob" else TRAINJOBS
        api.objects[resource.path(NAMESPACE, job["metadata"]["name"])] = job


@contextmanager
def flags_of(api: MemoryApi, folder: Path) -> Iterator[list[str]]:
    """Returns the flags for this server and the namespace `NAMESPACE`."""
    with HttpServer(lambda request: served(api, request)) as server:
        yield ["-n", NAMESPACE, "--kubeconfig", str(kubeconfig_for(server.url, folder))]


@contextmanager
def plugin_of(api: MemoryApi, folder: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Returns a function that runs the plugin in this process, in the namespace `NAMESPACE`."""
    with flags_of(api, folder) as flags:

        def run(*arguments: str) -> tuple[int, str, str]:
            code = cli.main([*arguments, *flags])
            shown = capsys.readouterr()
            return code, shown.out, shown.err

        yield run


def served(api: MemoryApi, request: Request) -> Answer:
    """Returns the response of an API server in memory to a request over HTTP."""
    content_type = request.headers.get("content-type", JSON)
    query, body = request.query, request.body or None
    try:
        answer = api.request(request.method, request.path, query=query, body=body, content_type=content_type)
        return Answer(body=answer, headers={"Content-Type": JSON})
    except ApiError as error:
        _, _, name = request.path.rpartition("/")
        plural = request.path.split("/")[-2]
        words = f'{plural}.kubeflow.org "{name}" not found' if error.is_not_found else error.message
        return status_answer(error.status, error.reason, words)
