"""The rules of program.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def test_a_second_signal_ends_it_however_close_to_the_first() -> None:
    """Both are there before the handler of either has run."""
    code = (
        "import os, signal, threading; from tfjob_controller import program; stop = threading.Event();"
        "program.on_signals(stop);"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT});"
        "os.kill(os.getpid(), signal.SIGTERM); os.kill(os.getpid(), signal.SIGINT);"
        "signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT}); stop.wait(60)"
    )
    ended = subprocess.run([sys.executable, "-c", code], timeout=30, check=False)
    assert ended.returncode in (128 + signal.SIGTERM, 128 + signal.SIGINT)


def test_the_first_signal_asks_for_a_stop() -> None:
    code = (
        "import os, signal, threading; from tfjob_controller import program; stop = threading.Event();"
        "program.on_signals(stop); os.kill(os.getpid(), signal.SIGTERM); raise SystemExit(0 if stop.wait(20) else 1)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == os.EX_OK
