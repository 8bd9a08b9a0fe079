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
    ended = subprocess.run([sys.executable, "-c", code], timeout=300, check=False)
    assert ended.returncode in (128 + signal.SIGTERM, 128 + signal.SIGINT)


def test_the_first_signal_requests_a_stop() -> None:
    code = (
        "import os, signal, threading; from tfjob_controller.programs import program; stop = threading.Event();"
        "program.on_signals(stop); os.kill(os.getpid(), signal.SIGTERM); raise SystemExit(0 if stop.wait(20) else 1)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=300, check=False).returncode == os.EX_OK


# Sixteen threads that each hold some memory at the same time; then the heaps that the C library tells of are counted.
_HOLD = """
    import ctypes, sys, threading
    from tfjob_controller.util.heaps import share_heaps
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
    told = subprocess.run([sys.executable, "-c", code, how], timeout=300, check=True, capture_output=True, text=True)
    assert (told.stdout.count("<heap nr=") <= 2) is are_few


# Frees blocks as large as uvloop's for a TLS connection, and prints whether the last one of the next is mapped by
# itself. They are more than the free part of the heap can take.
_LARGE = """
    import ctypes, sys
    from tfjob_controller.util.heaps import share_heaps
    if sys.argv[1] == "set":
        assert share_heaps()
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    for block in [libc.malloc(256 * 1024) for _ in range(100)]:
        libc.free(block)
    last = [libc.malloc(256 * 1024) for _ in range(100)][-1]
    IS_MAPPED = 2  # a bit of the word before the block
    print(bool(ctypes.c_size_t.from_address(last - 8).value & IS_MAPPED))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="the C library is not glibc")
@pytest.mark.parametrize(("how", "is_mapped"), [("set", True), ("default", False)])
def test_large_blocks_are_returned_to_the_system(how: str, is_mapped: bool) -> None:
    """Otherwise the first one that is freed moves all later ones into the heaps."""
    code = textwrap.dedent(_LARGE)
    told = subprocess.run([sys.executable, "-c", code, how], timeout=300, check=True, capture_output=True, text=True)
    assert told.stdout.strip() == str(is_mapped)
