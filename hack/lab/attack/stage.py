"""The test environment: a control plane with fake nodes; controller, gang scheduler and its kube-scheduler as shipped,
and the dashboard.

Both programs use leader election with default times, and have the rights and priority of a service account at the API
server. The extender serves TLS, since only then can a tenant reach its port. The hostile namespace has the quota that
docs/security.md requires: half of the cluster. The API server processes one write of each tenant at a time, as
docs/security.md recommends.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab.attack.victim import RUN_SECONDS
from lab.clusters import fake_cluster
from lab.command import wait
from lab.leases import lease_path
from lab.programs import CONTROLLER_LEASE, GANG_LEASE, GANG_LEASE_FLAGS, LEADER_ELECTION
from localcluster import ports, process
from localcluster.api import Api
from localcluster.certificates import of_loopback
from localcluster.controlplane import ControlPlane
from localcluster.errors import LocalClusterError
from localcluster.extender import extender_beside
from localcluster.fakekubelet import by_annotations
from localcluster.gangscheduler import GangScheduler
from localcluster.ourprogram import METRICS, PROBES, OurProgram
from localcluster.podstatus import Outcome
from localcluster.process import Identity
from localcluster.program import HACK
from localcluster.programs import LOOPBACK, Options, User

SYSTEM, HOSTILE, OTHER = "tfjob-system", "hostile", "other"
# A job of each tenant that runs as long as the attack.
LONG = "long"
URGENT, URGENT_PRIORITY = "urgent", 1000
CPUS = 16
NODE: Mapping[str, str] = {"cpu": str(CPUS), "memory": "64Gi", "ephemeral-storage": "64Gi", "pods": "110"}
MIB = 1 << 20
# The limits of the Deployments in manifests/base.
CONTROLLER_BYTES, EXTENDER_BYTES = 512 * MIB, 1024 * MIB
# That of manifests/components/dashboard.
DASHBOARD_BYTES = 256 * MIB
CLIENT_NAME = "system:kube-scheduler"
_ROLES = HACK.parent / "manifests" / "base" / "rbac" / "user-roles.yaml"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1"
# Of 240 requests at a time the level of a tenant, with one of about 250 shares, has one.
_IN_FLIGHT = ("--max-requests-inflight=160", "--max-mutating-requests-inflight=80")
_STOP_SECONDS = 30.0

Object = dict[str, Any]
# The paths of a certificate and its key.
KeyPair = tuple[Path, Path]


def _account(namespace: str, name: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"system:serviceaccount:{namespace}:{name}", groups)


CONTROLLER_USER, EXTENDER_USER = _account(SYSTEM, "tfjob-controller"), _account(SYSTEM, "gang-scheduler")
TENANTS: Mapping[str, User] = {name: _account(name, "tenant") for name in (HOSTILE, OTHER)}


@dataclass(frozen=True, slots=True)
class Attacked:
    """A program under attack, with the ports of its servers without TLS by name, and those with TLS.

    `limit_bytes` bounds its resident set. `lease` is the path of the Lease that it holds; empty if it needs none.
    """

    name: str
    identity: Identity
    limit_bytes: int
    plain: Mapping[str, int]
    tls: Sequence[int]
    lease: str = ""

    def url(self, server: str, path: str) -> str:
        return f"http://{LOOPBACK}:{self.plain[server]}{path}"

    @property
    def is_alive(self) -> bool:
        return process.is_alive(self.identity)


@dataclass(frozen=True, slots=True)
class Stage:
    api: Api
    plane: ControlPlane
    programs: Sequence[Attacked]

    @property
    def dashboard_url(self) -> str:
        return f"https://{LOOPBACK}:{self.programs[-1].tls[0]}"


@contextlib.contextmanager
def open_stage(node_count: int) -> Iterator[Stage]:
    """Starts everything. Raises LocalClusterError."""
    users = (CONTROLLER_USER, EXTENDER_USER, *TENANTS.values())
    flags = ("--event-ttl=5m", *_IN_FLIGHT)
    options = Options(users=users, apiserver_flags=flags, unsafe_no_fsync=True, service_account_admission=True)
    nodes = tuple(f"node-{number:03d}" for number in range(node_count))
    with contextlib.ExitStack() as open_:
        plane, api = open_.enter_context(fake_cluster("attack", options, nodes, NODE, _behaviour))
        _prepare(api, node_count)
        keys = Path(open_.enter_context(tempfile.TemporaryDirectory()))
        server, client = of_loopback(keys, "extender"), of_loopback(keys, CLIENT_NAME)
        extender = open_.enter_context(_extender(plane, server, client))
        controller = open_.enter_context(_controller(plane))
        yield Stage(api, plane, (controller, extender, open_.enter_context(_dashboard(plane, server))))


def token_of(plane: ControlPlane, user: User) -> str:
    """Returns the token of a user in its kubeconfig."""
    return str(yaml.safe_load(plane.kubeconfig_of(user).read_text())["users"][0]["user"]["token"])


def tokens_of_account(api: Api, namespace: str, count: int) -> list[str]:
    """Returns new tokens of the tenant's service account, which is created."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.create(accounts, {"metadata": {"name": "tenant"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    return [str(api.create(f"{accounts}/tenant/token", request)["status"]["token"]) for _ in range(count)]


