"""MPIJobs on a real API server with the component `kubeflow-v1-mpi`: its rights suffice, all are used, and other writes
are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.auditlog import rights_log, used_rights
from helpers.cluster import Cluster, new_namespace, new_token, own_plane, set_pod_terminated, write_kubeconfig
from helpers.controller import running_controller
from helpers.kubectl import Kubectl
from helpers.policies import assert_passes, assert_refused, attempt, new_name
from helpers.poll import eventually, until
from helpers.renderings import SYSTEM, of_kind, render_with
from helpers.rights import Right, await_rights, forbidden, rights_of, without
from helpers.v1manifests import v1_manifest, v1_replicas
from localcluster.api import Api
from localcluster.crds import documents, install_crd
from localcluster.fakekubelet import FakeKubelet
from localcluster.faultproxy import FaultProxy, Reply
from localcluster.programs import Options
from tfjob_controller.api.kubeflowv1.types import MPI_JOB, TF_JOB, V1_RESOURCES

pytestmark = pytest.mark.cluster

Object = dict[str, Any]
CONTROLLER = "tfjob-controller"
CRDS = Path("manifests/base/crds-kubeflow-v1")
RBAC, RBAC_VERSION = "/apis/rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io/v1"
# The controller runs TFJobs of one version.
KINDS = (TF_JOB, MPI_JOB)
OPTIONS: Object = {"kubeflow_v1_api": KINDS, "trainjobs": False, "gang_scheduling": "off"}
GIVEN = Right("", "pods/exec", "create")
# Asked for only where the admission plugin is on that `site` has.
FINALIZERS = Right("kubeflow.org", "mpijobs/finalizers", "update")
OF_MPI = ("mpijobs", "mpijobs/status", "mpijobs/finalizers", "serviceaccounts", "roles", "rolebindings", "pods/exec")
READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}


@dataclass(frozen=True, slots=True)
class Site:
    """A server with the component, and the controller's account with what it has requested."""

    cluster: Cluster
    namespace: str
    token: str
    log: Path
    rights: frozenset[Right]

    @property
    def api(self) -> Api:
        return self.cluster.api

    def path(self, plural: str, name: str = "") -> str:
        group = RBAC if plural in ("roles", "rolebindings") else "/api/v1"
        return f"{group}/namespaces/{self.namespace}/{plural}{f'/{name}' if name else ''}"

    def submit(self, name: str, **spec: Any) -> Object:
        launcher = v1_replicas(MPI_JOB, 1, restartPolicy="ExitCode")
        manifest = v1_manifest(MPI_JOB, {"Launcher": launcher, "Worker": 2}, name, **spec)
        return self.api.create(self.job_path(), {**manifest, "metadata": {"name": name}})

    def job_path(self, name: str = "") -> str:
        path = V1_RESOURCES[MPI_JOB].path(self.namespace)
        return f"{path}/{name}" if name else path

    def conditions(self, name: str) -> list[tuple[str, str]]:
        status = self.api.get(self.job_path(name)).get("status", {})
        return [(condition["type"], condition["status"]) for condition in status.get("conditions", ())]

    def pods(self, name: str) -> list[str]:
        pods = self.api.list(self.path("pods"), f"training.kubeflow.org/job-name={name}")
        return sorted(pod["metadata"]["name"].removeprefix(f"{name}-") for pod in pods)

    def files(self, name: str) -> Object:
        files: Object = self.api.get(self.path("configmaps", f"{name}-config"))["data"]
        return files


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("mpi")
    admission = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
    with rights_log(f"system:serviceaccount:{SYSTEM}:{CONTROLLER}") as (log, flags):
        options = Options(apiserver_flags=(admission, *flags), service_account_admission=True)
        with own_plane("mpi", options) as cluster:
            for kind in KINDS:
                (crd,) = documents((CRDS / f"kubeflow.org_{V1_RESOURCES[kind].plural}.yaml").read_text())
                install_crd(cluster.api, crd)
            kubectl = Kubectl(cluster.kubeconfig, folder / "cache", SYSTEM)
            rendered = render_with(kubectl, folder, "standalone", "kubeflow-v1-mpi")
            shipped = [obj for obj in rendered if obj["kind"] not in ("Deployment", "CustomResourceDefinition")]
            kubectl.must("apply", "--server-side", "-f", "-", manifest=yaml.safe_dump_all(shipped))
            roles = [role for role in of_kind(shipped, "ClusterRole") if role["metadata"]["name"] == CONTROLLER]
            rights = rights_of([rule for role in roles for rule in role["rules"]])
            added = frozenset(right for right in rights if right.resource in OF_MPI)
            assert {right.resource for right in added} == set(OF_MPI)
            namespace, token = new_namespace(cluster.api), new_token(cluster.api, SYSTEM, CONTROLLER)
            for right in added:
                await_rights(cluster.api, token, namespace, right)
            yield Site(cluster, namespace, token, log, added)


