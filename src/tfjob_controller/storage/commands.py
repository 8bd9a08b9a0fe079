"""`tfjob-controller initialize dataset|model` and `tfjob-controller export`, from options to an exit code.

The last line on standard error says why it failed, and nothing may follow it. In a container the same line is the
termination message, from which the job's reason is made. So what libraries log is not shown at all; it would also tell
URLs with what is secret in them. Exit codes: errors.py. SIGTERM and SIGINT end it at once; what has come so far is gone
on with by the next run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from tfjob_controller.storage.crew import WORKER_NAME
from tfjob_controller.storage.errors import EXIT_STOPPED, Stopped, StorageError, exit_code, explain
from tfjob_controller.storage.exporting import export_folder
from tfjob_controller.storage.initializing import initialize_folder
from tfjob_controller.storage.options import ExportOptions, InitializeOptions
from tfjob_controller.storage.redaction import Redactor
from tfjob_controller.storage.uris import redact_urls

PROGRAM = "tfjob-controller"
# The default of a container's terminationMessagePath.
TERMINATION_LOG = "/dev/termination-log"


def initialize(what: str, options: InitializeOptions, environ: Mapping[str, str] = os.environ) -> int:
    """Fill the target folder; returns the exit code."""
    redact = Redactor(environ)
    return _run(
        f"initialize {what}", options.storage_uri, redact, lambda: initialize_folder(what, options, environ, redact)
    )


def export(options: ExportOptions, environ: Mapping[str, str] = os.environ) -> int:
    """Send the source folder's files; returns the exit code."""
    redact = Redactor(environ)
    return _run("export", options.storage_uri, redact, lambda: export_folder(options, environ, redact))


def _run(command: str, uri: str, redact: Redactor, work: Callable[[], None]) -> int:
    try:
        _quiet_libraries()
        with _stoppable():
            work()
    except Stopped:
        return _leave(f"{command}: stopped by a signal; a new run goes on from here", EXIT_STOPPED)
    except Exception as error:
        where = redact_urls(uri)
        fault: StorageError = explain(error, where)
        said = str(fault) if where in str(fault) else f"{where}: {fault}"
        return _leave(redact(f"{command}: {said}"), exit_code(fault))
    return 0


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM and SIGINT raise Stopped in the main thread, whatever that waits for."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        # A second one must not break what the first one set going.
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        raise Stopped

    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _quiet_libraries() -> None:
    """For good: a connection that nobody closed is told when the interpreter ends, after our last line."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    # A container's user often has no home; uploads by Xet keep something there.
    os.environ.setdefault("HF_HOME", os.path.join(tempfile.gettempdir(), "huggingface"))
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


def _leave(line: str, code: int) -> int:
    """Say the last line. A worker that still waits for a server would keep the process, or talk after it."""
    print(f"{PROGRAM}: {line}", file=sys.stderr, flush=True)
    _write_termination_message(f"{PROGRAM}: {line}")
    if any(thread.name.startswith(WORKER_NAME) for thread in threading.enumerate()):
        sys.stdout.flush()
        os._exit(code)
    return code


def _write_termination_message(line: str) -> None:
    """Replaces the end of the log, which the kubelet would take otherwise. Only a kubelet creates the file."""
    with contextlib.suppress(OSError), open(os.open(TERMINATION_LOG, os.O_WRONLY | os.O_TRUNC), "w") as file:
        file.write(line)
