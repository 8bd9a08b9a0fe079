"""The page of the queue: gangs that wait, in the order in which they will start, what each lacks, and who makes way."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.gangqueue import held_text, read_queue, report_origin, share_text
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import server_now


async def queue_page(request: Request) -> Response:
    user, namespace, queue, refusal = rendering.user_of(request), "", None, ""
    try:
        namespace = await rendering.namespace_of(request)
        queue = await rendering.services(request).queues.get(
            user, namespace, lambda: read_queue(user.requester, namespace, user.controller_namespace)
        )
    except (ApiError, ClientError) as error:
        if not rendering.is_forbidden(error):
            return rendering.problem_page(request, error, user.origin)
        refusal = rendering.message_of(error, user.origin)
    texts: dict[str, Any] = {
        "share_text": share_text,
        "held_text": held_text,
        "origin": report_origin(queue, server_now(user.requester)) if queue is not None else "",
    }
    return rendering.page(request, "queue.html", queue=queue, namespace=namespace, notice=refusal, **texts)
