"""Requests of jobs to an API server: their number per job, and none for a job that has ended or needs no change."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from helpers.atrest import await_rest
from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.kubectl import Kubectl
from helpers.kubernetesversion import STREAMING_SINCE, is_older_than
from helpers.manifests import container, master, parameter_servers, pod_template, tfjob, workers
from helpers.poll import PATIENCE_SECONDS, eventually
from helpers.trainjobs import step_of
from helpers.trainmanifests import trainjob
from localcluster.api import Api
from localcluster.fakekubelet import RUN_SECONDS, FakeKubelet
from localcluster.faultproxy import FaultProxy, Seen
from localcluster.follower import Follower
from tfjob_controller.api.common.core import JOBS, PODS, SERVICES
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.controller.kind import METRICS_DEBOUNCE_SECONDS
from tfjob_controller.kinds.tfjob.kind import TFJOB_DEBOUNCE_SECONDS
from tfjob_controller.kube.meta import Resource
from tfjob_controller.programs.manager import Manager

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

# Without a log that nobody has here.
QUIET: Object = {"command": ("torchrun",), "metrics": {"names": []}}
NODES = 8
# Requests that fill caches, and those for the version, events and rights.
APART = ("watch=1", "/version", "/events", "accessreviews")
# Without streaming lists a cache begins with a list of what the server has cached.
FIRST_LIST = "limit=500&resourceVersion=0"


def requests(seen: Iterable[Seen]) -> list[str]:
    """Returns the requests for jobs and their children that a controller has sent through the proxy."""
    apart = (*APART, FIRST_LIST) if is_older_than(STREAMING_SINCE) else APART
    return [f"{sent.method} {sent.path}" for sent in seen if not any(part in sent.path for part in apart)]


def lasting(seconds: float) -> Object:
    return {"metadata": {"annotations": {RUN_SECONDS: str(seconds)}}, **pod_template(container())}


def tfjob_that_ends(name: str) -> Object:
    """The tutorial's job, with its two parameter servers, which run until they are stopped."""
    roles = (master(template=lasting(2)), workers(1, template=lasting(1.8)), parameter_servers(2))
    return tfjob(*roles, name=name)


def trainjob_that_ends(name: str) -> Object:
    return trainjob(name, NODES, annotations={RUN_SECONDS: "2"}, **QUIET)


@dataclass(frozen=True, slots=True)
class Kind:
    """What the jobs of a kind cost, besides one request for each replica that has to be stopped."""

    resource: Resource
    that_ends: Callable[[str], Object]
    creates: int
    requests: int
    to_stop: int
    debounce_seconds: float
    that_runs: Object
    is_ready: Callable[[Object], bool]


KINDS = [
    Kind(
        TFJOBS,
        tfjob_that_ends,
        # A Job and a Service for each of four replicas, and the ConfigMap of the parameter servers.
        creates=2 * 4 + 1,
        requests=2 * 4 + 6,
        to_stop=3,
        debounce_seconds=TFJOB_DEBOUNCE_SECONDS,
        that_runs=tfjob(master(), workers(2), parameter_servers(1), name="running"),
        is_ready=lambda status: status.get("ready") == {"master": "1/1", "worker": "2/2", "ps": "1/1"},
    ),
    Kind(
        TRAINJOBS,
        trainjob_that_ends,
        # One Job and one Service, however many nodes there are.
        creates=2,
        requests=6,
        to_stop=0,
        debounce_seconds=METRICS_DEBOUNCE_SECONDS,
        that_runs=trainjob("running", 3, **QUIET),
        is_ready=lambda status: step_of(status).get("ready") == 3,
    ),
]
EACH_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource.kind)


@pytest.fixture
def proxy(control_plane: Cluster, kubectl: Kubectl, kubelet: FakeKubelet) -> Iterator[FaultProxy]:
    with FaultProxy(control_plane.own.server) as proxy:
        yield proxy


@pytest.fixture
def kubeconfig(proxy: FaultProxy, control_plane: Cluster, tmp_path: Path) -> Path:
    """Leads through the proxy."""
    return proxy.kubeconfig(tmp_path, control_plane.own.token)


@pytest.fixture
def jobs(api: Api, namespace: str) -> Jobs:
    return Jobs(api, namespace)


# The counts of a status, and its texts that contain them. A write of these alone is debounced.
COUNTS = {"reason", "summary", "ready", "replicaStatuses", "workerReplicas", "jobsStatus", "nodes"}
# It is written at once, since a replica that has succeeded may be gone when it is looked for again.
SUCCESSES = "succeededIndexes"


@dataclass(slots=True)
class Versions:
    """A `localcluster.follower.Reader` of one job, which nobody but the controller writes.

    `counts` are the writes that changed nothing but counts, and `successes` those that also recorded successes.
    """

    last: Object = field(default_factory=dict)
    counts: int = 0
    successes: int = 0

    def list_begins(self) -> None:
        """See Reader."""

    def take(self, change: str, obj: Object) -> None:
        if self.last and _without_counts(self.last) == _without_counts(obj):
            has_successes = _status(self.last).get(SUCCESSES) != _status(obj).get(SUCCESSES)
            self.successes += has_successes
            self.counts += not has_successes
        self.last = obj

    def list_ends(self, bookmark: Object) -> None:
        """See Reader."""

    def is_at(self, job: Object) -> bool:
        meta = self.last.get("metadata", {})
        return bool(meta.get("resourceVersion") == job["metadata"]["resourceVersion"])


def _status(job: Object) -> Object:
    status: Object = job.get("status", {})
    return status


