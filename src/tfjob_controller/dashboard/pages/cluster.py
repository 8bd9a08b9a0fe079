"""The page of the cluster: its nodes, which jobs hold which resources, and what is free."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from tfjob_controller.api.common.quantity import amount_from, is_bytes
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.usage import NodeUsage, by_zone, read_usage
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.kube.errors import ApiError


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
    shares = {node.node: _shares(node) for node in usage.nodes or ()}
    shown = {"usage": usage, "shares": shares, "zones": by_zone(usage)}
    notice = f"Free capacity is not shown: {why}." if why else ""
    return rendering.page(request, "cluster.html", shown=shown, notice=notice, namespace=namespace)


@dataclass(frozen=True, slots=True)
class Share:
    """One resource of a node: the used share and the share reserved for gangs, in percent, and both as text."""

    resource: str
    used: float
    reserved: float
    text: str


def _shares(node: NodeUsage) -> list[Share]:
    """Devices come first."""
    shares = []
    for resource, text in node.allocatable.items():
        if (total := amount_from(resource, text)) and (resource in ("cpu", "memory", "pods") or "/" in resource):
            free, reserved = node.free.get(resource, "0"), node.reserved.get(resource, "")
            kept = amount_from(resource, reserved) if reserved else 0
            taken = total - amount_from(resource, free) - kept
            summary = f"{_readable(resource, free)} of {_readable(resource, text)} free"
            if kept:
                summary += f", {_readable(resource, reserved)} reserved"
            shares.append(Share(resource, round(100 * taken / total, 1), round(100 * kept / total, 1), summary))
    return sorted(shares, key=lambda share: ("/" not in share.resource, share.resource))


def _readable(resource: str, text: str) -> str:
    """Returns the quantity; bytes as `11.4Gi`, since nodes count them in Ki."""
    return f"{amount_from(resource, text) / 2**30:.1f}Gi" if is_bytes(resource) else text
