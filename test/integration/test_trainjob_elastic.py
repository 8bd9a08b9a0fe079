"""Elastic TrainJobs on a real API server and Job controller, with a stand-in for kubelets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from helpers.cluster import Cluster, delete_namespace, new_namespace, set_pod_terminated
from helpers.controller import Jobs, running_controller
from helpers.gangowner import SMALL
from helpers.gangscheduler import extender_url, running_gang_scheduler
from helpers.kubectl import Kubectl
from helpers.playground import condition
from helpers.poll import eventually
from helpers.trainjobs import step_of
from helpers.trainmanifests import trainjob
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet
from localcluster.gangscheduler import GangScheduler
from tfjob_controller.api.gang import COMPLETION_INDEX_LABEL
from tfjob_controller.api.trainjob.types import TRAINJOBS

pytestmark = pytest.mark.cluster

Object = dict[str, Any]
SECONDS = 60.0
BOUNDS = {"minNodes": 2, "maxNodes": 6}


@dataclass(frozen=True, slots=True)
class Elastic:
    """One namespace with a controller and a kubelet."""

    jobs: Jobs
    kubectl: Kubectl

    def submit(self, name: str, nodes: int, **spec: Any) -> None:
        given = {"command": ["torchrun", "train.py"], "elasticPolicy": BOUNDS, **spec}
        self.jobs.submit(trainjob(name, nodes, **given))

    def await_status(self, name: str, predicate: Callable[[Object], object]) -> Object:
        seen: list[Object] = [{}]

        def fulfilled() -> bool:
            seen[0] = self.jobs.status(name)
            return bool(predicate(seen[0]))

        try:
            eventually(fulfilled, SECONDS)
        except AssertionError:
            raise AssertionError(f"the last status of {name} was {seen[0]}") from None
        return seen[0]

    def await_ready(self, name: str, nodes: int) -> Object:
        return self.await_status(
            name, lambda status: step_of(status).get("ready") == nodes and step_of(status).get("replicas") == nodes
        )

    def pods(self, name: str) -> dict[str, list[Object]]:
        """Returns the pods that are not being deleted, by index."""
        found: dict[str, list[Object]] = {}
        for pod in self.jobs.children("pods").values():
            meta = pod["metadata"]
            if meta["labels"]["train_job_name"] == name and "deletionTimestamp" not in meta:
                found.setdefault(meta["labels"][COMPLETION_INDEX_LABEL], []).append(pod)
        return found

    def uids(self, name: str) -> dict[str, list[str]]:
        return {index: [pod["metadata"]["uid"] for pod in pods] for index, pods in sorted(self.pods(name).items())}

    def end(self, name: str, index: int, exit_code: int) -> None:
        """Ends the running pod of that index."""

        def running() -> list[Object]:
            pods = self.pods(name).get(str(index), [])
            return [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]

        pod = eventually(running, SECONDS)[0]
        set_pod_terminated(self.jobs.api, self.jobs.namespace, pod["metadata"]["name"], exit_code, container="")

    def job(self, name: str) -> Object:
        jobs = self.jobs.children("jobs").values()
        (found,) = [each for each in jobs if each["metadata"]["labels"]["train_job_name"] == name]
        return found


@pytest.fixture(scope="module")
def elastic(control_plane: Cluster, administrator: Kubectl) -> Iterator[Elastic]:
    if control_plane.plane is None:
        pytest.skip("plays the kubelet, and an existing cluster has real ones: unset KUBECONFIG")
    namespace = new_namespace(control_plane.api, "elastic")
    kubectl = Kubectl(administrator.kubeconfig, administrator.cache, namespace)
    with (
        FakeKubelet(Api.from_kubeconfig(control_plane.own.kubeconfig), namespace=namespace),
        running_controller(control_plane.kubeconfig, namespace),
    ):
        yield Elastic(Jobs(control_plane.api, namespace, TRAINJOBS), kubectl)
    delete_namespace(control_plane.api, namespace)


def test_kubectl_scale_adds_and_removes_nodes_and_restarts_none(elastic: Elastic) -> None:
    elastic.submit("scaled", 3)
    elastic.await_ready("scaled", 3)
    before = elastic.uids("scaled")
    job = elastic.job("scaled")
    elastic.kubectl.must("scale", "trainjob/scaled", "--replicas=6")
    status = elastic.await_ready("scaled", 6)
    assert status["scaling"]["nodes"] == 6
    grown = elastic.uids("scaled")
    assert list(grown) == ["0", "1", "2", "3", "4", "5"]
    assert {index: grown[index] for index in before} == before
    elastic.kubectl.must("scale", "trainjob/scaled", "--replicas=2")
    elastic.await_ready("scaled", 2)
    eventually(lambda: list(elastic.uids("scaled")) == ["0", "1"], SECONDS)
    assert elastic.uids("scaled") == {index: before[index] for index in ("0", "1")}
    after = elastic.await_status("scaled", lambda status: condition(status, "Resizing")["status"] == "False")
    assert (after.get("restarts", 0), after["currentNodes"], after["nodes"]) == (0, 2, "2/2")
    now = elastic.job("scaled")
    assert now["metadata"]["uid"] == job["metadata"]["uid"]
    assert (now["spec"]["parallelism"], now["spec"]["completions"]) == (2, 2)
    assert now["spec"]["template"] == job["spec"]["template"]


def test_a_node_is_replaced_by_itself_and_node_0_restarts_all(elastic: Elastic) -> None:
    elastic.submit("replaced", 3)
    elastic.await_ready("replaced", 3)
    before = elastic.uids("replaced")
    elastic.end("replaced", 2, 137)
    elastic.await_status("replaced", lambda status: status.get("restarts") == 1)
    eventually(lambda: len(elastic.uids("replaced").get("2", ())) == 2, SECONDS)
    status = elastic.await_ready("replaced", 3)
    now = elastic.uids("replaced")
    assert {index: now[index] for index in ("0", "1")} == {index: before[index] for index in ("0", "1")}
    assert (status["restarts"], status["scaling"].get("attempt", 0)) == (1, 0)
    elastic.end("replaced", 0, 137)
    elastic.await_status("replaced", lambda status: status["scaling"].get("attempt") == 1)
    eventually(
        lambda: not {*before["1"], *now["2"]} & {uid for each in elastic.uids("replaced").values() for uid in each}
    )
    status = elastic.await_ready("replaced", 3)
    assert (status["restarts"], status["scaling"]["attempt"]) == (2, 1)


@pytest.fixture
def gangs(gang_cluster: Cluster, administrator: Kubectl) -> Iterator[Elastic]:
    """Two nodes of four CPUs each, and all programs."""
    api = gang_cluster.api
    with (
        FakeKubelet(
            Api.from_kubeconfig(gang_cluster.kubeconfig),
            namespace="gangs",
            nodes=("node-a", "node-b"),
            resources=SMALL,
        ),
        running_controller(gang_cluster.kubeconfig, "gangs", autoscaling="on"),
        running_gang_scheduler(gang_cluster.kubeconfig, scale_down_after=1.0, scale_up_after=3600.0) as scheduler,
        GangScheduler(gang_cluster.own, extender_url(scheduler)),
    ):
        yield Elastic(Jobs(api, "gangs", TRAINJOBS), Kubectl(gang_cluster.kubeconfig, administrator.cache, "gangs"))
        for job in api.list(f"{GANG_PATH}/trainjobs"):
            api.delete(f"{GANG_PATH}/trainjobs/{job['metadata']['name']}")


GANG_PATH = "/apis/kubeflow.org/v2alpha1/namespaces/gangs"
GANG: Object = {"gang": {"enabled": True}, "trainer": {"resourcesPerNode": {"requests": {"cpu": "1"}}}}


def test_a_gang_starts_with_a_part_grows_into_free_capacity_and_gives_way_to_others(gangs: Elastic) -> None:
    gangs.jobs.submit(trainjob("first", 4, **GANG))
    gangs.await_ready("first", 4)
    gangs.submit("elastic", 6, **GANG)
    started = gangs.await_status("elastic", lambda status: status.get("nodes") == "4/6")
    assert started["currentNodes"] == 4
    before = gangs.uids("elastic")
    gangs.jobs.delete("first")
    gangs.await_ready("elastic", 6)
    assert {index: uids for index, uids in gangs.uids("elastic").items() if index in before} == before
    gangs.jobs.submit(trainjob("second", 4, **GANG))
    gangs.await_ready("second", 4)
    shrunk = gangs.await_ready("elastic", 4)
    assert gangs.uids("elastic") == before
    assert gangs.jobs.get("elastic")["spec"]["numNodes"] == 4
    assert (shrunk["scaling"]["reason"][:12], shrunk.get("restarts", 0)) == ("capacity for", 0)


HPAS = "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers"


def of_cpu(utilization: int) -> Object:
    target = {"type": "Utilization", "averageUtilization": utilization}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def test_a_job_with_metrics_has_an_autoscaler_that_follows_it_and_ends_with_it(elastic: Elastic) -> None:
    api, path = elastic.jobs.api, f"{HPAS.format(elastic.jobs.namespace)}/measured"
    elastic.submit("measured", 2, elasticPolicy={**BOUNDS, "metrics": [of_cpu(80)]})
    elastic.await_ready("measured", 2)
    found = api.get(path)
    assert (found["spec"]["minReplicas"], found["spec"]["maxReplicas"]) == (2, 6)
    assert found["spec"]["scaleTargetRef"]["kind"] == "TrainJob"
    # Kubernetes' own controller finds the scale of the job.
    is_able = {"type": "AbleToScale", "status": "True"}.items()
    eventually(lambda: any(is_able <= each.items() for each in api.get(path)["status"].get("conditions", ())), SECONDS)
    metrics = [
        of_cpu(60),
        {
            "type": "Resource",
            "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1024Mi"}},
        },
    ]
    elastic.jobs.change({"spec": {"elasticPolicy": {"metrics": metrics}}}, "measured")
    eventually(lambda: len(api.get(path)["spec"]["metrics"]) == 2, SECONDS)
    # Nothing else happens to the job that would make the controller look at it.
    api.delete(path)
    eventually(lambda: (api.find(path) or found)["metadata"]["uid"] != found["metadata"]["uid"], SECONDS)
    for index in (0, 1):
        elastic.end("measured", index, 0)
    elastic.await_status("measured", lambda status: status["phase"] == "Done")
    eventually(lambda: api.find(path) is None, SECONDS)


def test_metrics_that_the_server_refuses_are_named_and_the_job_trains_on(elastic: Elastic) -> None:
    elastic.submit("mismeasured", 2, elasticPolicy={**BOUNDS, "metrics": [{"type": "Nonsense"}]})
    elastic.await_ready("mismeasured", 2)
    status = elastic.await_status("mismeasured", lambda status: "HorizontalPodAutoscaler" in status.get("reason", ""))
    assert "spec.metrics[0].type" in status["reason"]
    assert condition(status, "Running")["status"] == "True"
    elastic.jobs.change({"spec": {"elasticPolicy": {"metrics": [of_cpu(50)]}}}, "mismeasured")
    elastic.await_status("mismeasured", lambda status: not status.get("reason"))
