"""TFJobs and TrainJobs with the real Kueue, its webhooks and its quotas: `make interop WITH=kueue`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from helpers.cluster import Cluster, delete_namespace, new_namespace, own_plane, set_pod_terminated
from helpers.controller import Jobs, running_controller
from helpers.manifests import container, pod_template, tfjob, workers
from helpers.playground import condition
from helpers.podwatch import watching_pods
from helpers.poll import eventually, never
from helpers.trainmanifests import trainjob
from localcluster import addons
from localcluster.api import Api, RefusedError
from localcluster.crds import install_crds
from localcluster.fakekubelet import FakeKubelet
from localcluster.programs import Options
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.trainjob.types import TRAINJOBS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

Object = dict[str, Any]

KUEUE = "/apis/kueue.x-k8s.io/v1beta1"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
NODE = "node-a"
RESOURCES = {"cpu": "16", "memory": "32Gi", "ephemeral-storage": "32Gi", "pods": "100"}
PERIOD_SECONDS = 0.1
# A fight makes the pods of the creation and of two resumes at once, and then waits a minute.
FIGHT_SECONDS = 60
MAX_ROUNDS = 4
EXTERNAL = ["TFJob.v1alpha1.kubeflow.org", "TrainJob.v2alpha1.kubeflow.org"]


@dataclass(slots=True)
class Kueue:
    """The real Kueue beside the control plane; it runs with the settings that were asked for last."""

    cluster: Cluster
    settings: Mapping[str, Any] | None = None

    def run_with(self, settings: Mapping[str, Any]) -> None:
        if self.settings != settings:
            addons.start(self.cluster.own, "kueue", settings)
            self.settings = settings


@dataclass(frozen=True, slots=True)
class Queue:
    """Jobs of one kind in a namespace with a LocalQueue, whose ClusterQueue has a quota of CPUs."""

    kind: str
    jobs: Jobs
    namespace: str
    submitted: list[str] = field(default_factory=list)

    @property
    def api(self) -> Api:
        return self.jobs.api

    @property
    def path(self) -> str:
        return f"{KUEUE}/clusterqueues/{self.namespace}"

    def submit(self, name: str, replicas: int, *, queue: str = "queue", **gang: Any) -> None:
        """A job whose replicas request one CPU each."""
        of_gang = {"enabled": True, **gang}
        if self.kind == "TFJob":
            template = pod_template(container(resources={"requests": {"cpu": "1"}}), restartPolicy="OnFailure")
            manifest = tfjob(workers(replicas, template=template), gang=of_gang)
        else:
            manifest = trainjob(name, replicas, gang=of_gang)
            manifest["spec"]["trainer"]["resourcesPerNode"] = {"requests": {"cpu": "1"}}
        manifest["metadata"] = {"name": name, "labels": {QUEUE_LABEL: queue}}
        self.jobs.submit(manifest)
        self.submitted.append(name)

    def pods(self, name: str) -> dict[str, Object]:
        label = self.jobs.name_label
        return {
            pod: each
            for pod, each in self.jobs.children("pods").items()
            if each["metadata"]["labels"].get(label) == name and "deletionTimestamp" not in each["metadata"]
        }

    def await_running(self, name: str, replicas: int) -> None:
        def runs() -> bool:
            phases = [each.get("status", {}).get("phase") for each in self.pods(name).values()]
            return phases == ["Running"] * replicas and self.jobs.phase(name) == "Running"

        eventually(runs, period=PERIOD_SECONDS)

    def await_stopped(self, name: str) -> None:
        eventually(lambda: not self.pods(name), period=PERIOD_SECONDS)

    def await_reason(self, name: str, *words: str) -> str:
        def reason() -> str:
            found = str(self.jobs.status(name).get("reason", ""))
            return found if all(word in found for word in words) else ""

        return eventually(reason, period=PERIOD_SECONDS)

    def finish(self, name: str) -> None:
        for pod in self.pods(name):
            set_pod_terminated(self.api, self.namespace, pod, 0)
        self.jobs.await_phase("Done", name)

    def suspend(self, name: str, is_suspended: bool) -> None:
        self.jobs.change({"spec": {"suspend": is_suspended}}, name)

    def used(self) -> str:
        """Returns the CPUs that Kueue counts as used."""
        flavors = self.api.get(self.path).get("status", {}).get("flavorsUsage") or ()
        return next((each["total"] for one in flavors for each in one["resources"] if each["name"] == "cpu"), "")

    def workloads(self) -> list[Object]:
        return self.api.list(f"{KUEUE}/namespaces/{self.namespace}/workloads")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with own_plane("interop", Options()) as cluster:
        install_crds(cluster.api)
        with FakeKubelet(Api.from_kubeconfig(cluster.kubeconfig), nodes=(NODE,), resources=RESOURCES):
            yield cluster


@pytest.fixture(scope="module")
def any_kueue(cluster: Cluster) -> Kueue:
    return Kueue(cluster)


@pytest.fixture
def kueue(any_kueue: Kueue) -> Kueue:
    """Kueue with its defaults."""
    any_kueue.run_with({})
    return any_kueue


@pytest.fixture(params=["TFJob", "TrainJob"])
def queue(kueue: Kueue, cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Queue]:
    """A queue of its own with a quota of 3 CPUs, and a controller for its namespace."""
    kind: str = request.param
    api, namespace = cluster.api, new_namespace(cluster.api)
    retried(lambda: make_queue(api, namespace, cpus=3))
    with running_controller(cluster.kubeconfig, namespace, gang_backend="kueue"):
        queue = Queue(kind, Jobs(api, namespace, TFJOBS if kind == "TFJob" else TRAINJOBS), namespace)
        yield queue
        for name in queue.submitted:
            queue.jobs.delete(name)
        eventually(lambda: not queue.jobs.children("pods"), period=PERIOD_SECONDS)
    delete_namespace(api, namespace)
    api.delete(queue.path)


def retried(make: Callable[[], None]) -> None:
    """A webhook of a Kueue that has just started may not be served yet."""

    def is_made() -> bool:
        try:
            make()
        except RefusedError as error:
            if error.status < 500:
                raise
            return False
        return True

    eventually(is_made, period=PERIOD_SECONDS)


def make_queue(api: Api, namespace: str, cpus: int) -> None:
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor", "metadata": {"name": "default"}}
    resource = {"name": "cpu", "nominalQuota": str(cpus)}
    flavors = [{"name": "default", "resources": [resource]}]
    cluster_queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": namespace},
        "spec": {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
        },
    }
    local_queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": "queue", "namespace": namespace},
        "spec": {"clusterQueue": namespace},
    }
    api.create_if_missing(f"{KUEUE}/resourceflavors", flavor)
    api.create_if_missing(f"{KUEUE}/clusterqueues", cluster_queue)
    api.create_if_missing(f"{KUEUE}/namespaces/{namespace}/localqueues", local_queue)


def test_a_job_within_its_quota_is_admitted_runs_and_gives_its_quota_back(queue: Queue) -> None:
    queue.submit("first", 2)
    queue.await_running("first", 2)
    eventually(lambda: queue.used() == "2", period=PERIOD_SECONDS)
    queue.finish("first")
    eventually(lambda: not queue.workloads(), period=PERIOD_SECONDS)
    eventually(lambda: queue.used() == "0", period=PERIOD_SECONDS)


def test_a_job_beyond_the_free_quota_has_no_pod_until_there_is_quota_for_all_of_it(queue: Queue) -> None:
    queue.submit("first", 2)
    queue.await_running("first", 2)
    queue.submit("second", 2)
    queue.await_reason("second", "waits for capacity", "insufficient")
    never(lambda: queue.pods("second"), 2, PERIOD_SECONDS)
    queue.finish("first")
    queue.await_running("second", 2)


def test_a_job_without_a_queue_says_which_label_it_lacks(queue: Queue) -> None:
    queue.submit("first", 1, queue="")
    queue.await_reason("first", QUEUE_LABEL)
    assert queue.pods("first") == {}


def test_a_job_that_is_preempted_stops_queues_again_and_goes_on(queue: Queue) -> None:
    queue.submit("low", 2)
    queue.await_running("low", 2)
    queue.submit("high", 3, priority=10)
    queue.await_running("high", 3)
    queue.await_stopped("low")
    queue.await_reason("low", "waits for capacity")
    queue.finish("high")
    queue.await_running("low", 2)
    assert queue.jobs.status("low").get("restarts", 0) == 0


def test_a_suspended_job_gives_its_quota_back_and_queues_again_when_it_is_resumed(queue: Queue) -> None:
    queue.submit("first", 2)
    queue.await_running("first", 2)
    queue.suspend("first", True)
    queue.await_stopped("first")
    eventually(lambda: queue.used() == "0", period=PERIOD_SECONDS)
    queue.submit("second", 3)
    queue.await_running("second", 3)
    queue.suspend("first", False)
    queue.await_reason("first", "waits for capacity")
    queue.finish("second")
    queue.await_running("first", 2)


def test_a_queue_that_is_drained_stops_its_jobs_and_starts_them_again_later(queue: Queue) -> None:
    queue.submit("first", 2)
    queue.await_running("first", 2)
    queue.api.patch(queue.path, {"spec": {"stopPolicy": "HoldAndDrain"}})
    queue.await_stopped("first")
    eventually(lambda: queue.used() == "0", period=PERIOD_SECONDS)
    queue.api.patch(queue.path, {"spec": {"stopPolicy": "None"}})
    queue.await_running("first", 2)


def test_an_admitted_job_whose_pods_find_no_node_says_why(queue: Queue) -> None:
    node = f"/api/v1/nodes/{NODE}"
    queue.api.patch(node, {"spec": {"unschedulable": True}})
    try:
        queue.submit("first", 2)
        queue.await_reason("first", "waits for capacity", "nodes are available")
        assert condition(queue.jobs.status("first"), "Scheduled")["reason"] == "WaitingForCapacity"
    finally:
        queue.api.patch(node, {"spec": {"unschedulable": None}})
    queue.await_running("first", 2)


def test_where_kueue_manages_all_jobs_the_controller_gives_way_and_names_it(queue: Queue, any_kueue: Kueue) -> None:
    any_kueue.run_with({"manageJobsWithoutQueueName": True})
    with watching_pods(queue.api, queue.namespace) as seen:
        started = time.monotonic()
        retried(lambda: queue.submit("first", 2))
        words = queue.await_reason("first", "keeps suspending Job", "externalFrameworks")
        assert condition(queue.jobs.status("first"), "ChangesReverted")["status"] == "True"
        assert "another client (kueue)" in words
        eventually(lambda: time.monotonic() > started + FIGHT_SECONDS, FIGHT_SECONDS, 1.0)
        assert len(seen.pods) <= 2 * MAX_ROUNDS
    events = [each for each in queue.jobs.events() if each["reason"] == "ChangeReverted"]
    assert len(events) == 1


def test_with_its_kinds_as_external_frameworks_kueue_leaves_the_children_alone(queue: Queue, any_kueue: Kueue) -> None:
    integrations = {"frameworks": ["batch/job"], "externalFrameworks": EXTERNAL}
    any_kueue.run_with({"manageJobsWithoutQueueName": True, "integrations": integrations})
    retried(lambda: queue.submit("first", 2))
    queue.await_running("first", 2)
    assert condition(queue.jobs.status("first"), "ChangesReverted") == {"status": "absent"}
    queue.finish("first")
