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
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3

from lab.checkpoints.plan import JobPlan
from lab.checkpoints.reports import Reports
from lab.checkpoints.storages import BUCKET, REPORTS, Bucket
from lab.clusters import open_nodes
from lab.jobs import TRAINJOBS
from lab.mirror import PODS
from lab.programs import running
from localcluster import images, network, ports, process, stack, state
from localcluster.api import Api, RefusedError
from localcluster.errors import LocalClusterError
from localcluster.ourprogram import METRICS, PROBES, OurProgram
from localcluster.programs import LOOPBACK

# The variable by which the processes of a run are known.
RUN = "CHAOS_RUN"
CLAIM, SECRET = "checkpoints", "storage"
# Not imported: it is a program of its own.
_PROGRAM = Path(__file__).with_name("program.py")
SECONDS_PER_STEP = 1.0
# An API server that is slow for a moment is asked again.
REQUEST_ERRORS = (RefusedError, urllib3.exceptions.HTTPError)

Object = dict[str, Any]


@dataclass(slots=True)
class Stage:
    """`run` is a name that no other run has, and that of the namespace; `disk` is the claim's folder."""

    api: Api
    folder: Path
    run: str
    bucket: Bucket
    disk: Path
    reports: Reports
    node_lock: threading.Lock = field(default_factory=threading.Lock)
    storage_lock: threading.Lock = field(default_factory=threading.Lock)

    def owner(self, job: str) -> str:
        return f"{self.run}/{job}"

    def submit(self, plan: JobPlan) -> None:
        (self.disk / plan.name).mkdir(mode=0o777, exist_ok=True)
        (self.disk / plan.name).chmod(0o777)
        self.api.create_if_missing(self._jobs_path, self._manifest(plan))

    def status(self, job: str) -> Object:
        """Returns the status; empty if the server does not answer."""
        with contextlib.suppress(*REQUEST_ERRORS):
            return dict((self.api.find(f"{self._jobs_path}/{job}") or {}).get("status", {}))
        return {}

    def has_running_pods(self, job: str) -> bool:
        """Whether a pod of the job may still run: a sidecar saves what the program has written last."""
        with contextlib.suppress(*REQUEST_ERRORS):
            pods = self.api.list(self._pods_path, f"train_job_name={job}")
            return any(pod["status"].get("phase") not in ("Succeeded", "Failed") for pod in pods)
        return True

    def pod(self, name: str) -> Object | None:
        with contextlib.suppress(*REQUEST_ERRORS):
            return self.api.find(f"{self._pods_path}/{name}")
        return None

    def delete_pod(self, name: str, **options: int) -> bool:
        with contextlib.suppress(*REQUEST_ERRORS):
            return self.api.delete(f"{self._pods_path}/{name}", **options)
        return False

    def uri(self, job: str, *, is_bucket: bool) -> str:
        return f"s3://{BUCKET}/{job}" if is_bucket else f"pvc://{CLAIM}/{job}"

    @property
    def _jobs_path(self) -> str:
        return TRAINJOBS.format(self.run)

    @property
    def _pods_path(self) -> str:
        return PODS.format(self.run)

    def _manifest(self, plan: JobPlan) -> Object:
        settings = {"name": plan.name, "reports": f"{self.bucket.url}{REPORTS}", "seconds_per_step": SECONDS_PER_STEP}
        for field_name in ("is_folder", "files", "file_bytes", "steps", "steps_per_checkpoint"):
            settings[field_name] = getattr(plan, field_name)
        mark = {"name": RUN, "value": self.owner(plan.name)}
        checkpoint: Object = {
            "storageUri": self.uri(plan.name, is_bucket=plan.is_bucket),
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
                {"name": "CHAOS_PLAN", "value": json.dumps(settings)},
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
def open_stage() -> Iterator[Stage]:
    """Starts everything. Raises LocalClusterError."""
    run = f"checkpoints-{secrets.token_hex(4)}"
    folder = state.stack_dir(f"{stack.TEST_PREFIX}{process.myself().pid}-{run}")
    disk = Path(tempfile.mkdtemp(prefix=f"{run}-"))
    disk.chmod(0o777)
    with contextlib.ExitStack() as open_:
        for temporary in (disk, folder):
            open_.callback(shutil.rmtree, temporary, ignore_errors=True)
        plane, api = open_.enter_context(open_nodes(folder, (images.BASE, images.INITIALIZER), run))
        plan = network.claim_of(folder.absolute())
        if plan is None:
            raise LocalClusterError("the nodes have no network")
        reports = Reports()
        bucket = open_.enter_context(Bucket(plan.host, reports.receive))
        _make_storages(api, run, bucket, disk)
        open_.enter_context(_controller(plane.kubeconfig, folder, plane.logs))
        yield Stage(api, folder, run, bucket, disk, reports)


def _make_storages(api: Api, name: str, bucket: Bucket, disk: Path) -> None:
    """Creates the Secret of the bucket, and the volume and claim of the disk, in the namespace of that name."""
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


@contextlib.contextmanager
def _controller(kubeconfig: Path, folder: Path, logs: Path) -> Iterator[None]:
    config = folder / "controller.yaml"
    config.write_text(f"initializerImage: {images.INITIALIZER}\n")
    with ports.reserve(2, LOOPBACK) as (probes, metrics):
        served = {PROBES: probes, METRICS: metrics}
        flags = ("--qps=0", f"--controller-config-file={config}")
        controller = OurProgram("run", kubeconfig, served, *flags, log=logs / "controller.log", mark=folder)
        with running(controller):
            yield
