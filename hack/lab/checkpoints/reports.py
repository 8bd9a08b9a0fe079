"""The server to which training programs report, and what is known of each job from its reports.

Theory of operation. A program reports its beginning with the step from which it goes on, every step, and its end. At
the beginning, the reports are compared with what the storage held when the restore of that pod began: `on_begin`
does that, in the thread of the request, before the program trains.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_MOST_BYTES = 10_000


@dataclass(slots=True)
class Reported:
    """What the programs of one job have reported."""

    pod: str = ""
    began_at: float = 0.0
    """When the last program began; seconds of this machine's clock."""
    begins: int = 0
    restores: int = 0
    last_step: int = 0
    """The highest step of all programs."""
    steps_since_begin: int = 0
    steps_twice: int = 0
    has_ended: bool = False
    may_end: bool = False
    problems: list[str] = field(default_factory=list)


class ReportServer:
    """Use as a context manager. Thread-safe."""

    def __init__(self, address: str, on_begin: Callable[[str, str, int], None]) -> None:
        """`on_begin` gets the job, the pod, and the step from which its program goes on."""
        self._jobs: dict[str, Reported] = {}
        self._on_begin = on_begin
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer((address, 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="reports", daemon=True)

    def __enter__(self) -> ReportServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/"

    def job(self, name: str) -> Reported:
        with self._lock:
            return self._jobs.setdefault(name, Reported())

    def jobs(self) -> dict[str, Reported]:
        with self._lock:
            return dict(self._jobs)

    def receive(self, fields: dict[str, Any]) -> bool:
        """Records one report; returns whether the program may end."""
        name, pod, what = str(fields["job"]), str(fields["pod"]), fields["what"]
        job = self.job(name)
        # A report is repeated if its answer was lost.
        is_new = what == "began" and pod != job.pod
        if is_new:
            self._on_begin(name, pod, int(fields["step"]))
        with self._lock:
            if what == "broken":
                job.problems.append(f"the program found a broken checkpoint: {fields['reason']}")
            elif is_new:
                job.pod, job.steps_since_begin, job.began_at = pod, 0, time.time()
                job.begins += 1
                job.restores += int(fields["step"]) > 0
                job.steps_twice += max(0, job.last_step - int(fields["step"]))
                # What a later program repeats is counted from where this one begins.
                job.last_step = int(fields["step"])
            elif what != "began" and pod == job.pod:
                job.last_step = int(fields["step"])
                job.steps_since_begin += 1
                job.has_ended = job.has_ended or what == "ended"
            return job.may_end

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receive = self.receive

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = min(int(self.headers.get("Content-Length", "0")), _MOST_BYTES)
                body = json.dumps({"may_end": receive(json.loads(self.rfile.read(length)))}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Logs nothing."""

        return Handler
