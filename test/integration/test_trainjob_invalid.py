"""Invalid TrainJobs and runtimes that an old CRD accepted: the controller refuses them once, with the same messages."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.badtrainmanifests import BAD_RUNTIMES, BAD_TRAINJOBS
from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.kubectl import CRDS
from helpers.playground import PATIENCE_SECONDS, PERIOD_SECONDS, condition
from helpers.poll import eventually
from helpers.trainjobs import GROUP_PATH
from helpers.trainmanifests import trainjob
from localcluster.faultproxy import FaultProxy
from tfjob_controller.api.trainjob.types import TRAINJOBS

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

NAMESPACE = "default"
# Whoever is meant, it is not this controller.
OTHERS = [bad for bad in BAD_TRAINJOBS if "managedBy" in bad.manifest["spec"]]
BAD_JOBS = [bad for bad in BAD_TRAINJOBS if bad not in OTHERS]
_CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FILES = ("kubeflow.org_trainjobs", "kubeflow.org_trainingruntimes", "kubeflow.org_clustertrainingruntimes")


def lax_crd(file: str) -> Object:
    """That of this tree without a schema, and without the scale subresource, which reads a field of it."""
    crd: Object = yaml.safe_load((CRDS / f"{file}.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    version["schema"] = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version.get("subresources", {}).pop("scale", None)
    return crd


@pytest.fixture
def proxy(own_control_plane: Cluster) -> Iterator[FaultProxy]:
    """In front of a control plane whose CRDs let anything in. It must be one of its own: a CRD is everybody's."""
    crds = [lax_crd(file) for file in FILES]
    crds.append(yaml.safe_load((CRDS / "kubeflow.org_tfjobs.yaml").read_text()))
    for crd in crds:
        path = f"{_CRD_PATH}/{crd['metadata']['name']}"
        own_control_plane.api.apply(path, crd)
        eventually(lambda path=path: is_established(own_control_plane, path), PATIENCE_SECONDS)  # type: ignore[misc] # bound now
    with FaultProxy(own_control_plane.own.server) as proxy:
        yield proxy


def is_established(cluster: Cluster, path: str) -> bool:
    conditions = cluster.api.get(path).get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def test_what_an_old_crd_lets_through_is_refused_once_with_a_reason(
    own_control_plane: Cluster, proxy: FaultProxy, tmp_path: Path
) -> None:
    """All in one test: a control plane of its own costs seconds."""
    jobs = Jobs(own_control_plane.api, NAMESPACE, TRAINJOBS)
    kubeconfig = proxy.kubeconfig(tmp_path, own_control_plane.own.token)
    with running_controller(kubeconfig, NAMESPACE, gang_scheduling="off") as manager:
        every_bad_job_is_refused(jobs)
        a_job_with_a_bad_runtime_is_refused(jobs)
        a_job_in_order_beside_them_runs(jobs)
        no_more_is_sent_for_refused_jobs(proxy)
        a_change_that_nobody_may_make_is_refused(jobs)
    statistics = manager.caches.informers.statistics()
    assert statistics["trainjobs"].reflector.undecodable == 0


def every_bad_job_is_refused(jobs: Jobs) -> None:
    for bad in (*OTHERS, *BAD_JOBS):
        meta = {**bad.manifest["metadata"], "name": bad.name}
        jobs.submit({**copy.deepcopy(bad.manifest), "metadata": meta})
    found: dict[str, tuple[str, str, str]] = {}
    for bad in BAD_JOBS:
        eventually(lambda: jobs.phase(bad.name) == "Failed", PATIENCE_SECONDS, PERIOD_SECONDS)  # noqa: B023 -- called now
        status = jobs.status(bad.name)
        found[bad.name] = status["state"], condition(status, "Failed")["reason"], status["reason"]
    assert found == {bad.name: ("FAILED", "JobsBuildFailed", f"invalid job spec: {bad.words}") for bad in BAD_JOBS}
    assert jobs.children("jobs") == jobs.children("services") == {}
    assert [jobs.status(bad.name) for bad in OTHERS] == [{}] * len(OTHERS)


def a_job_with_a_bad_runtime_is_refused(jobs: Jobs) -> None:
    for bad in BAD_RUNTIMES:
        plural = f"{bad.manifest['kind'].lower()}s"
        folder = f"{GROUP_PATH}/namespaces/{NAMESPACE}" if plural == "trainingruntimes" else GROUP_PATH
        jobs.api.create(f"{folder}/{plural}", {**copy.deepcopy(bad.manifest), "metadata": {"name": bad.name}})
        ref = {"name": bad.name, "kind": bad.manifest["kind"]}
        jobs.submit(trainjob(f"of-{bad.name}", 1, runtimeRef=ref))
    for bad in BAD_RUNTIMES:
        eventually(lambda: jobs.phase(f"of-{bad.name}") == "Failed", PATIENCE_SECONDS, PERIOD_SECONDS)  # noqa: B023 -- called now
        words = f"{bad.manifest['kind']} {bad.name}: {bad.words}"
        assert jobs.status(f"of-{bad.name}")["reason"] == f"invalid job spec: {words}"


def a_job_in_order_beside_them_runs(jobs: Jobs) -> None:
    jobs.submit(trainjob("in-order", 2))
    eventually(lambda: len(jobs.children("jobs")) == 1, PATIENCE_SECONDS, PERIOD_SECONDS)


def no_more_is_sent_for_refused_jobs(proxy: FaultProxy) -> None:
    refused = {bad.name for bad in BAD_JOBS}
    writes = [each.path.partition("/trainjobs/")[2] for each in proxy.seen if each.method == "PATCH"]
    assert sorted(path for path in writes if path.partition("/")[0] in refused) == sorted(
        f"{name}/status" for name in refused
    )


def a_change_that_nobody_may_make_is_refused(jobs: Jobs) -> None:
    """Its children are stopped before its end is on record."""
    jobs.change({"spec": {"numNodes": 3}}, "in-order")
    jobs.await_phase("Failed", "in-order", PATIENCE_SECONDS)
    assert "cannot change in a started job" in jobs.status("in-order")["reason"]
    assert all(job["spec"]["suspend"] for job in jobs.children("jobs").values())
