"""The rights of users who have Kubernetes' roles view, edit or admin in one namespace, with the shipped roles.

The three are accounts with tokens, each bound in its namespace as an administrator would bind a user or a group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers import plugin as plugins
from helpers.cluster import Cluster, delete_namespace, new_namespace, new_token, write_kubeconfig
from helpers.kubectl import Answer, Kubectl
from helpers.manifests import master, tfjob, workers
from helpers.playground import Trial
from helpers.poll import eventually
from helpers.rights import RBAC, Right
from helpers.trainmanifests import trainjob
from localcluster.api import Api
from tfjob_controller.kubectl import cli
from tfjob_controller.kubectl.arguments import COMMANDS

pytestmark = pytest.mark.cluster

ROLES = VIEW, EDIT, ADMIN = "view", "edit", "admin"
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
READ, CHANGE = set(VERBS[:3]), set(VERBS[3:])
KUBEFLOW, GANGS, CORE, BATCH, RBAC_GROUP = (
    "kubeflow.org",
    "scheduling.kubeflow.org",
    "",
    "batch",
    "rbac.authorization.k8s.io",
)
# By group and resource: what each role adds to the one before. What is not named nobody may.
MAY: dict[tuple[str, str], tuple[set[str], set[str], set[str]]] = {
    (KUBEFLOW, "tfjobs"): (READ, CHANGE, set()),
    (KUBEFLOW, "tfjobs/status"): (READ, set(), {"update", "patch"}),
    (KUBEFLOW, "tfjobs/scale"): (READ, {"update", "patch"}, set()),
    (KUBEFLOW, "tfjobs/finalizers"): (set(), set(), set()),
    (KUBEFLOW, "trainjobs"): (READ, CHANGE, set()),
    (KUBEFLOW, "trainjobs/status"): (READ, set(), {"update", "patch"}),
    (KUBEFLOW, "trainjobs/scale"): (READ, {"update", "patch"}, set()),
    (KUBEFLOW, "trainjobs/finalizers"): (set(), set(), set()),
    (KUBEFLOW, "trainingruntimes"): (READ, CHANGE, set()),
    (GANGS, "gangs"): (READ, CHANGE, set()),
    (GANGS, "gangs/status"): (READ, set(), {"update", "patch"}),
    # Kubernetes' own share, as far as the plugin stands on it.
    (CORE, "pods"): (READ, CHANGE, set()),
    (CORE, "pods/log"): (READ, set(), set()),
    (CORE, "events"): (READ, CHANGE, set()),
    (BATCH, "jobs"): (READ, CHANGE, set()),
}
# In no namespace, so that a role in one gives nothing.
CLUSTER_WIDE = ((KUBEFLOW, "clustertrainingruntimes"), (CORE, "nodes"))

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class People:
    """Their tokens, by role; the namespace in which they have it, and one in which they have nothing."""

    cluster: Cluster
    kubectl: Kubectl
    tokens: dict[str, str]
    namespace: str
    foreign: str
    folder: Path

    def kubeconfig(self, role: str) -> Path:
        return write_kubeconfig(self.cluster, self.tokens[role], self.folder / role)

    def run(self, role: str, *arguments: str, manifest: Object | None = None) -> Answer:
        """kubectl as that person, in their namespace."""
        mine = Kubectl(self.kubeconfig(role), self.kubectl.cache, self.namespace)
        return mine.run(*arguments, manifest=manifest)

    def rights(self, role: str, group: str, resource: str, namespace: str) -> set[str]:
        """The verbs that the server allows; in the namespace "": on all of them, or on what is in none."""
        user = self.cluster.api.as_token(self.tokens[role])
        try:
            return {verb for verb in VERBS if may(user, Right(group, resource, verb), namespace)}
        finally:
            user.close()


def may(user: Api, right: Right, namespace: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**attributes, "namespace": namespace}},
    }
    return bool(user.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)["status"]["allowed"])


@pytest.fixture(scope="module")
def people(
    control_plane: Cluster, administrator: Kubectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[People]:
    """As soon as what is shipped counts: kube-controller-manager puts the aggregated roles together."""
    api = control_plane.api
    administrator.must("apply", "--server-side", "--force-conflicts", "-f", str(RBAC / "user-roles.yaml"))
    namespace, foreign = new_namespace(api), new_namespace(api, "foreign")
    bind(administrator, namespace, namespace)
    tokens = {role: new_token(api, namespace, role) for role in ROLES}
    made = People(control_plane, administrator, tokens, namespace, foreign, tmp_path_factory.mktemp("people"))
    for role, right in zip(ROLES, ("get", "create", "get"), strict=True):
        eventually(lambda role=role, right=right: right in made.rights(role, KUBEFLOW, "tfjobs", namespace))  # type: ignore[misc] # bound now
    eventually(lambda: "patch" in made.rights(ADMIN, KUBEFLOW, "trainjobs/status", namespace))
    yield made
    for each in (namespace, foreign):
        delete_namespace(api, each)


def bind(kubectl: Kubectl, namespace: str, home: str) -> None:
    """Give the accounts of `home` their roles in the namespace, and make them where it is their home."""
    for role in ROLES:
        if namespace == home:
            kubectl.must("create", "serviceaccount", role, "--namespace", home)
        account = f"--serviceaccount={home}:{role}"
        kubectl.must("create", "rolebinding", role, f"--clusterrole={role}", account, "--namespace", namespace)


@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_what_is_meant_and_no_verb_more(people: People, role: str) -> None:
    included = ROLES.index(role) + 1
    meant = {key: set().union(*by_role[:included]) for key, by_role in MAY.items()}
    assert {key: people.rights(role, *key, people.namespace) for key in MAY} == meant


@pytest.mark.parametrize("role", ROLES)
def test_nobody_gets_anything_in_other_namespaces_or_beside_them(people: People, role: str) -> None:
    for namespace in (people.foreign, ""):
        assert {key: people.rights(role, *key, namespace) for key in MAY} == {key: set() for key in MAY}
    assert {key: people.rights(role, *key, "") for key in CLUSTER_WIDE} == {key: set() for key in CLUSTER_WIDE}


def test_an_editor_runs_jobs_but_writes_no_status(people: People) -> None:
    for manifest in (tfjob(master(), workers(1)), trainjob("edited", 1)):
        answer = people.run(EDIT, "create", "-f", "-", manifest=named(manifest, "edited"))
        assert answer.code == 0, answer.error
    changes = (
        ("scale", "tfjob/edited", "--replicas=2"),
        ("patch", "tfjob", "edited", "--type=merge", '-p={"spec":{"suspend":true}}'),
        ("patch", "trainjob", "edited", "--type=merge", '-p={"spec":{"suspend":true}}'),
    )
    status = ("--subresource=status", "--type=merge", '-p={"status":{"phase":"Done"}}')
    refused = [("patch", kind, "edited", *status) for kind in ("tfjob", "trainjob")]
    for arguments in changes:
        answer = people.run(EDIT, *arguments)
        assert answer.code == 0, (arguments, answer.error)
    for arguments in refused:
        assert is_refused(people.run(EDIT, *arguments)), arguments
        assert people.run(ADMIN, *arguments).code == 0, arguments
    runtime = {"apiVersion": "kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime", "metadata": {"name": "mine"}}
    for role in (EDIT, ADMIN):
        assert is_refused(people.run(role, "create", "-f", "-", manifest=runtime))
    for kind in ("tfjob", "trainjob"):
        assert people.run(EDIT, "delete", kind, "edited", "--wait=false").code == 0


def test_an_admin_passes_rights_on_but_none_that_it_has_not(people: People) -> None:
    def grant(role: str, name: str, cluster_role: str) -> Answer:
        return people.run(role, "create", "rolebinding", name, f"--clusterrole={cluster_role}", "--user=somebody")

    for shipped in ("view", "edit", "tfjob-viewer", "tfjob-editor", "tfjob-admin"):
        assert grant(ADMIN, f"passed-on-{shipped}", shipped).code == 0, shipped
    assert is_refused(grant(ADMIN, "too-much", "cluster-admin"))
    assert is_refused(grant(EDIT, "not-mine", "view"))
    everybody = ("create", "clusterrolebinding", "everywhere", "--clusterrole=tfjob-editor", "--user=somebody")
    assert is_refused(people.run(ADMIN, *everybody))


def test_a_user_with_only_the_shipped_roles_has_access_to_jobs_only(people: People) -> None:
    """Who has tfjob-editor without `edit` may not so much as see a pod; all of it comes from what is shipped."""
    rules = [
        rule
        for name in ("tfjob-viewer", "tfjob-editor", "tfjob-admin")
        for rule in people.cluster.api.get(f"/apis/{RBAC_GROUP}/v1/clusterroles/{name}")["rules"]
    ]
    assert {group for rule in rules for group in rule["apiGroups"]} == {KUBEFLOW, GANGS}
    assert {verb for rule in rules for verb in rule["verbs"]} == READ | CHANGE
    assert not any("*" in rule["resources"] for rule in rules)


@pytest.fixture
def seen(playground_viewer: Path, trial: Trial) -> tuple[Path, Trial]:
    """A job that runs, and the kubeconfig of somebody who may see it."""
    trial.submit(master(), workers(1))
    trial.await_phase("Running")
    return playground_viewer, trial


@pytest.fixture
def playground_viewer(people: People, trial: Trial) -> Iterator[Path]:
    bind_viewer = ("rolebinding", f"view-of-{people.namespace}", "--namespace", trial.namespace)
    account = f"--serviceaccount={people.namespace}:{VIEW}"
    people.kubectl.must("create", *bind_viewer, "--clusterrole=view", account)
    yield people.kubeconfig(VIEW)
    people.kubectl.must("delete", *bind_viewer)


@pytest.fixture
def quiet() -> Iterator[None]:
    """The controller's log would mix with what the plugin prints: here they share a process."""
    with plugins.quiet():
        yield


