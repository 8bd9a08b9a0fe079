"""The network of a stack: a bridge and one network namespace for each node, without a route to the outside.

A stack takes a /16 network of its own, and with it a number that is in the name of everything that it makes on the
machine, so that stacks stand side by side and a stranger's things are never touched:

    10.N.0.1            this machine's end, the link tfjN: kube-apiserver and CoreDNS listen here
    10.N.0.(10+i)       node i, in a network namespace of its own
    10.N.i.0/24         the pods of node i
    10.N.128.0/17       Services

The bridge between them is in a namespace of its own too (the hub): on the machine itself, the rules of a Docker or a
firewall would see what nodes say to each other, and drop it. Nothing is masqueraded, and the machine's ip_forward stays
as it is: packets go between the bridge's members and no further.

The claim of a number is a folder below /run, made atomically, which names the stack's state folder and holds the
namespaces: what a crash leaves behind is found by it, and a reboot clears it along with the rest. (Not in /run/netns:
`ip netns` would leave a mount there.)
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
    """The names and addresses of one stack, which follow from its number."""

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
    """The first number whose network no route of the machine touches and no other stack has claimed."""
    taken, routes = set(claimed), list(routed)
    for number in range(FIRST_NUMBER, LAST_NUMBER + 1):
        network = Network(f"10.{number}.0.0/16")
        if number not in taken and not any(network.overlaps(route) for route in routes):
            return number
    raise LocalClusterError("no free network between 10.200.0.0/16 and 10.249.0.0/16; stop another local cluster")


def claim(state_dir: Path) -> Plan:
    """Take a number for the stack in `state_dir`; `remove` gives it back. Never the same for two callers."""
    drop_dead_claims()
    lost: set[int] = set()
    while True:
        number = choose(_routes(), lost | {int(path.name) for path in CLAIMS.glob("*")})
        CLAIMS.mkdir(exist_ok=True)
        try:
            Plan(number).folder.mkdir(mode=0o700)
        except FileExistsError:
            lost.add(number)
        except FileNotFoundError:  # another stack was the last one, and has just removed the folder of claims
            continue
        else:
            (Plan(number).folder / "owner").write_text(str(state_dir))
            return Plan(number)


def drop_dead_claims() -> None:
    """Forget claims whose stack's state folder somebody has removed by hand, with what they had made."""
    for path in list(CLAIMS.glob("*/owner")):
        if not Path(path.read_text()).is_dir():
            remove(Plan(int(path.parent.name)))


def claim_of(state_dir: Path) -> Plan | None:
    """The claim that a stack holds, if any; this, not the stack's own record, says what is to be cleaned up."""
    for path in CLAIMS.glob("*/owner"):
        if path.read_text() == str(state_dir):
            return Plan(int(path.parent.name))
    return None


def load_kernel_module(report: Report) -> None:
    """A pod that asks for a Service served by its own node gets its answer over that node's bridge, past the
    translation of addresses, unless bridges show packets to the packet filter; for that the kernel needs a module.
    """
    if not Path("/proc/sys/net/bridge").exists():
        report("loading the kernel module br_netfilter, which nodes need; it stays loaded")
        run("modprobe", "br_netfilter")


def make_bridge(plan: Plan) -> None:
    """The hub with its bridge, and this machine's cable to it."""
    _make_namespace(plan.hub)
    run("ip", "link", "add", plan.link, "type", "veth", "peer", "name", "host", "netns", plan.hub)
    _inside(plan.hub, "link add bridge type bridge", "link set bridge up", "link set host master bridge up")
    run("ip", "address", "add", f"{plan.host}/24", "dev", plan.link)
    run("ip", "link", "set", plan.link, "up")


def make_namespace(plan: Plan, node: int, nodes: int) -> None:
    """A node's network namespace, wired to the bridge, with routes to the pods of all other nodes."""
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
        # It leads to the machine, which forwards nothing; but Service addresses need some route to exist.
        f"route add default via {plan.host}",
        *(f"route add {plan.pods(other)} via {plan.address(other)}" for other in range(1, nodes + 1) if other != node),
    )
    # Answers to pods go back through their node: without masquerading CoreDNS sees the pod's own address.
    run("ip", "route", "replace", plan.pods(node), "via", plan.address(node))


def cut(plan: Plan, node: int) -> None:
    """Cuts the node off: its peers receive nothing more, not even the end of their connections."""
    _inside(plan.hub, f"link set node{node} down")


def remove_namespace(plan: Plan, node: int) -> None:
    """Removes the cable first, since ending processes may keep the namespace for a while."""
    if plan.hub.exists():
        attempt("nsenter", f"--net={plan.hub}", "ip", "link", "delete", f"node{node}")
    _drop_namespace(plan.namespace(node))


def namespaces(plan: Plan) -> list[int]:
    """The nodes that have, or had begun to have, a network namespace."""
    return sorted(int(path.name.removeprefix("node-")) for path in plan.folder.glob("node-*"))


def remove(plan: Plan) -> None:
    """Removes everything that is left of the stack's network, and its claim last."""
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
