"""The page of the queue: who waits for what, who holds it and until when, who makes way, and shares of namespaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.gangqueue import (
    GangQueue,
    GangRequest,
    NoGangsError,
    held_text,
    read_queue,
    report_origin,
    share_text,
)
from tfjob_controller.client.holders import MAX_WAITS, Waits, end_text, read_waits, start_text
from tfjob_controller.client.jobclass import JobClass
from tfjob_controller.dashboard.jobrows import JobRow
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import server_now

_WAITING = (JobClass.QUEUED, JobClass.STARTING, JobClass.NEEDS_YOU)
# Without gang scheduling the page shows the oldest jobs that wait for their pods.
_MAX_PENDING = 50


async def queue_page(request: Request) -> Response:
    user, namespace, queue, notice = rendering.user_of(request), "", None, ""
    waits: Waits = {}
    pending: Sequence[JobRow] = ()
    try:
        namespace = await rendering.namespace_of(request)
        queue = await rendering.services(request).queues.get(
            user, namespace, lambda: read_queue(user.requester, namespace, user.controller_namespace)
        )
        waits = await _waits(request, namespace) if queue.waiting else {}
    except NoGangsError as error:
        notice, pending = str(error), await _pending(request, namespace)
    except (ApiError, ClientError) as error:
        if not rendering.is_forbidden(error):
            return rendering.problem_page(request, error, user.origin)
        notice = rendering.message_of(error, user.origin)
    texts: dict[str, Any] = {
        "share_text": share_text,
        "held_text": held_text,
        "end_text": end_text,
        "start_text": start_text,
        "most_waits": MAX_WAITS,
        "origin": report_origin(queue, server_now(user.requester)) if queue is not None else "",
        "requests_of": _requests_of(queue) if queue is not None else {},
    }
    return rendering.page(
        request, "queue.html", queue=queue, waits=waits, pending=pending, namespace=namespace, notice=notice, **texts
    )


async def _waits(request: Request, namespace: str) -> Waits:
    """What the first gangs wait for; nothing if the pods may not be listed, which the role `view` allows."""
    user = rendering.user_of(request)
    try:
        return await rendering.services(request).waits.get(
            user,
            namespace,
            lambda: read_waits(user.requester, namespace, user.client.kinds(), server_now(user.requester)),
        )
    except (ApiError, ClientError) as error:
        if not rendering.is_forbidden(error):
            raise
        return {}


async def _pending(request: Request, namespace: str) -> Sequence[JobRow]:
    """The jobs that wait for their pods, oldest first, as far as they are known now."""
    user = rendering.user_of(request)
    if not await rendering.read(request, lambda: user.may_list_jobs(namespace)):
        return ()
    async with rendering.services(request).feeds.jobs(user, namespace) as feed:
        rows = [row for row in feed.rows() if row.job_class in _WAITING]
    return sorted(rows, key=lambda row: row.metadata.creation_timestamp or "")[:_MAX_PENDING]


def _requests_of(queue: GangQueue) -> Mapping[tuple[str, str], GangRequest]:
    """The requests to running gangs, by namespace and `KIND/NAME` of their job."""
    requests = {}
    for request in queue.requests:
        kind, _, name = request.owner.partition("/")
        requests[request.namespace, f"{kind.lower()}/{name}"] = request
    return requests
