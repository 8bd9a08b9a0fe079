"""The log of one replica for a browser: lines as HTML, with ANSI colours, in batches as they are printed.

A thread reads the log and waits while the browser is behind: memory is bounded for a log of any size. Lines are cut at
`MAX_LINE` characters. Everything else that a program can print is escaped or removed.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Iterator

from markupsafe import escape
from starlette.requests import Request

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.job import Job
from tfjob_controller.dashboard.ansi import to_html
from tfjob_controller.dashboard.pages.rendering import KEEPALIVE_SECONDS, event

MAX_LINE = 4000
TAIL_LINES = 2000
# Batches that wait for the browser, and the lines of a batch.
_MAX_BATCHES = 8
_BATCH_LINES = 500
_POLL_SECONDS = 0.1


class LogPump:
    """Reads a job's log in a thread of its own. `take` and `stop` are for the reader's thread."""

    def __init__(self, job: Job, replica: str) -> None:
        self._job = job
        self._replica = replica
        self._lines: queue.Queue[str | None] = queue.Queue(_MAX_BATCHES * _BATCH_LINES)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"log-{job.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def take(self, timeout_seconds: float) -> tuple[list[str], bool]:
        """The lines that have arrived, as HTML, and whether the log has ended."""
        found: list[str] = []
        try:
            item = self._lines.get(timeout=timeout_seconds)
            while item is not None:
                found.append(item)
                if len(found) >= _BATCH_LINES:
                    return found, False
                item = self._lines.get_nowait()
        except queue.Empty:
            return found, False
        return found, True

    def _run(self) -> None:
        try:
            for line in self._html():
                if not self._put(line):
                    return
        except ClientError as error:
            self._put(f'<span class="log-note">{escape(str(error))}</span>')
        self._put(None)

    def _html(self) -> Iterator[str]:
        for line in self._job.logs(self._replica or None, follow=True, tail=TAIL_LINES):
            cut = line.text.rpartition("\r")[2][:MAX_LINE] if "\r" in line.text.rstrip("\r") else line.text[:MAX_LINE]
            yield to_html(cut)

    def _put(self, item: str | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._lines.put(item, timeout=_POLL_SECONDS)
                return True
            except queue.Full:
                continue
        return False


async def stream_log(request: Request, job: Job, replica: str) -> AsyncIterator[bytes]:
    """Server-sent events `lines` with lines as HTML, and `end` once no more will follow."""
    pump = LogPump(job, replica)
    pump.start()
    silent = 0.0
    try:
        while not await request.is_disconnected():
            lines, has_ended = await asyncio.to_thread(pump.take, 1.0)
            if lines:
                silent = 0.0
                yield event("lines", "\n".join(lines))
            elif not has_ended:
                silent += 1.0
                if silent >= KEEPALIVE_SECONDS:
                    silent = 0.0
                    yield b": \n\n"
            if has_ended:
                yield event("end", "the log has ended")
                return
    finally:
        pump.stop()
