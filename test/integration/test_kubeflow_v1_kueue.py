"""Jobs of `kubeflow.org/v1` with Kueue, the real program: its own integrations suspend, admit and resume them.

The controller runs gangs with Kueue as well, and leaves these jobs alone in this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster, new_namespace, own_plane, set_pod_terminated
from helpers.controller import running_controller
from helpers.gangjobs import retried
from helpers.kueuequeue import KUEUE, QUEUE_LABEL, Queue, make_queue
from helpers.poll import never, until
from helpers.v1manifests import v1_replicas
from helpers.v1world import JOB_NAME_LABEL, job_path, labels_of, manifest_of
from localcluster import addons
from localcluster.crds import documents, install_crd
from localcluster.fakekubelet import FakeKubelet
from localcluster.programs import Options

pytestmark = [pytest.mark.cluster, pytest.mark.long]

Object = dict[str, Any]

CRDS = Path("manifests/base/crds-kubeflow-v1")
# Two replicas of each, those that decide first.
REPLICAS = {
    "TFJob": {"Chief": 1, "Worker": 1},
    "PyTorchJob": {"Master": 1, "Worker": 1},
    "XGBoostJob": {"Master": 1, "Worker": 1},
    "JAXJob": {"Worker": 2},
    "PaddleJob": {"Master": 1, "Worker": 1},
}
QUOTA = 3
WATCHED_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Queued:
    """Jobs of one kind in the namespace of a queue. Each replica requests one CPU."""

    queue: Queue
    kind: str

    def submit(self, name: str, more_workers: int = 0) -> None:
        counts = {**REPLICAS[self.kind]}
        counts["Worker"] += more_workers
        replicas = {type_: one_cpu(v1_replicas(self.kind, count)) for type_, count in counts.items()}
        manifest = manifest_of(self.kind, replicas, name)
        manifest["metadata"]["labels"] = {QUEUE_LABEL: "queue"}
        retried(lambda: self._create(manifest))

    def _create(self, manifest: Object) -> None:
        self.queue.api.create(job_path(self.queue.name, self.kind), manifest)

    def state(self, name: str) -> str:
        """Returns the type of the last condition, as the column State shows it."""
        status = self.queue.api.get(job_path(self.queue.name, self.kind, name)).get("status") or {}
        return str(next((condition["type"] for condition in reversed(status.get("conditions") or ())), ""))

    def pods(self, name: str) -> list[str]:
        pods = self.queue.api.list(f"/api/v1/namespaces/{self.queue.name}/pods")
        return sorted(pod["metadata"]["name"] for pod in pods if labels_of(pod).get(JOB_NAME_LABEL) == name)

    def conditions(self, name: str) -> dict[str, str]:
        """Returns the status of each condition of the job's only Workload; empty if there is none yet."""
        workloads = self.queue.api.list(f"{KUEUE}/namespaces/{self.queue.name}/workloads")
        (workload,) = [
            each
            for each in workloads
            if [owner["name"] for owner in each["metadata"].get("ownerReferences", ())] == [name]
        ] or [{}]
        conditions = workload.get("status", {}).get("conditions") or ()
        return {condition["type"]: condition["status"] for condition in conditions}

    def await_running(self, name: str) -> None:
        until(lambda: self.state(name), lambda state: state == "Running")
        assert len(self.pods(name)) == 2
        assert self.conditions(name)["Admitted"] == "True"

    def finish(self, name: str) -> None:
        for pod in self.pods(name):
            set_pod_terminated(self.queue.api, self.queue.name, pod)
        until(lambda: self.state(name), lambda state: state == "Succeeded")
        until(lambda: self.conditions(name).get("Finished"), lambda finished: finished == "True")


def one_cpu(replicas: Object) -> Object:
    for container in replicas["template"]["spec"]["containers"]:
        container["resources"] = {"requests": {"cpu": "1"}}
    return replicas


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with own_plane("v1kueue", Options()) as cluster, FakeKubelet(cluster.api):
        for path in sorted(CRDS.glob("*.yaml")):
            for crd in documents(path.read_text()):
                install_crd(cluster.api, crd)
        frameworks = ["batch/job", *(f"kubeflow.org/{kind.lower()}" for kind in REPLICAS)]
        addons.start(cluster.own, "kueue", {"integrations": {"frameworks": frameworks}})
        yield cluster


@pytest.fixture
def queue(cluster: Cluster) -> Iterator[Queue]:
    queue = Queue(cluster.api, new_namespace(cluster.api))
    retried(lambda: make_queue(queue, QUOTA))
    options: Object = {"gang_scheduling": "always", "gang_backend": "kueue", "trainjobs": False}
    with running_controller(cluster.kubeconfig, queue.name, kubeflow_v1_api=tuple(REPLICAS), **options):
        yield queue


@pytest.mark.parametrize("kind", REPLICAS)
def test_kueue_admits_jobs_one_after_another_and_those_above_the_quota_never(queue: Queue, kind: str) -> None:
    jobs = Queued(queue, kind)
    jobs.submit("first")
    jobs.await_running("first")
    jobs.submit("second")
    jobs.submit("large", more_workers=QUOTA)
    for waiting in ("second", "large"):
        until(lambda waiting=waiting: jobs.state(waiting), lambda state: state == "Suspended")
        until(lambda waiting=waiting: jobs.conditions(waiting).get("QuotaReserved"), lambda status: status == "False")
    never(lambda: jobs.pods("second") or jobs.pods("large"), WATCHED_SECONDS)
    jobs.finish("first")
    jobs.await_running("second")
    jobs.finish("second")
    assert jobs.state("large") == "Suspended"
    assert jobs.pods("large") == []
    until(queue.used, lambda used: used == "0")
