"""The flags and files of each program of the control plane.

Only flags whose defaults do not suit are set here. The caller's flags come last and take precedence. No flag contains a
secret: tokens and keys are in files of mode 0600.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster.state import write_private

LOOPBACK = "127.0.0.1"
# For all four programs. With Go's default of 100, garbage collection takes a fifth of kube-apiserver's CPU; with this
# its resident set grows by about 130 MB.
ENVIRONMENT: Mapping[str, str] = {"GOGC": "400"}
ETCD = "etcd"
APISERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"

# etcd listens on a Unix socket in the private state folder: it does not authenticate clients, so a TCP port, even on
# loopback, would let every user of the machine read Secrets. It requires host:port, and creates a file of that name.
ETCD_SOCKET = "etcd-client:0"
_ETCD_PEER_SOCKET = "etcd-peer:0"
# Node controllers judge nodes by their heartbeats; without kubelets there are none, and all would be NotReady in 50 s.
_NO_HEARTBEATS = "*,-node-lifecycle-controller,-node-ipam-controller,-taint-eviction-controller"


@dataclass(frozen=True, slots=True)
class User:
    """A user with a random static token, which is written to a separate kubeconfig."""

    name: str
    groups: tuple[str, ...] = ()

    @property
    def file_name(self) -> str:
        return f"{self.name.replace(':', '-')}.kubeconfig"


ADMIN = User("admin", ("system:masters",))
# It runs all controllers as one user (--use-service-account-credentials=false), for which its own role lacks rights.
_MANAGER_USER = User("system:kube-controller-manager", ("system:masters",))
_SCHEDULER_USER = User("system:kube-scheduler")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a control plane.

    `bind_address` is the one address that kube-apiserver listens on, and that its certificate and kubeconfigs name:
    loopback, or a bridge's where nodes must reach it. `kubelets`: real nodes send heartbeats, so node life-cycle
    controllers run. Flags are passed as they are, after the ones from here. `unsafe_no_fsync` is for tests and
    benchmarks.
    """

    bind_address: str = LOOPBACK
    kubelets: bool = False
    service_cidr: str = "10.96.0.0/16"
    service_account_admission: bool = False
    users: tuple[User, ...] = ()
    apiserver_flags: tuple[str, ...] = ()
    controller_manager_flags: tuple[str, ...] = ()
    scheduler_flags: tuple[str, ...] = ()
    unsafe_no_fsync: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of a stack's files, and its ports."""

    folder: Path
    apiserver_port: int
    controller_manager_port: int
    scheduler_port: int

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def certificate(self) -> Path:
        """The API server's own certificate with its CA, which the server creates at its first start."""
        return self.pki / "apiserver.crt"

    @property
    def key(self) -> Path:
        """The API server's key. It also signs ServiceAccount tokens, since it exists early enough."""
        return self.pki / "apiserver.key"

    @property
    def users(self) -> Path:
        return self.folder / "users"

    @property
    def tokens(self) -> Path:
        return self.folder / "tokens.csv"

    @property
    def scheduler_config(self) -> Path:
        return self.folder / "scheduler.json"

    def kubeconfig_of(self, user: User) -> Path:
        return self.folder / "kubeconfig" if user == ADMIN else self.users / user.file_name


def all_users(options: Options) -> tuple[User, ...]:
    return (ADMIN, _MANAGER_USER, _SCHEDULER_USER, *options.users)


def make_tokens(layout: Layout, options: Options) -> dict[User, str]:
    """Writes the token file; returns the tokens for the kubeconfigs."""
    tokens = {user: secrets.token_urlsafe(24) for user in all_users(options)}
    rows = [f'{token},{user.name},{user.name},"{",".join(user.groups)}"\n' for user, token in tokens.items()]
    write_private(layout.tokens, "".join(rows).encode())
    return tokens


