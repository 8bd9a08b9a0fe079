"""The configuration files of a node's programs: pure functions from a `NodePlan` to text.

Paths that begin with /run belong to the node: its mount namespace has its own /run (node-init.sh).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster import network

PAUSE = "localhost/pause:latest"
DOMAIN = "cluster.local"
SOCKET = "/run/containerd/containerd.sock"
KUBELET_ROOT = "/run/node/kubelet"
CONTAINERD_ROOT = "/run/node/containerd"
# Plugins that no node here uses; each costs start-up time.
UNUSED_PLUGINS = (
    "io.containerd.snapshotter.v1.blockfile",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.erofs",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.differ.v1.erofs",
    "io.containerd.mount-handler.v1.erofs",
    "io.containerd.nri.v1.nri",
    "io.containerd.tracing.processor.v1.otlp",
    "io.containerd.internal.v1.tracing",
    "io.containerd.image-verifier.v1.bindir",
)
# Reserved for each node's own programs, and for the machine besides all nodes.
_SYSTEM_MEMORY_MIB = 256


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of the machine, and the number of nodes that share it."""

    processors: int
    memory_mib: int
    nodes: int

    def reserved(self) -> dict[str, str]:
        """Returns the capacity that a node must reserve, since each node reports that of the whole machine."""
        own_cpu = self.processors * 1000 // self.nodes
        own_memory = max(self.memory_mib // self.nodes - _SYSTEM_MEMORY_MIB, self.memory_mib // (2 * self.nodes))
        return {"cpu": f"{self.processors * 1000 - own_cpu}m", "memory": f"{self.memory_mib - own_memory}Mi"}


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The inputs of the files of one node. `folder` contains the files and the node's data, `logs` all its logs."""

    index: int
    network: network.Plan
    folder: Path
    logs: Path
    programs: Mapping[str, Path]
    # Kubeconfigs with the node's own tokens, and the authority (PEM) of the kubelet's clients.
    kubelet_config: Path
    proxy_config: Path
    client_ca: str
    capacity: Capacity
    restrict_oom_score: bool

    @property
    def name(self) -> str:
        return node_name(self.index)

    @property
    def cgroup(self) -> str:
        return f"{self.network.link}/{self.index}"


def node_name(index: int) -> str:
    return f"node-{index}"


def files(plan: NodePlan) -> dict[str, str]:
    """Returns the content of all files that a node's programs read, by file name below its folder."""
    return {
        "kubelet.json": json.dumps(kubelet(plan), indent=2),
        "kube-proxy.json": json.dumps(kube_proxy(plan), indent=2),
        "containerd.toml": containerd(plan),
        "client-ca.crt": plan.client_ca,
        "cni/pods.conflist": json.dumps(cni(plan), indent=2),
    }


def commands(plan: NodePlan) -> dict[str, list[str]]:
    """Returns the command line of each of the node's programs."""
    programs = {name: str(path) for name, path in plan.programs.items()}
    return {
        "containerd": [programs["containerd"], f"--config={plan.folder}/containerd.toml", "--log-level=info"],
        "kubelet": [
            programs["kubelet"],
            f"--config={plan.folder}/kubelet.json",
            f"--kubeconfig={plan.kubelet_config}",
            f"--hostname-override={plan.name}",
            f"--node-ip={plan.network.address(plan.index)}",
            f"--root-dir={KUBELET_ROOT}",
        ],
        "kube-proxy": [programs["kube-proxy"], f"--config={plan.folder}/kube-proxy.json"],
    }


def kubelet(plan: NodePlan) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{plan.cgroup}",
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": ["pods"],
        "systemReserved": plan.capacity.reserved(),
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "address": plan.network.address(plan.index),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{plan.folder}/client-ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [plan.network.host],
        "clusterDomain": DOMAIN,
        "resolvConf": "/run/node/resolv.conf",
        "failSwapOn": False,
        # An image that was garbage-collected could not be pulled again.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "serializeImagePulls": False,
        "nodeStatusUpdateFrequency": "5s",
        "nodeLeaseDurationSeconds": 20,
        "volumePluginDir": f"{KUBELET_ROOT}/plugins-exec",
        "podLogsDir": "/run/node/log/pods",
        "registerNode": True,
    }


def containerd(plan: NodePlan) -> str:
    """Returns config.toml, version 3; the containerd of the image store, which runs no containers, reads it too."""
    return f"""version = 3
root = "{CONTAINERD_ROOT}"
state = "/run/containerd"
disabled_plugins = {json.dumps(UNUSED_PLUGINS)}
[grpc]
address = "{SOCKET}"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
disable_apparmor = true
restrict_oom_score_adj = {str(plan.restrict_oom_score).lower()}
tolerate_missing_hugetlb_controller = true
disable_hugetlb_controller = true
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = false
BinaryName = "{plan.programs["runc"]}"
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{plan.folder}/cni/programs"]
conf_dir = "{plan.folder}/cni"
"""


def cni(plan: NodePlan) -> dict[str, Any]:
    """Returns the CNI configuration: a bridge inside the node is the pods' gateway; addresses are recorded in /run."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": "/run/node/addresses",
            "ranges": [[{"subnet": plan.network.pods(plan.index)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, portmap]}


def kube_proxy(plan: NodePlan) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": plan.network.whole,
        "hostnameOverride": plan.name,
        "bindAddress": plan.network.address(plan.index),
        "clientConnection": {"kubeconfig": str(plan.proxy_config)},
        # 0 leaves the kernel's connection tracking, which the machine shares, as it is.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def corefile(host: str, kubeconfig_path: Path) -> str:
    """Returns the Corefile: names of the cluster come from the API server; the answer to all others is NXDOMAIN."""
    return f"""{DOMAIN}:53 10.in-addr.arpa:53 {{
    bind {host}
    errors
    health {host}:8080
    ready {host}:8181
    kubernetes {DOMAIN} 10.in-addr.arpa {{
        kubeconfig {kubeconfig_path} local
        pods verified
        ttl 5
    }}
}}
.:53 {{
    bind {host}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""
