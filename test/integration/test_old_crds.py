"""Invalid jobs and runtimes that old CRDs accepted: the controller refuses each once, with the words of validation.

Unit tests compare these words for every invalid manifest. Here a part of them meets an API server without schemas.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers.badmanifests import BAD_MANIFESTS
from helpers.badtrainmanifests import BAD_RUNTIMES, BAD_TRAINJOBS
from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.manifests import container, master, pod_template, tfjob, workers
from helpers.opencrds import install_open_crds
from helpers.playground import PATIENCE_SECONDS
from helpers.poll import eventually
from helpers.refusals import Bad
from helpers.trainjobs import GROUP_PATH
from helpers.trainmanifests import trainjob
from localcluster.faultproxy import FaultProxy
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.kube.meta import Resource

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

NAMESPACE = "default"
CHANGED = tfjob(master(template=pod_template(container(image="localhost/another"))), workers(1))["spec"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind with some of its invalid manifests, a valid one, and a change of that one that nobody may make."""

    resource: Resource
    bad: Sequence[Bad]
    good: Object
    children: int
    change: Mapping[str, Any]
    refusal: str

    def jobs(self, cluster: Cluster) -> Jobs:
        return Jobs(cluster.api, NAMESPACE, self.resource)


def of_ours(bads: Sequence[Bad]) -> list[Bad]:
    """Every sixth of them. Whoever is meant by a managedBy that is wrong, it is not this controller."""
    return [bad for bad in bads if "managedBy" not in (bad.manifest.get("spec") or {})][::6]


KINDS = [
    Kind(
        TFJOBS,
        of_ours(BAD_MANIFESTS),
        tfjob(master(), workers(1), name="in-order"),
        2,
        {"replicaSpecs": CHANGED["replicaSpecs"]},
        "the templates of a started job cannot",
    ),
    Kind(
        TRAINJOBS,
        of_ours(BAD_TRAINJOBS),
        trainjob("in-order", 2),
        1,
        {"numNodes": 3},
        "cannot change in a started job",
    ),
]


@pytest.fixture
def proxy(own_control_plane: Cluster) -> Iterator[FaultProxy]:
    """In front of a control plane whose CRDs let anything in."""
    install_open_crds(own_control_plane.api)
    with FaultProxy(own_control_plane.own.server) as proxy:
        yield proxy


@pytest.mark.long
def test_what_an_old_crd_lets_through_is_refused_once_with_a_reason(
    own_control_plane: Cluster, proxy: FaultProxy, tmp_path: Path
) -> None:
    """All in one test: a control plane of its own costs seconds."""
    kubeconfig = proxy.kubeconfig(tmp_path, own_control_plane.own.token)
    with running_controller(kubeconfig, NAMESPACE, gang_scheduling="off") as manager:
        for kind in KINDS:
            jobs = kind.jobs(own_control_plane)
            every_bad_manifest_is_refused(kind, jobs)
            a_job_in_order_beside_them_runs(kind, jobs)
            no_more_is_sent_for_refused_jobs(kind, proxy)
            a_change_that_nobody_may_make_is_refused(kind, jobs)
        a_job_with_a_bad_runtime_is_refused(Jobs(own_control_plane.api, NAMESPACE, TRAINJOBS))
        a_field_that_the_api_server_does_not_know_ends_the_job(Jobs(own_control_plane.api, NAMESPACE, TFJOBS))
        statistics = manager.caches.informers.statistics()
    assert [statistics[kind.resource.plural].reflector.undecodable for kind in KINDS] == [0, 0]


def every_bad_manifest_is_refused(kind: Kind, jobs: Jobs) -> None:
    for bad in kind.bad:
        meta = {**bad.manifest["metadata"], "name": bad.name}
        jobs.submit({**copy.deepcopy(bad.manifest), "metadata": meta})
    found: dict[str, str] = {}
    for bad in kind.bad:
        jobs.await_phase("Failed", bad.name, PATIENCE_SECONDS)
        found[bad.name] = jobs.status(bad.name)["reason"]
    assert found == {bad.name: f"invalid job spec: {bad.words}" for bad in kind.bad}
    assert jobs.children("jobs").keys() == others(kind, jobs)
    eventually(lambda: warnings(kind, jobs) == {bad.name: 1 for bad in kind.bad})


def others(kind: Kind, jobs: Jobs) -> set[str]:
    """Returns the names of the children of other kinds."""
    return {name for name, job in jobs.children("jobs").items() if jobs.name_label not in job["metadata"]["labels"]}


def warnings(kind: Kind, jobs: Jobs) -> dict[str, int]:
    """Returns how often each job was reported as invalid."""
    counts: dict[str, int] = {}
    for event in jobs.events():
        about = event["regarding"]
        if (event["reason"], event["type"], about["kind"]) == ("InvalidSpec", "Warning", kind.resource.kind):
            times = (event.get("series") or {}).get("count", 1)
            counts[about["name"]] = counts.get(about["name"], 0) + times
    return counts


def a_job_in_order_beside_them_runs(kind: Kind, jobs: Jobs) -> None:
    before = len(jobs.children("jobs"))
    jobs.submit(kind.good)
    eventually(lambda: len(jobs.children("jobs")) == before + kind.children)


def no_more_is_sent_for_refused_jobs(kind: Kind, proxy: FaultProxy) -> None:
    refused = {bad.name for bad in kind.bad}
    folder = f"/{kind.resource.plural}/"
    writes = [each.path.partition(folder)[2] for each in proxy.seen if each.method == "PATCH"]
    assert sorted(path for path in writes if path.partition("/")[0] in refused) == sorted(
        f"{name}/status" for name in refused
    )


def a_change_that_nobody_may_make_is_refused(kind: Kind, jobs: Jobs) -> None:
    """Also a refused job that is mended stays refused: it is finished."""
    mended = kind.bad[0].name
    jobs.change({"spec": kind.good["spec"]}, mended)
    jobs.change({"spec": kind.change}, "in-order")
    jobs.await_phase("Failed", "in-order", PATIENCE_SECONDS)
    assert kind.refusal in jobs.status("in-order")["reason"]
    assert jobs.phase(mended) == "Failed"


def a_job_with_a_bad_runtime_is_refused(jobs: Jobs) -> None:
    bad = BAD_RUNTIMES[0]
    plural = f"{bad.manifest['kind'].lower()}s"
    folder = f"{GROUP_PATH}/namespaces/{NAMESPACE}" if plural == "trainingruntimes" else GROUP_PATH
    jobs.api.create(f"{folder}/{plural}", {**copy.deepcopy(bad.manifest), "metadata": {"name": bad.name}})
    jobs.submit(trainjob("of-a-bad-runtime", 1, runtimeRef={"name": bad.name, "kind": bad.manifest["kind"]}))
    status = jobs.await_phase("Failed", "of-a-bad-runtime", PATIENCE_SECONDS)
    assert status["reason"] == f"invalid job spec: {bad.manifest['kind']} {bad.name}: {bad.words}"


def a_field_that_the_api_server_does_not_know_ends_the_job(jobs: Jobs) -> None:
    """A server may be older than the Kubernetes whose fields the CRDs of this tree have; others are pruned by them."""
    name = "unknown-field"
    jobs.submit(tfjob(master(template=pod_template(container(), nodeSelectr={"pool": "gpu"})), name=name))
    reason = jobs.await_phase("Failed", name, PATIENCE_SECONDS)["reason"]
    assert reason.startswith(f"cannot create Job {name}-master-")
    assert reason.endswith(': unknown field "spec.template.spec.nodeSelectr"')
