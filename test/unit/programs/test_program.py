"""The rules of programs/program.py."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap

import pytest


def test_a_second_signal_ends_it_however_close_to_the_first() -> None:
    """Both are there before the handler of either has run."""
    code = (
        "import os, signal, threading; from tfjob_controller.programs import program; stop = threading.Event();"
        "program.on_signals(stop);"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT});"
        "os.kill(os.getpid(), signal.SIGTERM); os.kill(os.getpid(), signal.SIGINT);"
        "signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT}); stop.wait(60)"
    )
    ended = subprocess.run([sys.executable, "-c", code], timeout=30, check=False)
    assert ended.returncode in (128 + signal.SIGTERM, 128 + signal.SIGINT)


def test_the_first_signal_requests_a_stop() -> None:
    code = (
        "import os, signal, threading; from tfjob_controller.programs import program; stop = threading.Event();"
        "program.on_signals(stop); os.kill(os.getpid(), signal.SIGTERM); raise SystemExit(0 if stop.wait(20) else 1)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == os.EX_OK


# Sixteen threads that each hold some memory at the same time; then the heaps that the C library tells of are counted.
_HOLD = """
    import ctypes, sys, threading
    from tfjob_controller.programs.program import share_heaps
    if sys.argv[1] == "shared":
        assert share_heaps()
    everybody = threading.Barrier(17)
    def hold():
        held = [bytes(4000) for _ in range(100)]
        everybody.wait(60)
    for _ in range(16):
        threading.Thread(target=hold, daemon=True).start()
    everybody.wait(60)
    libc = ctypes.CDLL(None)
    libc.fdopen.restype = ctypes.c_void_p
    out = ctypes.c_void_p(libc.fdopen(1, b"w"))
    libc.malloc_info(0, out)
    libc.fflush(out)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="the C library is not glibc")
@pytest.mark.parametrize(("how", "are_few"), [("shared", True), ("apart", False)])
def test_threads_share_heaps_of_the_c_library(how: str, are_few: bool) -> None:
    """Without it each thread has its own, or sixteen on two cores at most."""
    code = textwrap.dedent(_HOLD)
    told = subprocess.run([sys.executable, "-c", code, how], timeout=60, check=True, capture_output=True, text=True)
    assert (told.stdout.count("<heap nr=") <= 2) is are_few
