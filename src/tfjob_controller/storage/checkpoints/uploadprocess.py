"""The two ends of an upload in a process of its own: `tfjob-controller checkpoint upload`, and what starts it.

The process reads one request from its standard input, writes reports to its standard output and log lines to its
standard error. It ends when its standard input is closed: an upload does not outlive the process that watches.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn

from tfjob_controller.storage.checkpoints.report import (
    UploadReport,
    UploadRequest,
    Wanted,
    encode,
    read_report,
    read_request,
)

# Without -P the current folder, which others may write, would be searched for modules.
_ARGV = ("-P", "-m", "tfjob_controller", "checkpoint", "upload")
_END_SECONDS = 5.0
_CHUNK_BYTES = 65536


@dataclass(slots=True)
class UploadProcess:
    """Implements `saver.Uploads`."""

    make_request: Callable[[list[Wanted], list[str]], UploadRequest]
    _process: subprocess.Popen[bytes] | None = None
    _received: bytearray = field(default_factory=bytearray)

    def start(self, candidates: list[Wanted], leftovers: list[str]) -> None:
        # In a session of its own, so that Ctrl-C in a terminal reaches only the process that watches.
        process = subprocess.Popen(
            [sys.executable, *_ARGV], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._process, self._received = process, bytearray()
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the upload has no pipes")
        os.set_blocking(process.stdout.fileno(), False)
        try:
            process.stdin.write(encode(self.make_request(candidates, leftovers)).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            # It has ended already, which `poll` reports.
            return

    def poll(self) -> tuple[list[UploadReport], bool]:
        process = self._process
        if process is None:
            return [], True
        code = process.poll()
        reports = self._read(process)
        if code is None:
            return reports, False
        self._close(process)
        if code != 0:
            reports.append(UploadReport("failed", reason=f"the upload ended with exit code {code}", is_transient=True))
        return reports, True

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(_END_SECONDS)

    def _read(self, process: subprocess.Popen[bytes]) -> list[UploadReport]:
        while process.stdout is not None and (chunk := process.stdout.read(_CHUNK_BYTES)):
            self._received += chunk
        *lines, rest = bytes(self._received).split(b"\n")
        self._received = bytearray(rest)
        return [read_report(line.decode()) for line in lines]

    def _close(self, process: subprocess.Popen[bytes]) -> None:
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        self._process = None


def run_upload(configure_logging: Callable[[str, str], None]) -> NoReturn:
    """Runs one upload, and ends the process. `configure_logging` takes a format and a level."""
    import signal

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    request = read_request(sys.stdin.readline())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()

    from tfjob_controller.storage.commands import quiet_libraries
    from tfjob_controller.storage.errors import explain
    from tfjob_controller.storage.uris import Redactor

    configure_logging(request.log_format, request.log_level)
    quiet_libraries()
    redact = Redactor(os.environ)
    try:
        _uploader_of(request, redact).run(request.candidates, request.leftovers)
    except Exception as error:
        fault = explain(error, "the storage")
        _report(UploadReport("failed", reason=redact(str(fault)), is_transient=fault.is_transient))
    # Threads of libraries, or workers that a server blocks, must not keep the process.
    os._exit(0)


def _uploader_of(request: UploadRequest, redact: Any) -> Any:
    from tfjob_controller.storage.checkpoints.bandwidth import Bandwidth
    from tfjob_controller.storage.checkpoints.schemes import open_store, subfolder_of
    from tfjob_controller.storage.checkpoints.uploader import Uploader
    from tfjob_controller.storage.uris import parse
    from tfjob_controller.util.clock import RealClock

    uri, clock = parse(request.storage_uri), RealClock()
    subfolder = subfolder_of(request.node, request.per_node)
    return Uploader(
        store=open_store(uri, os.environ, request.store_path, subfolder),
        where="/".join(filter(None, (str(uri).rstrip("/"), subfolder))),
        path=request.path,
        keep=request.keep,
        node=request.node,
        parallel=request.parallel,
        retries=request.retries,
        bandwidth=Bandwidth(request.max_bandwidth, clock),
        clock=clock,
        redact=redact,
        report=_report,
        leftover_age=timedelta(seconds=request.leftover_seconds),
    )


def _report(report: UploadReport) -> None:
    print(encode(report), flush=True)


def _end_with_the_parent() -> None:
    sys.stdin.read()
    os._exit(0)
