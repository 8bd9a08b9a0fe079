"""The log of one replica for a browser: lines as HTML, with ANSI colours, in batches as they are printed.

A thread reads the log and waits while the browser is behind: memory is bounded for a log of any size and for a line of
any length. Of a line `MAX_LINE_BYTES` are read, and `MAX_LINE` characters are shown. Everything else that a program can
print is escaped or removed. A browser that goes ends its thread and its connection at once, also if the log is silent.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Iterator

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

# A progress bar that a program draws again and again is one line, of which the last state is shown.
MAX_LINE_BYTES = 1_000_000
MAX_LINE = 4000
TAIL_LINES = 2000
# Lines that wait for the browser. A line takes 20 KB at most, when all of it is escaped.
_MAX_LINES = 100
_PUT_SECONDS = 0.1
# How often a silent stream looks whether its browser is still there.
_LOOK_SECONDS = 1.0


class LogPump:
    """Reads a job's log in a thread of its own. All methods are for the thread of the event loop."""

    def __init__(self, user: User, job: Job, replica: str) -> None:
        options = LogOptions(replica, follow=True, tail=TAIL_LINES, max_line_bytes=MAX_LINE_BYTES)
        children = Reader(user.requester, job.namespace, job.snapshot.kind)
        self._reader = LogReader(user.requester, children, job.name, options, note=self._put_note)
        self._origin = user.origin
        self._lines: queue.Queue[str | None] = queue.Queue(_MAX_LINES)
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

    async def take(self, timeout_seconds: float) -> tuple[list[str], bool]:
        """The lines that have arrived, as HTML, and whether the log has ended; waits for the first of them."""
        self._arrived.clear()
        if self._lines.empty():
            try:
                await asyncio.wait_for(self._arrived.wait(), timeout_seconds)
            except TimeoutError:
                return [], False
        lines: list[str] = []
        while len(lines) < _MAX_LINES:
            try:
                item = self._lines.get_nowait()
            except queue.Empty:
                break
            if item is None:
                return lines, True
            lines.append(item)
        return lines, False

    # In the thread of the log.

    def _run(self) -> None:
        try:
            for line in self._html():
                if not self._put(line):
                    return
        except (ApiError, ClientError) as error:
            self._put_note(message_of(error, self._origin))
        self._put(None)

    def _html(self) -> Iterator[str]:
        for view in self._reader.chosen()[:1]:
            for line in self._reader.lines(view.replica.id):
                yield html_of(line)

    def _put_note(self, text: str) -> None:
        self._put(f'<span class="log-note">{escape(text)}</span>')

    def _put(self, item: str | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._lines.put(item, timeout=_PUT_SECONDS)
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


def html_of(line: bytes) -> str:
    """One line as HTML."""
    shown = line.rstrip(b"\r").rpartition(b"\r")[2]
    # A character has up to four bytes.
    return to_html(shown[: 4 * MAX_LINE].decode("utf-8", "replace")[:MAX_LINE])


async def stream_log(request: Request, job: Job, replica: str) -> AsyncGenerator[bytes, None]:
    """Server-sent events `lines` with lines as HTML, and `end` once no more will follow."""
    pump = LogPump(user_of(request), job, replica)
    pump.start()
    silent = 0.0
    try:
        while not await request.is_disconnected():
            lines, has_ended = await pump.take(_LOOK_SECONDS)
            if lines:
                silent = 0.0
                yield event("lines", "\n".join(lines))
            elif not has_ended:
                silent += _LOOK_SECONDS
                if silent >= KEEPALIVE_SECONDS:
                    silent = 0.0
                    yield b": \n\n"
            if has_ended:
                yield event("end", "the log has ended")
                return
    finally:
        pump.stop()
