"""Gangs that ask a node autoscaler for nodes: the real CRD on a real API server, and an autoscaler that the test plays.

The autoscaler sets conditions and adds nodes. What it must find there is what the cluster-autoscaler reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.gangowner import GANGS, SMALL, Owner
from helpers.gangscheduler import running_gang_scheduler, running_schedulers
from helpers.manifests import gang_job
from helpers.poll import eventually
from localcluster.api import Api
from localcluster.fakekubelet import make_node
from localcluster.foreigncrds import install_provisioning_crd
from tfjob_controller.util.clock import RealClock
from tfjob_controller.util.timestamps import format_time

CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/gangs/provisioningrequests"
TEMPLATES = "/api/v1/namespaces/gangs/podtemplates"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/provisioningrequests.autoscaling.x-k8s.io"
QUOTAS = "/api/v1/namespaces/gangs/resourcequotas"
PREFIX = "autoscaling.x-k8s.io"
NEW_NODE = "node-new"

Object = dict[str, Any]


class Autoscaler:
    """A node autoscaler that does what the test says."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def requests(self, gang: str = "") -> list[Object]:
        found = self._api.list(REQUESTS)
        return [each for each in found if each["metadata"]["ownerReferences"][0]["name"].startswith(gang)]

    def await_request(self, gang: str) -> Object:
        return eventually(lambda: next(iter(self.requests(gang)), None)) or {}

    def set_condition(self, request: Object, type_: str, message: str = "", *, status: str = "True") -> None:
        path = f"{REQUESTS}/{request['metadata']['name']}"
        others = self._api.get(path).get("status", {}).get("conditions", [])
        condition = {
            "type": type_,
            "status": status,
            "reason": "Played",
            "message": message,
            "lastTransitionTime": format_time(RealClock().now()),
        }
        conditions = [*(each for each in others if each["type"] != type_), condition]
        self._api.patch(f"{path}/status", {"status": {"conditions": conditions}})


@pytest.fixture
def autoscaler(gang_cluster: Cluster) -> Autoscaler:
    """Knows the CRD; requests of earlier tests are gone."""
    install_provisioning_crd(gang_cluster.api)
    return Autoscaler(gang_cluster.api)


@pytest.fixture
def asking(gang_cluster: Cluster, autoscaler: Autoscaler) -> Iterator[Cluster]:
    """The gang scheduler and its kube-scheduler; gangs ask for nodes after a second."""
    options = {"provisioning_class": CLASS, "provision_after": 1.0}
    with running_schedulers(gang_cluster, **options):
        yield gang_cluster


@pytest.fixture
def owner(asking: Cluster) -> Owner:
    return Owner(asking.api, "gangs")


def message_of(owner: Owner, gang: str) -> str:
    return str(owner.status(gang).get("message", ""))


def test_a_gang_that_exceeds_the_cluster_starts_on_the_nodes_that_it_asked_for(
    owner: Owner, autoscaler: Autoscaler, asking: Cluster
) -> None:
    owner.submit("large", worker=10, master=2)
    request = autoscaler.await_request("large")
    assert request["spec"]["provisioningClassName"] == CLASS
    pods = {}
    for each in request["spec"]["podSets"]:
        template = asking.api.get(f"{TEMPLATES}/{each['podTemplateRef']['name']}")
        assert template["metadata"]["ownerReferences"] == request["metadata"]["ownerReferences"]
        (container,) = template["template"]["spec"]["containers"]
        pods[container["name"]] = each["count"], container["resources"]["requests"]
    assert pods == {"worker": (10, {"cpu": "1"}), "master": (2, {"cpu": "1"})}
    eventually(lambda: "waits for the node autoscaler" in message_of(owner, "large"))
    assert owner.status("large")["phase"] == "Unschedulable"
    autoscaler.set_condition(request, "Accepted")
    eventually(lambda: "accepted by the node autoscaler" in message_of(owner, "large"))
    autoscaler.set_condition(request, "Provisioned", "Capacity is not found", status="False")
    eventually(lambda: "Capacity is not found" in message_of(owner, "large"))
    autoscaler.set_condition(request, "Provisioned")
    eventually(lambda: "the nodes are about to join" in message_of(owner, "large"))
    make_node(asking.api, NEW_NODE, SMALL)
    status = owner.await_phase("large", "Admitted")
    assert status["provisioningRequest"] == {"name": request["metadata"]["name"], "className": CLASS}
    assert autoscaler.requests("large"), "the nodes are booked until the pods run"
    owner.make_pods("large")
    owner.await_phase("large", "Bound")
    eventually(lambda: not autoscaler.requests("large") and not asking.api.list(TEMPLATES))


