"""Rights and policies of the components `kubeflow-trainer` and `progress-server`: they suffice, all are used, and other
writes are refused.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.auditlog import rights_log, used_rights
from helpers.cluster import Cluster, new_namespace, new_token, own_plane, set_pod_terminated
from helpers.controller import Jobs, running_controller
from helpers.kubectl import Kubectl
from helpers.kubeflowjobs import GROUP_PATH, RUNTIMES_PATH, KubeflowCluster
from helpers.kubeflowmanifests import kubeflow_runtime, kubeflow_trainjob
from helpers.playground import Playground, Script
from helpers.poll import eventually
from helpers.progressreports import Reporter
from helpers.renderings import SYSTEM, of_kind, render_with
from helpers.rights import Right, await_rights, forbidden, rights_of, without
from localcluster.api import JSON, MERGE_PATCH, Api, RefusedError
from localcluster.crds import install_crds
from localcluster.fakekubelet import FakeKubelet
from localcluster.faultproxy import FaultProxy, Reply
from localcluster.kubeflowtrainer import install_kubeflow_crds, kubeflow_runtimes
from localcluster.programs import Options
from tfjob_controller.api.common.record import RECORD_ANNOTATION
from tfjob_controller.api.kubeflowtrainer.types import KUBEFLOW_TRAINJOBS
from tfjob_controller.controller.progressserver.certificates import SECRET_NAME
from tfjob_controller.flags import BindAddress

pytestmark = pytest.mark.cluster

NAME = "tfjob-controller"
PROGRESS_ROLE = f"{NAME}-progress-server"
SECRETS = f"/api/v1/namespaces/{SYSTEM}/secrets"
# Asked for only where the admission plugin is on that `site` has.
FINALIZERS = Right("trainer.kubeflow.org", "trainjobs/finalizers", "update")
READS_CLAIM = Right("", "persistentvolumeclaims", "get")
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


@dataclass(frozen=True, slots=True)
class Site:
    """A server with the components, the account of the controller, and the log of what that account requested."""

    cluster: Cluster
    namespace: str
    token: str
    log: Path
    kubeflow_rights: frozenset[Right]
    progress_rights: frozenset[Right]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("components")
    admission = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
    with rights_log(f"system:serviceaccount:{SYSTEM}:{NAME}") as (log, flags):
        options = Options(apiserver_flags=(admission, *flags), service_account_admission=True)
        with own_plane("components", options) as cluster:
            install_crds(cluster.api)
            install_kubeflow_crds(cluster.api)
            kubectl = Kubectl(cluster.kubeconfig, folder / "cache", SYSTEM)
            rendered = render_with(kubectl, folder, "standalone", "kubeflow-trainer", "progress-server")
            shipped = [each for each in rendered if each["kind"] not in ("Deployment", "CustomResourceDefinition")]
            kubectl.must("apply", "--server-side", "-f", "-", manifest=yaml.safe_dump_all(shipped))
            kubeflow = [
                rule
                for rule in rules_of(shipped, NAME)
                if rule["apiGroups"] == ["trainer.kubeflow.org"] or rule["resources"] == ["persistentvolumeclaims"]
            ]
            progress = frozenset(rights_of(rules_of(shipped, PROGRESS_ROLE)))
            assert len(progress) == 3
            namespace, token = new_namespace(cluster.api), new_token(cluster.api, SYSTEM, NAME)
            for right in (*rights_of(kubeflow), Right("authentication.k8s.io", "tokenreviews", "create")):
                await_rights(cluster.api, token, namespace, right)
            yield Site(cluster, namespace, token, log, frozenset(rights_of(kubeflow)), progress)


def rules_of(shipped: list[Any], name: str) -> list[Any]:
    """Returns the rules of the roles of this name."""
    roles = [role for role in of_kind(shipped, "Role", "ClusterRole") if role["metadata"]["name"] == name]
    return [rule for role in roles for rule in role["rules"]]


def test_jobs_run_with_the_shipped_rights_of_which_each_is_used(site: Site, tmp_path: Path) -> None:
    api, script = site.cluster.api, Script()
    runtime = kubeflow_runtime(job_set={"volumeClaimPolicies": [{"templates": [CLAIM]}]})
    api.create(RUNTIMES_PATH, runtime)
    for each in kubeflow_runtimes():
        api.create_if_missing(RUNTIMES_PATH, each)
    with FakeKubelet(api, namespace=site.namespace, behaviour=script), FaultProxy(site.cluster.own.server) as proxy:
        # Servers before 1.34, or without a watch cache, know no streaming lists: then it takes plain ones.
        proxy.next(Reply(422, "Invalid"), path="sendInitialEvents", times=10**6)
        kubeconfig = proxy.kubeconfig(tmp_path, site.token)
        with running_controller(kubeconfig, "", kubeflow_trainer_api=True) as manager:
            cluster = KubeflowCluster(manager, Jobs(api, site.namespace, KUBEFLOW_TRAINJOBS), script)
            trial = cluster.submit(trainer={"numNodes": 2, "command": ["torchrun", "train.py"]})
            pods = trial.await_pods(2)
            trial.eventually(lambda: trial.job_status().get("ready"))
            # The policies allow the keys, the hostfile and the Service of an MPI job.
            launched = cluster.submit("deepspeed-distributed", trainer={"numNodes": 2, "command": ["mpirun", "train"]})
            launched.await_pods(2)
            assert launched.children("secrets").keys() == {f"{launched.name}-mpi-ssh-auth"}
            assert forbidden(manager) == 0
        # Another one has not created the claim, and reads that it is the job's.
        with running_controller(kubeconfig, "", kubeflow_trainer_api=True) as manager:
            eventually(lambda: READS_CLAIM in used_rights(site.log))
            for pod in pods:
                set_pod_terminated(api, site.namespace, pod["metadata"]["name"], container="node")
            trial.await_condition("Complete")
            assert forbidden(manager) == 0
            eventually(lambda: not (site.kubeflow_rights - {FINALIZERS}) - used_rights(site.log), 30, 0.2)
            # The right that only this server asks for.
            path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}"
            rules = api.get(path)["rules"]
            api.patch(path, {"rules": without(rules, FINALIZERS)})

            def is_refused() -> bool:
                cluster.submit()
                return forbidden(manager) > 0

            eventually(is_refused)
            api.patch(path, {"rules": rules})


def test_other_changes_of_a_job_are_refused(site: Site) -> None:
    jobs = f"{GROUP_PATH}/namespaces/{site.namespace}/trainjobs"
    site.cluster.api.create_if_missing(jobs, kubeflow_trainjob("other"))
    only_suspend = "the controller changes only suspend of the spec of a TrainJob"
    only_record = "the controller changes only the annotation kubeflow.org/training-status"
    with closing(site.cluster.api.as_token(site.token)) as user:
        for body, words in (
            ({"spec": {"activeDeadlineSeconds": 5}}, only_suspend),
            ({"metadata": {"labels": {"a": "b"}}}, only_record),
            ({"metadata": {"annotations": {"a": "b"}}}, only_record),
            ({"metadata": {"finalizers": ["a.io/b"]}}, only_record),
        ):
            assert words in refusal_of(user, "PATCH", f"{jobs}/other", body)
        assert "cannot delete resource" in refusal_of(user, "DELETE", f"{jobs}/other", None)


def test_what_the_controller_needs_of_a_job_is_allowed_and_so_are_its_children(site: Site) -> None:
    job = f"{GROUP_PATH}/namespaces/{site.namespace}/trainjobs"
    site.cluster.api.create_if_missing(job, kubeflow_trainjob("needs"))
    with closing(site.cluster.api.as_token(site.token)) as user:
        for body in ({"metadata": {"annotations": {RECORD_ANNOTATION: "x"}}}, {"spec": {"suspend": True}}):
            assert refusal_of(user, "PATCH", f"{job}/needs", body, is_expected=False) == ""
        stray = {"metadata": {"name": "stray"}, "spec": CLAIM["spec"]}
        claims = f"/api/v1/namespaces/{site.namespace}/persistentvolumeclaims"
        assert "the controller writes only objects whose controller is" in refusal_of(user, "POST", claims, stray)


def refusal_of(user: Api, method: str, path: str, body: Any, *, is_expected: bool = True) -> str:
    """Returns the server's refusal. A policy counts a moment after it was created, so the first writes may pass."""

    def attempt() -> str:
        content = MERGE_PATCH if method == "PATCH" else JSON
        try:
            user.request(method, path, body, query={"dryRun": "All"}, content_type=content)
        except RefusedError as failure:
            return f"{failure.status} {failure}"
        return ""

    return eventually(attempt) if is_expected else attempt()


