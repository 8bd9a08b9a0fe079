"""The environment of `make chaos-checkpoint`: real nodes, the controller, and two real storages.

Jobs keep their checkpoints in a bucket of an S3 server on this machine's end of the nodes' bridge, or in folders of a
claim, a disk that all nodes see.
"""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3

from chaos.checkpoints import processes
from chaos.checkpoints.bucket import BUCKET, Bucket
from chaos.checkpoints.settings import JobPlan
from demo.kubectl import Kubectl
from localcluster import binaries, images, network, nodes, ports, process, stack, state
from localcluster.api import Api, RefusedError
from localcluster.crds import install_crds
from localcluster.errors import LocalClusterError
from localcluster.ourprogram import METRICS, PROBES, OurProgram
from localcluster.programs import LOOPBACK
from localcluster.report import Report

NODES = 2
CLAIM, SECRET = "checkpoints", "storage"
_RUNTIMES = Path("manifests/base/runtimes")
# Not imported: it is a program of its own.
_PROGRAM = Path(__file__).with_name("program.py")
_START_TRIES = 5
_ROOT = Path(__file__).resolve().parents[3]
SECONDS_PER_STEP = 1.0
# An API server that is slow for a moment is asked again.
REQUEST_ERRORS = (RefusedError, urllib3.exceptions.HTTPError)

Object = dict[str, Any]


