"""What the replicas of a job use now, as a part of its page that is read again every 15 seconds, and as a page.

The part is empty where nothing is known: without metrics-server, and without GPUs or a Prometheus.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tfjob_controller.api.common.core import PODS
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.job import Job
from tfjob_controller.client.kinds import kinds_named
from tfjob_controller.client.liveuse.gpus import IDLE_MINUTES, PodKey, half_hour_peaks
from tfjob_controller.client.liveuse.jobuse import JobUse, ReplicaUse, read_job_use
from tfjob_controller.client.liveuse.prometheus import PrometheusError
from tfjob_controller.dashboard.feeds import JobFeed, WatchedJob
from tfjob_controller.dashboard.idlejobs import IdleJobs
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.dashboard.users import User, must_log_in
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import server_now

# htmx asks no more after this status.
_STOP_POLLING = 286
_MAX_ROWS = 100
_NOTE_SECONDS = 60.0
_GIBIBYTE, _MEBIBYTE = 2**30, 2**20


@dataclass(frozen=True, slots=True)
class Gauge:
    """A cell: what is used, as text, and in percent of what there is, if that is known."""

    text: str = ""
    percent: float | None = None


@dataclass(frozen=True, slots=True)
class ShownUse:
    """The table of a job: rows of a name and a gauge for each of `headers`; `notice` is about unused GPUs."""

    headers: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Gauge]]]
    hidden: int
    notice: str
    problem: str


async def use_page(request: Request) -> Response:
    """The part for htmx, and for others a page of its own."""
    user, services = rendering.user_of(request), rendering.services(request)
    is_part = bool(request.headers.get("hx-request"))
    try:
        job = await rendering.read(request, lambda: _job(request))
        use = await services.uses.get(
            user,
            job.uid,
            lambda: read_job_use(user.requester, job.snapshot, server_now(user.requester), services.prometheus),
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
        return HTMLResponse(rendering.render("use_table.html", use=shown_use(use)))
    return rendering.page(request, "use_page.html", job=job, use=shown_use(use))


@asynccontextmanager
async def idle_jobs_noted(request: Request, user: User, namespace: str, feed: JobFeed) -> AsyncIterator[None]:
    """Until the end of the block, notes each minute in a feed which jobs leave their GPUs unused.

    Only for a person who may list the pods of the namespace ("" is all of them). Errors leave what was noted before.
    """
    services = rendering.services(request)
    prometheus = services.prometheus
    if prometheus is None:
        yield
        return

    def read() -> Mapping[PodKey, float]:
        return half_hour_peaks(prometheus, namespace) if user.may("list", PODS, namespace) else {}

    async def note() -> None:
        while True:
            with suppress(ApiError, ClientError, PrometheusError):
                feed.note_idle(IdleJobs.of(await services.peaks.get(user, namespace, read)))
            await asyncio.sleep(_NOTE_SECONDS)

    noting = asyncio.create_task(note())
    try:
        yield
    finally:
        noting.cancel()


def shown_use(use: JobUse | None) -> ShownUse | None:
    """What is shown; None if nothing is known."""
    if use is None or not (use.has_figures or use.gpu_problem):
        return None
    columns = [column for column in _COLUMNS if any(column.gauge(replica).text for replica in use.replicas)]
    shown = use.replicas[:_MAX_ROWS] if columns else ()
    notice = ""
    if use.unused_gpus:
        gpus = "Its GPU was" if use.unused_gpus == 1 else f"Its {use.unused_gpus} GPUs were"
        notice = f"{gpus} not used in the last {IDLE_MINUTES} minutes."
    return ShownUse(
        headers=[column.header for column in columns],
        rows=[(replica.replica, [column.gauge(replica) for column in columns]) for replica in shown],
        hidden=len(use.replicas) - len(shown) if columns else 0,
        notice=notice,
        problem=f"The use of GPUs is not shown. Prometheus: {use.gpu_problem}." if use.gpu_problem else "",
    )


@dataclass(frozen=True, slots=True)
class _Column:
    header: str
    gauge: Callable[[ReplicaUse], Gauge]


def _cpu(replica: ReplicaUse) -> Gauge:
    return _gauge(replica.cpu_used, replica.cpu_requested, _cores)


def _memory(replica: ReplicaUse) -> Gauge:
    return _gauge(replica.memory_used, replica.memory_requested, _bytes)


def _gpu(replica: ReplicaUse) -> Gauge:
    if replica.gpu is None or (percent := replica.gpu.utilization) is None:
        return Gauge()
    count = replica.gpu.count
    return Gauge(f"{percent:.0f} %" + (f" of {count} GPUs" if count > 1 else ""), round(percent, 1))


def _gpu_memory(replica: ReplicaUse) -> Gauge:
    if replica.gpu is None:
        return Gauge()
    return _gauge(replica.gpu.memory_used, replica.gpu.memory_total or 0, _bytes)


_COLUMNS = (
    _Column("CPU", _cpu),
    _Column("Memory", _memory),
    _Column("GPU", _gpu),
    _Column("GPU memory", _gpu_memory),
)


def _gauge(used: int | None, most: int, text: Callable[[int], str]) -> Gauge:
    if used is None:
        return Gauge()
    if not most:
        return Gauge(text(used))
    return Gauge(f"{text(used)} of {text(most)}", round(min(100.0, 100 * used / most), 1))


def _cores(milli: int) -> str:
    return f"{milli / 1000:.2f}".rstrip("0").rstrip(".")


def _bytes(amount: int) -> str:
    if amount >= _GIBIBYTE:
        return f"{amount / _GIBIBYTE:.1f}Gi"
    return f"{amount / _MEBIBYTE:.0f}Mi"


def _job(request: Request) -> Job:
    parameters, user = request.path_params, rendering.user_of(request)
    kinds_named(parameters["kind"])
    return user.client.job(parameters["name"], parameters["kind"], parameters["namespace"])
