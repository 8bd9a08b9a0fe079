"""Jobs of `kubeflow.org/v1` on a real API server that has this project's CRDs of them, and none of v1alpha1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser, expect

from helpers.browser import visitor
from helpers.cluster import Cluster, new_namespace, own_plane, set_pod_terminated
from helpers.controller import running_controller
from helpers.dashboards import dashboard, faults, origin_of
from helpers.kubectl import Kubectl
from helpers.plugin import quiet, runner
from helpers.poll import until
from helpers.renderings import SYSTEM, named, of_kind, port_names, render_with, selects
from helpers.v1manifests import v1_manifest, v1_replicas
from localcluster.api import Api
from localcluster.crds import documents, install_crd
from localcluster.fakekubelet import FakeKubelet
from localcluster.programs import Options
from tfjob_controller.api.kubeflowv1.types import MPI_JOB, V1_KINDS, V1_RESOURCES
from tfjob_controller.client import Client, ClientError
from tfjob_controller.jobs.actions.children import autoscaler_digest
from tfjob_controller.kinds.kubeflowv1.kind import V1_JOB_KINDS

pytestmark = pytest.mark.cluster

Object = dict[str, Any]
CRDS = Path("manifests/base/crds-kubeflow-v1")
CONTROLLER = "tfjob-controller"
# test_kubeflow_v1_mpi.py has the other one.
KINDS = tuple(kind.resource.kind for kind in V1_JOB_KINDS if kind.resource.kind != MPI_JOB)
# Each with a type of replicas that decides, and one that does not.
TYPES = {"TFJob": ("Chief", "Worker"), "JAXJob": ("Worker", "")}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with own_plane("kubeflow-v1", Options()) as cluster, FakeKubelet(Api.from_kubeconfig(cluster.own.kubeconfig)):
        for path in sorted(CRDS.glob("*.yaml")):
            for crd in documents(path.read_text()):
                install_crd(cluster.api, crd)
        yield cluster


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    name = new_namespace(cluster.api)
    options: Object = {"kubeflow_v1_api": KINDS, "trainjobs": False, "gang_scheduling": "off"}
    with running_controller(cluster.kubeconfig, name, **options):
        yield name


class Trial:
    """A job of one kind, as its user sees it."""

    def __init__(self, api: Api, namespace: str, kind: str, name: str, replicas: Object, **spec: Any) -> None:
        self._api, self._namespace, self._kind = api, namespace, kind
        self.name = name
        manifest = v1_manifest(kind, replicas, self.name, **spec)
        manifest["metadata"] = {"name": self.name, "namespace": namespace}
        self._path = V1_RESOURCES[kind].path(namespace)
        api.create(self._path, manifest)

    def change(self, spec: Object) -> None:
        self._api.patch(f"{self._path}/{self.name}", {"spec": spec})

    def conditions(self) -> list[tuple[str, str]]:
        status = self._api.get(f"{self._path}/{self.name}").get("status", {})
        return [(condition["type"], condition["status"]) for condition in status.get("conditions", ())]

    def await_conditions(self, *expected: tuple[str, bool]) -> None:
        wanted = [(type_, str(is_true)) for type_, is_true in expected]
        until(self.conditions, lambda conditions: conditions == wanted)

    def children(self, plural: str) -> dict[str, Object]:
        """Returns the children by the end of their names."""
        path, label = f"/api/v1/namespaces/{self._namespace}/{plural}", f"training.kubeflow.org/job-name={self.name}"
        found = self._api.list(path, label)
        return {child["metadata"]["name"].removeprefix(f"{self.name}-"): child for child in found}

    def await_children(self, *replicas: str) -> None:
        for plural in ("pods", "services"):
            until(partial(self.children, plural), lambda children: sorted(children) == sorted(replicas))

    def events(self, reason: str) -> list[str]:
        """Returns the notes of the events with this reason, in their order."""
        found = self._api.list(f"/apis/events.k8s.io/v1/namespaces/{self._namespace}/events")
        own = [event for event in found if (event["reason"], event["regarding"]["name"]) == (reason, self.name)]
        return [event["note"] for event in sorted(own, key=lambda event: str(event["eventTime"]))]

    def exits(self, replica: str, exit_code: int) -> None:
        container = V1_KINDS[self._kind].container
        set_pod_terminated(self._api, self._namespace, f"{self.name}-{replica}", exit_code, container=container)


def install(api: Api, plural: str) -> None:
    for crd in documents((CRDS / f"kubeflow.org_{plural}.yaml").read_text()):
        install_crd(api, crd)


def test_a_kind_that_the_cluster_lacks_delays_no_other_and_runs_once_it_is_served(own_control_plane: Cluster) -> None:
    api = own_control_plane.api
    install(api, "pytorchjobs")
    options: Object = {"kubeflow_v1_api": ("TFJob", "PyTorchJob"), "trainjobs": False, "gang_scheduling": "off"}
    with running_controller(own_control_plane.kubeconfig, "default", ready=False, **options) as manager:
        problems = until(manager.problems, lambda problems: "does not serve" in "".join(problems))
        remedy = "check that its CRD is installed, or remove TFJob from --kubeflow-v1-api:"
        assert f"TFJob kubeflow.org/v1; {remedy}" in "".join(problems)
        Trial(api, "default", "PyTorchJob", "served", {"Master": 1}).await_children("master-0")
        (problem,) = manager.problems()
        assert problem.startswith("tfjobs.kubeflow.org-v1 not synced: ")
        install(api, "tfjobs")
        until(manager.problems, lambda problems: not problems)
        Trial(api, "default", "TFJob", "late", {"Worker": 1}).await_children("worker-0")


def test_tfjobs_of_v1_that_another_controller_runs_are_no_problem(own_control_plane: Cluster) -> None:
    api = own_control_plane.api
    install(api, "tfjobs")
    install(api, "pytorchjobs")
    options: Object = {"kubeflow_v1_api": ("PyTorchJob",), "trainjobs": False, "gang_scheduling": "off"}
    with running_controller(own_control_plane.kubeconfig, "default", **options):
        Trial(api, "default", "PyTorchJob", "alone", {"Master": 1}).await_children("master-0")


def test_tfjobs_of_v1_without_the_flag_are_named_with_it(own_control_plane: Cluster) -> None:
    install(own_control_plane.api, "tfjobs")
    options: Object = {"trainjobs": False, "gang_scheduling": "off"}
    with running_controller(own_control_plane.kubeconfig, "default", ready=False, **options) as manager:
        problems = "".join(until(manager.problems, lambda problems: "does not serve" in "".join(problems)))
    assert "TFJob kubeflow.org/v1alpha1; " in problems
    assert "or add TFJob to --kubeflow-v1-api if the CRD of this cluster has v1: " in problems


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_of_each_kind_runs_is_suspended_resumed_and_succeeds(cluster: Cluster, namespace: str, kind: str) -> None:
    decides, follows = TYPES.get(kind, ("Master", "Worker"))
    types = {decides: 1, **({follows: 2} if follows else {})}
    trial = Trial(cluster.api, namespace, kind, f"whole-{kind.lower()}", types, runPolicy={"cleanPodPolicy": "All"})
    replicas = [f"{type_.lower()}-{index}" for type_, count in types.items() for index in range(count)]
    trial.await_children(*replicas)
    trial.await_conditions(("Created", True), ("Running", True))
    trial.change({"runPolicy": {"suspend": True}})
    trial.await_children()
    trial.await_conditions(("Created", True), ("Running", False), ("Suspended", True))
    trial.change({"runPolicy": {"suspend": False}})
    trial.await_children(*replicas)
    trial.await_conditions(("Created", True), ("Suspended", False), ("Running", True))
    trial.exits(f"{decides.lower()}-0", 0)
    trial.await_conditions(("Created", True), ("Suspended", False), ("Running", False), ("Succeeded", True))
    trial.await_children()


def test_a_pod_that_a_signal_has_ended_is_replaced_and_an_error_ends_the_job(cluster: Cluster, namespace: str) -> None:
    worker = v1_replicas("TFJob", 2, restartPolicy="ExitCode")
    trial = Trial(cluster.api, namespace, "TFJob", "replaced", {"Worker": worker})
    trial.await_conditions(("Created", True), ("Running", True))
    uid = trial.children("pods")["worker-1"]["metadata"]["uid"]
    trial.exits("worker-1", 137)
    until(lambda: trial.children("pods").get("worker-1"), lambda pod: pod and pod["metadata"]["uid"] != uid)
    trial.await_conditions(("Created", True), ("Running", True))
    trial.exits("worker-1", 1)
    trial.await_conditions(("Created", True), ("Running", False), ("Failed", True))
    assert sorted(trial.children("pods")) == ["worker-0", "worker-1"]
    exits = [f"Pod: {namespace}.{trial.name}-worker-1 exited with code {code}" for code in (137, 1)]
    until(partial(trial.events, "ExitedWithCode"), lambda notes: notes == exits)


def test_kubernetes_scales_an_elastic_pytorchjob_by_its_autoscaler(cluster: Cluster, namespace: str) -> None:
    target = {"type": "AverageValue", "averageValue": "1024Mi"}
    metrics = [{"type": "Resource", "resource": {"name": "memory", "target": target}}]
    policy = {"minReplicas": 1, "maxReplicas": 3, "metrics": metrics}
    replicas = {"Worker": 1}
    suspended = {"suspend": True}
    trial = Trial(cluster.api, namespace, "PyTorchJob", "scaled", replicas, elasticPolicy=policy, runPolicy=suspended)
    trial.await_conditions(("Created", True), ("Suspended", True))
    job_path = f"{V1_RESOURCES['PyTorchJob'].path(namespace)}/{trial.name}"
    job, path = cluster.api.get(job_path), f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"

    def autoscalers() -> list[Object]:
        return [found for found in cluster.api.list(path) if found["metadata"]["name"] == trial.name]

    # As training-operator makes it.
    reference = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": trial.name}
    owner = {**reference, "uid": job["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}
    spec = {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 9}
    created = cluster.api.create(path, {"metadata": {"name": trial.name, "ownerReferences": [owner]}, "spec": spec})
    trial.change({"runPolicy": {"suspend": False}})
    (taken,) = until(autoscalers, lambda found: [each["spec"]["maxReplicas"] for each in found] == [3])
    assert taken["metadata"]["uid"] == created["metadata"]["uid"]
    assert taken["spec"]["metrics"][0]["resource"]["target"]["averageValue"] == "1Gi"
    # So the controller writes it no more.
    assert autoscaler_digest(taken["spec"]) == autoscaler_digest({"scaleTargetRef": reference, "metrics": metrics})

    cluster.api.patch(f"{job_path}/scale", {"spec": {"replicas": 3}})
    trial.await_children("worker-0", "worker-1", "worker-2")
    scale = until(lambda: cluster.api.get(f"{job_path}/scale"), lambda scale: scale["status"]["replicas"] == 3)
    selected = cluster.api.list(f"/api/v1/namespaces/{namespace}/pods", scale["status"]["selector"])
    assert len(selected) == 3

    trial.change({"runPolicy": {"suspend": True}})
    until(autoscalers, lambda found: found == [])
    trial.change({"runPolicy": {"suspend": False}})
    until(autoscalers, lambda found: [each["spec"]["maxReplicas"] for each in found] == [3])


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> list[Object]:
    folder = tmp_path_factory.mktemp("component")
    return render_with(Kubectl(cluster.kubeconfig, folder / "cache", SYSTEM), folder, "standalone", "kubeflow-v1")


def test_the_service_of_training_operator_serves_the_metrics_of_the_controller(rendered: list[Object]) -> None:
    service, deployment = named(rendered, "Service", "training-operator"), named(rendered, "Deployment", CONTROLLER)
    (port,) = service["spec"]["ports"]
    assert port["port"] == 8080
    assert port["targetPort"] in port_names(deployment)
    assert selects({"matchLabels": service["spec"]["selector"]}, deployment)


def test_the_roles_of_kubeflow_are_aggregated_and_can_be_applied_again(
    cluster: Cluster, rendered: list[Object], tmp_path: Path
) -> None:
    names = [f"kubeflow-training-{role}" for role in ("admin", "edit", "view")]
    roles = [role for role in of_kind(rendered, "ClusterRole") if role["metadata"]["name"] in names]
    kubectl = Kubectl(cluster.kubeconfig, tmp_path / "cache", SYSTEM)
    kubectl.must("apply", "--server-side", "-f", "-", manifest=yaml.safe_dump_all(roles))
    admin, edit, _ = (f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}" for name in names)
    until(lambda: cluster.api.get(admin).get("rules"), lambda rules: rules == cluster.api.get(edit)["rules"])
    kubectl.must("apply", "--server-side", "-f", "-", manifest=yaml.safe_dump_all(roles))
    assert cluster.api.get(admin)["rules"]


@pytest.mark.parametrize(("kind", "decides"), [("PyTorchJob", "Master"), ("TFJob", "Chief")])
def test_the_plugin_shows_and_changes_a_job(
    cluster: Cluster, namespace: str, kind: str, decides: str, capfd: pytest.CaptureFixture[str]
) -> None:
    types = {type_: v1_replicas(kind, count, restartPolicy="Never") for type_, count in ((decides, 1), ("Worker", 2))}
    trial = Trial(cluster.api, namespace, kind, f"shown-{kind.lower()}", types)
    job, chief = f"{kind.lower()}/{trial.name}", f"{decides.lower()}-0"
    plugin = runner(capfd, cluster.kubeconfig, namespace)
    with quiet():
        assert plugin("wait", job, "--for", "running", "--timeout", "60s") == (0, f"{job}: Running\n", "")
        _, listed, error = plugin("list", "--no-headers")
        # A column names the kind if there are jobs of several ones.
        assert [trial.name, "Running"] in [row.split()[-3:-1] for row in listed.splitlines()]
        assert error == ""
        assert f"{kind.lower()}.kubeflow.org/{trial.name}\n" in plugin("list", "-o", "name")[1]
        trial.await_children(chief, "worker-0", "worker-1")
        _, described, _ = plugin("describe", trial.name)
        rows = {row.split()[0]: row.split()[1:3] for row in described.splitlines() if row}
        assert (rows["Kind"], rows["Phase"], rows[chief]) == ([kind], ["Running"], ["Running", "yes"])
        until(lambda: plugin("describe", trial.name)[1], lambda text: "worker 2/2" in text)

        assert job in plugin("top")[1]

        assert plugin("scale", trial.name, "1") == (0, f"{job} scaled to 1 worker\n", "")
        trial.await_children(chief, "worker-0")
        assert plugin("suspend", job) == (0, f"{job} suspended\n", "")
        assert plugin("wait", job, "--for", "suspended", "--timeout", "60s")[0] == 0
        trial.await_children()
        _, explained, _ = plugin("explain", job)
        assert "now: it is suspended: spec.runPolicy.suspend is true" in explained
        assert (
            f"{job} -n {namespace}" in explained.partition("next: it runs once it is resumed: kubectl tfjob resume")[2]
        )
        assert plugin("resume", job) == (0, f"{job} resumed\n", "")
        trial.await_children(chief, "worker-0")
        assert plugin("wait", job, "--for", "running", "--timeout", "60s")[0] == 0

        trial.exits("worker-0", 1)
        trial.exits(chief, 1)
        code, _, error = plugin("wait", job, "--timeout", "60s")
        assert code == 1
        assert f"{trial.name} has failed: " in error
        _, explained, _ = plugin("explain", job)
        assert "now: it has failed: " in explained
        assert plugin("delete", job, "--wait", "--timeout", "60s") == (0, f"{job} deleted\n", "")
        assert trial.name not in plugin("list")[1]


def test_the_client_submits_a_job_and_has_its_pods_checked(cluster: Cluster, namespace: str) -> None:
    manifest = v1_manifest("PyTorchJob", {"Master": 1, "Worker": 1}, "submitted")
    manifest["metadata"] = {"name": "submitted"}
    with Client(str(cluster.kubeconfig), namespace=namespace) as client:
        assert client.submit(manifest, dry_run=True).name == "submitted"
        assert len([job for job in client.jobs() if job.name == "submitted"]) == 0
        wrong = v1_replicas("PyTorchJob", 1)
        wrong["template"]["spec"]["containers"][0]["imagePullPolicy"] = "Perhaps"
        refused = {**manifest, "spec": {"pytorchReplicaSpecs": {"Master": wrong}}}
        with pytest.raises(ClientError, match=r"refuses the pods of master: spec\.containers\[0\]\.imagePullPolicy"):
            client.submit(refused)
        job = client.submit(manifest).wait("Running", timeout_seconds=60)
        assert [row.replica for row in job.describe().replicas] == ["master-0", "worker-0"]
        job.delete(wait=True, timeout_seconds=60)


def test_the_form_of_a_new_job_offers_the_kinds_that_the_cluster_serves(cluster: Cluster, browser: Browser) -> None:
    """One API of TFJobs is served here, which has no form."""
    with dashboard(cluster.kubeconfig, "-A") as address, visitor(browser) as guest:
        guest.page.goto(address)
        guest.page.goto(f"{origin_of(address)}/new?kind=TFJob")
        kinds = guest.page.get_by_label("Kind", exact=True)
        expect(kinds).to_have_value("TrainJob")
        assert kinds.locator("option").all_text_contents() == ["TrainJob"]
        assert faults(guest.errors) == []


def test_the_dashboard_shows_and_changes_a_job(cluster: Cluster, namespace: str, browser: Browser) -> None:
    types = {"Master": 1, "Worker": 2}
    trial = Trial(cluster.api, namespace, "PyTorchJob", "seen", types, runPolicy={"cleanPodPolicy": "All"})
    other = Trial(cluster.api, namespace, "JAXJob", "other", {"Worker": 1})
    with dashboard(cluster.kubeconfig, "-A") as address, visitor(browser) as guest:
        page = guest.page
        page.goto(address)
        row = page.locator("tr", has=page.get_by_role("link", name=trial.name, exact=True))
        expect(row).to_contain_text("pytorchjob in")
        expect(row).to_contain_text("Running")
        expect(row).to_contain_text("master 1/1, worker 2/2")
        expect(page.get_by_role("link", name=other.name, exact=True)).to_be_visible()
        page.get_by_label("Kind").select_option("pytorchjob")
        expect(page.get_by_role("link", name=other.name, exact=True)).to_have_count(0)
        expect(page.get_by_text("may be out of date")).to_have_count(0)
        page.get_by_role("link", name=trial.name, exact=True).click()
        view = page.locator("#view")
        for replica in ("master-0", "worker-0", "worker-1"):
            expect(page.get_by_role("rowheader", name=replica)).to_be_visible()
            expect(page.get_by_label("Replica", exact=True).locator("option", has_text=replica)).to_have_count(1)
        expect(page.locator("#details")).to_contain_text("PyTorchJobRunning")
        expect(page.locator("#details")).to_contain_text("SuccessfulCreatePod")
        expect(page.locator(".gantt rect.running")).to_have_count(3)
        page.get_by_role("button", name="Suspend").click()
        expect(view).to_contain_text("it is suspended")
        trial.await_children()
        page.get_by_role("button", name="Resume").click()
        trial.await_children("master-0", "worker-0", "worker-1")
        page.get_by_label("Size").fill("1")
        page.get_by_role("button", name="Scale").click()
        expect(view).to_contain_text("worker 1/1")
        trial.await_children("master-0", "worker-0")
        page.once("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Delete").click()
        expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
        expect(page.get_by_role("link", name=other.name, exact=True)).to_be_visible()
        expect(page.get_by_role("link", name=trial.name, exact=True)).to_have_count(0)
        page.goto(f"{origin_of(page.url)}/cluster?namespace={namespace}")
        expect(page.get_by_role("link", name=other.name, exact=True)).to_have_attribute("href", re.compile("/jaxjob/"))
        assert faults(guest.errors) == []