@contextmanager
def through_proxy(site: Site, folder: Path) -> Iterator[Path]:
    """Yields the kubeconfig of a server without streaming lists, of which the controller takes plain ones."""
    with FaultProxy(site.cluster.own.server) as proxy:
        proxy.next(Reply(422, "Invalid"), path="sendInitialEvents", times=10**6)
        yield proxy.kubeconfig(folder, site.token)


def test_a_job_runs_to_its_end_with_the_shipped_rights_of_which_each_is_used(site: Site, tmp_path: Path) -> None:
    api, name = site.api, "whole"
    launcher = f"{name}-launcher"
    paths = [site.path("configmaps", f"{name}-config")]
    paths += [site.path(plural, launcher) for plural in ("serviceaccounts", "roles", "rolebindings")]
    with (
        FakeKubelet(api, namespace=site.namespace),
        through_proxy(site, tmp_path) as kubeconfig,
        running_controller(kubeconfig, "", **OPTIONS) as manager,
    ):
        site.submit(name, slotsPerWorker=2, runPolicy={"cleanPodPolicy": "All"})
        until(lambda: site.pods(name), lambda pods: pods == ["launcher", "worker-0", "worker-1"])
        until(
            lambda: site.conditions(name), lambda conditions: conditions == [("Created", "True"), ("Running", "True")]
        )
        assert api.get(site.path("pods", launcher))["spec"]["serviceAccountName"] == launcher
        assert site.files(name)["hostfile"] == f"{name}-worker-0 slots=2\n{name}-worker-1 slots=2\n"
        running = f"#!/bin/sh\necho {name}-worker-0:2\necho {name}-worker-1:2\n"
        until(lambda: site.files(name)["discover_hosts.sh"], lambda script: script == running)
        # As if training-operator had created them.
        for path in paths:
            labels = api.get(path)["metadata"]["labels"]
            api.patch(path, {"metadata": {"labels": {**dict.fromkeys(labels), "app": name}}})
            until(lambda path=path: api.get(path)["metadata"]["labels"], lambda now, labels=labels: now == labels)
        api.patch(site.job_path(name), {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 3}}}})
        until(lambda: site.pods(name), lambda pods: len(pods) == 4)
        until(
            lambda: api.get(paths[2])["rules"][1]["resourceNames"],
            lambda names: names == [f"{name}-worker-{index}" for index in range(3)],
        )
        assert len(site.files(name)["hostfile"].splitlines()) == 3
        # The restart is counted in an annotation of the job.
        first = api.get(site.path("pods", launcher))["metadata"]["uid"]
        set_pod_terminated(api, site.namespace, launcher, 137, container="mpi")
        until(
            lambda: api.find(site.path("pods", launcher)),
            lambda pod: pod is not None and pod["metadata"]["uid"] != first,
        )
        until(lambda: site.conditions(name)[-1], lambda last: last == ("Running", "True"))
        set_pod_terminated(api, site.namespace, launcher, container="mpi")
        until(lambda: site.conditions(name)[-1], lambda last: last == ("Succeeded", "True"))
        until(lambda: site.pods(name), lambda pods: pods == [])
        assert [path for path in paths if api.find(path) is None] == []
        api.patch(site.job_path(name), {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 0}}})
        eventually(lambda: api.find(site.job_path(name)) is None)
        assert forbidden(manager) == 0
        until(lambda: site.rights - {FINALIZERS, GIVEN} - used_rights(site.log), lambda unused: not unused, 30, 0.2)


