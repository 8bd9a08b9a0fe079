"""One real node: namespaces that isolate it like a machine, with containerd, kubelet and kube-proxy.

A node is a network namespace (localcluster.network) in which one tree of processes runs, in mount, uts, ipc and pid
namespaces of its own. The end of that tree's first process is the node's death: the kernel then kills every container
and drops every mount of it at once.

Nothing is recorded about a running node: its processes are those in its network namespace, so that
a crash of this program leaves nothing that `kill` would miss.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from localcluster import cgroups, network, nodeconfig, process
from localcluster.errors import LocalClusterError
from localcluster.imagestore import ImageStore
from localcluster.nodeconfig import NodePlan
from localcluster.process import Identity

_INIT = Path(__file__).with_name("node-init.sh")
_CNI = ("bridge", "loopback", "host-local", "portmap")
PROGRAMS = ("kubelet", "kube-proxy", "containerd", "containerd-shim-runc-v2", "ctr", "runc", *_CNI)
# The environment variables that a node's programs inherit.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CAP_SYS_RESOURCE = 24


def write(plan: NodePlan, store: ImageStore) -> None:
    """Creates the node's folder: configuration, programs, and a containerd root with the images of the store."""
    for name, text in nodeconfig.files(plan).items():
        (plan.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (plan.folder / name).write_text(text)
    for name, argv in nodeconfig.commands(plan).items():
        _write_script(plan.folder / "programs" / name, argv, _search_path(plan))
    (plan.folder / "cni/programs").mkdir()
    for name in _CNI:
        (plan.folder / "cni/programs" / name).symlink_to(plan.programs[name])
    shared = store.fill(plan.folder / "data/containerd")
    plan.logs.mkdir(parents=True, exist_ok=True)
    settings = {"NODE_NAME": plan.name, "SNAPSHOTS": store.snapshots, "SHARED": " ".join(shared), "LOGS": plan.logs}
    lines = [f"{name}={shlex.quote(str(value))}\n" for name, value in settings.items()]
    (plan.folder / "node.env").write_text("".join(lines))


def start(plan: NodePlan, count: int, mark: Path) -> None:
    """Starts the node's programs in the folder that `write` created, without waiting until they are ready."""
    cgroups.make(plan.cgroup)
    network.make_namespace(plan.network, plan.index, count)
    inside = ["nsenter", f"--net={plan.network.namespace(plan.index)}"]
    unshare = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
    first = ["tini", "--", "sh", str(_INIT), str(plan.folder)]
    process.spawn([*inside, *unshare, *first], log=plan.logs / "init.log", mark=mark, cwd=Path("/"))


def kill(plan: network.Plan, index: int, mark: Path) -> None:
    """Kills the node like a power failure: its peers receive nothing more. Its disk (its folder) remains."""
    if plan.hub.exists() and plan.namespace(index).exists():
        network.cut(plan, index)
    if left := process.end(processes(plan, index, mark)):
        raise LocalClusterError(f"processes {', '.join(str(one.pid) for one in left)} of node {index} did not end")
    cgroups.remove(f"{plan.link}/{index}")
    network.remove_namespace(plan, index)


def processes(plan: network.Plan, index: int, mark: Path) -> list[Identity]:
    """Returns the node's own processes. Containers have other network namespaces and end with these processes."""
    try:
        own = os.stat(plan.namespace(index)).st_ino
    except FileNotFoundError:
        return []
    return [identity for identity in process.marked(mark) if _namespace_of(identity, "net") == own]


def enter(plan: network.Plan, index: int, mark: Path) -> list[str] | None:
    """Returns the command prefix that runs a command in the node's mount namespace; None if the node is dead."""
    own = os.stat("/proc/self/ns/mnt").st_ino
    for identity in processes(plan, index, mark):
        if _namespace_of(identity, "mnt") != own:
            return ["nsenter", f"--target={identity.pid}", "--mount"]
    return None


def must_restrict_oom_score() -> bool:
    """Whether this machine keeps even root from making processes less likely victims (no CAP_SYS_RESOURCE)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return not int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1
    return False


def _namespace_of(identity: Identity, kind: str) -> int:
    try:
        return os.stat(f"/proc/{identity.pid}/ns/{kind}").st_ino
    except OSError:  # it ended meanwhile
        return -1


def _write_script(path: Path, argv: list[str], search_path: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\nPATH={shlex.quote(search_path)}\nexport PATH\nexec {shlex.join(argv)}\n")
    path.chmod(0o755)


def _search_path(plan: NodePlan) -> str:
    """Returns the PATH for a node's programs, to find containerd's shim and tools such as mount and nft."""
    return f"{plan.programs['containerd-shim-runc-v2'].parent}:{_PATH}"
