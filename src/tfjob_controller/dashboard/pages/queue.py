"""The page of the queue: gangs that wait, in the order in which they will start, what each lacks, and who makes way."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.gangqueue import held_text, read_queue, share_text
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.kube.errors import ApiError


async def queue_page(request: Request) -> Response:
    user = rendering.user_of(request)
    try:
        namespace = rendering.namespace_of(request)
        queue = await rendering.services(request).queues.get(
            user, namespace, lambda: read_queue(user.requester, namespace)
        )
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, user.origin)
    return rendering.page(
        request, "queue.html", queue=queue, namespace=namespace, share_text=share_text, held_text=held_text
    )
