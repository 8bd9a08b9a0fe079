"""The cluster of a test run: namespaces, service accounts, and statuses of pods without a kubelet."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from localcluster import podstatus, process, stack, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.errors import LocalClusterError
from localcluster.fakekubelet import make_node
from localcluster.podstatus import Outcome
from localcluster.programs import Options

__all__ = ["Cluster", "Outcome", "make_node"]

Object = dict[str, Any]

# Kinds that create pods, by the path of their group; owners come first, since they would recreate what they own.
_OWNERS = (
    ("/apis/kubeflow.org/v1alpha1", "tfjobs"),
    ("/apis/kubeflow.org/v2alpha1", "trainjobs"),
    ("/apis/batch/v1", "jobs"),
    ("/apis/scheduling.kubeflow.org/v1alpha1", "gangs"),
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster for tests. `plane` and `folder` are None where the user named an existing one by KUBECONFIG."""

    kubeconfig: Path
    api: Api
    plane: ControlPlane | None = None

    @property
    def own(self) -> ControlPlane:
        """Returns the control plane that this run started: no other one may be killed and restarted."""
        if self.plane is None:
            raise LocalClusterError("tests must not break an existing cluster")
        return self.plane

    @property
    def folder(self) -> Path:
        return self.own.folder


@contextlib.contextmanager
def own_plane(name: str, options: Options) -> Iterator[Cluster]:
    """Starts a control plane with options of its own, which ends with the block, or with this run of pytest.

    Nothing of a test has to survive a crash of the machine, so etcd does not wait for the disk.
    """
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    owner = os.getppid() if is_worker else os.getpid()
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    folder = state.stack_dir(f"{stack.TEST_PREFIX}{owner}-{worker}-{name}")
    options = dataclasses.replace(options, unsafe_no_fsync=True)
    with ControlPlane(folder, options, owner=process.identify(owner)) as plane:
        yield Cluster(plane.kubeconfig, Api.from_kubeconfig(plane.kubeconfig), plane)


def new_namespace(api: Api, prefix: str = "test") -> str:
    name = f"{prefix}-{secrets.token_hex(4)}"
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def delete_namespace(api: Api, name: str) -> None:
    """Deletes the namespace without waiting. No kubelet confirms the end of its pods, so they are removed at once."""
    api.delete(f"/api/v1/namespaces/{name}")
    api.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)


def clear_namespace(api: Api, name: str) -> None:
    """Deletes the workloads of a namespace: jobs of all kinds, Deployments, and their pods. Other objects stay.

    On a control plane that ends with the tests this replaces `delete_namespace`, which costs the server more than a
    hundred requests: the namespace controller looks for objects of every kind.
    """
    for group, plural in (*_OWNERS, ("/apis/apps/v1", "deployments"), ("/api/v1", "pods")):
        path = f"{group}/namespaces/{name}/{plural}"
        api.delete(path, gracePeriodSeconds=0, propagationPolicy="Background")


def clear_jobs(api: Api) -> None:
    """Deletes all jobs of all namespaces and their children, since those of another test use nodes and wait in queues.

    Owners are deleted before what they own, because they would recreate it.
    """
    for group, plural in (*_OWNERS, ("/api/v1", "pods")):
        for each in api.list(f"{group}/{plural}"):
            path = f"{group}/namespaces/{each['metadata']['namespace']}/{plural}/{each['metadata']['name']}"
            api.delete(path, gracePeriodSeconds=0, propagationPolicy="Background")


def clear_nodes(api: Api) -> None:
    for each in api.list("/api/v1/nodes"):
        api.delete(f"/api/v1/nodes/{each['metadata']['name']}")


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def bind_pod(api: Api, namespace: str, name: str, node: str) -> None:
    """Binds a pod to a node, as a scheduler does."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    api.create(f"{pod_path(namespace, name)}/binding", binding)


def set_pod_running(api: Api, namespace: str, name: str, pod_ip: str = "10.99.0.1") -> Object:
    """Reports the pod as Running and ready, as its kubelet would."""
    return _report(api, namespace, name, podstatus.running(api.get(pod_path(namespace, name)), pod_ip))


def set_pod_waiting(api: Api, namespace: str, name: str, reason: str, message: str = "") -> Object:
    """Reports that the pod's containers do not start, with a reason such as `ErrImagePull`."""
    return _report(api, namespace, name, podstatus.waiting(api.get(pod_path(namespace, name)), reason, message))


def set_pod_terminated(
    api: Api, namespace: str, name: str, exit_code: int = 0, reason: str = "", message: str = "", container: str = ""
) -> Object:
    """Reports that the pod's containers have ended; `message` is the termination message."""
    outcome = Outcome(exit_code=exit_code, reason=reason, message=message, container=container)
    return _report(api, namespace, name, podstatus.terminated(api.get(pod_path(namespace, name)), outcome))


def new_service_account(api: Api, namespace: str, name: str, rules: list[Object]) -> str:
    """Creates a ServiceAccount with only these rights in the whole cluster; returns a token of it.

    The ClusterRole and its binding are named after the namespace and the account; delete them with
    `delete_service_account`.
    """
    unique = f"{namespace}-{name}"
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    version = "rbac.authorization.k8s.io/v1"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    api.create_if_missing(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    role = {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": unique}, "rules": rules}
    api.apply(f"{rbac}/clusterroles/{unique}", role)
    binding = {
        "apiVersion": version,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": unique},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": unique},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    api.apply(f"{rbac}/clusterrolebindings/{unique}", binding)
    return new_token(api, namespace, name)


def delete_service_account(api: Api, namespace: str, name: str) -> None:
    for kind in ("clusterrolebindings", "clusterroles"):
        api.delete(f"/apis/rbac.authorization.k8s.io/v1/{kind}/{namespace}-{name}")


def new_token(api: Api, namespace: str, name: str) -> str:
    """Returns a token of a ServiceAccount, valid for an hour."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    answer = api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request)
    return str(answer["status"]["token"])


def write_kubeconfig(cluster: Cluster, token: str, path: Path) -> Path:
    """Writes a kubeconfig for the same cluster with another token (mode 0600)."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    context = next(entry for entry in config["contexts"] if entry["name"] == config["current-context"])["context"]
    config["contexts"] = [{"name": "token", "context": {"cluster": context["cluster"], "user": "token"}}]
    config["users"] = [{"name": "token", "user": {"token": token}}]
    config["current-context"] = "token"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path


def _report(api: Api, namespace: str, name: str, status: Object) -> Object:
    return api.patch(f"{pod_path(namespace, name)}/status", {"status": status})
