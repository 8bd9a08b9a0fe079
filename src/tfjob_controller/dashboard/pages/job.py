"""The page of one job: why it does or does not run, its charts, logs and replicas, and what may be changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from tfjob_controller.api.common.core import PODS
from tfjob_controller.client.errors import ClientError, JobDeletedError
from tfjob_controller.client.job import Job
from tfjob_controller.controller.logs.metricparser import MAX_LINE_BYTES
from tfjob_controller.dashboard.feeds import JobView, JobWatch, WatchedJob
from tfjob_controller.dashboard.manifesttext import manifest_text
from tfjob_controller.dashboard.metrichistory import MetricSeries, charts, logged_series
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.dashboard.pages.forms import sent_fields
from tfjob_controller.dashboard.pages.jobview import parts_of, view_of
from tfjob_controller.dashboard.pages.logstream import LogChoice, check_log, log_file, stream_log
from tfjob_controller.dashboard.streams import EventStream
from tfjob_controller.dashboard.turns import BusyError
from tfjob_controller.dashboard.users import User
from tfjob_controller.kube.errors import ApiError

# The least time between two readings of a job for the readers of its page.
_REST_SECONDS = 0.5
# The lines of the log that the charts are made of.
_METRIC_LINES = 5000


async def job_page(request: Request) -> Response:
    user = rendering.user_of(request)
    try:
        job, watched = await rendering.read(request, lambda: _found(request, user))
        manifest = _manifest_reader(request)
        async with rendering.services(request).feeds.job(user, watched) as watch:
            view = (await rendering.read(request, lambda: _content(watch, user, lambda: job, manifest))).html
            replicas = watch.last_content.replicas
        allowed = await rendering.read(request, lambda: _allowed_actions(user, job))
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, user.origin)
    head, details = parts_of(view)
    return rendering.page(request, "job.html", job=job, head=head, details=details, allowed=allowed, replicas=replicas)


async def job_events(request: Request) -> Response | EventStream:
    """What the page shows of the job, again after each change; why it cannot be read while the API server is away."""
    user, first = rendering.user_of(request), None
    try:
        first = await rendering.read(request, lambda: _watched(user, rendering.job_of(request)))
    except (ApiError, ClientError) as error:
        if not rendering.is_temporary(error):
            return rendering.problem_page(request, error, user.origin)

    async def parts() -> AsyncGenerator[bytes, None]:
        job = first
        while job is None:
            try:
                job = await rendering.read(request, lambda: _watched(user, rendering.job_of(request)))
            except (ApiError, ClientError) as error:
                yield rendering.event("job", rendering.problem(error, user.origin))
                await asyncio.sleep(rendering.CHECK_SECONDS)
        watched, manifest = job, _manifest_reader(request)
        async with rendering.services(request).feeds.job(user, watched) as watch:
            content = partial(_content, watch, user, lambda: _same_job(request, watched), manifest)
            async for part in rendering.events(request, "job", watch, content):
                yield part
                await asyncio.sleep(_REST_SECONDS)

    return rendering.event_stream(request, parts())


async def log_events(request: Request) -> Response | EventStream:
    """The lines of a container's log as they are printed."""
    user = rendering.user_of(request)
    try:
        job = await rendering.read(request, lambda: rendering.job_of(request))
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, user.origin)
    lines = stream_log(request, job, LogChoice.of(request.query_params))
    return EventStream(lines, rendering.services(request).logs, user.person)


async def log_download(request: Request) -> Response | EventStream:
    """A container's log as a file, without its colours being changed."""
    user, choice = rendering.user_of(request), LogChoice.of(request.query_params)
    try:
        job = await rendering.read(request, lambda: rendering.job_of(request))
        await rendering.read(request, lambda: check_log(job, choice))
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, user.origin)
    has_times = request.query_params.get("timestamps") == "true"
    headers = {"Content-Disposition": f'attachment; filename="{choice.file_name(job.name)}"'}
    pieces = log_file(request, job, choice, has_times=has_times)
    return EventStream(pieces, rendering.services(request).logs, user.person, "text/plain; charset=utf-8", headers)


async def metrics(request: Request) -> Response:
    """The series of the charts: those in the last lines of the chief's log, and those that the program reports."""
    user = rendering.user_of(request)
    try:
        job, watched = await rendering.read(request, lambda: _found(request, user))
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, user.origin)
    async with rendering.services(request).feeds.job(user, watched) as watch:
        logged = await rendering.services(request).logged.get(user, job.uid, lambda: _logged(job))
        return JSONResponse([asdict(series) for series in charts(logged, watch.reported.series())])