@dataclass(slots=True)
class Stage:
    """`run` is a name that no other run has; `disk` is the claim's folder."""

    api: Api
    folder: Path
    namespace: str
    run: str
    bucket: Bucket
    disk: Path
    address: str
    report: Report
    reports_url: str = ""
    node_lock: threading.Lock = field(default_factory=threading.Lock)
    storage_lock: threading.Lock = field(default_factory=threading.Lock)

    def owner(self, job: str) -> str:
        return f"{self.run}/{job}"

    def submit(self, plan: JobPlan) -> None:
        (self.disk / plan.name).mkdir(mode=0o777, exist_ok=True)
        (self.disk / plan.name).chmod(0o777)
        self.api.create_if_missing(self._path("trainjobs", "/apis/kubeflow.org/v2alpha1"), self._manifest(plan))

    def status(self, job: str) -> Object:
        """Returns the status; empty if the server does not answer."""
        with contextlib.suppress(*REQUEST_ERRORS):
            found = self.api.find(f"{self._path('trainjobs', '/apis/kubeflow.org/v2alpha1')}/{job}")
            status: Object = (found or {}).get("status", {})
            return status
        return {}

    def has_running_pods(self, job: str) -> bool:
        """Whether a pod of the job may still run: a sidecar saves what the program has written last."""
        with contextlib.suppress(*REQUEST_ERRORS):
            pods = self.api.list(self._path("pods"), f"train_job_name={job}")
            return any(pod["status"].get("phase") not in ("Succeeded", "Failed") for pod in pods)
        return True

    def pod(self, name: str) -> Object | None:
        with contextlib.suppress(*REQUEST_ERRORS):
            return self.api.find(f"{self._path('pods')}/{name}")
        return None

    def delete_pod(self, name: str, *, at_once: bool) -> bool:
        options = {"gracePeriodSeconds": 0} if at_once else {}
        with contextlib.suppress(*REQUEST_ERRORS):
            return self.api.delete(f"{self._path('pods')}/{name}", **options)
        return False

    def kill_node(self, number: int, seconds: float) -> None:
        """Ends a node as a power failure does, and starts it again later."""
        stack.node_kill(self.folder, number, self.report)
        time.sleep(seconds)
        for attempt in range(_START_TRIES):
            try:
                stack.node_start(self.folder, number, self.report)
                break
            except LocalClusterError as error:
                self.report(f"node {number} did not start: {error}")
                if attempt == _START_TRIES - 1:
                    raise
                nodes.kill(self.folder, number)

    def uri(self, plan: JobPlan) -> str:
        return f"s3://{BUCKET}/{plan.name}" if plan.is_bucket else f"pvc://{CLAIM}/{plan.name}"

    def _path(self, plural: str, group: str = "/api/v1") -> str:
        return f"{group}/namespaces/{self.namespace}/{plural}"

    def _manifest(self, plan: JobPlan) -> Object:
        told = {
            "name": plan.name,
            "reports": self.reports_url,
            "seconds_per_step": SECONDS_PER_STEP,
            "is_folder": plan.is_folder,
            "files": plan.files,
            "file_bytes": plan.file_bytes,
            "steps": plan.steps,
            "steps_per_checkpoint": plan.steps_per_checkpoint,
        }
        mark = {"name": processes.RUN, "value": self.owner(plan.name)}
        checkpoint: Object = {
            "storageUri": self.uri(plan),
            "keep": plan.keep,
            "settleSeconds": 1,
            "env": [mark],
        }
        if plan.is_bucket:
            checkpoint["secretRef"] = {"name": SECRET}
        trainer = {
            "image": images.BASE,
            "command": ["python3", "-c", _PROGRAM.read_text()],
            "env": [
                mark,
                {"name": "CHAOS_PLAN", "value": json.dumps(told)},
                {"name": "CHAOS_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
        }
        return {
            "apiVersion": "kubeflow.org/v2alpha1",
            "kind": "TrainJob",
            "metadata": {"name": plan.name},
            "spec": {"framework": "plain", "numNodes": 1, "trainer": trainer, "checkpoint": checkpoint},
        }


@contextlib.contextmanager
def open_stage(report: Report) -> Iterator[Stage]:
    """Starts everything. Raises LocalClusterError."""
    run = f"checkpoints-{secrets.token_hex(4)}"
    folder = state.stack_dir(f"{stack.TEST_PREFIX}{process.myself().pid}-{run}")
    disk = Path(tempfile.mkdtemp(prefix=f"{run}-"))
    disk.chmod(0o777)
    with contextlib.ExitStack() as open_:
        open_.callback(shutil.rmtree, disk, ignore_errors=True)
        nodes.prepare([images.BASE, images.INITIALIZER], report, tools=["kubectl"])
        open_.callback(shutil.rmtree, folder, ignore_errors=True)
        open_.callback(stack.down, folder, report)
        plane = stack.up(folder, NODES, owner=process.myself(), report=report, unsafe_no_fsync=True)
        for name in (images.BASE, images.INITIALIZER):
            nodes.load_image(folder, name, report)
        plan = network.claim_of(folder.absolute())
        if plan is None:
            raise LocalClusterError("the nodes have no network")
        api = Api.from_kubeconfig(plane.kubeconfig, pool_size=32)
        install_crds(api)
        kubectl = Kubectl(binaries.ensure("kubectl", report), plane.kubeconfig, "default")
        kubectl.run("apply", "--server-side", "-k", str(_ROOT / _RUNTIMES))
        bucket = open_.enter_context(Bucket(plan.host))
        _make_namespace(api, run, bucket, disk)
        open_.enter_context(_controller(plane.kubeconfig, folder, plane.logs))
        yield Stage(api, folder, run, run, bucket, disk, plan.host, report)


def _make_namespace(api: Api, name: str, bucket: Bucket, disk: Path) -> None:
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    data = {key: base64.b64encode(value.encode()).decode() for key, value in bucket.environ.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data}
    api.create(f"/api/v1/namespaces/{name}/secrets", secret)
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": name}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": common["accessModes"],
            "hostPath": {"path": str(disk)},
            "claimRef": {"namespace": name, "name": CLAIM},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM},
        "spec": {**common, "resources": {"requests": {"storage": "10Gi"}}},
    }
    api.create("/api/v1/persistentvolumes", volume)
    api.create(f"/api/v1/namespaces/{name}/persistentvolumeclaims", claim)
    _wait_for_account(api, name)


def _wait_for_account(api: Api, namespace: str) -> None:
    """Waits until pods can be created."""
    deadline = time.monotonic() + 60
    while api.find(f"/api/v1/namespaces/{namespace}/serviceaccounts/default") is None:
        if time.monotonic() > deadline:
            raise LocalClusterError(f"namespace {namespace} has no ServiceAccount")
        time.sleep(0.2)


@contextlib.contextmanager
def _controller(kubeconfig: Path, folder: Path, logs: Path) -> Iterator[None]:
    config = folder / "controller.yaml"
    config.write_text(f"initializerImage: {images.INITIALIZER}\n")
    with ports.reserve(2, LOOPBACK) as (probes, metrics):
        served = {PROBES: probes, METRICS: metrics}
        flags = ("--qps=0", f"--controller-config-file={config}")
        controller = OurProgram("run", kubeconfig, served, *flags, log=logs / "controller.log", mark=folder)
        controller.start()
        try:
            controller.wait_ready()
            yield
        finally:
            controller.end(grace_seconds=10.0)
