"""The contenders of `make bench-kubeflow-v1`: this controller and training-operator, each on its own control plane.

Both have upstream's CRDs, and the admission with which they are installed: this controller the policies of the
component `kubeflow-v1`, and a token of its ServiceAccount; training-operator its webhooks. Both may send as many
requests as they like, with as many threads. They run the jobs of one namespace.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from bench.create import THREADS
from bench.gangplane import Plane, running_plane
from bench.stage import controller, wait
from localcluster import binaries
from localcluster.api import Api, RefusedError
from localcluster.auditlog import audit_log, json_lines
from localcluster.crds import documents
from localcluster.ourprogram import OurProgram
from localcluster.program import HACK
from localcluster.programs import Options, write_kubeconfig
from localcluster.shell import run
from localcluster.trainingoperator import TrainingOperator, install_v1_crds

TFJOBS = "/apis/kubeflow.org/v1/namespaces/{}/tfjobs"
_MANIFESTS = HACK.parent / "manifests"
_SYSTEM, _ACCOUNT = "tfjob-system", "tfjob-controller"
_NOT_APPLIED = ("Deployment", "CustomResourceDefinition")
_KINDS = "TFJob,PyTorchJob,XGBoostJob,JAXJob,PaddleJob"
_OUR_FLAGS = ("--qps=0", f"--kubeflow-v1-api={_KINDS}", "--trainjobs=false", "--gang-scheduling=off")
_UNLIMITED = 100_000
_THEIR_FLAGS = (
    f"--controller-threads={THREADS}",
    f"--kube-api-qps={_UNLIMITED}",
    f"--kube-api-burst={_UNLIMITED}",
)
_WRITES = ("create", "update", "patch", "delete", "deletecollection")

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Write:
    """A request that changes something. `resource` has the subresource: `tfjobs/status`."""

    verb: str
    resource: str
    name: str
    is_of_operator: bool


@dataclass(frozen=True, slots=True)
class Contender:
    """A plane with the controller that `run` starts for a namespace, and whose process id it yields.

    `agent` is how its User-Agent begins. `log` has the writes in the namespaces that were named when the plane began.
    """

    plane: Plane
    agent: str
    log: Path
    run: Callable[[str], AbstractContextManager[int]]

    def logged(self) -> int:
        """Returns the size of the log, from which on `writes` reads."""
        return self.log.stat().st_size if self.log.exists() else 0

    def writes(self, offset: int, namespace: str) -> list[Write]:
        """Returns the writes in the namespace since then."""
        return writes_of(self.log, offset, namespace, self.agent)


def writes_of(log: Path, offset: int, namespace: str, agent: str) -> list[Write]:
    """Returns the writes in a namespace, from a line of an audit log on. `agent` is the operator's program."""
    entries = [entry for entry in json_lines(log, offset) if "objectRef" in entry]
    return [_write_of(entry, agent) for entry in entries if entry["objectRef"].get("namespace") == namespace]


def _write_of(entry: Object, agent: str) -> Write:
    reference = entry["objectRef"]
    resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
    is_of_operator = entry.get("userAgent", "").startswith(f"{agent}/")
    return Write(entry["verb"], resource, reference.get("name", ""), is_of_operator)


@contextmanager
def our_contender(logged: tuple[str, ...]) -> Iterator[Contender]:
    """Yields this controller; `logged` are the namespaces whose writes are of interest."""
    with _plane("ours", logged) as (plane, log):
        kubeconfig = _install_ours(plane)
        _await_admission(plane.api)
        yield Contender(plane, "tfjob-controller", log, partial(_run_ours, kubeconfig))


@contextmanager
def their_contender(logged: tuple[str, ...]) -> Iterator[Contender]:
    """Yields training-operator."""
    with _plane("theirs", logged) as (plane, log):
        yield Contender(plane, "training-operator", log, partial(run_theirs, plane))


@contextmanager
def our_controller(contender: Contender, namespace: str) -> Iterator[OurProgram]:
    """Runs the controller on our plane, without waiting until it is ready."""
    with controller(_kubeconfig_of(contender.plane), f"--namespace={namespace}", *_OUR_FLAGS) as program:
        yield program


@contextmanager
def _run_ours(kubeconfig: Path, namespace: str) -> Iterator[int]:
    with controller(kubeconfig, f"--namespace={namespace}", *_OUR_FLAGS) as program:
        program.wait_ready()
        yield program.pid


@contextmanager
def run_theirs(plane: Plane, namespace: str) -> Iterator[int]:
    """Runs training-operator with its webhooks, and yields its process id."""
    operator = TrainingOperator(plane.control, namespace, *_THEIR_FLAGS)
    operator.start()
    try:
        _await_admission(plane.api)
        yield operator.pid
    finally:
        operator.stop()


@contextmanager
def _plane(name: str, logged: tuple[str, ...]) -> Iterator[tuple[Plane, Path]]:
    rules: list[Object] = [{"level": "Metadata", "verbs": [*_WRITES], "namespaces": [*logged]}, {"level": "None"}]
    with audit_log(rules) as (log, flags), running_plane(f"v1-{name}", Options(apiserver_flags=flags)) as plane:
        install_v1_crds(plane.api)
        yield plane, log


def _kubeconfig_of(plane: Plane) -> Path:
    return plane.control.folder / f"{_ACCOUNT}.kubeconfig"


def _install_ours(plane: Plane) -> Path:
    """Applies the manifests without the Deployment; returns the kubeconfig of the controller's account."""
    kubectl = str(binaries.ensure("kubectl"))
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder).resolve()

        def relative(*parts: str) -> str:
            return os.path.relpath(_MANIFESTS.joinpath(*parts).resolve(), here)

        overlay: Mapping[str, Any] = {
            "namespace": _SYSTEM,
            "resources": [relative("overlays", "standalone")],
            "components": [relative("components", "kubeflow-v1")],
        }
        (here / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
        rendered = documents(run(kubectl, "kustomize", str(here)))
        shipped = yaml.safe_dump_all(each for each in rendered if each["kind"] not in _NOT_APPLIED)
        cluster = ("--kubeconfig", str(plane.control.kubeconfig), "--cache-dir", str(here / "cache"))
        run(kubectl, *cluster, "apply", "--server-side", "-f", "-", stdin=shipped)
    # Longer than any run.
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 24 * 3600},
    }
    answer = plane.api.create(f"/api/v1/namespaces/{_SYSTEM}/serviceaccounts/{_ACCOUNT}/token", request)
    path = _kubeconfig_of(plane)
    write_kubeconfig(path, plane.control.server, plane.control.certificate, answer["status"]["token"])
    return path


def _await_admission(api: Api) -> None:
    """Waits until a job with two chiefs is refused."""
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "localhost/none"}]}}
    specs = {type_: {"replicas": 1, "template": template} for type_ in ("Chief", "Master")}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "invalid"},
        "spec": {"tfReplicaSpecs": specs},
    }

    def is_refused() -> bool:
        try:
            api.request("POST", TFJOBS.format("default"), job, query={"dryRun": "All"})
        except RefusedError as error:
            return "more than 1 Chief or Master" in str(error)
        return False

    wait(is_refused, "no admission")
