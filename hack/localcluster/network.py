"""The network of a stack: a bridge and one network namespace for each node, without a route to the outside.

A stack has its own /16 network with a number, which is part of the name of everything that the stack creates on the
machine, so that several stacks can run and foreign objects are never changed:

    10.N.0.1            this machine's end, the link tfjN: kube-apiserver and CoreDNS listen here
    10.N.0.(10+i)       node i, in a network namespace of its own
    10.N.i.0/24         the pods of node i
    10.N.128.0/17       Services

The bridge between them is in its own namespace too (the hub): on the machine itself, the rules of Docker or a firewall
would drop packets between nodes. Nothing is masqueraded, and the machine's ip_forward is not changed: packets are
forwarded only between the members of the bridge.

The claim of a number is a folder below /run, created atomically, which names the stack's state folder and contains the
namespaces. After a crash it shows what must be removed; a reboot removes it along with the rest. (It is not in
/run/netns, since `ip netns` would leave a mount there.)
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from localcluster.errors import LocalClusterError
from localcluster.report import Report
from localcluster.shell import attempt, run

CLAIMS = Path("/run/tfjob-localcluster")
# 10.200 and up are rarely taken by home routers, clouds' defaults or Docker (172.17 and up).
FIRST_NUMBER, LAST_NUMBER = 200, 249
# Node i's pods live in 10.N.i.0/24 and its own address is 10.N.0.(10+i).
MAX_NODES = 100

Network = ipaddress.IPv4Network


@dataclass(frozen=True, slots=True)
class Plan:
    """The names and addresses of one stack, which are derived from its number."""

    number: int

    @property
    def link(self) -> str:
        """The machine's end of the virtual cable, and the name of the stack's control group."""
        return f"tfj{self.number}"

    @property
    def folder(self) -> Path:
        return CLAIMS / str(self.number)

    @property
    def hub(self) -> Path:
        """The file that holds the bridge's network namespace."""
        return self.folder / "hub"

    @property
    def host(self) -> str:
        return f"10.{self.number}.0.1"

    @property
    def whole(self) -> str:
        return f"10.{self.number}.0.0/16"

    @property
    def services(self) -> str:
        return f"10.{self.number}.128.0/17"

    def pods(self, node: int) -> str:
        return f"10.{self.number}.{node}.0/24"

    def address(self, node: int) -> str:
        return f"10.{self.number}.0.{10 + node}"

    def namespace(self, node: int) -> Path:
        """The file that holds the node's network namespace."""
        return self.folder / f"node-{node}"


def choose(routed: Iterable[Network], claimed: Iterable[int]) -> int:
    """Returns the first number whose network overlaps no route of the machine and is not claimed by another stack."""
    taken, routes = set(claimed), list(routed)
    for number in range(FIRST_NUMBER, LAST_NUMBER + 1):
        network = Network(f"10.{number}.0.0/16")
        if number not in taken and not any(network.overlaps(route) for route in routes):
            return number
    raise LocalClusterError("no free network between 10.200.0.0/16 and 10.249.0.0/16; stop another local cluster")


def claim(state_dir: Path) -> Plan:
    """Claims a number for the stack in `state_dir`, which no other caller gets; `remove` releases it."""
    drop_dead_claims()
    lost: set[int] = set()
    while True:
        number = choose(_routes(), lost | {int(path.name) for path in CLAIMS.glob("*")})
        CLAIMS.mkdir(exist_ok=True)
        try:
            Plan(number).folder.mkdir(mode=0o700)
        except FileExistsError:
            lost.add(number)
        except FileNotFoundError:  # the last other stack has just removed the folder of claims
            continue
        else:
            (Plan(number).folder / "owner").write_text(str(state_dir))
            return Plan(number)


def drop_dead_claims() -> None:
    """Removes claims, with all that belongs to them, whose stack's state folder a user has deleted."""
    for path in list(CLAIMS.glob("*/owner")):
        if not Path(path.read_text()).is_dir():
            remove(Plan(int(path.parent.name)))


