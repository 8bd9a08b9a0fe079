"""What the replicas of a job use now, as a part of its page that is read again every 15 seconds, and as a page.

The part is empty where nothing is known: without metrics-server, and without GPUs or a Prometheus.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tfjob_controller.api.common.core import PODS
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.liveuse.gpus import half_hour_peaks
from tfjob_controller.client.liveuse.jobuse import read_job_use
from tfjob_controller.client.liveuse.prometheus import PrometheusError, Queries
from tfjob_controller.dashboard.feeds import JobFeed, WatchedJob
from tfjob_controller.dashboard.idlejobs import IdleJobs
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.dashboard.shownuse import shown_use
from tfjob_controller.dashboard.users import User, must_log_in
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import server_now

# htmx asks no more after this status.
_STOP_POLLING = 286
_NOTE_SECONDS = 60.0


async def use_page(request: Request) -> Response:
    """The part for htmx, and for others a page of its own."""
    user, services = rendering.user_of(request), rendering.services(request)
    is_part = bool(request.headers.get("hx-request"))
    try:
        job = await rendering.read(request, lambda: rendering.job_of(request))
        use = await services.uses.get(
            user,
            job.uid,
            lambda: shown_use(
                read_job_use(user.requester, job.snapshot, server_now(user.requester), services.prometheus)
            ),
        )
    except (ApiError, ClientError) as error:
        refused = rendering.api_error_of(error)
        if not is_part or (refused is not None and must_log_in(refused)):
            return rendering.problem_page(request, error, user.origin)
        # The rest of the page says what is wrong.
        return Response(status_code=_STOP_POLLING if refused is not None and refused.is_not_found else 204)
    if (watch := services.feeds.running_job(user, WatchedJob.of(job.snapshot))) is not None:
        watch.use = use
    if is_part:
        return HTMLResponse(rendering.render("use_table.html", use=use))
    return rendering.page(request, "use_page.html", job=job, use=use)


def idle_jobs(user: User, namespace: str, prometheus: Queries) -> IdleJobs:
    """The jobs of a namespace ("" is all of them) that leave their GPUs unused; none if the person may not list pods.

    Raises `ApiError`, and `PrometheusError`.
    """
    if not user.may("list", PODS, namespace):
        return IdleJobs()
    return IdleJobs.of(half_hour_peaks(prometheus, namespace))


@asynccontextmanager
async def idle_jobs_noted(request: Request, user: User, namespace: str, feed: JobFeed) -> AsyncIterator[None]:
    """Until the end of the block, notes each minute in a feed which jobs leave their GPUs unused.

    Errors leave what was noted before.
    """
    services = rendering.services(request)
    prometheus = services.prometheus
    if prometheus is None:
        yield
        return

    async def note() -> None:
        while True:
            with suppress(ApiError, ClientError, PrometheusError):
                feed.note_idle(await services.idle.get(user, namespace, lambda: idle_jobs(user, namespace, prometheus)))
            await asyncio.sleep(_NOTE_SECONDS)

    noting = asyncio.create_task(note())
    try:
        yield
    finally:
        noting.cancel()
