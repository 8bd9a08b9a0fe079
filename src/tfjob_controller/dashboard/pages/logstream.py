"""The log of one container for a browser: lines as HTML with ANSI colours as they are printed, or all of it as a file.

A thread reads the log and waits while the browser is behind: memory is bounded for a log of any size and for a line of
any length. Of a line `MAX_LINE_BYTES` are read, and `MAX_LINE` characters are shown. Everything else that a program can
print is escaped or removed. A browser that goes ends its thread and its connection at once, also if the log is silent.
"""

from __future__ import annotations

import asyncio
import queue
import re
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog
from markupsafe import escape
from starlette.requests import Request

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.job import Job
from tfjob_controller.client.logs import LogOptions, LogReader
from tfjob_controller.client.reader import Reader
from tfjob_controller.dashboard.ansi import to_html
from tfjob_controller.dashboard.pages.rendering import KEEPALIVE_SECONDS, event, message_of, user_of
from tfjob_controller.dashboard.users import User
from tfjob_controller.kube.errors import ApiError

log = structlog.get_logger(__name__)

# A progress bar that a program draws again and again is one line, of which the last state is shown.
MAX_LINE_BYTES = 1_000_000
MAX_LINE = 4000
TAIL_LINES = 2000
# Of a file; kubelets keep less by default.
MAX_FILE_BYTES = 1_000_000_000
# Lines that wait for the browser. A line takes 20 KB at most, when all of it is escaped.
_MAX_LINES = 100
# Pieces of a file that wait for the browser, and the size from which one is passed on.
_MAX_PIECES, _PIECE_BYTES = 16, 64 * 1024
_PUT_SECONDS = 0.1
# How often a silent stream looks whether its browser is still there.
_LOOK_SECONDS = 1.0
# Between the time that the API server puts before a line, and the line. HTML of a line has no control characters.
_AFTER_TIME = "\x1f"
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d{1,9})?Z ?")
_NOT_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9._-]+")

_INTERNAL_ERROR = "The log cannot be read because of an error of the dashboard, which its own log describes."

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class LogChoice:
    """Which log; an empty replica or container is the default of `LogOptions`."""

    replica: str = ""
    container: str = ""
    is_previous: bool = False

    @classmethod
    def of(cls, query: Mapping[str, str]) -> LogChoice:
        return cls(query.get("replica", "")[:100], query.get("container", "")[:63], query.get("previous") == "true")

    def file_name(self, job: str) -> str:
        """A name that is safe in a header and on any file system."""
        parts = (job, self.replica, self.container, "previous" if self.is_previous else "")
        return _NOT_IN_FILE_NAMES.sub("-", "-".join(part for part in parts if part)) + ".log"


@dataclass(frozen=True, slots=True)
class PumpEnd:
    """Nothing follows; `problem` is the reason why the log cannot be read, if it cannot."""

    problem: str = ""


class LogPump(Generic[ItemT]):
    """Reads a job's log in a thread of its own. All methods are for the thread of the event loop.

    `items` makes what is passed on of the lines, and `note` of a remark about them, such as why a followed log has not
    begun; `most` of them wait at a time.
    """

    def __init__(
        self,
        user: User,
        job: Job,
        options: LogOptions,
        items: Callable[[Iterator[bytes]], Iterator[ItemT]],
        note: Callable[[str], ItemT | None],
        most: int,
    ) -> None:
        children = Reader(user.requester, job.namespace, job.snapshot.kind)
        self._reader = LogReader(user.requester, children, job.name, options, self._put_note, self._put_note)
        self._items = items
        self._note = note
        self._origin = user.origin
        self._queue: queue.Queue[ItemT | PumpEnd] = queue.Queue(most)
        self._stopped = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"log-{job.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and its connection, without waiting for them."""
        self._stopped.set()
        self._reader.close()

    async def take(self, timeout_seconds: float) -> tuple[list[ItemT], PumpEnd | None]:
        """What has arrived, and the end of the log if that has; waits for the first item."""
        self._arrived.clear()
        if self._queue.empty():
            try:
                await asyncio.wait_for(self._arrived.wait(), timeout_seconds)
            except TimeoutError:
                return [], None
        items: list[ItemT] = []
        while len(items) < self._queue.maxsize:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if isinstance(item, PumpEnd):
                return items, item
            items.append(item)
        return items, None

    # In the thread of the log.

    def _run(self) -> None:
        try:
            for view in self._reader.chosen()[:1]:
                for item in self._items(self._reader.lines(view.replica.id)):
                    if not self._put(item):
                        return
        except (ApiError, ClientError) as error:
            self._put(PumpEnd(message_of(error, self._origin)))
        except Exception:  # without an end, the stream would stay silent for ever
            log.exception("cannot read a log")
            self._put(PumpEnd(_INTERNAL_ERROR))
        else:
            self._put(PumpEnd())

    def _put_note(self, text: str) -> None:
        if (item := self._note(text)) is not None:
            self._put(item)

    def _put(self, item: ItemT | PumpEnd) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=_PUT_SECONDS)
            except queue.Full:
                continue
            return self._wake()
        return False

    def _wake(self) -> bool:
        """False once the event loop has ended."""
        if self._arrived.is_set():
            return True
        try:
            self._loop.call_soon_threadsafe(self._arrived.set)
        except RuntimeError:
            return False
        return True


