"""Shared by all pages: the user of a request, templates with filters for text of a cluster, server-sent events.

Templates escape everything (Jinja2's autoescape). Text of a cluster also passes `one_line`, so that control characters
are seen and not obeyed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import math
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tfjob_controller.client.errors import ClientError, JobDeletedError, error_text
from tfjob_controller.client.history.reading import HistoryError
from tfjob_controller.client.job import Job
from tfjob_controller.client.kinds import KINDS, kinds_named
from tfjob_controller.client.text import age, one_line
from tfjob_controller.dashboard.feeds import Followed
from tfjob_controller.dashboard.keptjobs import KeptJobs
from tfjob_controller.dashboard.services import Services
from tfjob_controller.dashboard.streams import EventStream
from tfjob_controller.dashboard.turns import BusyError, PersonTurns
from tfjob_controller.dashboard.users import BrowserSession, User, must_log_in
from tfjob_controller.kube.errors import NOT_FOUND_REASON, ApiError
from tfjob_controller.kube.names import namespace_violation
from tfjob_controller.kube.requester import server_now

FOLDER = Path(__file__).parent.parent
# A comment is sent after this time without an event, so that a proxy keeps the connection and a dead one is noticed.
KEEPALIVE_SECONDS = 15.0
# So often a stream looks whether its feed has a problem, such as an API server that is away.
CHECK_SECONDS = 1.5
# What ends a line in an event stream; an empty line is one, too.
_LINE_END = re.compile(r"\r\n|\r|\n")
# The size of the line beside a loss, in units of its drawing.
_SPARK_WIDTH, _SPARK_HEIGHT = 80, 18


ReadT = TypeVar("ReadT")


def services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


def session_of(request: Request) -> BrowserSession:
    session: BrowserSession = request.state.session
    return session


def user_of(request: Request) -> User:
    return session_of(request).user


def job_of(request: Request) -> Job:
    """The job that the path of a page names, as it is now. For a thread. Raises `ApiError` and `ClientError`."""
    parameters = request.path_params
    kinds_named(parameters["kind"])
    return user_of(request).client.job(parameters["name"], parameters["kind"], parameters["namespace"])


async def read(request: Request, call: Callable[[], ReadT]) -> ReadT:
    """The result of a call that sends requests of the person, in a thread and in turn. Raises `BusyError`."""
    return await services(request).reads.run(user_of(request).person, call)


async def read_kept(request: Request, call: Callable[[KeptJobs], ReadT]) -> ReadT:
    """The result of a call that reads the history, in a thread and in turn. Raises `BusyError`, and `HistoryError`."""
    here = services(request)
    if (kept := here.kept_jobs) is None:
        raise HistoryError("This dashboard has no history of ended jobs: start it with --history (docs/history.md).")
    return await here.kept.run(user_of(request).person, functools.partial(call, kept))


async def namespace_of(request: Request) -> str:
    """The namespace of a page, which becomes part of a path: the one in its address, or else the person's first one.

    Raises `ClientError` for text that is no name of a namespace, and `ApiError`.
    """
    namespace = request.query_params.get("namespace")
    if namespace is None:
        return await read(request, user_of(request).first_namespace)
    if namespace and namespace_violation(namespace):
        raise ClientError(
            f"Namespace: {namespace[:80]!r} is not a valid namespace; use lower-case letters, digits and hyphens."
        )
    return namespace


def chosen(request: Request) -> Mapping[str, str]:
    """The parameters by which links of a page keep the namespace that the person has chosen; "" is all of them.

    The page of a job has the job's namespace, unless its address names the one of the page that led there.
    """
    namespace = request.query_params.get("namespace", request.path_params.get("namespace"))
    return {} if namespace is None else {"namespace": namespace}


def job_url(namespace: str, kind: str, name: str, shown: str | None = None) -> str:
    """The address of a job's page, for a link on a page that shows the namespace `shown`."""
    return url(f"/jobs/{namespace}/{kind}/{name}", {} if shown in (None, namespace) else {"namespace": shown})


def sparkline(values: Sequence[float]) -> str:
    """The points of an SVG polyline through the finite values."""
    values = [value for value in values if math.isfinite(value)]
    if len(values) < 2:
        return ""
    halves = [value / 2 for value in values]  # whose differences are finite as well
    low, extent = min(halves), max(halves) - min(halves)
    shares = [(half - low) / extent if extent else 0.0 for half in halves]
    step = _SPARK_WIDTH / (len(values) - 1)
    return " ".join(
        f"{index * step:.1f},{_SPARK_HEIGHT - 1 - share * (_SPARK_HEIGHT - 2):.1f}"
        for index, share in enumerate(shares)
    )


def figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def age_of(moment: str | None, now: datetime) -> Markup:
    """Returns the age as an element that dashboard.js keeps up to date."""
    if not moment:
        return Markup("")
    return Markup('<time class="age" datetime="{}">{}</time>').format(moment, age(moment, now))


def url(path: str, parameters: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(parameters)}" if parameters else path


