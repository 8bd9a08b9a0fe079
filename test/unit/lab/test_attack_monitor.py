"""attack.monitor: a program that uses more memory than its limit is reported."""

from __future__ import annotations

import subprocess
import sys

from helpers.poll import eventually
from lab.attack.monitor import Monitor
from lab.attack.stage import MIB, Attacked
from localcluster import process
from localcluster.api import Api
from localcluster.ourprogram import PROBES

# Grows once it has read a line.
PROGRAM = "import sys; sys.stdin.readline(); held = bytearray(200 << 20); sys.stdin.readline()"


def test_a_program_that_exceeds_its_limit_is_reported_also_after_its_end() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE) as program:
        identity = process.identify(program.pid)
        assert identity is not None
        assert program.stdin is not None
        attacked = Attacked("test", identity, 100 * MIB, {PROBES: 1}, ())
        with Monitor(Api("https://127.0.0.1:1", ca=None), attacked) as monitor:
            eventually(lambda: monitor.figures(1.0)["peak_resident_mb"] > 0)
            assert (monitor.is_alive, monitor.is_within_limit) == (True, True)
            program.stdin.write(b"\n")
            program.stdin.flush()
            eventually(lambda: not monitor.is_within_limit)
            program.kill()
            eventually(lambda: not monitor.is_alive)
            assert {"test has ended", "test used more memory than its limit"} <= set(monitor.broken(1.0))
