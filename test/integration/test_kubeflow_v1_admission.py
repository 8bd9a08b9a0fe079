"""What the policies of the component kubeflow-v1 refuse, with this project's CRDs and with upstream's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster, new_namespace, own_plane
from helpers.kubectl import Kubectl
from helpers.policies import attempt
from helpers.poll import eventually
from helpers.v1admission import BY_ID, CASES, VALID, AdmissionCase, containers
from helpers.v1manifests import v1_manifest, v1_replicas
from helpers.v1policies import POLICY_NAMES, apply_policies, install_own_crds
from helpers.v1world import job_path
from localcluster.api import Api
from localcluster.programs import Options
from localcluster.trainingoperator import TrainingOperator, install_v1_crds

pytestmark = pytest.mark.cluster

Object = dict[str, Any]
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
# A job that was there before the policies.
OLD = "0-old"


CRDS: dict[str, Callable[[Api], None]] = {"our CRDs": install_own_crds, "upstream's CRDs": install_v1_crds}


@dataclass(frozen=True, slots=True)
class Site:
    """An API server with the policies, as seen by its administrator."""

    cluster: Cluster
    kubectl: Kubectl
    crds: str

    def refusal(self, manifest: Object) -> str:
        """Returns the code and the text with which a new job is refused; empty if it is not."""
        path = job_path(self.kubectl.namespace, manifest["kind"])
        metadata = {"name": manifest["metadata"]["name"]}
        return attempt(self.cluster.api, "POST", path, {**manifest, "metadata": metadata}, dryRun="All")

    def create(self, kind: str, name: str, **spec: Any) -> str:
        """Creates a valid job, and returns its path."""
        path = job_path(self.kubectl.namespace, kind)
        self.cluster.api.create(path, {**v1_manifest(kind, VALID[kind], **spec), "metadata": {"name": name}})
        return f"{path}/{name}"

    def change(self, path: str, change: Object) -> str:
        return attempt(self.cluster.api, "PATCH", path, change)


@pytest.fixture(scope="module", params=CRDS)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("admission")
    with own_plane("v1admission", Options()) as cluster:
        CRDS[request.param](cluster.api)
        kubectl = Kubectl(cluster.kubeconfig, folder / "cache", new_namespace(cluster.api))
        site = Site(cluster, kubectl, request.param)
        site.create("TFJob", OLD)
        apply_policies(kubectl, folder)
        eventually(lambda: site.refusal(BY_ID["91 no worker"].manifest))
        eventually(lambda: warning_of(site, BY_ID["86 nProcPerNode"]))
        yield site


def warning_of(site: Site, case: AdmissionCase) -> str:
    """Returns what kubectl prints beside the result."""
    manifest = {**case.manifest, "metadata": {"name": case.name}}
    return site.kubectl.run("create", "--dry-run=server", "-f", "-", manifest=manifest).error


@pytest.mark.parametrize("id_", BY_ID)
def test_what_training_operator_refuses_is_refused_with_its_text(site: Site, id_: str) -> None:
    case = BY_ID[id_]
    refusal = site.refusal(case.manifest)
    if case.refusal is None:
        assert refusal == ""
    elif is_refused_before(case):
        assert refusal.startswith("422 ")
        assert ":".join(case.refusal.split(":")[:2]) in refusal
    else:
        assert refusal.startswith("403 ")
        assert f"denied request: {case.refusal} (403 Forbidden)" in refusal


def is_refused_before(case: AdmissionCase) -> bool:
    """Whether the server refuses the job before admission, by its CRD or because an object cannot have the name."""
    return case.replicas is None or not case.name[0].isalnum()


@pytest.mark.long
def test_training_operator_itself_accepts_and_refuses_the_same(tmp_path: Path) -> None:
    """Its texts have the supported values in random order, and list further problems."""
    with own_plane("v1webhooks", Options()) as cluster:
        kubectl = Kubectl(cluster.kubeconfig, tmp_path / "cache", new_namespace(cluster.api))
        operator = TrainingOperator(cluster.own, kubectl.namespace)
        operator.install()
        operator.start()
        site = Site(cluster, kubectl, "upstream's CRDs")
        refusals = {case.id: site.refusal(case.manifest) for case in CASES if not is_refused_before(case)}
        operator.stop()
    assert {id_: refusal for id_, refusal in refusals.items() if not is_as_expected(BY_ID[id_], refusal)} == {}


def is_as_expected(case: AdmissionCase, refusal: str) -> bool:
    if case.refusal is None:
        return refusal == ""
    return refusal.startswith("403 ") and case.refusal.partition(": supported values")[0] in refusal


def test_all_kinds_are_judged(site: Site) -> None:
    assert {case.kind for case in CASES if case.refusal and case.replicas is not None} == set(VALID)


def test_a_job_without_a_spec_is_refused(site: Site) -> None:
    manifest = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "test"}}
    assert "spec.tfReplicaSpecs: Required value: must be required" in site.refusal(manifest)


def test_no_type_of_replicas_is_for_the_controller_to_refuse(site: Site) -> None:
    """training-operator accepts it."""
    assert site.refusal(v1_manifest("TFJob", {})) == ""


def test_a_job_may_have_large_templates_and_many_types(site: Site) -> None:
    """The cost of an expression is limited, so a job of half a megabyte must be within the limit."""
    variables = [{"name": f"VARIABLE_{number}", "value": "x" * 80} for number in range(100)]
    sidecars = [{"name": f"sidecar-{number}", "image": "i", "env": variables} for number in range(9)]
    worker = containers({"name": "tensorflow", "image": "i", "env": variables}, *sidecars)
    assert site.refusal(v1_manifest("TFJob", {f"Type{number}": worker for number in range(5)})) == ""
    many = containers(*({"name": f"c{number}", "image": "i"} for number in range(3_000)))
    last = site.refusal(v1_manifest("TFJob", {"Worker": many}))
    assert "must have at least one container with name tensorflow" in last


@pytest.mark.parametrize("items", ["abc", [1], [{"image": "i"}], [{"name": 1, "image": "i"}], {"name": "tensorflow"}])
def test_templates_without_containers_as_such_are_refused(site: Site, items: Any) -> None:
    manifest = v1_manifest("TFJob", {"Worker": {"template": {"spec": {"containers": items}}}})
    refusal = site.refusal(manifest)
    assert refusal != ""
    if site.crds == "our CRDs":
        assert "spec.tfReplicaSpecs[Worker].template.spec.containers: expected a list of objects with names" in refusal


def test_an_update_that_is_invalid_is_refused(site: Site) -> None:
    path = site.create("PyTorchJob", "updated")
    worker = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 0}}}}
    assert "spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1" in site.change(path, worker)
    worker["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 3
    assert site.change(path, worker) == ""
    assert site.change(path, {"spec": {"runPolicy": {"suspend": True}}}) == ""


@pytest.mark.parametrize("kind", [kind for kind in VALID if kind != "JAXJob"])
def test_managed_by_cannot_change(site: Site, kind: str) -> None:
    ours, theirs = "kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"
    path = site.create(kind, "managed", runPolicy={"managedBy": ours})
    for manager, text in ((theirs, theirs), (None, "null")):
        refusal = site.change(path, {"spec": {"runPolicy": {"managedBy": manager}}})
        assert f'spec.runPolicy.managedBy: Invalid value: "{text}": field is immutable' in refusal
    unset = site.create(kind, "unmanaged")
    assert f'Invalid value: "{ours}": field is immutable' in site.change(
        unset, {"spec": {"runPolicy": {"managedBy": ours}}}
    )


def test_the_queue_of_a_gang_cannot_change(site: Site) -> None:
    path = site.create("PyTorchJob", "queued", runPolicy={"schedulingPolicy": {"queue": "a"}})
    refusal = site.change(path, {"spec": {"runPolicy": {"schedulingPolicy": {"queue": "b"}}}})
    assert "spec.runPolicy.schedulingPolicy.queue is immutable" in refusal


def test_a_job_that_was_invalid_before_can_be_labelled_and_deleted_and_its_spec_only_corrected(site: Site) -> None:
    path = job_path(site.kubectl.namespace, "TFJob", OLD)
    assert site.change(path, {"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/a"]}}) == ""
    assert "metadata.name: Invalid value" in site.change(path, {"spec": {"runPolicy": {"suspend": True}}})
    assert site.cluster.api.delete(path)
    assert site.change(path, {"metadata": {"finalizers": None}}) == ""
    assert site.cluster.api.find(path) is None


def test_a_deprecated_field_is_warned_of(site: Site) -> None:
    deprecated = "spec.elasticPolicy.nProcPerNode is deprecated, use spec.nprocPerNode instead"
    assert deprecated in warning_of(site, BY_ID["86 nProcPerNode"])
    assert warning_of(site, BY_ID["PyTorchJob valid"]) == ""


def test_the_server_finds_no_wrong_type_in_the_policies(site: Site) -> None:
    def checked() -> list[Object]:
        statuses = [site.cluster.api.get(f"{POLICIES}/{name}").get("status", {}) for name in POLICY_NAMES]
        return statuses if all("typeChecking" in status for status in statuses) else []

    assert [status["typeChecking"] for status in eventually(checked)] == [{}, {}]


def test_a_worker_of_any_restart_policy_is_left_to_the_controller(site: Site) -> None:
    assert site.refusal(v1_manifest("TFJob", {"Worker": v1_replicas("TFJob", restartPolicy="Sometimes")})) == ""