@pytest.mark.parametrize("right", [GIVEN, FINALIZERS], ids=["pods/exec", "finalizers"])
def test_without_a_right_that_is_not_requested_nothing_can_be_created(site: Site, tmp_path: Path, right: Right) -> None:
    """Kubernetes refuses to give a right that one does not have."""
    path = f"{RBAC}/clusterroles/{CONTROLLER}"
    rules = site.api.get(path)["rules"]
    site.api.patch(path, {"rules": without(rules, right)})
    try:
        kubeconfig = write_kubeconfig(site.cluster, site.token, tmp_path / "kubeconfig")
        with running_controller(kubeconfig, "", **OPTIONS) as manager:
            eventually(lambda: site.submit(new_name()) and forbidden(manager) > 0)
    finally:
        site.api.patch(path, {"rules": rules})
        await_rights(site.api, site.token, site.namespace, right)


def of_launcher(site: Site, kind: str, **fields: Any) -> Object:
    """Returns an object as the controller creates it for the job `policed`, with these fields."""
    job = site.api.find(site.job_path("policed")) or site.submit("policed", runPolicy={"suspend": True})
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": MPI_JOB,
        "name": "policed",
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    version = "v1" if kind in ("ServiceAccount", "ConfigMap") else RBAC_VERSION
    name = "policed-config" if kind == "ConfigMap" else "policed-launcher"
    metadata = {"name": name, "ownerReferences": [owner], **fields.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def commands(*names: str, **fields: Any) -> Object:
    return {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"], "resourceNames": list(names), **fields}


def binding(role: str = "policed-launcher", kind: str = "Role", **subject: Any) -> Object:
    account = {"kind": "ServiceAccount", "name": "any", "namespace": "", **subject}
    return {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}, "subjects": [account]}


ONLY_NAMED = "named after the MPIJob that controls them"
ONLY_WORKERS = "the controller writes only Roles that read pods and run commands in the workers of the MPIJob"
ONLY_ITS_ROLE = "the controller writes only RoleBindings of the MPIJob's Role to an account of its namespace"


def test_only_what_a_launcher_needs_passes_the_policies(site: Site) -> None:
    accounts, roles, bindings = (site.path(plural) for plural in ("serviceaccounts", "roles", "rolebindings"))
    config_maps = site.path("configmaps")
    site.api.create(roles, {"metadata": {"name": "other"}, "rules": [READ_PODS]})
    site.api.create(f"{RBAC}/clusterroles", {"metadata": {"name": "policed-launcher"}, "rules": [READ_PODS]})
    other_owner = {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "policed", "uid": "1"}]}
    with closing(site.api.as_token(site.token)) as user:
        for path, kind, fields, rule in (
            (accounts, "ServiceAccount", {"metadata": {"name": "default-launcher"}}, ONLY_NAMED),
            (accounts, "ServiceAccount", {"metadata": other_owner}, ONLY_NAMED),
            (accounts, "ServiceAccount", {"metadata": {"annotations": {"cloud/role": "x"}}}, "annotations"),
            (accounts, "ServiceAccount", {"imagePullSecrets": [{"name": "x"}]}, "ServiceAccounts without Secrets"),
            (roles, "Role", {"rules": [READ_PODS, commands("other-worker-0")]}, ONLY_WORKERS),
            (roles, "Role", {"rules": [commands("policed-worker-x")]}, ONLY_WORKERS),
            (roles, "Role", {"rules": [commands()]}, ONLY_WORKERS),
            (roles, "Role", {"rules": [READ_PODS | {"resources": ["pods", "services"]}]}, ONLY_WORKERS),
            (roles, "Role", {"rules": [READ_PODS | {"verbs": ["delete"]}]}, ONLY_WORKERS),
            (roles, "Role", {"metadata": {"name": "x"}, "rules": [READ_PODS]}, ONLY_NAMED),
            (config_maps, "ConfigMap", {"data": {"hostfile": "", "more": ""}}, "names for the files of jobs"),
            (config_maps, "ConfigMap", {"metadata": {"name": "x-config"}}, "names for the files of jobs"),
        ):
            assert_refused(user, rule, "POST", path, of_launcher(site, kind, **fields))
        workers = commands("policed-worker-0", "policed-worker-12")
        role = of_launcher(site, "Role", rules=[READ_PODS, workers])
        for path, body in (
            (accounts, of_launcher(site, "ServiceAccount")),
            (roles, role),
            (config_maps, of_launcher(site, "ConfigMap", data={"hostfile": "a"})),
        ):
            assert_passes(user, "POST", path, body)
        for fields in (
            binding(role="other", namespace=site.namespace),
            binding(kind="ClusterRole", namespace=site.namespace),
            binding(namespace="kube-system"),
        ):
            body = of_launcher(site, "RoleBinding", **fields)
            # The server looks up what a binding gives before it asks the policies.
            until(partial(attempt, user, "POST", bindings, body, dryRun="All"), lambda answer: ONLY_ITS_ROLE in answer)
        assert_passes(user, "POST", bindings, of_launcher(site, "RoleBinding", **binding(namespace=site.namespace)))
        changed = {"data": {"hostfile": "b"}}
        assert_passes(user, "PATCH", f"{config_maps}/policed-config", changed)
        assert_passes(user, "PATCH", f"{roles}/policed-launcher", {"rules": [READ_PODS]})
        for plural, name, change, rule in (
            ("configmaps", "policed-config", {"data": {"x": "y"}}, "names for the files of jobs"),
            ("roles", "policed-launcher", {"rules": [commands()]}, ONLY_WORKERS),
            ("serviceaccounts", "policed-launcher", {"metadata": {"annotations": {"a": "b"}}}, "annotations"),
        ):
            assert_refused(user, rule, "PATCH", site.path(plural, name), change)