async def change(request: Request) -> Response:
    """One of the buttons. The guard has checked the token against forged requests."""
    action = request.path_params["action"]
    form = await sent_fields(request)
    try:
        job = await rendering.read(request, lambda: rendering.job_of(request))
        if form.get("uid") != job.uid:
            raise ClientError(f"{job.namespace}/{job.name} was deleted, and another job has its name: load the page")
        await rendering.read(request, _change_of(action, job, form))
    except (ApiError, ClientError) as error:
        return rendering.page(request, "change_problem.html", 200, message=str(error))
    shown = rendering.chosen(request)["namespace"]
    target = rendering.job_url(job.namespace, job.kind, job.name, shown)
    if action == "delete":
        target = rendering.url("/jobs", {"namespace": shown})
    if request.headers.get("hx-request"):
        return Response(status_code=204, headers={"HX-Redirect": target})
    return RedirectResponse(target, 303)


def _change_of(action: str, job: Job, form: Mapping[str, str]) -> Callable[[], object]:
    if action == "scale":
        size = form.get("replicas", "")
        if not size.isdecimal() or len(size) > 5:
            raise ClientError(f"replicas must be a whole number, not {size!r}")
        return lambda: job.scale(int(size))
    changes: Mapping[str, Callable[[], object]] = {"suspend": job.suspend, "resume": job.resume, "delete": job.delete}
    if action not in changes:
        raise ClientError(f"there is no action {action!r}")
    return changes[action]


def _logged(job: Job) -> Sequence[MetricSeries]:
    """The series in the job's log; empty without a log, and for a kind whose log has no metrics."""
    if not (names := job.snapshot.kind.logged_metrics_of(job.snapshot.job)):
        return ()
    try:
        lines = job.logs(tail=_METRIC_LINES, max_line_bytes=MAX_LINE_BYTES, timestamps=True)
        return logged_series((line.text for line in lines), names)
    except (ApiError, ClientError):
        return ()


def _allowed_actions(user: User, job: Job) -> frozenset[str]:
    """What this person may do; other buttons are not shown."""
    kind, ended = job.snapshot.kind, job.snapshot.has_ended
    resource = kind.resource
    actions = set()
    if user.may("patch", resource, job.namespace) and not ended:
        actions |= {"resume", "suspend"}  # the page shows the one that its state allows
        if kind.has_members(job.snapshot.job):
            actions.add("scale")
    if user.may("create", resource, job.namespace):
        actions.add("clone")
    if user.may("delete", resource, job.namespace):
        actions.add("delete")
    return frozenset(actions)


def _found(request: Request, user: User) -> tuple[Job, WatchedJob]:
    job = rendering.job_of(request)
    return job, _watched(user, job)


def _watched(user: User, job: Job) -> WatchedJob:
    """Without pods for those who may not watch them, whose watch would fail again and again."""
    watched = WatchedJob.of(job.snapshot)
    return watched if user.may("watch", PODS, job.namespace) else replace(watched, child_selector="")


def _same_job(request: Request, known: WatchedJob) -> Job:
    """The job as it is now. Raises `ApiError` and `ClientError`."""
    try:
        job = rendering.job_of(request)
    except ClientError as error:
        if not rendering.is_gone(error):
            raise
        job = None
    if job is None or job.uid != known.uid:
        raise JobDeletedError(f"{known.namespace}/{known.name} was deleted")
    return job


def _content(watch: JobWatch, user: User, read: Callable[[], Job], manifest: Callable[[Job], str]) -> rendering.Content:
    """What the page shows of the job, and why it may be old; that it was deleted is the last."""
    problems, view = watch.problems, JobView()
    try:
        view = watch.content(lambda: view_of(user, read(), manifest, watch.use))
    except JobDeletedError as error:
        return rendering.Content(
            rendering.render("job_deleted.html", message=str(error), namespace=watch.namespace), is_last=True
        )
    except (ApiError, ClientError) as error:
        if not (rendering.is_temporary(error) and watch.last_content.html):
            raise
        problems = [rendering.message_of(error, user.origin)]
    notice = rendering.render("notice.html", notice=rendering.stale_notice(problems))
    return rendering.Content(notice + (view.html or watch.last_content.html), is_complete=bool(view.html))


def _manifest_reader(request: Request) -> Callable[[Job], str]:
    """The text of the manifest, for threads of readings; only one of a person is written at a time."""
    turns, person = rendering.services(request).yaml, rendering.user_of(request).person

    def read(job: Job) -> str:
        try:
            return turns.submit(person, lambda: manifest_text(job.snapshot)).result()
        except BusyError as error:
            return f"# Not shown: {error}"

    return read
