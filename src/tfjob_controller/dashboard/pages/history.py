"""The pages of ended jobs that the controller keeps, also once they are deleted: a list, and one job, read only.

The dashboard reads the history with its own credentials, so each request asks the API server whether the person may
get jobs of that kind in that namespace, and logs whether they may get `pods/log`.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cachetools import LRUCache
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from tfjob_controller.api.common.core import PODS
from tfjob_controller.client.diagnostics.description import sections_of, summary
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.history.reading import History
from tfjob_controller.client.history.record import DELETED, Entry, HistoryError, LogFile, Record
from tfjob_controller.client.kinds import OWN_KINDS, recorded_resource
from tfjob_controller.dashboard.manifesttext import text_of
from tfjob_controller.dashboard.metrichistory import MetricSeries, logged_series
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.dashboard.pages.logstream import line_html
from tfjob_controller.dashboard.streams import EventStream
from tfjob_controller.dashboard.users import User
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import server_now
from tfjob_controller.util.text import without_log_time

PAGE_ROWS = 100
_MAX_TEXT = 253
_MAX_SERIES = 32
_MAX_ROWS = 200
# Lines of a stream that are sent at once.
_BATCH = 200
# The classes and words of pills, by the states of records.
STATES = {"Succeeded": ("done", "succeeded"), "Failed": ("failed", "failed"), DELETED: ("suspended", "deleted")}


class KeptJobs:
    """The history, and the series of the records that were shown last. Thread-safe."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._lock = threading.Lock()
        self._series: LRUCache[str, Sequence[MetricSeries]] = LRUCache(_MAX_SERIES)

    def series(self, record: Record) -> Sequence[MetricSeries]:
        """The metrics in the first log of a record."""
        with self._lock:
            if (known := self._series.get(record.uid)) is not None:
                return known
        if not (record.logged_metrics and record.logs):
            return ()
        lines = self.history.log(record).decode("utf-8", "replace").splitlines()
        series = logged_series(map(without_log_time, lines), record.logged_metrics[:100])
        with self._lock:
            self._series[record.uid] = series
        return series


@dataclass(frozen=True, slots=True)
class Shown:
    """A page of the list."""

    rows: Sequence[Entry]
    total: int
    page: int

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // PAGE_ROWS))


async def history_page(request: Request) -> Response:
    user, namespace, text, shown, notice = rendering.user_of(request), "", _text(request), None, ""
    try:
        namespace = await rendering.namespace_of(request)
        entries = await rendering.read(request, lambda: _entries(_kept(request), user, namespace, text))
        shown = _page_of(entries, request.query_params.get("page", ""))
    except (ApiError, ClientError) as error:
        if rendering.api_error_of(error) is not None and not rendering.is_forbidden(error):
            return rendering.problem_page(request, error, user.origin)
        notice = rendering.message_of(error, user.origin)
    values: dict[str, Any] = {"namespace": namespace, "text": text, "shown": shown, "notice": notice, "states": STATES}
    return rendering.page(request, "history.html", **values)


async def record_page(request: Request) -> Response:
    user = rendering.user_of(request)
    try:
        record = await _record(request)
        may_read_logs = await rendering.read(request, lambda: _may_read_logs(user, record.namespace))
        manifest = await rendering.services(request).yaml.run(user.person, lambda: text_of(bytes(record.body)))
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, user.origin)
    now, description = server_now(user.requester), record.description
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
        logs=record.logs if may_read_logs else [],
        may_read_logs=may_read_logs,
        manifest=manifest,
    )


async def metrics(request: Request) -> Response:
    """The series of the charts, which are in the first log."""
    user = rendering.user_of(request)
    try:
        record = await _record(request)
        series = await rendering.read(request, lambda: _with_logs(user, record, lambda: _kept(request).series(record)))
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, user.origin)
    return JSONResponse([asdict(one) for one in series])


