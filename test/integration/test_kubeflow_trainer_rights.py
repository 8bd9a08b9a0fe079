"""The rights and policies of the component `kubeflow-trainer`: they suffice, are all used, and refuse other writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.auditlog import rights_log, used_rights
from helpers.cluster import Cluster, new_namespace, new_token, own_plane, set_pod_terminated
from helpers.controller import running_controller
from helpers.kubectl import Kubectl
from helpers.kubeflowjobs import GROUP_PATH, RUNTIMES_PATH, KubeflowCluster
from helpers.kubeflowmanifests import kubeflow_runtime, kubeflow_trainjob
from helpers.playground import Script
from helpers.policies import INSTALLED
from helpers.poll import eventually
from helpers.renderings import SYSTEM, of_kind, render_with
from helpers.rights import Right, await_rights, forbidden, rights_of, without
from localcluster.api import JSON, MERGE_PATCH, Api, RefusedError
from localcluster.crds import install_crds
from localcluster.fakekubelet import FakeKubelet
from localcluster.faultproxy import FaultProxy, Reply
from localcluster.kubeflowtrainer import install_kubeflow_crds, kubeflow_runtimes
from localcluster.programs import Options
from tfjob_controller.api.kubeflowtrainer.types import RECORD_ANNOTATION

pytestmark = pytest.mark.cluster

NAME = "tfjob-controller"
# Asked for only where the admission plugin is on that `site` has.
FINALIZERS = Right("trainer.kubeflow.org", "trainjobs/finalizers", "update")
READS_CLAIM = Right("", "persistentvolumeclaims", "get")
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


@dataclass(frozen=True, slots=True)
class Site:
    """A server with the component, the account of the controller, and the log of what that account requested."""

    cluster: Cluster
    namespace: str
    token: str
    log: Path
    rights: tuple[Right, ...]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("kubeflow")
    admission = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
    with (
        rights_log(f"system:serviceaccount:{SYSTEM}:{NAME}") as (log, flags),
        own_plane("kubeflow", Options(apiserver_flags=(admission, *flags))) as cluster,
    ):
        install_crds(cluster.api)
        install_kubeflow_crds(cluster.api)
        kubectl = Kubectl(cluster.kubeconfig, folder / "cache", SYSTEM)
        shipped = of_kind(render_with(kubectl, folder, "standalone", "kubeflow-trainer"), *INSTALLED)
        kubectl.must("apply", "--server-side", "-f", "-", manifest=yaml.safe_dump_all(shipped))
        (role,) = [each for each in shipped if each["kind"] == "ClusterRole" and each["metadata"]["name"] == NAME]
        added = [rule for rule in role["rules"] if rule["apiGroups"] == ["trainer.kubeflow.org"]]
        claims = [rule for rule in role["rules"] if rule["resources"] == ["persistentvolumeclaims"]]
        namespace = new_namespace(cluster.api)
        token = new_token(cluster.api, SYSTEM, NAME)
        for right in rights_of([*added, *claims]):
            await_rights(cluster.api, token, namespace, right)
        yield Site(cluster, namespace, token, log, tuple(rights_of([*added, *claims])))


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
            cluster = KubeflowCluster(api, site.namespace, script, manager)
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
            eventually(
                lambda: not {each for each in site.rights if each != FINALIZERS} - used_rights(site.log), 30, 0.2
            )
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
