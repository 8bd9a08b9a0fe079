"""The objects for gang schedulers of other projects, on their own CRDs; the test acts as the scheduler."""

from __future__ import annotations

import contextlib
import functools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import (
    Cluster,
    delete_service_account,
    new_namespace,
    new_service_account,
    write_kubeconfig,
)
from helpers.controller import Jobs, running_controller
from helpers.docs import DOCS, shown
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.manifests import container, parameter_servers, pod_template, tfjob, workers
from helpers.playground import condition
from helpers.poll import PATIENCE_SECONDS, eventually
from helpers.renderings import named, render, render_with, template_of
from helpers.trainmanifests import trainjob
from localcluster.foreigncrds import install_foreign_crds
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.jobs.plan.podgroupbackends import BACKENDS

# What is built once, on a machine that is new and busy.
pytestmark = pytest.mark.cluster

Object = dict[str, Any]
NAME, ACCOUNT = "example-job", "tfjob-controller"
# In the order in which they make one another.
OWNERS = (("kubeflow.org/v1alpha1", "tfjobs"), ("kubeflow.org/v2alpha1", "trainjobs"), ("batch/v1", "jobs"))
QUEUES = {"volcano": "scheduling.volcano.sh/queue-name", "kueue": "kueue.x-k8s.io/queue-name"}


@pytest.fixture(scope="module")
def foreign(spare_control_plane: Cluster) -> Cluster:
    """With the CRDs of all of them, and those of this project."""
    install_foreign_crds(spare_control_plane.api)
    return spare_control_plane


Controlled = Callable[..., contextlib.AbstractContextManager["Backed"]]


Rights = Callable[[str], list[Object]]


