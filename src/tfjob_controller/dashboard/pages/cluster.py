"""The page of the cluster: its nodes, which jobs hold which resources, and what is free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from tfjob_controller.api.common.quantity import amount_from, rounded_quantity
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.usage import ClusterUsage, JobUsage, NodeUsage, by_zone, read_usage
from tfjob_controller.dashboard.clustersummary import amount_of, node_totals
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.kube.errors import ApiError

_NATIVE = ("cpu", "memory", "pods")
# A bar of at most this many devices shows each of them.
_MAX_PIECES = 16
# The jobs of a node that are shown before those that unfold.
_FIRST_JOBS = 6


async def cluster_page(request: Request) -> Response:
    user, namespace = rendering.user_of(request), ""
    try:
        namespace = await rendering.namespace_of(request)
        usage, why = await rendering.services(request).usages.get(
            user, namespace, lambda: read_usage(user.requester, namespace, user.client.kinds())
        )
    except (ApiError, ClientError) as error:
        if not rendering.is_forbidden(error):
            return rendering.problem_page(request, error, user.origin)
        notice = f"{rendering.message_of(error, user.origin)}."
        return rendering.page(request, "cluster.html", shown=None, notice=notice, namespace=namespace)
    shares = {node.node: _shares([node]) for node in usage.nodes or ()}
    shown = {
        "shares": shares,
        "totals": _shares(usage.nodes or ()),
        "nodes": len(usage.nodes or ()),
        "zones": [(zone, sorted(names, key=lambda name: _rank(name, shares))) for zone, names in by_zone(usage)],
        "holdings": _holdings(usage),
        "first_jobs": _FIRST_JOBS,
    }
    notice = f"Free capacity is not shown: {why}." if why else ""
    return rendering.page(request, "cluster.html", shown=shown, notice=notice, namespace=namespace)


@dataclass(frozen=True, slots=True)
class Share:
    """One resource of a node or of all: the used share and the share reserved for gangs, in percent, and texts.

    `pieces` is the number of devices if a bar can show each of them, else 0.
    """

    resource: str
    used: float
    reserved: float
    text: str
    free: str
    total: str
    pieces: int = 0


@dataclass(frozen=True, slots=True)
class HoldingText:
    """What one job holds on a node, devices first; `KIND/NAME` in two parts."""

    namespace: str
    kind: str
    name: str
    text: str
    is_deleted: bool


def _shares(nodes: Iterable[NodeUsage]) -> list[Share]:
    """The resources of nodes together; devices come first."""
    return _ordered(_share(resource, *amounts) for resource, amounts in node_totals(nodes).items())


def _ordered(shares: Iterable[Share | None]) -> list[Share]:
    return sorted(filter(None, shares), key=lambda share: ("/" not in share.resource, share.resource))


def _share(resource: str, total: int, free: int, reserved: int) -> Share | None:
    """None for a resource that there is not, or that nobody looks for."""
    if total <= 0 or not (resource in _NATIVE or "/" in resource):
        return None
    free_text, total_text = rounded_quantity(resource, free), rounded_quantity(resource, total)
    summary = f"{free_text} of {total_text} free"
    if reserved:
        summary += f", {rounded_quantity(resource, reserved)} reserved"
    used, kept = (round(100 * amount / total, 1) for amount in (total - free - reserved, reserved))
    pieces = total if "/" in resource and total <= _MAX_PIECES else 0
    return Share(resource, used, kept, summary, free_text, total_text, pieces)


def _rank(name: str, shares: Mapping[str, Sequence[Share]]) -> tuple[bool, str]:
    """Nodes with devices come first."""
    return not any("/" in share.resource for share in shares.get(name, ())), name


def _holdings(usage: ClusterUsage) -> Mapping[str, Sequence[HoldingText]]:
    """What the jobs on each node hold, in descending order of devices."""
    by_node: dict[str, list[JobUsage]] = {}
    for holding in usage.holdings:
        by_node.setdefault(holding.node, []).append(holding)
    return {
        node: [_holding_text(holding) for holding in sorted(holdings, key=lambda holding: -_devices(holding))]
        for node, holdings in by_node.items()
    }


def _devices(holding: JobUsage) -> int:
    return sum(amount_from(resource, text) for resource, text in holding.requests.items() if "/" in resource)


def _holding_text(holding: JobUsage) -> HoldingText:
    kind, _, name = holding.job.partition("/")
    pods = len(holding.replicas)
    devices = [f"{text} {resource}" for resource, text in holding.requests.items() if "/" in resource]
    others = [
        f"{rounded_quantity(resource, amount)} {resource}"
        for resource in ("cpu", "memory")
        if (amount := amount_of(resource, holding.requests))
    ]
    text = ", ".join([f"{pods} pod{'' if pods == 1 else 's'}", *devices, *others])
    return HoldingText(holding.namespace, kind, name, text, holding.deleted)
