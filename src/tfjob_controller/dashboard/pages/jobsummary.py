"""The figures above the list of jobs, which the page asks for by itself: they read more than the list does."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.gangqueue import GangQueue, read_queue
from tfjob_controller.client.usage import read_usage
from tfjob_controller.dashboard.clustersummary import ClusterSummary, cluster_summary
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.dashboard.users import User
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import server_now


async def summary_part(request: Request) -> Response:
    """What the person may see of it: nothing at all without the right to list pods."""
    user = rendering.user_of(request)
    try:
        namespace = await rendering.namespace_of(request)
        summary = await rendering.services(request).summaries.get(user, namespace, lambda: _read(user, namespace))
    except (ApiError, ClientError) as error:
        return HTMLResponse("") if rendering.is_forbidden(error) else Response(status_code=204)
    return HTMLResponse(rendering.render("jobs_summary.html", summary=summary, now=server_now(user.requester)))


def _read(user: User, namespace: str) -> ClusterSummary:
    """Of the whole cluster, or else of the namespace. Raises `ApiError`."""
    kinds = user.client.kinds()
    try:
        usage, _ = read_usage(user.requester, "", kinds, finds_deleted=False)
    except ApiError as error:
        if not error.is_forbidden or not namespace:
            raise
        usage, _ = read_usage(user.requester, namespace, kinds, finds_deleted=False)
    queue = _queue(user, "")
    return cluster_summary(usage, _queue(user, namespace) if queue is None and namespace else queue)


def _queue(user: User, namespace: str) -> GangQueue | None:
    """None without gang scheduling, and without the right to list gangs."""
    try:
        return read_queue(user.requester, namespace, user.controller_namespace)
    except ClientError:
        return None
    except ApiError as error:
        if error.is_forbidden:
            return None
        raise