@pytest.fixture(scope="module")
def rights(administrator: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Rights:
    """Those of the controller with the component of a backend, which gives it the flag too."""

    @functools.cache
    def of(backend: str) -> list[Object]:
        folder = tmp_path_factory.mktemp("overlay")
        rendered = render_with(administrator, folder, "standalone", f"gang-backend-{backend}")
        args = template_of(named(rendered, "Deployment", ACCOUNT))["spec"]["containers"][0]["args"]
        assert f"--gang-backend={backend}" in args
        rules: list[Object] = named(rendered, "ClusterRole", ACCOUNT)["rules"]
        return rules

    return of


@pytest.fixture
def controlled(foreign: Cluster, gang_plane: Cluster, rights: Rights, tmp_path: Path) -> Controlled:
    """A controller that has one of the backends, and no more rights than it needs for that."""

    @contextlib.contextmanager
    def run(backend: str, **options: Any) -> Iterator[Backed]:
        namespace = new_namespace(foreign.api)
        token = new_service_account(foreign.api, namespace, ACCOUNT, rights(backend))
        kubeconfig = write_kubeconfig(foreign, token, tmp_path / "kubeconfig")
        try:
            with running_controller(kubeconfig, namespace, gang_backend=backend, **options):
                yield Backed(foreign, backend, Jobs(foreign.api, namespace))
        finally:
            delete_service_account(foreign.api, namespace, ACCOUNT)
            # Another test's controller of all namespaces would make Gangs for what is left.
            for group, plural in OWNERS:
                foreign.api.delete(f"/apis/{group}/namespaces/{namespace}/{plural}", propagationPolicy="Background")

    return run


class Backed:
    """A namespace whose controller has one of the backends."""

    def __init__(self, cluster: Cluster, backend: str, jobs: Jobs) -> None:
        self.api = cluster.api
        self.backend = backend
        self.jobs = jobs
        resource = BACKENDS[backend].resource
        self.path = f"/apis/{resource.api_version}/namespaces/{jobs.namespace}/{resource.plural}"

    def submit(self, manifest: Object, queue: str = "") -> None:
        if queue:
            manifest["metadata"]["labels"] = {QUEUES[self.backend]: queue}
        self.jobs.submit(manifest)

    def groups(self) -> list[Object]:
        return self.api.list(self.path)

    def group(self, **spec: Any) -> Object:
        """The only one, once it asks for this."""

        def asks() -> Object | None:
            found = self.groups()
            return found[0] if len(found) == 1 and found[0]["spec"].items() >= spec.items() else None

        return eventually(asks) or {}

    def says(self, **status: Any) -> None:
        """The scheduler writes the group's status. Volcano's has no subresource for it."""
        part = "" if self.backend == "volcano" else "/status"
        self.api.patch(f"{self.path}/{self.group()['metadata']['name']}{part}", {"status": status})

    def await_gone(self) -> None:
        eventually(lambda: not self.groups())

    def await_pods(self, count: int) -> list[Object]:
        eventually(lambda: len(self.jobs.children("pods")) == count)
        return list(self.jobs.children("pods").values())

    def await_reason(self, *words: str, name: str = NAME) -> Object:
        eventually(
            lambda: all(word in self.jobs.status(name).get("reason", "") for word in words), PATIENCE_SECONDS, 0.05
        )
        return condition(self.jobs.status(name), "Scheduled")


def gang(*replica_specs: Object, workers_count: int = 3, **spec: Any) -> Object:
    """Workers of one CPU and 64 MiB each, and parameter servers of half a CPU."""
    template = asking(cpu="1", memory="64Mi")
    entries = replica_specs or (
        workers(workers_count, template=template),
        parameter_servers(2, template=asking(cpu="500m")),
    )
    return tfjob(*entries, **{"gang": {"enabled": True}, **spec})


def asking(**requests: str) -> Object:
    return pod_template(container(resources={"requests": requests}), restartPolicy="OnFailure")


def unready(api_condition: str, message: str, status: str = "False") -> Object:
    moment = "2026-11-22T03:00:00Z"
    return {
        "type": api_condition,
        "status": status,
        "reason": "Pending",
        "message": message,
        "lastTransitionTime": moment,
    }


def test_volcano_gets_a_pod_group_in_the_jobs_queue_and_pods_of_its_scheduler(controlled: Controlled) -> None:
    with controlled("volcano") as backed:
        spec = {"gang": {"enabled": True, "minWorkers": 2}, "priorityClassName": "high"}
        backed.api.create_if_missing(
            "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 10}
        )
        backed.submit(gang(**spec), queue="research")
        asked = {"minMember": 4, "minResources": {"cpu": "3", "memory": "128Mi"}}
        group = backed.group(**asked, queue="research", priorityClassName="high")
        assert [owner["kind"] for owner in group["metadata"]["ownerReferences"]] == ["TFJob"]
        for pod in backed.await_pods(5):
            assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == group["metadata"]["name"]
            assert (pod["spec"]["schedulerName"], pod["spec"].get("nodeName")) == ("volcano", None)
        backed.says(phase="Pending")
        backed.await_reason("the queue has not admitted it yet")
        message = "3/4 tasks in gang unschedulable: pod group is not ready"
        backed.says(phase="Inqueue", conditions=[{**unready("Unschedulable", message, "True"), "transitionID": "1"}])
        said = backed.await_reason(message)
        assert (said["status"], said["reason"]) == ("False", "WaitingForCapacity")


def test_coscheduling_gets_a_pod_group_that_follows_the_job_and_is_recreated(controlled: Controlled) -> None:
    with controlled("coscheduling", gang_scheduler_name="our-scheduler") as backed:
        backed.submit(gang(gang={"enabled": True, "timeoutSeconds": 3600}))
        asked = {"minMember": 5, "minResources": {"cpu": "4", "memory": "192Mi"}, "scheduleTimeoutSeconds": 60}
        group = backed.group(**asked)
        for pod in backed.await_pods(5):
            assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == group["metadata"]["name"]
            assert pod["spec"]["schedulerName"] == "our-scheduler"
        backed.jobs.change({"spec": {"replicaSpecs": gang(workers_count=4)["spec"]["replicaSpecs"]}})
        backed.group(minMember=6)
        backed.api.delete(f"{backed.path}/{group['metadata']['name']}")
        assert backed.group(minMember=6)["metadata"]["uid"] != group["metadata"]["uid"]
        backed.jobs.change({"spec": {"suspend": True}})
        backed.await_gone()
        backed.jobs.change({"spec": {"suspend": False}})
        backed.group(minMember=6)


def test_kueue_admits_a_job_and_evicts_it(controlled: Controlled) -> None:
    with controlled("kueue") as backed:
        backed.submit(gang(gang={"enabled": True, "priority": 7}), queue="research")
        group = backed.group(queueName="research", priority=7)
        sets = {each["name"]: each for each in group["spec"]["podSets"]}
        assert {name: each["count"] for name, each in sets.items()} == {"worker": 3, "ps": 2}
        (one,) = sets["worker"]["template"]["spec"]["containers"]
        assert one["resources"]["requests"] == {"cpu": "1", "memory": "64Mi"}
        backed.says(conditions=[unready("QuotaReserved", "insufficient unused quota for cpu in flavor default")])
        said = backed.await_reason("waits for capacity", "insufficient unused quota")
        assert said["reason"] == "WaitingForCapacity"
        assert [backed.jobs.children(kind) for kind in ("jobs", "pods")] == [{}, {}]
        backed.says(conditions=[unready("Admitted", "", "True")])
        pods = backed.await_pods(5)
        assert "kueue.x-k8s.io/queue-name" not in str(pods) + str(backed.jobs.children("jobs"))
        backed.says(conditions=[unready("Evicted", "Preempted to accommodate a higher priority Workload", "True")])
        backed.await_pods(0)
        assert all(job["spec"]["suspend"] for job in backed.jobs.children("jobs").values())
        eventually(lambda: backed.group()["metadata"]["uid"] != group["metadata"]["uid"])
        assert not backed.jobs.get()["spec"].get("suspend")
        backed.says(conditions=[unready("Admitted", "", "True")])
        backed.await_pods(5)


def test_a_train_job_is_a_gang_there_too(controlled: Controlled) -> None:
    with controlled("volcano") as backed:
        manifest = trainjob("train", 2, gang={"enabled": True})
        manifest["spec"]["trainer"]["resourcesPerNode"] = {"requests": {"cpu": "1"}}
        Jobs(backed.api, backed.jobs.namespace, TRAINJOBS).submit(manifest)
        assert backed.group()["metadata"]["ownerReferences"][0]["kind"] == "TrainJob"


def test_what_the_page_on_interop_shows_is_accepted(foreign: Cluster, controlled: Controlled) -> None:
    kueue = shown("interop.md", "ResourceFlavor", "ClusterQueue", "LocalQueue")
    (job,) = shown("interop.md", "TFJob")
    with controlled("kueue") as backed:
        for each in kueue:
            kind, group = each.manifest["kind"].lower() + "s", f"/apis/{each.manifest['apiVersion']}"
            scope = f"/namespaces/{backed.jobs.namespace}" if kind == "localqueues" else ""
            foreign.api.create_if_missing(f"{group}{scope}/{kind}", each.manifest)
        backed.jobs.submit(job.manifest)
        backed.group(queueName="research")


def test_the_overlay_of_the_page_on_interop_renders(administrator: Kubectl, tmp_path: Path) -> None:
    page = (DOCS / "interop.md").read_text("utf-8")
    text = page.partition("# kustomization.yaml\n")[2].partition("```")[0]
    (tmp_path / "kustomization.yaml").write_text(text)
    (tmp_path / "manifests").mkdir()
    for folder in MANIFESTS.iterdir():
        shutil.copytree(folder, tmp_path / "manifests" / folder.name)
    rendered = render(administrator, tmp_path)
    assert "--gang-backend=volcano" in str(named(rendered, "Deployment", ACCOUNT))
