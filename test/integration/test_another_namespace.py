"""Two installs in one cluster, each in a namespace of its own, with the rights of its own."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.kubectl import MANIFESTS, Kubectl
from helpers.poll import eventually
from helpers.renderings import ANOTHER_NAMESPACE, JOBS, SYSTEM, named, our_own, render, render_with
from tfjob_controller.client.errors import CLUSTER_VIEWER

pytestmark = pytest.mark.cluster

# kustomize gives policies a namespace, which the API server drops.
CLUSTER_WIDE = re.compile("Namespace|Cluster.*|PriorityClass|ValidatingAdmission.*")
AGGREGATED = re.compile(r"rbac\.authorization\.(k8s\.io|kubeflow\.org)/aggregate-to-")
INSTALLS = [
    ("standalone",),
    ("gang-affinity",),
    # Every component that adds objects.
    ("ha-monitored", "dashboard", "kubeflow-trainer", "kubeflow-v1-mpi", "node-autoscaler", "progress-server"),
    ("namespaced",),
    ("namespaced", "priority-class", "network-policies", "dashboard", "kubeflow-trainer", "progress-server"),
]

Object = dict[str, Any]


def is_users(entry: Object) -> bool:
    """Whether it is a role for users, which belongs to the cluster and not to an install."""
    labels = entry["metadata"].get("labels", {})
    return entry["metadata"]["name"] == CLUSTER_VIEWER or any(map(AGGREGATED.match, labels))


def render_in(
    namespace: str, folder: Path, overlay: str, *components: str, resources: Sequence[str] = ()
) -> list[Object]:
    """Renders an overlay of a user's own, as docs/install.md describes it."""
    kubectl = Kubectl(Path(os.devnull), folder / "cache")
    render_with(kubectl, folder, overlay, *components)
    path = folder / "kustomization.yaml"
    text = yaml.safe_load(path.read_text())
    text["namespace"] = namespace
    text["resources"] += resources
    text["transformers"] = [os.path.relpath(ANOTHER_NAMESPACE.resolve(), folder.resolve())]
    path.write_text(yaml.safe_dump(text))
    return render(kubectl, folder)


def render_copy_in(namespace: str, folder: Path, *components: str) -> list[Object]:
    """Renders a copy of the overlay for one namespace, as its file describes it; the jobs are in `JOBS`-x."""
    shutil.copytree(MANIFESTS, folder / "manifests")
    copy = shutil.copytree(MANIFESTS / "overlays" / "namespaced", folder / "manifests" / "overlays" / "copy")
    for part, before, after in (("system", SYSTEM, namespace), ("jobs", JOBS, f"{JOBS}-x")):
        path = copy / part / "kustomization.yaml"
        path.write_text(path.read_text().replace(f"namespace: {before}\n", f"namespace: {after}\n"))
    path = copy / "kustomization.yaml"
    text = yaml.safe_load(path.read_text())
    text["components"] = [f"../../components/{component}" for component in components]
    text["transformers"] = ["../../transformers/another-namespace"]
    path.write_text(yaml.safe_dump(text))
    return render(Kubectl(Path(os.devnull), folder / "cache"), copy)


@pytest.mark.parametrize("install", INSTALLS, ids="+".join)
def test_an_install_in_another_namespace_names_no_object_of_the_default_one(
    tmp_path: Path, install: tuple[str, ...]
) -> None:
    overlay, *components = install
    is_copy = overlay == "namespaced"
    rendered = render_copy_in("team-x", tmp_path, *components) if is_copy else render_in("team-x", tmp_path, *install)
    text = yaml.safe_dump(rendered)
    # The class of priority and the network policy have that name too.
    assert SYSTEM not in re.sub(
        rf"(name: {SYSTEM}|ClassName: {SYSTEM}-team-x|name: {SYSTEM}-team-x)$", "", text, flags=re.MULTILINE
    )
    assert "system:serviceaccount:team-x:tfjob-controller" in text
    spaces = {entry["metadata"].get("namespace") for entry in rendered if not CLUSTER_WIDE.fullmatch(entry["kind"])}
    assert spaces == ({"team-x", f"{JOBS}-x"} if is_copy else {"team-x"})
    wide = [entry for entry in rendered if CLUSTER_WIDE.fullmatch(entry["kind"]) and not is_users(entry)]
    assert all(entry["metadata"]["name"].endswith("team-x") for entry in wide)
    names = {(entry["kind"], entry["metadata"]["name"]) for entry in wide}
    for binding in wide:
        if binding["kind"] == "ClusterRoleBinding" and not binding["roleRef"]["name"].startswith("system:"):
            assert ("ClusterRole", binding["roleRef"]["name"]) in names
        if binding["kind"] == "ValidatingAdmissionPolicyBinding":
            assert ("ValidatingAdmissionPolicy", binding["spec"]["policyName"]) in names


