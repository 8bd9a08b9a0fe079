"""What all pages share: the person of a request, templates with filters for text of a cluster, server-sent events.

Templates escape everything (Jinja2's autoescape). Text of a cluster also passes `one_line`, so that control characters
are seen and not obeyed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from weakref import WeakValueDictionary

from cachetools import TTLCache
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, StreamingResponse

from tfjob_controller.client.errors import ClientError, error_text
from tfjob_controller.client.text import age, one_line
from tfjob_controller.dashboard.feeds import Feeds, Notifier
from tfjob_controller.dashboard.metrichistory import MetricHistory
from tfjob_controller.dashboard.users import BrowserSession, User
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.util.clock import Clock

FOLDER = Path(__file__).parent.parent
# A comment is sent after this time without an event, so that a proxy keeps the connection and a dead one is noticed.
KEEPALIVE_SECONDS = 15.0
_MAX_HISTORIES = 100
_HISTORY_SECONDS = 4.0
_HISTORY_THREADS = 8
# What ends a line in an event stream; an empty line is one, too.
_LINE_END = re.compile(r"\r\n|\r|\n")
# The size of the line beside a loss, in units of its drawing.
_SPARK_WIDTH, _SPARK_HEIGHT = 80, 18


class Histories:
    """The metrics of jobs as they were read a moment ago, by person and job. For the event loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._values: TTLCache[tuple[str, ...], MetricHistory] = TTLCache(
            _MAX_HISTORIES, _HISTORY_SECONDS, timer=clock.monotonic
        )
        self._locks: WeakValueDictionary[tuple[str, ...], asyncio.Lock] = WeakValueDictionary()
        # A log may take long to answer, and must not take threads that other pages need.
        self._threads = ThreadPoolExecutor(_HISTORY_THREADS, thread_name_prefix="metrics")

    async def get(self, key: tuple[str, ...], read: Callable[[], MetricHistory]) -> MetricHistory:
        """The result of `read`, which is called in a thread once for all browsers; others of its key wait for it."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            if (found := self._values.get(key)) is None:
                found = await asyncio.get_running_loop().run_in_executor(self._threads, read)
                self._values[key] = found
            return found


@dataclass(frozen=True, slots=True)
class Services:
    """What the pages of one dashboard use, as `request.app.state.services`."""

    feeds: Feeds
    histories: Histories
    clock: Clock


def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


def session_of(request: Request) -> BrowserSession:
    found: BrowserSession = request.state.session
    return found


def user_of(request: Request) -> User:
    return session_of(request).user


def sparkline(values: Sequence[float]) -> str:
    """The points of an SVG polyline through the values."""
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    scale = (_SPARK_HEIGHT - 2) / (high - low) if high > low else 0.0
    step = _SPARK_WIDTH / (len(values) - 1)
    return " ".join(
        f"{index * step:.1f},{_SPARK_HEIGHT - 1 - (value - low) * scale:.1f}" for index, value in enumerate(values)
    )


def figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def age_of(moment: str | None) -> Markup:
    """Returns the age as an element that dashboard.js keeps up to date."""
    if not moment:
        return Markup("")
    return Markup('<time class="age" datetime="{}">{}</time>').format(moment, age(moment, datetime.now(UTC)))


def clock() -> str:
    """Returns the time of this machine, from which browsers count, whatever their own clocks say."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _url(path: str, parameters: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(parameters)}" if parameters else path


_templates = Environment(
    loader=FileSystemLoader(FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters.update(line=one_line, age=age_of, figure=figure, sparkline=sparkline)
_templates.globals.update(url=_url, clock=clock)


def render(name: str, **values: Any) -> str:
    return _templates.get_template(name).render(**values)


def page(request: Request, name: str, status_code: int = 200, **values: Any) -> HTMLResponse:
    """A whole page; the templates of pages extend base.html."""
    session: BrowserSession | None = getattr(request.state, "session", None)
    return HTMLResponse(render(name, request=request, session=session, **values), status_code)


def problem_page(request: Request, error: Exception, origin: str) -> HTMLResponse:
    """The page of an error of the API server or the client; it loads itself again until the error has gone."""
    refused = error.api_error if isinstance(error, ClientError) else error
    status = refused.status or 503 if isinstance(refused, ApiError) else 400
    return page(request, "problem.html", status, words=words_of(error, origin), status=status)


def words_of(error: Exception, origin: str) -> str:
    """The message of an error and its remedy, on one line."""
    return one_line(error_text(error, origin) if isinstance(error, ApiError) else str(error))


async def events(
    request: Request, name: str, changes: Notifier, content: Callable[[], str], first: str | None = None
) -> AsyncIterator[bytes]:
    """Server-sent events: `content` now and after each change, unless it is equal to what was sent last."""
    sent, version = first, -1
    while not await request.is_disconnected():
        if version != changes.version:
            version = changes.version
            body = await asyncio.to_thread(content)
            if body != sent:
                sent = body
                yield event(name, body)
                continue
        if await changes.changed_after(version, KEEPALIVE_SECONDS) == version:
            yield b": \n\n"


def event(name: str, body: str) -> bytes:
    """One server-sent event."""
    lines = "".join(f"data: {line}\n" for line in _LINE_END.split(body))
    return f"event: {name}\n{lines}\n".encode()


def event_stream(parts: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(parts, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
