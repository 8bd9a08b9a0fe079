"""The controller as a whole in this process, on a real cluster and in one namespace; and a user who submits jobs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from helpers.cluster import set_pod_terminated
from helpers.poll import eventually, until
from localcluster.api import Api, RefusedError
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.flags import BindAddress
from tfjob_controller.jobs.naming import TF_JOB_NAME, TRAIN_JOB_NAME
from tfjob_controller.kube.config.kubeconfig import load_config
from tfjob_controller.kube.meta import Resource
from tfjob_controller.options import RunOptions
from tfjob_controller.programs.manager import Manager
from tfjob_controller.util.clock import Clock

ANY_PORT = BindAddress("127.0.0.1", 0)

Object = dict[str, Any]


class Program(Protocol):
    """The manager, or the gang scheduler."""

    def run(self) -> int: ...

    def problems(self) -> Collection[str]: ...


@contextlib.contextmanager
def running(program: Program, stop: threading.Event, *, ready: bool = True) -> Iterator[None]:
    """Runs the program in a thread, by default once it is ready; sets `stop` and waits for its end after the block."""
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(program.run()), name=type(program).__name__)
    thread.start()
    try:
        if ready:
            eventually(lambda: not program.problems(), 30)
        yield
    finally:
        stop.set()
        thread.join(20)
    assert codes == [0], "the program did not stop in time"


@contextlib.contextmanager
def running_controller(
    kubeconfig: Path,
    namespace: str,
    *,
    ready: bool = True,
    config: ControllerConfig | None = None,
    clock: Clock | None = None,
    **options: Any,
) -> Iterator[Manager]:
    """Starts a manager with one server for all endpoints, by default waits until it is ready; stops it at the end."""
    given: dict[str, Any] = {
        "kubeconfig": str(kubeconfig),
        "namespace": namespace,
        "qps": 0.0,
        "metrics_bind_address": ANY_PORT,
        "health_probe_bind_address": ANY_PORT,
        "debug_bind_address": ANY_PORT,
    }
    stop = threading.Event()
    run_options = RunOptions(**{**given, **options})
    exits: list[int] = []
    manager = Manager(
        run_options,
        load_config(str(kubeconfig)),
        config or ControllerConfig(),
        stop=stop,
        clock=clock,
        exit_process=exits.append,
    )
    with running(manager, stop, ready=ready):
        yield manager


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs of one kind in one namespace, as a user sees them."""

    api: Api
    namespace: str
    resource: Resource = TFJOBS

    @property
    def name_label(self) -> str:
        """The label of children that names their job."""
        return TF_JOB_NAME if self.resource is TFJOBS else TRAIN_JOB_NAME

    def submit(self, manifest: Object) -> Object:
        return self.api.create(self._path(), manifest)

    def get(self, name: str = "example-job") -> Object:
        return self.api.get(self._path(name))

    def all(self) -> list[Object]:
        return self.api.list(self._path())

    def status(self, name: str = "example-job") -> Object:
        try:
            status: Object = self.get(name).get("status", {})
        except RefusedError as error:
            if error.status == 404:
                return {}
            raise
        return status

    def phase(self, name: str = "example-job") -> str:
        return str(self.status(name).get("phase", ""))

    def await_phase(self, phase: str, name: str = "example-job", timeout: float = 30.0) -> Object:
        """Waits until the job is in that phase; returns its status."""
        return until(lambda: self.status(name), lambda status: status.get("phase", "") == phase, timeout)

    def change(self, patch: Object, name: str = "example-job") -> Object:
        return self.api.patch(self._path(name), patch)

    def delete(self, name: str = "example-job") -> None:
        self.api.delete(self._path(name))

    def children(self, plural: str) -> dict[str, Object]:
        """Returns the job's children by name; `plural` is jobs, services, pods, configmaps or secrets."""
        group = "/apis/batch/v1" if plural == "jobs" else "/api/v1"
        found = self.api.list(f"{group}/namespaces/{self.namespace}/{plural}", "kubeflow.org")
        return {each["metadata"]["name"]: each for each in found}

    def end_replica(self, role: str, *, job: str = "example-job") -> None:
        """Waits until the job's only pod of that role runs, and reports that its containers have ended well."""

        def running() -> list[str]:
            pods = self.children("pods").items()
            of_role = [(name, pod) for name, pod in pods if name.startswith(f"{job}-{role}-")]
            return [name for name, pod in of_role if pod.get("status", {}).get("phase") == "Running"]

        (name,) = eventually(running, period=0.05)
        set_pod_terminated(self.api, self.namespace, name)

    def events(self) -> list[Object]:
        return self.api.list(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")

    @property
    def path(self) -> str:
        resource = self.resource
        return f"/apis/{resource.api_version}/namespaces/{self.namespace}/{resource.plural}"

    def _path(self, name: str = "") -> str:
        return self.path + (f"/{name}" if name else "")