def test_the_roles_of_users_keep_the_names_that_messages_have(tmp_path: Path) -> None:
    rendered = render_in("team-x", tmp_path, *INSTALLS[2])
    names = {entry["metadata"]["name"] for entry in rendered if is_users(entry)}
    base = {"tfjob-viewer", "tfjob-editor", "tfjob-admin", CLUSTER_VIEWER}
    components = ("kubeflow-trainer", "kubeflow-v1")
    ours = {f"tfjob-{component}-{role}" for component in components for role in ("viewer", "editor")}
    assert names == base | ours | {f"kubeflow-training-{role}" for role in ("admin", "edit", "view")}


def test_bindings_that_an_overlay_adds_are_left_alone(tmp_path: Path) -> None:
    bindings = [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": "added"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": CLUSTER_VIEWER},
            "subjects": [
                {"kind": "Group", "name": "team", "apiGroup": "rbac.authorization.k8s.io"},
                {"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"},
                {"kind": "ServiceAccount", "name": "tfjob-controller", "namespace": "monitoring"},
            ],
        }
        for kind in ("RoleBinding", "ClusterRoleBinding")
    ]
    (tmp_path / "added.yaml").write_text(yaml.safe_dump_all(bindings))
    rendered = render_in("team-x", tmp_path, "standalone", resources=["added.yaml"])
    for binding in bindings:
        entry = named(rendered, binding["kind"], "added")
        assert (entry["roleRef"], entry["subjects"]) == (binding["roleRef"], binding["subjects"])


@pytest.fixture
def installs(administrator: Kubectl, tmp_path: Path) -> Iterator[list[str]]:
    """Two namespaces with `ha`. Both are deleted at the end, whatever is left of them."""
    namespaces = [f"install-{secrets.token_hex(4)}" for _ in range(2)]
    for namespace in namespaces:
        objects = our_own(render_in(namespace, tmp_path, "ha"))
        (tmp_path / f"{namespace}.yaml").write_text(yaml.safe_dump_all(objects))
        of_objects = replace(administrator, namespace="")
        of_objects.must("apply", "--server-side", "-f", str(tmp_path / f"{namespace}.yaml"))
    yield namespaces
    for namespace in namespaces:
        delete(administrator, tmp_path, namespace)


def delete(kubectl: Kubectl, folder: Path, namespace: str) -> None:
    path = str(folder / f"{namespace}.yaml")
    replace(kubectl, namespace="").must("delete", "--ignore-not-found", "--wait=false", "-f", path)


def may_watch(kubectl: Kubectl, namespace: str) -> bool:
    """Whether both programs of the install may watch all pods."""
    accounts = (f"system:serviceaccount:{namespace}:{name}" for name in ("tfjob-controller", "gang-scheduler"))
    asked = ("auth", "can-i", "watch", "pods", "--all-namespaces", "--as")
    return all(kubectl.run(*asked, account).code == 0 for account in accounts)


def test_deleting_one_install_leaves_the_rights_of_the_other(
    administrator: Kubectl, installs: list[str], tmp_path: Path
) -> None:
    eventually(lambda: all(may_watch(administrator, namespace) for namespace in installs))
    first, second = installs
    delete(administrator, tmp_path, second)
    eventually(lambda: not may_watch(administrator, second))
    assert may_watch(administrator, first)
    policies = administrator.must("get", "validatingadmissionpolicies,priorityclasses", "-o", "name").split()
    assert [name for name in policies if name.endswith(first)]
    assert not [name for name in policies if name.endswith(second)]
