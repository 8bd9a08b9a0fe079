"""`tfjob-controller initialize dataset|model` and `tfjob-controller export`, from options to an exit code.

The last line on standard error is the reason of a failure, and nothing may follow it. In a container the same line is
the termination message, from which the controller takes the job's reason. Libraries log nothing, because their lines
could follow the reason, and can contain URLs with secrets. errors.py has the exit codes. SIGTERM and SIGINT end a
command at once; the next run continues from there.
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

from tfjob_controller.storage.errors import EXIT_STOPPED, Stopped, StorageError, exit_code, explain
from tfjob_controller.storage.exporter import export_folder
from tfjob_controller.storage.initializer import initialize_folder
from tfjob_controller.storage.options import ExportOptions, InitializeOptions
from tfjob_controller.storage.uris import Redactor, redact_urls
from tfjob_controller.storage.workerpool import THREAD_PREFIX

PROGRAM = "tfjob-controller"
# The default of a container's terminationMessagePath.
TERMINATION_LOG = "/dev/termination-log"


def initialize(what: str, options: InitializeOptions, environ: Mapping[str, str] = os.environ) -> int:
    """Fills the target folder; returns the exit code."""
    redact = Redactor(environ)
    return run_command(
        f"initialize {what}", options.storage_uri, redact, lambda: initialize_folder(what, options, environ, redact)
    )


def export(options: ExportOptions, environ: Mapping[str, str] = os.environ) -> int:
    """Uploads the files of the source folder; returns the exit code."""
    redact = Redactor(environ)
    return run_command("export", options.storage_uri, redact, lambda: export_folder(options, environ, redact))


def run_command(command: str, uri: str, redact: Redactor, work: Callable[[], None]) -> int:
    """Runs the work of a command and prints how it failed; returns the exit code."""
    try:
        quiet_libraries()
        with _stoppable():
            work()
    except Stopped:
        return _leave(f"{command}: stopped by a signal; a new run continues from here", EXIT_STOPPED)
    except Exception as error:
        where = redact_urls(uri)
        fault: StorageError = explain(error, where)
        message = str(fault) if where in str(fault) else f"{where}: {fault}"
        return _leave(redact(f"{command}: {message}"), exit_code(fault))
    return 0


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM and SIGINT raise Stopped in the main thread, also while it waits."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        # A second signal must not interrupt the handling of the first one.
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        raise Stopped

    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def quiet_libraries() -> None:
    """Silences libraries until the process ends: they would report open connections after the last line."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    # The user of a container often has no home folder, which uploads by Xet need.
    os.environ.setdefault("HF_HOME", os.path.join(tempfile.gettempdir(), "huggingface"))
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


def _leave(line: str, code: int) -> int:
    """Prints the last line. A worker that is blocked by a server must neither keep the process nor print after it."""
    print(f"{PROGRAM}: {line}", file=sys.stderr, flush=True)
    write_termination_message(f"{PROGRAM}: {line}")
    if any(thread.name.startswith(THREAD_PREFIX) for thread in threading.enumerate()):
        sys.stdout.flush()
        os._exit(code)
    return code


def write_termination_message(line: str) -> None:
    """Writes the termination message, which the kubelet prefers to the log. Only a kubelet creates the file."""
    with contextlib.suppress(OSError), open(os.open(TERMINATION_LOG, os.O_WRONLY | os.O_TRUNC), "w") as file:
        file.write(line)
