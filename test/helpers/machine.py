"""The state of this machine that a stack may change, as listings that can be compared."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from localcluster import network, process

# Settings that the kubelet and kube-proxy would change for the whole machine.
_SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/rp_filter",
    "net/ipv4/conf/all/route_localnet",
)


def listing(own: network.Plan | None = None, folder: Path | None = None) -> dict[str, list[str]]:
    """Returns links, routes, mounts, control groups, packet filter rules and sysctls of the machine.

    Other stacks may start and end meanwhile, so entries with the number of another stack are left out. Entries with the
    number `own` of the stack in `folder` stay, unless another stack has taken the number since.
    """
    was_taken = own is not None and _is_taken(own, folder)
    commands = {"links": "ip -brief link", "routes": "ip route", "rules": "nft list ruleset"}
    found = {name: _lines(command.split()) for name, command in commands.items()}
    found["mounts"] = Path("/proc/self/mountinfo").read_text().splitlines()
    found["control groups"] = [str(path) for path in Path("/sys/fs/cgroup").glob("*/tfj*")]
    found["claims"] = [str(path) for path in network.CLAIMS.glob("*")]
    found["sysctls"] = [_sysctl(name) for name in _SYSCTLS]
    number = None if own is None or was_taken or _is_taken(own, folder) else own.number
    return {name: sorted(line for line in lines if _counts(line, number)) for name, lines in found.items()}


def _is_taken(plan: network.Plan, folder: Path | None) -> bool:
    """Whether another stack than that in `folder` has the number now."""
    try:
        return (plan.folder / "owner").read_text() != str(folder)
    except FileNotFoundError:
        return False


def processes(plan: network.Plan, folder: Path) -> dict[int, str]:
    """Returns all processes of the stack, also in containers: pid → command line."""
    mine = {
        os.stat(path).st_ino for path in plan.folder.glob("*") if path.name == "hub" or path.name.startswith("node-")
    }
    pids = {identity.pid for identity in process.marked(folder)}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            groups, net = (path / "cgroup").read_text(), os.stat(path / "ns/net").st_ino
        except OSError:  # it has just ended
            continue
        if f"/{plan.link}/" in groups or net in mine:
            pids.add(int(path.name))
    return {pid: command for pid in pids if (command := command_of(pid))}


def _counts(line: str, own: int | None) -> bool:
    number = re.search(r"tfj(?:ob-localcluster/)?(\d+)|10\.(2\d\d)\.", line)
    return number is None or (own is not None and str(own) in number.groups())


def _lines(argv: list[str]) -> list[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()


def _sysctl(name: str) -> str:
    path = Path("/proc/sys") / name
    return f"{name} = {path.read_text().strip() if path.exists() else 'none'}"


def command_of(pid: int) -> str:
    """Returns a process's command line; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def of_pod(uid: str) -> list[int]:
    """Returns the processes of a pod's containers on this machine, without its sandbox's."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            groups = (path / "cgroup").read_text()
        except OSError:  # it has just ended
            continue
        pid = int(path.name)
        if uid in groups.replace("_", "-") and not command_of(pid).startswith("/usr/bin/sleep infinity"):
            found.append(pid)
    return found
