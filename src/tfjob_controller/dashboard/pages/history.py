"""The pages of ended jobs that the controller keeps, also once they are deleted: a list, and one job, read only.

The dashboard reads the history with its own credentials, so each request asks the API server whether the person may
get jobs of that kind in that namespace, and logs whether they may get `pods/log`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from tfjob_controller.api.common.core import PODS
from tfjob_controller.client.diagnostics.description import sections_of, summary
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.history.record import DELETED, Entry, HistoryError, LogFile, Record, lines_of
from tfjob_controller.client.kinds import KINDS, recorded_resource, trainer_kind
from tfjob_controller.dashboard.keptjobs import KeptJobs
from tfjob_controller.dashboard.manifesttext import text_of
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.dashboard.pages.logstream import line_html
from tfjob_controller.dashboard.paging import page_number, page_of
from tfjob_controller.dashboard.streams import EventStream
from tfjob_controller.dashboard.users import User
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import server_now
from tfjob_controller.util.text import without_log_time

_MAX_TEXT = 253
_MAX_ROWS = 200
# Lines of a stream that are sent at once.
_BATCH = 200
# The classes and words of pills, by the states of records.
STATES = {"Succeeded": ("done", "succeeded"), "Failed": ("failed", "failed"), DELETED: ("suspended", "deleted")}


async def history_page(request: Request) -> Response:
    user, namespace, text, shown, notice = rendering.user_of(request), "", _text(request), None, ""
    try:
        namespace = await rendering.namespace_of(request)
        # First, because a listing of all namespaces costs much, also whoever may get none of it.
        await rendering.read(request, lambda: _check_any(user, namespace))
        entries = await rendering.read_kept(request, lambda kept: kept.entries(namespace, text))
        number = page_number(request.query_params.get("page", ""))
        shown = await rendering.read(request, lambda: page_of(_allowed(entries, user, namespace), number))
    except (ApiError, ClientError) as error:
        if rendering.api_error_of(error) is not None and not rendering.is_forbidden(error):
            return rendering.problem_page(request, error, user.origin)
        notice = rendering.message_of(error, user.origin)
    values: dict[str, Any] = {"namespace": namespace, "text": text, "shown": shown, "notice": notice, "states": STATES}
    return rendering.page(request, "history.html", **values)


async def record_page(request: Request) -> Response:
    user, here = rendering.user_of(request), rendering.services(request)
    try:
        record = await _record(request)
        may_read_logs = await rendering.read(request, lambda: _may_read_logs(user, record.namespace))
        manifest = await here.yaml.run(user.person, lambda: text_of(bytes(record.body)))
        # In a thread: a record of 8 MiB takes long to show.
        return await here.kept.run(user.person, lambda: _page(request, record, manifest, may_read_logs=may_read_logs))
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, user.origin)


def _page(request: Request, record: Record, manifest: str, *, may_read_logs: bool) -> Response:
    now, description = server_now(rendering.user_of(request).requester), record.description
    return rendering.page(
        request,
        "history_job.html",
        record=record,
        pill_of=STATES.get(record.state, ("suspended", record.state)),
        timeline=record.timeline[-_MAX_ROWS:],
        unread=record.unread[:20],
        base=_base(request),
        summary=summary(description) if description is not None else {},
        sections=sections_of(description, now) if description is not None else [],
        logs=[log for log in record.logs[:_MAX_ROWS] if log.is_valid] if may_read_logs else [],
        may_read_logs=may_read_logs,
        manifest=manifest,
    )


async def metrics(request: Request) -> Response:
    """The series of the charts, which are in the first log."""
    user = rendering.user_of(request)
    try:
        record = await _record(request)
        await rendering.read(request, lambda: _check_logs(user, record.namespace))
        series = await rendering.read_kept(request, lambda kept: kept.series(record))
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, user.origin)
    return JSONResponse([asdict(one) for one in series])


async def log_events(request: Request) -> Response | EventStream:
    """A log, as the page of a running job gets it: `lines`, and `end`."""
    user, here = rendering.user_of(request), rendering.services(request)
    try:
        _, content = await _log(request)
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, user.origin)

    async def parts() -> AsyncGenerator[bytes, None]:
        lines = lines_of(content)
        for begin in range(0, len(lines), _BATCH):
            if await request.is_disconnected():
                return
            # In a thread: long lines with many colours take long.
            yield await rendering.in_turn(here.kept, user.person, partial(_batch, lines[begin : begin + _BATCH]))
        yield rendering.event("end", "this is the end of the log")

    return EventStream(parts(), here.logs, user.person)


def _batch(lines: Sequence[bytes]) -> bytes:
    return rendering.event("lines", "\n".join(map(line_html, lines)))


async def log_file(request: Request) -> Response:
    """A log as a file, as the page of a running job gets it: with the time of each line if that is asked for."""
    user = rendering.user_of(request)
    try:
        file, content = await _log(request, has_times=request.query_params.get("timestamps") == "true")
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, user.origin)
    # The store has checked the name of the log, and the entries have that of the job.
    name = f"{request.path_params['name']}.{file.name}.log"
    return PlainTextResponse(content, headers={"Content-Disposition": f'attachment; filename="{name}"'})


async def _log(request: Request, *, has_times: bool = True) -> tuple[LogFile, bytes]:
    """The log that the address names, by default the first."""
    user, wanted = rendering.user_of(request), request.query_params.get("replica", "")
    record = await _record(request)
    file = next((log for log in record.logs if log.is_valid and wanted in ("", log.name)), None)
    if file is None:
        raise HistoryError(f"the history of {record.name[:_MAX_TEXT]} has no log {wanted[:100]!r}")
    chosen: LogFile = file
    await rendering.read(request, lambda: _check_logs(user, record.namespace))

    def read(kept: KeptJobs) -> bytes:
        content = kept.log(record, chosen)
        return content if has_times else b"".join(without_log_time(line) + b"\n" for line in lines_of(content))

    return chosen, await rendering.read_kept(request, read)


async def _record(request: Request) -> Record:
    """The record of a page. Raises `ClientError` if the person may not get such jobs, or there is none."""
    parameters, user = request.path_params, rendering.user_of(request)
    namespace, kind, uid = parameters["namespace"], parameters["kind"][:80], parameters["uid"][:80]
    await rendering.read(request, lambda: _check_kind(user, kind, namespace))
    return await rendering.read_kept(request, lambda kept: kept.record(namespace, kind, parameters["name"], uid))


def _check_kind(user: User, kind: str, namespace: str) -> None:
    resource = recorded_resource(kind)
    if resource is None or not user.may("get", resource, namespace):
        raise HistoryError(f"you may not get {kind} in namespace {namespace}: ask for the role view there")


def _check_any(user: User, namespace: str) -> None:
    """Nobody learns whether a namespace has had jobs of which they may get none."""
    if not any(user.may("get", kind.resource, namespace) for kind in (*KINDS, trainer_kind())):
        where = f"namespace {namespace}" if namespace else "all namespaces: choose a namespace"
        raise HistoryError(f"You may not get the jobs of {where}")


def _allowed(entries: Sequence[Entry], user: User, namespace: str) -> list[Entry]:
    """The entries of the kinds that the person may get in the namespace; in all, if it is empty."""
    allowed: dict[str, bool] = {}
    for kind in {entry.kind for entry in entries}:
        resource = recorded_resource(kind)
        allowed[kind] = resource is not None and user.may("get", resource, namespace)
    return [entry for entry in entries if allowed[entry.kind]]


def _check_logs(user: User, namespace: str) -> None:
    if not _may_read_logs(user, namespace):
        raise HistoryError(f"you may not get pods/log in namespace {namespace}: ask for the role view there")


def _may_read_logs(user: User, namespace: str) -> bool:
    return user.may("get", PODS, namespace, "log")


def _text(request: Request) -> str:
    return request.query_params.get("text", "")[:_MAX_TEXT]


def _base(request: Request) -> str:
    parameters = request.path_params
    return "/history/" + "/".join(str(parameters[name]) for name in ("namespace", "kind", "name", "uid"))