def write_kubeconfig(path: Path, server: str, certificate: Path | None = None, token: str = "") -> None:
    """Writes a self-contained kubeconfig, as JSON, which is valid YAML and needs no quoting rules."""
    trust = {"certificate-authority-data": _base64(certificate)} if certificate else {}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": {"server": server, **trust}}],
        "users": [{"name": "local", "user": {"token": token} if token else {}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
        "current-context": "local",
    }
    write_private(path, json.dumps(config, indent=2).encode() + b"\n")


def write_scheduler_config(layout: Layout) -> None:
    config: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        # The default of 50 requests/s limits the scheduler to 56 pods/s.
        "clientConnection": {
            "kubeconfig": str(layout.kubeconfig_of(_SCHEDULER_USER)),
            "qps": 5000,
            "burst": 5000,
        },
    }
    write_private(layout.scheduler_config, json.dumps(config, indent=2).encode() + b"\n")


def etcd_flags(options: Options) -> list[str]:
    """Returns etcd's flags. Paths are relative to the state folder, since a socket's path is limited to 107 bytes."""
    flags = ["--name=localcluster", "--data-dir=etcd", "--log-level=warn"]
    flags += [f"--listen-client-urls=unix://{ETCD_SOCKET}", f"--advertise-client-urls=unix://{ETCD_SOCKET}"]
    flags += [f"--listen-peer-urls=unix://{_ETCD_PEER_SOCKET}"]
    flags += [f"--initial-advertise-peer-urls=unix://{_ETCD_PEER_SOCKET}"]
    flags += [f"--initial-cluster=localcluster=unix://{_ETCD_PEER_SOCKET}"]
    # The default of 2 GiB is too small for all revisions of a benchmark's 20,000 pods and their Events.
    flags += ["--quota-backend-bytes=8589934592"]
    flags += ["--unsafe-no-fsync"] if options.unsafe_no_fsync else []
    return flags


def apiserver_flags(layout: Layout, options: Options) -> list[str]:
    flags = [f"--etcd-servers=unix://{ETCD_SOCKET}"]
    flags += [f"--bind-address={options.bind_address}", f"--advertise-address={options.bind_address}"]
    flags += [f"--secure-port={layout.apiserver_port}", f"--cert-dir={layout.pki}"]
    flags += [f"--token-auth-file={layout.tokens}", "--authorization-mode=Node,RBAC", "--allow-privileged"]
    flags += ["--service-account-issuer=https://kubernetes.default.svc.cluster.local"]
    flags += [f"--service-account-key-file={layout.key}", f"--service-account-signing-key-file={layout.key}"]
    flags += [f"--service-cluster-ip-range={options.service_cidr}"]
    if options.bind_address == LOOPBACK:
        flags += ["--endpoint-reconciler-type=none"]  # a loopback address is no valid endpoint of Service kubernetes
    if not options.service_account_admission:
        flags += ["--disable-admission-plugins=ServiceAccount"]
    return [*flags, *options.apiserver_flags]


def controller_manager_flags(layout: Layout, options: Options) -> list[str]:
    flags = [f"--kubeconfig={layout.kubeconfig_of(_MANAGER_USER)}", "--leader-elect=false"]
    flags += [f"--bind-address={LOOPBACK}", f"--secure-port={layout.controller_manager_port}"]
    flags += ["--authentication-skip-lookup", "--use-service-account-credentials=false"]
    flags += [f"--service-account-private-key-file={layout.key}", f"--root-ca-file={layout.certificate}"]
    # The default of 20 requests/s would dominate every measurement.
    flags += ["--kube-api-qps=1000", "--kube-api-burst=2000", "--concurrent-job-syncs=20"]
    flags += [] if options.kubelets else [f"--controllers={_NO_HEARTBEATS}"]
    return [*flags, *options.controller_manager_flags]


def scheduler_flags(layout: Layout, options: Options) -> list[str]:
    flags = [f"--config={layout.scheduler_config}", "--authentication-skip-lookup"]
    flags += [f"--bind-address={LOOPBACK}", f"--secure-port={layout.scheduler_port}"]
    return [*flags, *options.scheduler_flags]


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