def _without_counts(job: Object) -> Object:
    metadata = {name: job["metadata"].get(name) for name in ("labels", "annotations", "finalizers")}
    status = {name: value for name, value in _status(job).items() if name not in {*COUNTS, SUCCESSES}}
    # The message of Running names a node that runs.
    status["conditions"] = [{**condition, "message": ""} for condition in status.get("conditions", ())]
    return {"metadata": metadata, "spec": job["spec"], "status": status}


@contextlib.contextmanager
def watching(api: Api, jobs: Jobs, name: str) -> Iterator[Versions]:
    versions = Versions()
    follower = Follower(api, jobs.path, versions, {"fieldSelector": f"metadata.name={name}"})
    follower.start()
    try:
        eventually(follower.is_listed.is_set)
        yield versions
        assert follower.gaps == 0
    finally:
        follower.stop()


def syncs(manager: Manager) -> float:
    count = 0.0
    for family in manager.metrics.registry.collect():
        count += sum(each.value for each in family.samples if each.name == "controller_runtime_reconcile_total")
    return count


@EACH_KIND
def test_a_job_costs_its_children_a_few_statuses_and_one_for_each_replica_that_must_be_stopped(
    proxy: FaultProxy, kubeconfig: Path, api: Api, namespace: str, kind: Kind
) -> None:
    """Where a machine is busy, replicas come up one by one, and how many are ready is written, debounced."""
    jobs = Jobs(api, namespace, kind.resource)
    with running_controller(kubeconfig, namespace), watching(api, jobs, "example") as versions:
        begin = time.monotonic()
        jobs.submit(kind.that_ends("example"))
        jobs.await_phase("Done", "example", PATIENCE_SECONDS)
        seconds = time.monotonic() - begin
        sent = requests(proxy.seen)
        eventually(lambda: versions.is_at(jobs.get("example")))
    assert sum(path.startswith("POST") for path in sent) == kind.creates, sent
    assert {path.split()[0] for path in sent} == {"POST", "PATCH"}, sent
    stopped = [path for path in sent if path.startswith("PATCH") and "/jobs/" in path]
    assert len(stopped) == len(set(stopped)) <= kind.to_stop, sent
    assert len(sent) - len(stopped) - versions.counts - versions.successes <= kind.requests, sent
    assert versions.counts <= seconds / kind.debounce_seconds


@EACH_KIND
def test_a_job_that_has_all_it_needs_costs_nothing_whatever_happens_around_it(
    control_plane: Cluster, proxy: FaultProxy, kubeconfig: Path, api: Api, namespace: str, kind: Kind
) -> None:
    """Nor does it for the next controller."""
    jobs, plural = Jobs(api, namespace, kind.resource), kind.resource.plural
    with running_controller(control_plane.kubeconfig, namespace):
        jobs.submit(kind.that_runs)
        eventually(lambda: kind.is_ready(jobs.status("running")))
    with running_controller(kubeconfig, namespace) as manager:
        eventually(lambda: syncs(manager) > 0)
        await_rest(manager, **{plural: [jobs.get("running")]})
        synced = syncs(manager)
        touch = {"metadata": {"labels": {"touched": "yes"}}}
        pods, children = f"/api/v1/namespaces/{namespace}/pods", f"/apis/batch/v1/namespaces/{namespace}/jobs"
        touched = {
            plural: [jobs.change(touch, "running")],
            "pods": [api.patch(f"{pods}/{name}", touch) for name in jobs.children("pods")],
            "jobs": [
                api.patch(f"{children}/{name}", {"metadata": {"annotations": {"touched": "yes"}}})
                for name in jobs.children("jobs")
            ],
        }
        await_rest(manager, **touched)
        assert syncs(manager) > synced
        assert requests(proxy.seen) == []


def test_a_finished_job_costs_its_next_controller_one_request_when_its_time_to_live_is_over(
    control_plane: Cluster, proxy: FaultProxy, kubeconfig: Path, jobs: Jobs
) -> None:
    with running_controller(control_plane.kubeconfig, jobs.namespace):
        jobs.submit(tfjob(master(template=lasting(0.1))))
        jobs.await_phase("Done", timeout=PATIENCE_SECONDS)
    # Only now, since the first controller would delete it if it took longer than that to stop.
    jobs.change({"spec": {"ttlSecondsAfterFinished": 3}})
    with running_controller(kubeconfig, jobs.namespace):
        eventually(lambda: jobs.status() == {})
    assert requests(proxy.seen) == [f"DELETE {jobs.path}/example-job"]


def test_a_finished_job_costs_nothing_whatever_happens_to_its_children(
    proxy: FaultProxy, kubeconfig: Path, jobs: Jobs, api: Api
) -> None:
    """Nothing is made anew: a finished job is left alone."""
    with running_controller(kubeconfig, jobs.namespace) as manager:
        jobs.submit(tfjob(master(template=lasting(0.1)), workers(1)))
        jobs.await_phase("Done", timeout=PATIENCE_SECONDS)
        await_rest(manager, tfjobs=[jobs.get()])
        before, synced = len(requests(proxy.seen)), syncs(manager)
        for name in jobs.children("services"):
            api.delete(f"/api/v1/namespaces/{jobs.namespace}/services/{name}")
        for name in jobs.children("jobs"):
            api.delete(f"/apis/batch/v1/namespaces/{jobs.namespace}/jobs/{name}", propagationPolicy="Background")
        eventually(lambda: not jobs.children("pods"))
        eventually(lambda: not any(manager.caches.store(each).list() for each in (SERVICES, JOBS, PODS)))
        await_rest(manager)
        assert syncs(manager) > synced
        assert requests(proxy.seen)[before:] == []
        assert jobs.children("jobs") == jobs.children("services") == {}