# The plugin's commands that only read, and those that change something.
READING = {
    "list": ("-o", "wide"),
    "describe": ("NAME",),
    "explain": ("NAME",),
    "wait": ("NAME", "--for=running"),
    "queue": (),
    "top": (),
}
# Reads too: what a kubelet has to answer for is tested with the log's own tests.
READING_LOGS = {"logs"}
# It has tests of its own, in a browser: test_dashboard.py.
IN_A_BROWSER = {"dashboard"}
WITHOUT_CLUSTER = {"completion"}
CHANGING = {
    "scale": ("NAME", "2"),
    "suspend": ("NAME",),
    "resume": ("NAME",),
    "delete": ("NAME",),
    "submit": ("mine", "--image=localhost/none"),
}


@pytest.mark.usefixtures("quiet")
def test_the_plugin_reads_with_a_viewers_rights_and_changes_nothing(
    seen: tuple[Path, Trial], capfd: pytest.CaptureFixture[str]
) -> None:
    kubeconfig, trial = seen
    assert READING.keys() | READING_LOGS | IN_A_BROWSER | WITHOUT_CLUSTER | CHANGING.keys() == {
        each.name for each in COMMANDS
    }

    def run(command: str, arguments: tuple[str, ...]) -> tuple[int, str, str]:
        given = [f"tfjob/{trial.name}" if each == "NAME" else each for each in arguments]
        code = cli.main([command, *given, "-n", trial.namespace, "--kubeconfig", str(kubeconfig)])
        return code, *capfd.readouterr()

    for command, arguments in READING.items():
        code, out, error = run(command, arguments)
        assert code == 0, (command, error)
        assert trial.name in out or command in ("queue", "wait"), command
        # Nodes are in no namespace: without them `top` shows what jobs hold, and says what it does not show.
        free = "Free capacity is not shown: nodes is forbidden"
        assert (error.count("\n") == 1 and error.startswith(free)) if command == "top" else "forbidden" not in error
    for command, arguments in CHANGING.items():
        if command == "resume":  # a job that is not suspended needs no change for it
            trial.change(suspend=True)
        code, _, error = run(command, arguments)
        assert (code, error.count("\n")) == (1, 1), (command, error)
        assert "ask for the role `edit` in that namespace" in error


def is_refused(answer: Answer) -> bool:
    return answer.code != 0 and "forbidden" in answer.error.lower()


def named(manifest: Object, name: str) -> Object:
    return {**manifest, "metadata": {**manifest.get("metadata", {}), "name": name}}
