"""The resource usage of a process, from the kernel."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of all its threads since its start, in user and system mode, in steps of 10 ms."""
    # Field 2 is a name in parentheses, which may contain anything; 14 and 15 are utime and stime (proc(5)).
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Returns the current resident set."""
    return _status(pid, "VmRSS")


def peak_resident_bytes(pid: int) -> int:
    """Returns the largest resident set since its start."""
    return _status(pid, "VmHWM")


def _status(pid: int, name: str) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith(name)).split()[1]) * 1024
