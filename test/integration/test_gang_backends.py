"""Gangs of other gang schedulers on a real API server; kube-scheduler's own gang scheduling is the real program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from helpers.cluster import Cluster, make_node, new_namespace, own_plane, set_pod_terminated
from helpers.controller import Jobs, running_controller
from helpers.docs import DOCS
from helpers.gangowner import SMALL
from helpers.manifests import container, pod_template, tfjob, workers
from helpers.playground import condition
from helpers.poll import eventually, never
from helpers.trainmanifests import trainjob
from localcluster.api import Api
from localcluster.crds import install_crds
from localcluster.fakekubelet import FakeKubelet
from localcluster.programs import Options
from tfjob_controller.api.trainjob.types import TRAINJOBS

# It starts a control plane.
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kubernetes("1.36", "PodGroups of scheduling.k8s.io/v1alpha2 exist since then"),
]

Object = dict[str, Any]

_GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"
# PodGroups are alpha: both the feature gates and the API group must be enabled.
OPTIONS = Options(
    apiserver_flags=(_GATES, "--runtime-config=scheduling.k8s.io/v1alpha2=true"),
    # Its controller removes the finalizer of a deleted PodGroup once its pods are deleted.
    controller_manager_flags=(_GATES,),
    scheduler_flags=(_GATES,),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One node that takes four pods of one CPU, and a kubelet that would look after a second one too."""
    with own_plane("podgroups", OPTIONS) as plane:
        install_crds(plane.api)
        nodes = ("node-a", "node-b")
        with FakeKubelet(Api.from_kubeconfig(plane.kubeconfig), nodes=nodes, resources=SMALL):
            plane.api.delete("/api/v1/nodes/node-b")
            yield plane


@pytest.fixture
def jobs(cluster: Cluster) -> Iterator[Jobs]:
    """Of a controller with Kubernetes' own backend, in a namespace of the test's own."""
    namespace = new_namespace(cluster.api)
    with running_controller(cluster.kubeconfig, namespace, gang_backend="kubernetes"):
        yield Jobs(cluster.api, namespace)
    cluster.api.delete(f"/apis/kubeflow.org/v1alpha1/namespaces/{namespace}/tfjobs")
    cluster.api.delete(f"/apis/batch/v1/namespaces/{namespace}/jobs", propagationPolicy="Background")
    eventually(lambda: not cluster.api.list(f"/api/v1/namespaces/{namespace}/pods"))


def gang(count: int, **spec: Any) -> Object:
    """Workers of one CPU each, together or not at all."""
    one_cpu = container(resources={"requests": {"cpu": "1"}})
    return tfjob(
        workers(count, template=pod_template(one_cpu, restartPolicy="OnFailure")), gang={"enabled": True}, **spec
    )


def groups(jobs: Jobs) -> list[Object]:
    return jobs.api.list(f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{jobs.namespace}/podgroups")


def nodes_of(jobs: Jobs) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in jobs.children("pods").values()]


def min_counts(jobs: Jobs) -> list[int]:
    return [each["spec"]["schedulingPolicy"]["gang"]["minCount"] for each in groups(jobs)]


def scheduled(jobs: Jobs, status: str, *words: str, name: str = "example-job") -> Object:
    def said() -> Object | None:
        found = condition(jobs.status(name), "Scheduled")
        return found if found["status"] == status and all(word in found["message"] for word in words) else None

    return eventually(said) or {}


def test_a_gang_that_fits_runs_and_its_group_goes_with_its_end(jobs: Jobs) -> None:
    jobs.submit(gang(3))
    jobs.await_phase("Running")
    assert scheduled(jobs, "True")["reason"] == "GangScheduled"
    (group,) = groups(jobs)
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    assert [owner["kind"] for owner in group["metadata"]["ownerReferences"]] == ["TFJob"]
    pods = jobs.children("pods").values()
    assert {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods} == {group["metadata"]["name"]}
    assert not jobs.api.list(f"/apis/scheduling.kubeflow.org/v1alpha1/namespaces/{jobs.namespace}/gangs")
    jobs.change({"spec": {"suspend": True}})
    eventually(lambda: not groups(jobs))


def test_of_a_gang_that_does_not_fit_no_pod_gets_a_node_until_there_is_capacity(cluster: Cluster, jobs: Jobs) -> None:
    jobs.submit(gang(5))
    eventually(lambda: len(jobs.children("pods")) == 5)
    found = scheduled(jobs, "False", "pod group is unschedulable")
    assert found["reason"] == "WaitingForCapacity"
    assert "waits for capacity: " in jobs.status()["reason"]
    never(lambda: any(nodes_of(jobs)), 2, 0.1)
    make_node(cluster.api, "node-b", SMALL)
    try:
        jobs.await_phase("Running")
        assert all(nodes_of(jobs))
    finally:
        cluster.api.delete("/api/v1/nodes/node-b")


def test_a_gang_that_grows_keeps_its_group_which_goes_when_all_have_succeeded(jobs: Jobs) -> None:
    jobs.submit(gang(2))
    jobs.await_phase("Running")
    jobs.change({"spec": {"replicaSpecs": gang(3)["spec"]["replicaSpecs"]}})
    eventually(lambda: len(nodes_of(jobs)) == 3 and all(nodes_of(jobs)))
    assert min_counts(jobs) == [2]
    for pod in jobs.children("pods"):
        set_pod_terminated(jobs.api, jobs.namespace, pod, 0)
    jobs.await_phase("Done")
    eventually(lambda: not groups(jobs))


def test_a_train_job_is_a_gang_of_its_nodes(jobs: Jobs) -> None:
    trains = Jobs(jobs.api, jobs.namespace, TRAINJOBS)
    resources = {"requests": {"cpu": "1"}}
    manifest = trainjob("train", 5, gang={"enabled": True, "timeoutSeconds": 1, "onTimeout": "Fail"})
    manifest["spec"]["trainer"]["resourcesPerNode"] = resources
    trains.submit(manifest)
    status = trains.await_phase("Failed", "train")
    assert "No capacity within 1 s" in status["reason"]
    eventually(lambda: not groups(jobs))
    assert not any(nodes_of(trains))


def test_the_page_on_interop_names_what_has_to_be_turned_on() -> None:
    page = (DOCS / "interop.md").read_text("utf-8")
    for program, flags in (
        ("kube-apiserver", OPTIONS.apiserver_flags),
        ("kube-controller-manager", OPTIONS.controller_manager_flags),
        ("kube-scheduler", OPTIONS.scheduler_flags),
    ):
        assert [line for line in page.splitlines() if line.split() == [program, *flags]]