_templates = Environment(
    loader=FileSystemLoader(FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters.update(line=one_line, age=age_of, figure=figure, sparkline=sparkline)
_templates.globals.update(url=url, job_url=job_url, job_kinds=[kind.resource.kind for kind in KINDS])


def render(name: str, **values: Any) -> str:
    return _templates.get_template(name).render(**values)


def page(request: Request, name: str, status_code: int = 200, **values: Any) -> HTMLResponse:
    """A whole page; the templates of pages extend base.html.

    Ages count from `now`, the time of the API server: the clocks of this machine and of browsers may be wrong.
    """
    session: BrowserSession | None = getattr(request.state, "session", None)
    now = server_now(session.user.requester) if session is not None else datetime.now(UTC)
    has_history = services(request).kept_jobs is not None
    html = render(
        name, request=request, session=session, chosen=chosen(request), now=now, has_history=has_history, **values
    )
    return HTMLResponse(html, status_code)


def problem_page(request: Request, error: Exception, origin: str) -> Response:
    """The page of an error of the API server or the client; it loads itself again until the error has gone.

    Whoever can log in here is led there if the API server rejects their credentials.
    """
    refused = api_error_of(error)
    if refused is not None and must_log_in(refused) and (log_in_again := services(request).log_in_again):
        return log_in_again(request)
    refusal = 429 if isinstance(error, BusyError) else 400
    status = (refused.status or 503) if refused is not None else refusal
    return page(request, "problem.html", status, message=message_of(error, origin), status=status)


def api_error_of(error: Exception) -> ApiError | None:
    """Returns the API server's error, if that is the reason."""
    cause = error.api_error if isinstance(error, ClientError) else error
    return cause if isinstance(cause, ApiError) else None


def is_gone(error: Exception) -> bool:
    """Whether the job that was asked for does not exist, or another one has its name."""
    refused = api_error_of(error)
    is_missing = refused is not None and refused.is_not_found and refused.reason == NOT_FOUND_REASON
    return is_missing or isinstance(error, JobDeletedError)


def is_temporary(error: Exception) -> bool:
    """Whether the same request may succeed a moment later: the API server is away, or has a fault of its own."""
    refused = api_error_of(error)
    return refused is not None and (refused.is_no_response or refused.status >= 500) and not must_log_in(refused)


def problem(error: Exception, origin: str) -> str:
    """What a stream shows in the place of what cannot be read."""
    return render("stream_problem.html", message=message_of(error, origin))


def stale_notice(problems: Sequence[str]) -> str:
    """The sentence above what may be old; empty without a problem."""
    return f"This may be out of date: {problems[0]}" if problems else ""


def is_forbidden(error: Exception) -> bool:
    """Whether the person lacks a right, so that another namespace may be the remedy."""
    refused = api_error_of(error)
    return refused is not None and refused.is_forbidden


def message_of(error: Exception, origin: str) -> str:
    """The message of an error and its remedy, on one line."""
    return one_line(error_text(error, origin) if isinstance(error, ApiError) else str(error))


@dataclass(frozen=True, slots=True)
class Content:
    """A part of a page.

    `is_complete` is false if some of it could not be read, so that it is tried again. Nothing follows what `is_last`.
    """

    html: str
    is_complete: bool = True
    is_rejected: bool = False
    is_last: bool = False


async def events(
    request: Request, name: str, feed: Followed, content: Callable[[], Content]
) -> AsyncGenerator[bytes, None]:
    """Server-sent events: `content` now, and after each change of what the feed has that changes it.

    `login` follows when the API server rejects the person's credentials. An error of `content` is shown in its place,
    and content that is not complete is tried again. It ends when another feed displaces this one, and by `end` after
    the last content, so that the browser does not connect again.
    """
    user, sent, idle_seconds = user_of(request), b"", 0.0
    version, problems, is_synced = -1, tuple[str, ...](), False
    while not (feed.changes.is_over or await request.is_disconnected()):
        before = version, problems, is_synced
        version, problems, is_synced = feed.changes.version, tuple(feed.problems), feed.is_synced
        if before != (version, problems, is_synced):
            has_new_problem = bool(problems) and problems != before[1]
            shown = await in_turn(
                services(request).reads, user.person, functools.partial(_read, content, user, has_new_problem)
            )
            if shown.is_rejected:
                yield event("login", "required")
            if (digest := hashlib.sha256(shown.html.encode()).digest()) != sent:
                sent, idle_seconds = digest, 0.0
                yield event(name, shown.html)
            if shown.is_last:
                yield event("end", "nothing follows")
                return
            if not shown.is_complete:
                await asyncio.sleep(CHECK_SECONDS)
                version = -1
                continue
        if await feed.changes.changed_after(version, CHECK_SECONDS) == version:
            idle_seconds += CHECK_SECONDS
        if idle_seconds >= KEEPALIVE_SECONDS:
            idle_seconds = 0.0
            yield b": \n\n"


async def in_turn(turns: PersonTurns, person: str, call: Callable[[], ReadT]) -> ReadT:
    """As `PersonTurns.run`, for streams: they wait for as long as too many calls of the person do."""
    while True:
        with contextlib.suppress(BusyError):
            return await turns.run(person, call)
        await asyncio.sleep(CHECK_SECONDS)


def _read(content: Callable[[], Content], user: User, has_new_problem: bool) -> Content:
    """The content, or the words of its error."""
    try:
        shown = content()
        return replace(shown, is_rejected=has_new_problem and user.is_rejected())
    except (ApiError, ClientError) as error:
        refused = api_error_of(error)
        is_rejected = refused is not None and must_log_in(refused)
        return Content(problem(error, user.origin), is_complete=not is_temporary(error), is_rejected=is_rejected)


def event(name: str, body: str) -> bytes:
    """One server-sent event."""
    lines = "".join(f"data: {line}\n" for line in _LINE_END.split(body))
    return f"event: {name}\n{lines}\n".encode()


def event_stream(request: Request, parts: AsyncGenerator[bytes, None]) -> EventStream:
    return EventStream(parts, services(request).streams, user_of(request).person)
