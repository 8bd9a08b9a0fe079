"""The component `progress-server`: its rights suffice and are all used, and only its own Secret may be written."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from helpers.auditlog import rights_log, used_rights
from helpers.cluster import Cluster, new_namespace, new_token, own_plane
from helpers.controller import Jobs, running_controller
from helpers.kubectl import Kubectl
from helpers.playground import Playground, Script
from helpers.poll import eventually
from helpers.progressreports import Reporter
from helpers.renderings import SYSTEM, of_kind, render_with
from helpers.rights import Right, await_rights, forbidden, rights_of
from localcluster.api import MERGE_PATCH, RefusedError
from localcluster.crds import install_crds
from localcluster.fakekubelet import FakeKubelet
from localcluster.faultproxy import FaultProxy
from localcluster.programs import Options
from tfjob_controller.controller.progressserver.certificates import SECRET_NAME
from tfjob_controller.flags import BindAddress

pytestmark = pytest.mark.cluster

NAME = "tfjob-controller"
ROLE = f"{NAME}-progress-server"
SECRETS = f"/api/v1/namespaces/{SYSTEM}/secrets"


@dataclass(frozen=True, slots=True)
class Site:
    """A server with the component, the account of the controller, and the log of what that account requested."""

    cluster: Cluster
    namespace: str
    token: str
    log: Path
    rights: frozenset[Right]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("progress")
    with rights_log(f"system:serviceaccount:{SYSTEM}:{NAME}") as (log, flags):
        options = Options(apiserver_flags=flags, service_account_admission=True)
        with own_plane("progress-rights", options) as cluster:
            install_crds(cluster.api)
            kubectl = Kubectl(cluster.kubeconfig, folder / "cache", SYSTEM)
            rendered = render_with(kubectl, folder, "standalone", "progress-server")
            shipped = [each for each in rendered if each["kind"] not in ("Deployment", "CustomResourceDefinition")]
            kubectl.must("apply", "--server-side", "-f", "-", manifest=yaml.safe_dump_all(shipped))
            roles = [each for each in of_kind(shipped, "Role", "ClusterRole") if each["metadata"]["name"] == ROLE]
            rights = frozenset(right for role in roles for right in rights_of(role["rules"]))
            assert len(rights) == 3
            namespace, token = new_namespace(cluster.api), new_token(cluster.api, SYSTEM, NAME)
            await_rights(cluster.api, token, namespace, Right("authentication.k8s.io", "tokenreviews", "create"))
            yield Site(cluster, namespace, token, log, rights)


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
    eventually(lambda: site.rights <= used_rights(site.log))
    # It wrote into the Secret of the manifest, and applying that again keeps what is there.
    assert api.get(f"{SECRETS}/{SECRET_NAME}")["data"].keys() == {"ca.crt", "ca.key", "tls.crt", "tls.key"}


def test_the_policy_lets_the_controller_write_no_other_secret_there(site: Site) -> None:
    api = site.cluster.api
    api.create_if_missing(SECRETS, {"metadata": {"name": "other"}})
    role = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create", "patch"]}
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM}/roles/{ROLE}"
    # More rights than it has, so that the policy decides.
    api.patch(path, {"rules": [role]})
    with closing(api.as_token(site.token)) as user:

        def refusal(name: str) -> str:
            body = {"metadata": {"labels": {"a": "b"}}}
            try:
                user.request("PATCH", f"{SECRETS}/{name}", body, query={"dryRun": "All"}, content_type=MERGE_PATCH)
            except RefusedError as error:
                return str(error)
            return ""

        eventually(lambda: "in its own namespace" in refusal("other"))
        assert refusal(SECRET_NAME) == ""


def test_under_the_certificates_name_the_controller_creates_no_secret_that_gets_a_token(site: Site) -> None:
    """It may create Secrets, and it may change this one."""
    api = site.cluster.api
    api.delete(f"{SECRETS}/{SECRET_NAME}")
    body = {
        "metadata": {"name": SECRET_NAME, "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token",
    }
    with closing(api.as_token(site.token)) as user:

        def refusal() -> str:
            try:
                user.request("POST", SECRETS, body, query={"dryRun": "All"})
            except RefusedError as error:
                return str(error)
            return ""

        assert "in its own namespace" in eventually(refusal)
