"""PyTorchJobs of `kubeflow.org/v1` as gangs: controller, gang scheduler and kube-scheduler on two small nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster, set_pod_terminated
from helpers.controller import running_controller
from helpers.gangowner import SMALL
from helpers.poll import eventually, until
from helpers.v1manifests import v1_manifest, v1_replicas
from localcluster.api import Api
from localcluster.crds import documents, install_crd
from localcluster.fakekubelet import FakeKubelet
from tfjob_controller.api.kubeflowv1.types import V1_RESOURCES

pytestmark = pytest.mark.cluster

Object = dict[str, Any]
KIND, NAMESPACE = "PyTorchJob", "gangs"
CRD = Path("manifests/base/crds-kubeflow-v1/kubeflow.org_pytorchjobs.yaml")
JOBS = V1_RESOURCES[KIND].path(NAMESPACE)


@pytest.fixture
def api(gang_scheduling: Cluster) -> Iterator[Api]:
    for crd in documents(CRD.read_text()):
        install_crd(gang_scheduling.api, crd)
    kubelet = FakeKubelet(
        Api.from_kubeconfig(gang_scheduling.kubeconfig),
        namespace=NAMESPACE,
        nodes=("node-a", "node-b"),
        resources=SMALL,
    )
    options: Object = {"kubeflow_v1_api": (KIND,), "trainjobs": False, "gang_scheduling": "on-request"}
    with kubelet, running_controller(gang_scheduling.kubeconfig, NAMESPACE, **options):
        yield gang_scheduling.api
        for job in gang_scheduling.api.list(JOBS):
            gang_scheduling.api.delete(f"{JOBS}/{job['metadata']['name']}")


def submit(api: Api, name: str, workers: int) -> None:
    replicas = v1_replicas(KIND, workers)
    replicas["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    manifest = v1_manifest(KIND, {"Worker": replicas}, name, runPolicy={"schedulingPolicy": {}})
    api.create(JOBS, {**manifest, "metadata": {"name": name}})


def conditions(api: Api, name: str) -> dict[str, Object]:
    found = api.get(f"{JOBS}/{name}").get("status", {}).get("conditions", ())
    return {condition["type"]: condition for condition in found}


def state(api: Api, name: str) -> str:
    """Returns the type of the last condition, as the column State shows it."""
    return next(reversed(conditions(api, name)), "")


def test_of_two_jobs_that_together_do_not_fit_one_runs_and_then_the_other(api: Api) -> None:
    for name in ("first", "second"):
        submit(api, name, 5)
    (running,) = eventually(lambda: [name for name in ("first", "second") if state(api, name) == "Running"])
    (waiting,) = {"first", "second"} - {running}
    until(lambda: conditions(api, waiting).get("Scheduled", {}).get("message", ""), lambda message: "cpu" in message)
    assert state(api, waiting) == "Created"
    pods = api.list(f"/api/v1/namespaces/{NAMESPACE}/pods")
    assert {pod["metadata"]["labels"]["training.kubeflow.org/job-name"] for pod in pods} == {running}
    for name in (running, waiting):
        until(lambda name=name: state(api, name), lambda seen: seen == "Running")
        for index in range(5):
            set_pod_terminated(api, NAMESPACE, f"{name}-worker-{index}", 0, container="pytorch")
        until(lambda name=name: state(api, name), lambda seen: seen == "Succeeded")
