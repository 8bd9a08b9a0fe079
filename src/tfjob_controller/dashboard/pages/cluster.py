"""The page of the cluster: its nodes, which jobs hold which resources, and what is free."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tfjob_controller.api.common.quantity import amount_from, is_bytes
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.usage import NodeUsage, by_zone, read_usage
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.kube.errors import ApiError


def cluster_page(request: Request) -> Response:
    user = rendering.user_of(request)
    namespace = request.query_params.get("namespace", "")[:253]
    try:
        usage, why = read_usage(user.requester, namespace)
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, user.origin)
    shares = {node.node: _shares(node) for node in usage.nodes or ()}
    shown = {"usage": usage, "shares": shares, "zones": by_zone(usage)}
    return rendering.page(request, "cluster.html", shown=shown, why=why, namespace=namespace)


def _shares(node: NodeUsage) -> list[tuple[str, float, str]]:
    """Resource, share that is used in percent, and what is free of how much; devices first."""
    found = []
    for resource, text in node.allocatable.items():
        if ((total := amount_from(resource, text)) and resource in ("cpu", "memory", "pods")) or "/" in resource:
            free = node.free.get(resource, "0")
            used = 100 * (1 - amount_from(resource, free) / total) if total else 0.0
            words = f"{_readable(resource, free)} of {_readable(resource, text)} free"
            found.append((resource, round(used, 1), words))
    return sorted(found, key=lambda each: ("/" not in each[0], each[0]))


def _readable(resource: str, text: str) -> str:
    """Returns the quantity; bytes as `11.4Gi`, since nodes count them in Ki."""
    return f"{amount_from(resource, text) / 2**30:.1f}Gi" if is_bytes(resource) else text