def test_a_pytorchjob_is_scaled_only_by_the_autoscaler_that_it_controls(site: Site) -> None:
    path, name = f"/apis/autoscaling/v2/namespaces/{site.namespace}/horizontalpodautoscalers", "policed"
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name}

    def body(target: Object) -> Object:
        metadata = {"name": name, "ownerReferences": [{**job, "uid": "1", "controller": True}]}
        return {"metadata": metadata, "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 2}}

    rule = "the controller writes only HorizontalPodAutoscalers that scale the job that controls them"
    with closing(site.api.as_token(site.token)) as user:
        for other in ({"name": "another"}, {"kind": "TFJob"}, {"apiVersion": "apps/v1", "kind": "Deployment"}):
            assert_refused(user, rule, "POST", path, body({**job, **other}))
        assert attempt(user, "POST", path, body(job), dryRun="All") == ""


def test_what_others_own_is_not_changed(site: Site) -> None:
    name = "policed-launcher"
    path = site.path("serviceaccounts", name)
    site.api.delete(path)
    site.api.create(site.path("serviceaccounts"), {"metadata": {"name": name}})
    with closing(site.api.as_token(site.token)) as user:
        assert_refused(user, ONLY_NAMED, "PATCH", path, {"metadata": {"labels": {"a": "b"}}})


def test_the_controller_does_not_use_its_right_to_run_commands(site: Site) -> None:
    spec = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "localhost/none"}]}
    site.api.create_if_missing(site.path("serviceaccounts"), {"metadata": {"name": "default"}})
    pods = site.path("pods")
    site.api.create(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "policed-worker-0"}, "spec": spec})
    with closing(site.api.as_token(site.token)) as user:
        path = f"{pods}/policed-worker-0/exec"
        eventually(lambda: "the controller runs no commands in pods" in attempt(user, "POST", path))


def test_the_server_finds_no_wrong_type_in_the_policies(site: Site) -> None:
    names = [f"tfjob-controller-kubeflow-v1-{name}" for name in ("launchers", "commands", "jobs")]
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    def checked() -> list[Object]:
        statuses = [site.api.get(f"{policies}/{name}").get("status", {}) for name in names]
        return statuses if all("typeChecking" in status for status in statuses) else []

    assert [status["typeChecking"] for status in eventually(checked)] == [{}, {}, {}]