async def log_events(request: Request) -> Response | EventStream:
    """A log, as the page of a running job gets it: `lines`, and `end`."""
    user = rendering.user_of(request)
    try:
        content = await _log(request)
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, user.origin)

    async def parts() -> AsyncGenerator[bytes, None]:
        lines = content.splitlines()
        for begin in range(0, len(lines), _BATCH):
            if await request.is_disconnected():
                return
            batch = (line_html(line) for line in lines[begin : begin + _BATCH])
            yield rendering.event("lines", "\n".join(batch))
        yield rendering.event("end", "this is the end of the log")

    return EventStream(parts(), rendering.services(request).logs, user.person)


async def log_text(request: Request) -> Response:
    """A log as a file, with the time of each line."""
    user = rendering.user_of(request)
    try:
        content = await _log(request)
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, user.origin)
    name = f"{request.path_params['name']}.{request.query_params['replica']}.log"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return PlainTextResponse(content, headers=headers)


async def _log(request: Request) -> bytes:
    user, wanted = rendering.user_of(request), request.query_params.get("replica", "")
    record = await _record(request)
    file = next((log for log in record.logs if log.name == wanted and log.is_valid), None)
    if file is None:
        raise HistoryError(f"the history of {record.name} has no log {wanted[:100]!r}")
    chosen: LogFile = file
    return await rendering.read(
        request, lambda: _with_logs(user, record, lambda: _kept(request).history.log(record, chosen))
    )


async def _record(request: Request) -> Record:
    return await rendering.read(request, lambda: _read(request))


def _read(request: Request) -> Record:
    """The record of a page. Raises `ClientError` if the person may not get such jobs, or there is none."""
    parameters, user = request.path_params, rendering.user_of(request)
    namespace, kind, uid = parameters["namespace"], parameters["kind"][:80], parameters["uid"][:80]
    resource = recorded_resource(kind)
    if resource is None or not user.may("get", resource, namespace):
        raise HistoryError(f"you may not get {kind} in namespace {namespace}: ask for the role view there")
    history = _kept(request).history
    for entry in history.jobs(namespace):
        if (entry.uid, entry.kind, entry.name) == (uid, kind, parameters["name"]):
            return history.read(entry)
    raise HistoryError(f"the history has no such job {parameters['name']}: newer ones may have taken its place")


def _entries(kept: KeptJobs, user: User, namespace: str, text: str) -> list[Entry]:
    """The jobs of a namespace of the kinds that the person may get there; of all, if they may get them in all."""
    allowed: dict[str, bool] = {}

    def is_allowed(kind: str) -> bool:
        if kind not in allowed:
            resource = recorded_resource(kind)
            allowed[kind] = resource is not None and user.may("get", resource, namespace)
        return allowed[kind]

    entries = [entry for entry in kept.history.jobs(namespace, text=text) if is_allowed(entry.kind)]
    # Nobody learns whether a namespace has had jobs of which they may get none.
    if not entries and not any(user.may("get", kind.resource, namespace) for kind in OWN_KINDS):
        where = f"namespace {namespace}" if namespace else "all namespaces: choose a namespace"
        raise HistoryError(f"You may not get the jobs of {where}")
    return entries


def _with_logs(user: User, record: Record, read: Callable[[], Any]) -> Any:
    if not _may_read_logs(user, record.namespace):
        raise HistoryError(f"you may not get pods/log in namespace {record.namespace}: ask for the role view there")
    return read()


def _may_read_logs(user: User, namespace: str) -> bool:
    return user.may("get", PODS, namespace, "log")


def _kept(request: Request) -> KeptJobs:
    kept: KeptJobs | None = request.app.state.history
    if kept is None:
        raise HistoryError("This dashboard has no history of ended jobs: start it with --history (docs/history.md).")
    return kept


def _page_of(entries: Sequence[Entry], wanted: str) -> Shown:
    number = int(wanted) if wanted.isascii() and wanted.isdecimal() and len(wanted) < 7 else 1
    pages = max(1, -(-len(entries) // PAGE_ROWS))
    page = min(max(1, number), pages)
    return Shown(entries[(page - 1) * PAGE_ROWS : page * PAGE_ROWS], len(entries), page)


def _text(request: Request) -> str:
    return request.query_params.get("text", "")[:_MAX_TEXT]


def _base(request: Request) -> str:
    parameters = request.path_params
    return "/history/" + "/".join(str(parameters[name]) for name in ("namespace", "kind", "name", "uid"))
