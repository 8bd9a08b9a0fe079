"""Creates a control group for each node, in every hierarchy of the machine.

cgroup v1 mounts one hierarchy per controller (`/sys/fs/cgroup/memory`, …, and `systemd` without any); the kubelet wants
its root in each of them beforehand, and in `cpuset` with processors and memory nodes filled in, or nothing can run
there. cgroup v2 has one tree, where a parent enables controllers through `cgroup.subtree_control` (written by the
kernel's documentation, not tried here).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from localcluster.errors import LocalClusterError

MOUNT = Path("/sys/fs/cgroup")
_V1_NEEDED = ("cpu", "cpuacct", "cpuset", "memory", "pids")
# The controllers that the kubelet requires in its root, if the machine has them.
_V2_CONTROLLERS = ("cpu", "cpuset", "memory", "hugetlb", "pids")
_REMOVE_SECONDS = 10.0


def is_unified() -> bool:
    return (MOUNT / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    """Returns the roots below which a group must exist, without the empty `unified` of a hybrid machine."""
    if is_unified():
        return [MOUNT]
    found = [
        path for path in sorted(MOUNT.glob("*")) if (path / "cgroup.sane_behavior").exists() and not path.is_symlink()
    ]
    missing = [name for name in _V1_NEEDED if not (MOUNT / name).is_dir()]
    if missing:
        raise LocalClusterError(
            f"this machine has no cgroup controllers {', '.join(missing)} below {MOUNT}, which real nodes need; "
            "use an existing cluster: KUBECONFIG=/path/to/kubeconfig make …"
        )
    return found


def make(group: str) -> None:
    """Creates `group` ("tfj200/1") with all its parents, so that processes can be added."""
    for root in hierarchies():
        folder = root
        for part in Path(group).parts:
            if is_unified():
                available = (folder / "cgroup.controllers").read_text().split()
                wanted = [f"+{name}" for name in _V2_CONTROLLERS if name in available]
                (folder / "cgroup.subtree_control").write_text(" ".join(wanted))
            folder = folder / part
            folder.mkdir(exist_ok=True)
            _fill_cpuset(folder)


def _fill_cpuset(folder: Path) -> None:
    for name in ("cpuset.cpus", "cpuset.mems"):
        own = folder / name
        if not is_unified() and own.exists() and not own.read_text().strip():
            own.write_text((folder.parent / name).read_text())


def processes(group: str) -> set[int]:
    """Returns the ids of all processes in the group and below it, as this machine numbers them."""
    found: set[int] = set()
    for file in (path for folder in _folders(group) for path in folder.rglob("cgroup.procs")):
        with contextlib.suppress(OSError):  # The group was just removed, or it is threaded.
            found.update(int(line) for line in file.read_text().split())
    return found


def _folders(group: str) -> list[Path]:
    """Returns the folders of the group, also in a hybrid machine's `unified`, where runc creates groups as well."""
    return [folder for root in (MOUNT, *sorted(MOUNT.glob("*"))) if (folder := root / group).is_dir()]


def remove(group: str) -> None:
    """Kills the processes of the group and removes it everywhere. Does nothing if it does not exist."""
    deadline = time.monotonic() + _REMOVE_SECONDS
    while left := _folders(group):
        for pid in processes(group):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for folder in left:
            _remove_tree(folder)
        if time.monotonic() > deadline:
            raise LocalClusterError(f"cannot remove the control group {left[0]}: it is in use")
        time.sleep(0.02)


def _remove_tree(folder: Path) -> None:
    for below, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):  # The group is busy until its last process is reaped.
            os.rmdir(below)