def test_only_gangs_that_lack_capacity_ask(owner: Owner, autoscaler: Autoscaler, asking: Cluster) -> None:
    """Not one that runs, nor one over its quota, nor one that a hold keeps back; a suspended one withdraws."""
    owner.submit("runs", worker=6)
    owner.await_phase("runs", "Admitted")
    owner.make_pods("runs")
    owner.await_phase("runs", "Bound")
    owner.submit("lacks", worker=4)
    autoscaler.await_request("lacks")
    asking.api.create(QUOTAS, {"metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": "14"}}})
    try:
        # With those that run and wait, this one would exceed the quota; alone it would not.
        eventually(lambda: asking.api.get(f"{QUOTAS}/small").get("status", {}).get("used"))
        owner.submit("beyond", worker=5)
        eventually(lambda: "the quotas of the namespace do not allow" in message_of(owner, "beyond"))
        asking.api.patch(f"{QUOTAS}/small", {"spec": {"hard": {"requests.cpu": "8"}}})
        eventually(lambda: not autoscaler.requests())
    finally:
        asking.api.delete(f"{QUOTAS}/small")
    autoscaler.await_request("lacks")
    asking.api.patch(f"{GANGS.format('gangs')}/lacks", {"spec": {"suspend": True}})
    eventually(lambda: not autoscaler.requests("lacks"))
    asking.api.delete(f"{GANGS.format('gangs')}/beyond")
    eventually(lambda: not autoscaler.requests())


def test_a_request_that_failed_is_said_and_repeated_later(
    owner: Owner, autoscaler: Autoscaler, asking: Cluster
) -> None:
    owner.submit("large", worker=12)
    request = autoscaler.await_request("large")
    autoscaler.set_condition(request, "Failed", "no zone has\x1b[31m capacity")
    eventually(lambda: not autoscaler.requests("large"))
    said = eventually(lambda: message if "failed" in (message := message_of(owner, "large")) else "")
    assert "no zone has [31m capacity; the next one follows at " in (said or "")
    eventually(lambda: {"ProvisioningRequested", "ProvisioningFailed"} <= owner.reasons("large"))


def test_the_pods_of_a_job_say_whose_nodes_they_use(autoscaler: Autoscaler, asking: Cluster) -> None:
    with running_controller(asking.kubeconfig, "gangs"):
        jobs = Jobs(asking.api, "gangs")
        jobs.submit(gang_job("large", 11))
        request = autoscaler.await_request("large")
        autoscaler.set_condition(request, "Provisioned")
        gang = request["metadata"]["ownerReferences"][0]["name"]
        eventually(lambda: "about to join" in message_of(Owner(asking.api, "gangs"), gang))
        make_node(asking.api, NEW_NODE, SMALL)
        pods = eventually(lambda: list(jobs.children("pods").values()))
        wanted = {
            f"{PREFIX}/consume-provisioning-request": request["metadata"]["name"],
            f"{PREFIX}/provisioning-class-name": CLASS,
        }
        for each in pods or ():
            assert wanted.items() <= each["metadata"]["annotations"].items()
        jobs.delete("large")


def test_a_planted_request_is_deleted_without_the_templates_of_others(
    owner: Owner, autoscaler: Autoscaler, asking: Cluster
) -> None:
    """A tenant writes one that names the Gang as its owner, and a PodTemplate of somebody else."""
    owner.submit("runs", worker=1)
    owner.await_phase("runs", "Admitted")
    (uid,) = (each["metadata"]["uid"] for each in asking.api.list(GANGS.format("gangs")))
    template = {"spec": {"containers": [{"name": "main", "image": "localhost/none"}]}}
    asking.api.create(TEMPLATES, {"metadata": {"name": "others"}, "template": template})
    reference = {"apiVersion": "scheduling.kubeflow.org/v1alpha1", "kind": "Gang", "name": "runs", "uid": uid}
    planted = {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {
            "name": "planted",
            "labels": {"app.kubernetes.io/managed-by": "gang-scheduler"},
            "ownerReferences": [reference],
        },
        "spec": {"provisioningClassName": CLASS, "podSets": [{"count": 1, "podTemplateRef": {"name": "others"}}]},
    }
    asking.api.create(REQUESTS, planted)
    try:
        eventually(lambda: not autoscaler.requests())
        assert [each["metadata"]["name"] for each in asking.api.list(TEMPLATES)] == ["others"]
    finally:
        asking.api.delete(f"{TEMPLATES}/others")


def test_without_the_crd_gangs_wait_as_without_an_autoscaler_until_it_is_installed(gang_cluster: Cluster) -> None:
    api = gang_cluster.api
    api.delete(CRD)
    eventually(lambda: api.find(CRD) is None)
    options = {"provisioning_class": CLASS, "provision_after": 0.1}
    with capture_logs() as logs, running_gang_scheduler(gang_cluster.kubeconfig, **options):
        owner = Owner(api, "gangs")
        owner.submit("large", worker=12)
        assert owner.await_phase("large", "Unschedulable")["message"].endswith("the whole cluster has")
        errors = [str(each["error"]) for each in logs if "provisioningrequests" in str(each.get("resource"))]
        install_provisioning_crd(api)
        Autoscaler(api).await_request("large")
    assert any("CRD" in each for each in errors), errors
