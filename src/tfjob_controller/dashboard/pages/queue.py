"""The page of the queue: gangs that wait, in the order in which they will start, and what each lacks."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.gangqueue import read_queue
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.kube.errors import ApiError


def queue_page(request: Request) -> Response:
    user = rendering.user_of(request)
    namespace = request.query_params.get("namespace", "")[:253]
    try:
        queue = read_queue(user.requester, namespace)
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, user.origin)
    return rendering.page(request, "queue.html", queue=queue, namespace=namespace)
