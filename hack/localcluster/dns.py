"""Runs CoreDNS for the pods of all nodes, on the machine's end of the virtual cable."""

from __future__ import annotations

from pathlib import Path

from localcluster import nodeconfig, process
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.programs import User

USER = User("localcluster:coredns")
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_RULES = [
    {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
]


def start(plane: ControlPlane, api: Api, address: str, program: Path) -> None:
    """Starts CoreDNS on port 53 of `address`; it serves once it has read the cluster's Services."""
    _allow(api)
    corefile = plane.folder / "Corefile"
    corefile.write_text(nodeconfig.corefile(address, plane.kubeconfig_of(USER)))
    argv = [str(program), "-conf", str(corefile)]
    process.spawn(argv, log=plane.logs / "coredns.log", mark=plane.folder, cwd=plane.folder)


def _allow(api: Api) -> None:
    group, name = "rbac.authorization.k8s.io", USER.name
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": _RULES}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
    }
    api.apply(f"{_RBAC}/clusterroles/{name}", role)
    api.apply(f"{_RBAC}/clusterrolebindings/{name}", binding)
