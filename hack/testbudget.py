"""Runs a part of the tests, and compares its CPU time with the part's budget in setup.cfg.

`testbudget.py PART TOTALS whole -- COMMAND…` runs the command and returns its exit code, or 1 if the part costs more
than a fifth above its budget. `TOTALS` is the file to which test/conftest.py writes its slowest tests. With anything
but `whole` the figure is shown and not judged, because a choice of tests has no budget.

The figure counts user and system time of all processes that the tests start, also of control planes and programs whose
parents have ended: on Linux they become children of this process (`PR_SET_CHILD_SUBREAPER`). It is CPU time, because
wall time depends on what else a machine does. A slow machine needs more of it for the same work, so it is multiplied by
the share of a fixed loop's time here that this loop takes on the reference machine; never by more than one, because a
faster core is no reason to fail.

Where the loop takes more than one and a half times the reference, the figure is shown and not judged. The cores of such
a machine are shared with others, and the loop does not predict what a part costs there: at 2.2 to 2.7 times the loop's
time, the same tests took 2.2 to 4.4 times the CPU time.
"""

from __future__ import annotations

import configparser
import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_CONFIG = Path(__file__).resolve().parents[1] / "setup.cfg"
_SECTION, _REFERENCE = "test_budgets", "reference_loop"
_TOLERANCE = 1.2
_COMPARABLE = 1.5
_PR_SET_CHILD_SUBREAPER = 36
_LOOPS = 12_000_000
# How long the processes of a part may take to end after it.
_ORPHANS_SECONDS = 10.0
_POLL_SECONDS = 0.05


def loop_seconds() -> float:
    """Returns the CPU seconds that a fixed amount of work takes now."""
    begin = time.process_time()
    number = 1
    for _ in range(_LOOPS):
        number = number * 31 % 1_000_003
    return time.process_time() - begin


def adopt_orphans() -> None:
    """Makes this process the parent of all descendants whose own parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(command: Sequence[str]) -> tuple[int, float]:
    """Runs the command; returns its exit code and the CPU seconds of all its descendants that have ended."""
    before = _children_seconds()
    # Not by subprocess alone: it waits for this child, and orphans must be waited for meanwhile.
    child = subprocess.Popen(command)
    status: int | None = None
    while status is None:
        pid, ended = os.waitpid(-1, 0)
        status = ended if pid == child.pid else None
    child.returncode = os.waitstatus_to_exitcode(status)
    deadline = time.monotonic() + _ORPHANS_SECONDS
    while _reap() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return child.returncode, _children_seconds() - before


def _reap() -> bool:
    """Waits for all that has ended; reports whether children are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def verdict(part: str, seconds: float, budget: float, slowest: Sequence[tuple[float, str]]) -> tuple[bool, str]:
    """Returns whether the part is within its budget, and what to print."""
    if seconds <= budget * _TOLERANCE:
        return True, f"{part}: {seconds:.0f} CPU seconds of its budget of {budget:.0f}"
    lines = [
        f"{part}: {seconds:.0f} CPU seconds exceed its budget of {budget:.0f} by more than a fifth: make tests "
        f"cheaper, mark some as long, or raise [{_SECTION}] in setup.cfg with the reason. The slowest:",
        *(f"  {each:6.1f} s  {name}" for each, name in slowest),
    ]
    return False, "\n".join(lines)


def judges(choice: str, loop: float, reference: float) -> bool:
    """Reports whether a part's CPU time is compared with its budget: a whole part, on a machine of comparable speed."""
    return choice == "whole" and loop <= reference * _COMPARABLE


def _slowest(totals: Path) -> list[tuple[float, str]]:
    lines = totals.read_text().splitlines() if totals.exists() else []
    return [(seconds, name) for seconds, name in json.loads(lines[-1])["slowest"]] if lines else []


def main() -> int:
    part, totals, choice, _, *command = sys.argv[1:]
    settings = configparser.ConfigParser()
    settings.read(_CONFIG)
    adopt_orphans()
    loop = loop_seconds()
    code, seconds = run(command)
    loop, reference = (loop + loop_seconds()) / 2, settings.getfloat(_SECTION, _REFERENCE)
    share = min(1.0, reference / loop)
    is_within, message = verdict(part, seconds * share, settings.getfloat(_SECTION, part), _slowest(Path(totals)))
    is_judged = judges(choice, loop, reference)
    print(message if is_judged else f"{part}: about {seconds * share:.0f} CPU seconds, not judged", flush=True)
    print(f"({seconds:.0f} on this machine, whose loop takes {loop:.2f} s)", flush=True)
    return code or int(is_judged and not is_within)


if __name__ == "__main__":
    sys.exit(main())
