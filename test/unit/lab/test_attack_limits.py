"""attack.limits: what exceeds its limit is killed, or is seen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from helpers.poll import eventually
from lab.attack.limits import MIB, Limited, limited
from localcluster import process
from localcluster.errors import LocalClusterError

# Grows once it has read a line.
PROGRAM = "import sys; sys.stdin.readline(); held = bytearray(200 << 20); sys.stdin.readline()"


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE) as started:
        yield started
        started.kill()


def grow(program: subprocess.Popen[bytes]) -> None:
    assert program.stdin is not None
    program.stdin.write(b"\n")
    program.stdin.flush()


def is_over(limit: Limited) -> bool:
    return limit.kills > 0 if limit.group else limit.peak_bytes > limit.limit_bytes


def test_a_program_that_exceeds_its_limit_is_killed_or_at_least_seen(program: subprocess.Popen[bytes]) -> None:
    with limited("test", process.identify(program.pid), 100 * MIB) as limit:
        assert not is_over(limit)
        grow(program)
        eventually(lambda: is_over(limit))
        assert not limit.group or program.wait() == -9


def test_a_program_below_its_limit_is_left_alone(program: subprocess.Popen[bytes]) -> None:
    with limited("test", process.identify(program.pid), 400 * MIB) as limit:
        grow(program)
        eventually(lambda: limit.peak_bytes > 200 * MIB)
        assert (limit.is_alive, is_over(limit)) == (True, False)


def test_what_does_not_run_cannot_be_limited() -> None:
    with pytest.raises(LocalClusterError, match="does not run"), limited("test", None, MIB):
        pass
