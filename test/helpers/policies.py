"""The shipped admission policies on a real API server, and attacks on them by the accounts of both programs.

Requests that must be refused use `dryRun`, so that they leave nothing if they are not.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from helpers.cluster import Cluster, make_node, new_namespace, new_token, own_plane
from helpers.kubectl import Kubectl
from helpers.manifests import tfjob
from helpers.poll import eventually
from helpers.renderings import SYSTEM, of_kind, render_with
from helpers.rights import Right, await_rights
from helpers.trainmanifests import trainjob
from localcluster.api import JSON, MERGE_PATCH, Api, RefusedError
from localcluster.crds import install_crds
from localcluster.foreigncrds import install_provisioning_crd
from localcluster.kubeflowtrainer import install_kubeflow_crds
from localcluster.programs import Options
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.trainjob.types import TRAINJOBS

CONTROLLER, GANG_SCHEDULER = "tfjob-controller", "gang-scheduler"
INSTALLED = (
    "Namespace",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
NODE = "node-a"
IMAGE = "localhost/none"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Site:
    """The API server as its administrator and as both programs, and a namespace for jobs."""

    cluster: Cluster
    controller: Api
    gang_scheduler: Api
    namespace: str

    @property
    def admin(self) -> Api:
        return self.cluster.api


@contextmanager
def policy_site(folder: Path, *components: str) -> Iterator[Site]:
    """Yields a server with the rights and policies of the overlay gang-scheduling and these components."""
    with own_plane("policies", Options()) as cluster:
        install_crds(cluster.api)
        install_kubeflow_crds(cluster.api)
        install_provisioning_crd(cluster.api)
        kubectl = Kubectl(cluster.kubeconfig, folder / "cache", SYSTEM)
        shipped = of_kind(render_with(kubectl, folder, "gang-scheduling", *components), *INSTALLED)
        kubectl.must("apply", "--server-side", "-f", "-", manifest=yaml.safe_dump_all(shipped))
        namespace = new_namespace(cluster.api)
        make_node(cluster.api, NODE, {"cpu": "4", "memory": "8Gi", "pods": "10"})
        cluster.api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}})
        tokens = {name: new_token(cluster.api, SYSTEM, name) for name in (CONTROLLER, GANG_SCHEDULER)}
        await_rights(cluster.api, tokens[CONTROLLER], namespace, Right("batch", "jobs", "create"))
        await_rights(cluster.api, tokens[GANG_SCHEDULER], namespace, Right("", "pods", "patch"))
        await_rights(cluster.api, tokens[GANG_SCHEDULER], namespace, Right("", "pods/status", "patch"))
        users = [cluster.api.as_token(tokens[name]) for name in (CONTROLLER, GANG_SCHEDULER)]
        yield Site(cluster, *users, namespace)
        for user in users:
            user.close()


def attempt(user: Api, method: str, path: str, body: Any = None, *, content_type: str = "", **query: str) -> str:
    """The server's refusal; empty if the write passed."""
    types = {"PATCH": MERGE_PATCH}
    try:
        user.request(method, path, body, query=query, content_type=content_type or types.get(method, JSON))
    except RefusedError as failure:
        return f"{failure.status} {failure}"
    return ""


def assert_refused(user: Api, rule: str, method: str, path: str, body: Any = None, *, content_type: str = "") -> None:
    """The refusal names the rule. A policy counts a moment after it was created, so the first writes may pass."""
    answer = eventually(lambda: attempt(user, method, path, body, content_type=content_type, dryRun="All"), 20, 0.2)
    assert answer.startswith("403 "), answer
    assert "ValidatingAdmissionPolicy" in answer
    assert rule in answer


def assert_passes(user: Api, method: str, path: str, body: Any = None, *, content_type: str = "") -> None:
    assert attempt(user, method, path, body, content_type=content_type) == ""


def new_name() -> str:
    return f"a-{secrets.token_hex(4)}"


def owned_by(kind: str, api_version: str, uid: str = "00000000-0000-0000-0000-000000000001", **more: Any) -> Object:
    owner = {"apiVersion": api_version, "kind": kind, "name": "owner", "uid": uid, "controller": True, **more}
    return {"ownerReferences": [owner]}


def job_of(site: Site, kind: str = "TFJob", namespace: str = "") -> Object:
    """The metadata of a child of a job that is there: otherwise the garbage collector deletes the child."""
    resource, manifest = (TFJOBS, tfjob()) if kind == "TFJob" else (TRAINJOBS, trainjob(new_name(), 1))
    manifest["metadata"]["name"] = new_name()
    owner = site.admin.create(resource.path(namespace or site.namespace), manifest)
    uid = owner["metadata"]["uid"]
    return owned_by(kind, owner["apiVersion"], uid, name=owner["metadata"]["name"])


def pod_template() -> Object:
    return {"spec": {"containers": [{"name": "main", "image": IMAGE}], "restartPolicy": "Never"}}


CHILDREN: dict[str, tuple[str, Object]] = {
    "jobs": ("/apis/batch/v1", {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": pod_template()}}),
    "services": (
        "/api/v1",
        {
            "apiVersion": "v1",
            "kind": "Service",
            "spec": {"clusterIP": "None", "selector": {"runtime_id": "abcd"}, "ports": [{"port": 2222}]},
        },
    ),
    "configmaps": ("/api/v1", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "y"}}),
    "secrets": (
        "/api/v1",
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/ssh-auth",
            "immutable": True,
            "data": {"ssh-privatekey": "eA=="},
        },
    ),
    "gangs": (
        "/apis/scheduling.kubeflow.org/v1alpha1",
        {
            "apiVersion": "scheduling.kubeflow.org/v1alpha1",
            "kind": "Gang",
            "spec": {"members": [{"name": "worker", "count": 1}]},
        },
    ),
}


def path_of(plural: str, namespace: str, name: str = "") -> str:
    return f"{CHILDREN[plural][0]}/namespaces/{namespace}/{plural}{f'/{name}' if name else ''}"


def child(plural: str, metadata: Object | None = None) -> Object:
    name = new_name() + {"secrets": "-mpi-ssh-auth", "services": "-abcd"}.get(plural, "")
    return {**CHILDREN[plural][1], "metadata": {"name": name, **(metadata or {})}}


def new_pod(site: Site, namespace: str = "", **metadata: Any) -> str:
    """The path of a new pod that no scheduler looks at."""
    spec = {"schedulerName": "nobody", "containers": [{"name": "main", "image": IMAGE}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": new_name(), **metadata}, "spec": spec}
    path = f"/api/v1/namespaces/{namespace or site.namespace}/pods"
    site.admin.create(path, body)
    return f"{path}/{body['metadata']['name']}"