def _behaviour(pod: Object, attempt: int) -> Outcome:
    """Returns how a pod ends: those of the other tenant succeed after two seconds, others follow their annotations."""
    if (pod["metadata"].get("labels") or {}).get("train_job_name") == LONG:
        return Outcome()
    is_other = pod["metadata"]["namespace"] == OTHER
    return Outcome(after_seconds=RUN_SECONDS) if is_other else by_annotations(pod, attempt)


def _prepare(api: Api, node_count: int) -> None:
    """Creates namespaces, rights and the quota."""
    for role in yaml.safe_load_all(_ROLES.read_text()):
        api.apply(f"{_RBAC}/clusterroles/{role['metadata']['name']}", role)
    for user in (CONTROLLER_USER, EXTENDER_USER):
        body = _binding("ClusterRoleBinding", user, "cluster-admin")
        api.create(f"{_RBAC}/clusterrolebindings", body)
    for name in (SYSTEM, HOSTILE, OTHER):
        api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    for name, user in TENANTS.items():
        api.create(f"{_RBAC}/namespaces/{name}/rolebindings", _binding("RoleBinding", user, "edit"))
        _limit_requests(api, f"tenant-{name}", user)
    hard = {"requests.cpu": str(node_count * CPUS // 2), "pods": str(node_count * 50)}
    quota = {"metadata": {"name": "half"}, "spec": {"hard": hard}}
    api.create(f"/api/v1/namespaces/{HOSTILE}/resourcequotas", quota)
    # Its pods may not have the class that its Gangs name.
    api.create(_CLASSES, {"metadata": {"name": URGENT}, "value": URGENT_PRIORITY})
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": [URGENT]}
    none = {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [scope]}}
    api.create(f"/api/v1/namespaces/{HOSTILE}/resourcequotas", {"metadata": {"name": "none-urgent"}, "spec": none})


def _limit_requests(api: Api, name: str, user: User) -> None:
    """Creates the priority level of a tenant and its FlowSchema, which are those of docs/security.md."""
    queued = {"type": "Queue", "queuing": {"queues": 16, "handSize": 4, "queueLengthLimit": 50}}
    limited = {"nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "limitResponse": queued}
    level = {"metadata": {"name": name}, "spec": {"type": "Limited", "limited": limited}}
    subject = {"kind": "User", "user": {"name": user.name}}
    resources = {"apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "verbs": ["create", "update", "patch"]}
    schema = {
        "priorityLevelConfiguration": {"name": name},
        "matchingPrecedence": 1000,
        "distinguisherMethod": {"type": "ByNamespace"},
        "rules": [{"subjects": [subject], "resourceRules": [resources]}],
    }
    api.create(f"{_FLOWS}/prioritylevelconfigurations", level)
    api.create(f"{_FLOWS}/flowschemas", {"metadata": {"name": name}, "spec": schema})


def _binding(kind: str, user: User, role: str) -> Object:
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user.name}
    reference = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": role}
    name = user.name.replace(":", "-")
    return {"kind": kind, "metadata": {"name": name}, "subjects": [subject], "roleRef": reference}


@contextlib.contextmanager
def _extender(plane: ControlPlane, server: KeyPair, client: KeyPair) -> Iterator[Attacked]:
    """Runs the extender and its kube-scheduler, which acquires the Lease first."""
    flags = (
        *GANG_LEASE_FLAGS,
        f"--extender-tls-cert-file={server[0]}",
        f"--extender-tls-key-file={server[1]}",
        f"--extender-client-ca-file={client[0]}",
        "--qps=1000",
        "--preemption=on",
    )
    tls = {"caFile": str(server[0]), "certFile": str(client[0]), "keyFile": str(client[1])}
    kubeconfig = plane.kubeconfig_of(EXTENDER_USER)
    with ports.reserve(3, LOOPBACK) as (port, probes, metrics):
        more = {METRICS: metrics}
        extender = extender_beside(plane, port, probes, *flags, kubeconfig=kubeconfig, more_served=more)
        extender.start()
        try:
            url = f"https://{LOOPBACK}:{port}"
            with GangScheduler(plane, url, leader_election=LEADER_ELECTION, extender_tls=tls) as scheduler:
                extender.wait_ready()
                servers, tls_ports = {PROBES: probes, METRICS: metrics}, (port, scheduler.port)
                identity = _identity(extender)
                yield Attacked("extender", identity, EXTENDER_BYTES, servers, tls_ports, lease_path(GANG_LEASE))
        finally:
            extender.kill()


@contextlib.contextmanager
def _controller(plane: ControlPlane) -> Iterator[Attacked]:
    """Runs the controller with its progress server."""
    kubeconfig, log = plane.kubeconfig_of(CONTROLLER_USER), plane.logs / "controller.log"
    with ports.reserve(3, LOOPBACK) as (probes, metrics, reports):
        served = {PROBES: probes, METRICS: metrics}
        flags = (
            "--leader-elect=true",
            f"--leader-elect-lease-namespace={SYSTEM}",
            "--progress-server",
            f"--progress-server-bind-address={LOOPBACK}:{reports}",
            f"--progress-server-url=https://{LOOPBACK}:{reports}",
        )
        controller = OurProgram("run", kubeconfig, served, *flags, log=log, mark=plane.folder)
        controller.start()
        try:
            controller.wait_ready()
            identity, lease = _identity(controller), lease_path(CONTROLLER_LEASE, SYSTEM)
            yield Attacked("controller", identity, CONTROLLER_BYTES, served, (reports,), lease)
        finally:
            controller.end(grace_seconds=_STOP_SECONDS)


@contextlib.contextmanager
def _dashboard(plane: ControlPlane, server: KeyPair) -> Iterator[Attacked]:
    """Runs the dashboard with TLS; it has no credentials of its own."""
    cluster = yaml.safe_load(plane.kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = plane.folder / "dashboard-ca.crt"
    authority.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    with ports.reserve(2, LOOPBACK) as (port, probes):
        flags = {
            "dashboard-bind-address": f"{LOOPBACK}:{port}",
            "health-probe-bind-address": f"{LOOPBACK}:{probes}",
            "dashboard-tls-cert-file": server[0],
            "dashboard-tls-key-file": server[1],
            "api-server": cluster["server"],
            "api-server-ca-file": authority,
        }
        argv = [sys.executable, "-m", "tfjob_controller", "dashboard", *(f"--{k}={v}" for k, v in flags.items())]
        identity = process.spawn(argv, log=plane.logs / "dashboard.log", mark=plane.folder)
        try:
            wait(lambda: _is_open(port), "the dashboard did not become ready")
            yield Attacked("dashboard", identity, DASHBOARD_BYTES, {PROBES: probes}, (port,))
        finally:
            process.end([identity], grace_seconds=_STOP_SECONDS)


def _identity(program: OurProgram) -> Identity:
    if program.identity is None:
        raise LocalClusterError("a program under attack does not run")
    return program.identity


def _is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), 1.0):
        return True
    return False