def line_html(line: bytes) -> str:
    """The line as HTML, after its time if it begins with one."""
    time = _TIME.match(line)
    shown = line[time.end() if time else 0 :].rstrip(b"\r").rpartition(b"\r")[2]
    # A character has up to four bytes.
    html = to_html(shown[: 4 * MAX_LINE].decode("utf-8", "replace")[:MAX_LINE])
    return f"{time[1].decode()}{_AFTER_TIME}{html}" if time else html


def _note_html(text: str) -> str:
    return f'<span class="log-note">{escape(text)}</span>'


async def stream_log(request: Request, job: Job, choice: LogChoice) -> AsyncGenerator[bytes, None]:
    """Server-sent events `lines` with lines as HTML, and `end` once no more will follow."""
    options = LogOptions(
        choice.replica,
        follow=not choice.is_previous,
        previous=choice.is_previous,
        tail=TAIL_LINES,
        max_line_bytes=MAX_LINE_BYTES,
        container=choice.container,
        timestamps=True,
    )
    pump = LogPump(user_of(request), job, options, lambda lines: map(line_html, lines), _note_html, _MAX_LINES)
    pump.start()
    silent = 0.0
    try:
        while not await request.is_disconnected():
            lines, end = await pump.take(_LOOK_SECONDS)
            if end is not None and end.problem:
                lines.append(_note_html(end.problem))
            if lines:
                silent = 0.0
                yield event("lines", "\n".join(lines))
            elif end is None:
                silent += _LOOK_SECONDS
                if silent >= KEEPALIVE_SECONDS:
                    silent = 0.0
                    yield b": \n\n"
            if end is not None:
                yield event("end", "the log has ended")
                return
    finally:
        pump.stop()


def check_log(job: Job, choice: LogChoice) -> None:
    """Raises `ClientError` with the reason if there is no log."""
    lines = job.logs(
        choice.replica, tail=1, previous=choice.is_previous, max_line_bytes=_PIECE_BYTES, container=choice.container
    )
    next(lines, None)


async def log_file(request: Request, job: Job, choice: LogChoice, *, has_times: bool) -> AsyncGenerator[bytes, None]:
    """The whole log up to now, as the program wrote it, in pieces."""
    options = LogOptions(
        choice.replica,
        previous=choice.is_previous,
        max_line_bytes=MAX_LINE_BYTES,
        container=choice.container,
        timestamps=has_times,
    )
    pump = LogPump(user_of(request), job, options, file_pieces, lambda text: None, _MAX_PIECES)
    pump.start()
    try:
        while not await request.is_disconnected():
            pieces, end = await pump.take(_LOOK_SECONDS)
            for piece in pieces:
                yield piece
            if end is not None:
                if end.problem:
                    yield f"[{end.problem}]\n".encode()
                return
    finally:
        pump.stop()


def file_pieces(lines: Iterator[bytes], most: int = MAX_FILE_BYTES) -> Iterator[bytes]:
    """The lines with their ends, in pieces of about the size that is worth a write."""
    piece = bytearray()
    size = 0
    for line in lines:
        size += len(line) + 1
        if size > most:
            piece += f"[the rest is left out: a file has at most {most} bytes]\n".encode()
            break
        piece += line + b"\n"
        while len(piece) >= _PIECE_BYTES:
            yield bytes(piece[:_PIECE_BYTES])
            del piece[:_PIECE_BYTES]
    if piece:
        yield bytes(piece)