def in_own_namespace(kubeconfig: Path) -> Path:
    """Gives the context the namespace that the controller's pod would have."""
    config = yaml.safe_load(kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = SYSTEM
    kubeconfig.write_text(yaml.safe_dump(config))
    return kubeconfig


def test_reports_are_taken_with_the_shipped_rights_of_which_each_is_used(site: Site, tmp_path: Path) -> None:
    api, script = site.cluster.api, Script()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with FakeKubelet(api, namespace=site.namespace, behaviour=script), FaultProxy(site.cluster.own.server) as proxy:
        kubeconfig = in_own_namespace(proxy.kubeconfig(tmp_path, site.token))
        with running_controller(
            kubeconfig,
            "",
            progress_server=True,
            progress_server_bind_address=BindAddress("127.0.0.1", port),
            progress_server_url=f"https://127.0.0.1:{port}",
        ) as manager:
            trial = Playground(manager, Jobs(api, site.namespace), script).new_train_trial()
            trial.train(1)
            reporter = Reporter.of(api, trial.await_running("node-0"))
            eventually(lambda: reporter.report(progressPercentage=3).code == 200)
            trial.await_status(lambda status: status.get("progress") == "3 %")
            assert forbidden(manager) == 0
    eventually(lambda: site.progress_rights <= used_rights(site.log))
    # It wrote into the Secret of the manifest, and applying that again keeps what is there.
    assert api.get(f"{SECRETS}/{SECRET_NAME}")["data"].keys() == {"ca.crt", "ca.key", "tls.crt", "tls.key"}


def test_the_policy_lets_the_controller_write_no_other_secret_there(site: Site) -> None:
    api = site.cluster.api
    api.create_if_missing(SECRETS, {"metadata": {"name": "other"}})
    role = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create", "patch"]}
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM}/roles/{PROGRESS_ROLE}"
    # More rights than it has, so that the policy decides.
    api.patch(path, {"rules": [role]})
    body = {"metadata": {"labels": {"a": "b"}}}
    with closing(api.as_token(site.token)) as user:
        eventually(lambda: "in its own namespace" in refusal_of(user, "PATCH", f"{SECRETS}/other", body))
        assert refusal_of(user, "PATCH", f"{SECRETS}/{SECRET_NAME}", body, is_expected=False) == ""


def test_under_the_certificates_name_the_controller_creates_no_secret_that_gets_a_token(site: Site) -> None:
    """It may create Secrets, and it may change this one."""
    api = site.cluster.api
    api.delete(f"{SECRETS}/{SECRET_NAME}")
    body = {
        "metadata": {"name": SECRET_NAME, "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token",
    }
    with closing(api.as_token(site.token)) as user:
        assert "in its own namespace" in refusal_of(user, "POST", SECRETS, body)