def claim_of(state_dir: Path) -> Plan | None:
    """Returns the claim of a stack, if any. The claim and not the stack's own record determines what is cleaned up."""
    for path in CLAIMS.glob("*/owner"):
        if path.read_text() == str(state_dir):
            return Plan(int(path.parent.name))
    return None


def load_kernel_module(report: Report) -> None:
    """Loads the module with which bridges pass packets to the packet filter.

    Without it, the response to a pod from a Service with an endpoint on the same node passes over the node's bridge
    without address translation.
    """
    if not Path("/proc/sys/net/bridge").exists():
        report("loading the kernel module br_netfilter, which nodes need; it stays loaded")
        run("modprobe", "br_netfilter")


def make_bridge(plan: Plan) -> None:
    """Creates the hub with its bridge, and the virtual cable from this machine to it."""
    _make_namespace(plan.hub)
    run("ip", "link", "add", plan.link, "type", "veth", "peer", "name", "host", "netns", plan.hub)
    _inside(plan.hub, "link add bridge type bridge", "link set bridge up", "link set host master bridge up")
    run("ip", "address", "add", f"{plan.host}/24", "dev", plan.link)
    run("ip", "link", "set", plan.link, "up")


def make_namespace(plan: Plan, node: int, nodes: int) -> None:
    """Creates a node's network namespace, connected to the bridge, with routes to the pods of all other nodes."""
    namespace, cable = plan.namespace(node), f"node{node}"
    _make_namespace(namespace)
    _inside(
        plan.hub, f"link add {cable} type veth peer name eth0 netns {namespace}", f"link set {cable} master bridge up"
    )
    _inside(
        namespace,
        "link set lo up",
        f"address add {plan.address(node)}/24 dev eth0",
        "link set eth0 up",
        # This route leads to the machine, which forwards nothing; but Service addresses require some route.
        f"route add default via {plan.host}",
        *(f"route add {plan.pods(other)} via {plan.address(other)}" for other in range(1, nodes + 1) if other != node),
    )
    # Answers to pods go back through their node: without masquerading CoreDNS sees the pod's own address.
    run("ip", "route", "replace", plan.pods(node), "via", plan.address(node))


def cut(plan: Plan, node: int) -> None:
    """Disconnects the node: its peers receive nothing more, not even the end of their connections.

    A node whose start was killed may have no cable yet.
    """
    cable = ("nsenter", f"--net={plan.hub}", "ip", "link")
    if not attempt(*cable, "set", f"node{node}", "down") and attempt(*cable, "show", f"node{node}"):
        raise LocalClusterError(f"node {node} cannot be disconnected from the network")


def remove_namespace(plan: Plan, node: int) -> None:
    """Removes a namespace, and its cable first, since processes that end may keep the namespace for a while."""
    if plan.hub.exists():
        attempt("nsenter", f"--net={plan.hub}", "ip", "link", "delete", f"node{node}")
    _drop_namespace(plan.namespace(node))


def namespaces(plan: Plan) -> list[int]:
    """Returns the nodes with a network namespace, also with an incomplete one."""
    return sorted(int(path.name.removeprefix("node-")) for path in plan.folder.glob("node-*"))


def remove(plan: Plan) -> None:
    """Removes everything that remains of the stack's network, and its claim last."""
    for node in namespaces(plan):
        remove_namespace(plan, node)
    attempt("ip", "link", "delete", plan.link)
    _drop_namespace(plan.hub)
    shutil.rmtree(plan.folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # other stacks have claims
        CLAIMS.rmdir()


def _make_namespace(file: Path) -> None:
    file.touch()
    run("unshare", f"--net={file}", "true")


def _drop_namespace(file: Path) -> None:
    attempt("umount", "--lazy", file)
    file.unlink(missing_ok=True)


def _inside(namespace: Path, *commands: str) -> None:
    run("nsenter", f"--net={namespace}", "ip", "-batch", "-", stdin="\n".join(commands))


def _routes() -> list[Network]:
    shown = json.loads(run("ip", "-json", "-4", "route", "show", "table", "all") or "[]")
    targets = [route["dst"] for route in shown if route.get("type") in (None, "unicast") and route["dst"] != "default"]
    return [Network(target, strict=False) for target in targets]
