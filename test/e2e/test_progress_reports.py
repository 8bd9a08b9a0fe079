"""Programs that nobody here wrote report their progress from real pods: Hugging Face's Trainer and Kubeflow's SDK."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from helpers.cluster import Cluster
from helpers.controller import running_controller
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.kubeflowjobs import GROUP_PATH
from helpers.kubeflowmanifests import kubeflow_runtime, kubeflow_trainjob, replicated_job
from helpers.poll import eventually
from helpers.realtrainjobs import PATIENCE_SECONDS, TrainJobs
from localcluster import images, ports
from localcluster.crds import install_crds
from localcluster.kubeflowtrainer import install_kubeflow_crds
from tfjob_controller.flags import BindAddress

pytestmark = pytest.mark.nodes

Object = dict[str, Any]

SAMPLE = "trainjob-transformers"
# As many seconds as the callback of transformers needs between two reports, and some more.
SLOW = {"STEPS": "60", "STEP_SECONDS": "0.2"}
# It is false until the server has taken the report.
SDK_PROGRAM = """
import time
from kubeflow.trainer import update_trainjob_status
while not update_trainjob_status(progress_percent=40, estimated_remaining_seconds=330, metrics={"loss": 0.25}):
    time.sleep(1)
"""


@dataclass(frozen=True, slots=True)
class Reporting:
    """A controller on this machine that takes reports from the pods of a namespace, and its TrainJobs."""

    cluster: Cluster
    namespace: str
    kubectl: Kubectl
    trainjobs: TrainJobs

    def status(self, group: str, name: str) -> Object:
        path = f"/apis/{group}/namespaces/{self.namespace}/trainjobs/{name}"
        status: Object = self.cluster.api.get(path).get("status", {})
        return status

    def await_report(self, group: str, name: str, percentage: int) -> Object:
        """Waits until the job's last report has at least that percentage; returns the job's status."""

        def reported() -> Object | None:
            status = self.status(group, name)
            assert status.get("phase") != "Failed", status["reason"]
            return status if status.get("trainerStatus", {}).get("progressPercentage", -1) >= percentage else None

        try:
            found = eventually(reported, PATIENCE_SECONDS)
        except AssertionError:
            raise AssertionError((self.status(group, name), self.logs())) from None
        assert found is not None
        return found

    def logs(self) -> list[str]:
        pods = self.cluster.api.list(f"/api/v1/namespaces/{self.namespace}/pods")
        return [str(self.kubectl.run("logs", each["metadata"]["name"], "--tail=20")) for each in pods]


@pytest.fixture
def reporting(nodes: Cluster, space: str, kubectl: Kubectl) -> Iterator[Reporting]:
    if nodes.plane is None:
        pytest.skip("needs images that an existing cluster may not have: unset KUBECONFIG")
    install_crds(nodes.api)
    install_kubeflow_crds(nodes.api)
    trainjobs = TrainJobs(nodes, space, kubectl)
    trainjobs.give(images.TRANSFORMERS)
    # The address of this machine that pods reach is that of the API server.
    host = urlsplit(nodes.own.server).hostname or ""
    with (
        ports.reserve(1, host) as (port,),
        running_controller(
            nodes.kubeconfig,
            space,
            kubeflow_trainer_api=True,
            progress_server=True,
            progress_server_bind_address=BindAddress(host, port),
            progress_server_url=f"https://{host}:{port}",
        ),
    ):
        yield Reporting(nodes, space, kubectl, trainjobs)


def test_the_trainer_of_transformers_reports_from_its_begin_to_its_end(reporting: Reporting) -> None:
    objects = list(yaml.safe_load_all((MANIFESTS / "samples" / f"{SAMPLE}.yaml").read_text()))
    objects[-1]["spec"]["trainer"]["env"] = [{"name": name, "value": value} for name, value in SLOW.items()]
    reporting.kubectl.must("apply", "-f", "-", manifest=yaml.safe_dump_all(objects))
    group = "kubeflow.org/v2alpha1"
    first = reporting.await_report(group, SAMPLE, 0)
    assert first["trainerStatus"]["progressPercentage"] < 100
    reporting.await_report(group, SAMPLE, 100)
    reporting.trainjobs.await_success(SAMPLE)
    # The report is written at once, and what follows from it with the next sync.
    eventually(lambda: reporting.status(group, SAMPLE)["progress"] == "100 %", PATIENCE_SECONDS)
    metrics = {each["name"]: float(each["value"]) for each in reporting.status(group, SAMPLE)["metrics"]}
    assert 0 < metrics["loss"] < 1, metrics


def test_a_job_of_kubeflow_trainers_own_api_has_the_report_that_the_sdk_sends(reporting: Reporting) -> None:
    container = {"image": images.TRANSFORMERS, "imagePullPolicy": "Never", "command": ["python3", "-c", SDK_PROGRAM]}
    runtime = kubeflow_runtime(replicated_job(container=container), name="plain", policy={"numNodes": 1})
    path = f"{GROUP_PATH}/namespaces/{reporting.namespace}"
    reporting.cluster.api.create(f"{path}/trainingruntimes", {**runtime, "kind": "TrainingRuntime"})
    reporting.cluster.api.create(f"{path}/trainjobs", kubeflow_trainjob("reports", "plain", kind="TrainingRuntime"))
    group = "trainer.kubeflow.org/v1alpha1"
    report = reporting.await_report(group, "reports", 40)["trainerStatus"]
    assert report.pop("lastUpdatedTime").endswith("Z")
    assert report == {
        "progressPercentage": 40,
        "estimatedRemainingSeconds": 330,
        "metrics": [{"name": "loss", "value": "0.25"}],
    }

    def is_complete() -> bool:
        conditions = reporting.status(group, "reports").get("conditions", ())
        return any((each["type"], each["status"]) == ("Complete", "True") for each in conditions)

    eventually(is_complete, PATIENCE_SECONDS)
