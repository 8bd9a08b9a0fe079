"""Invalid jobs that an old CRD accepted: the controller refuses them itself, once, with the same messages."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.badmanifests import BAD_MANIFESTS
from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.kubectl import CRDS
from helpers.manifests import container, master, pod_template, tfjob, workers
from helpers.playground import PATIENCE_SECONDS, PERIOD_SECONDS
from helpers.poll import eventually
from localcluster.faultproxy import FaultProxy

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

NAMESPACE = "default"
FINISHED = ("Done", "Failed")
# Whoever is meant by a managedBy that is wrong, it is not this controller.
BAD_JOBS = [bad for bad in BAD_MANIFESTS if "managedBy" not in (bad.manifest.get("spec") or {})]


def old_crd() -> Object:
    """The CRD of this tree without a schema and without scale, as upstream's was."""
    path = CRDS / "kubeflow.org_tfjobs.yaml"
    crd: Object = yaml.safe_load(path.read_text())
    (version,) = crd["spec"]["versions"]
    version["schema"] = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version["subresources"] = {"status": {}}
    return crd


@pytest.fixture
def proxy(own_control_plane: Cluster) -> Iterator[FaultProxy]:
    """In front of a control plane whose CRD lets anything in. It must be one of its own: a CRD is everybody's."""
    crd = old_crd()
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
    own_control_plane.api.apply(path, crd)
    eventually(lambda: is_established(own_control_plane, path), PATIENCE_SECONDS, PERIOD_SECONDS)
    with FaultProxy(own_control_plane.own.server) as proxy:
        yield proxy


def is_established(cluster: Cluster, path: str) -> bool:
    conditions = cluster.api.get(path).get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def test_what_an_old_crd_lets_through_is_refused_once_with_a_reason(
    own_control_plane: Cluster, proxy: FaultProxy, tmp_path: Path
) -> None:
    """All in one test: a control plane of its own costs seconds."""
    jobs = Jobs(own_control_plane.api, NAMESPACE)
    kubeconfig = proxy.kubeconfig(tmp_path, own_control_plane.own.token)
    # A cluster of that time knows neither Gangs nor TrainJobs.
    with running_controller(kubeconfig, NAMESPACE, gang_scheduling="off", trainjobs=False) as manager:
        every_bad_manifest_is_refused(jobs)
        a_job_in_order_beside_them_runs(jobs)
        a_field_that_the_api_server_does_not_know_ends_the_job_and_is_named(jobs)
        no_more_is_sent_for_refused_jobs(proxy, jobs)
        a_change_that_nobody_may_make_is_refused(jobs)
    assert manager.caches.informers.statistics()["tfjobs"].reflector.undecodable == 0


def every_bad_manifest_is_refused(jobs: Jobs) -> None:
    for bad in BAD_JOBS:
        jobs.submit({**copy.deepcopy(bad.manifest), "metadata": {"name": bad.name}})
    found: dict[str, tuple[str, str, str]] = {}
    for bad in BAD_JOBS:
        eventually(lambda: jobs.phase(bad.name) in FINISHED, PATIENCE_SECONDS, PERIOD_SECONDS)  # noqa: B023 -- called now
        status = jobs.status(bad.name)
        found[bad.name] = status["phase"], status["state"], status["reason"]
    assert found == {bad.name: ("Failed", "Failed", f"invalid job spec: {bad.words}") for bad in BAD_JOBS}
    assert jobs.children("jobs") == jobs.children("services") == jobs.children("configmaps") == {}
    eventually(lambda: warnings(jobs) == {bad.name: 1 for bad in BAD_JOBS}, PATIENCE_SECONDS, 0.2)


def warnings(jobs: Jobs) -> dict[str, int]:
    """How often each job was told to be invalid."""
    counts: dict[str, int] = {}
    for event in jobs.events():
        if (event["reason"], event["type"]) == ("InvalidSpec", "Warning"):
            times = (event.get("series") or {}).get("count", 1)
            counts[event["regarding"]["name"]] = counts.get(event["regarding"]["name"], 0) + times
    return counts


def a_job_in_order_beside_them_runs(jobs: Jobs) -> None:
    jobs.submit(tfjob(master(), workers(1), name="in-order"))
    eventually(lambda: len(jobs.children("jobs")) == 2, PATIENCE_SECONDS, PERIOD_SECONDS)


def a_field_that_the_api_server_does_not_know_ends_the_job_and_is_named(jobs: Jobs) -> None:
    """As one of the CRD's Kubernetes on a server of an older one; the CRD of this tree prunes other unknown fields."""
    name = "unknown-field"
    jobs.submit(tfjob(master(template=pod_template(container(), nodeSelectr={"pool": "gpu"})), name=name))
    jobs.await_phase("Failed", name, PATIENCE_SECONDS)
    reason = jobs.status(name)["reason"]
    assert reason.startswith(f"cannot create Job {name}-master-")
    assert reason.endswith(': unknown field "spec.template.spec.nodeSelectr"')
    assert not [child for child in jobs.children("jobs") if child.startswith(name)]


def no_more_is_sent_for_refused_jobs(proxy: FaultProxy, jobs: Jobs) -> None:
    refused = {bad.name for bad in BAD_JOBS}
    writes = [each.path.partition("/tfjobs/")[2] for each in proxy.seen if each.method == "PATCH"]
    assert sorted(path for path in writes if path.partition("/")[0] in refused) == sorted(
        f"{name}/status" for name in refused
    )
    # What is refused stays so, also when it is mended: it is finished.
    name = "no-replica-specs"
    jobs.change({"spec": tfjob(master())["spec"]}, name)
    jobs.change({"metadata": {"labels": {"touched": "yes"}}}, "in-order")
    assert jobs.phase(name) == "Failed"


def a_change_that_nobody_may_make_is_refused(jobs: Jobs) -> None:
    other = pod_template(container(image="localhost/another"))
    jobs.change(
        {"spec": {"replicaSpecs": tfjob(master(template=other), workers(1))["spec"]["replicaSpecs"]}}, "in-order"
    )
    jobs.await_phase("Failed", "in-order", PATIENCE_SECONDS)
    assert jobs.status("in-order")["reason"].startswith("invalid job spec: spec: the templates of a started job cannot")
