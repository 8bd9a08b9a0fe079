"""Samples the resource usage of the two programs, from the kernel and from their own metrics."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench import usage
from localcluster.ourprogram import DEBUG, METRICS, OurProgram

_OBJECTS = re.compile(r"^informer_objects\{[^}]*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Watched:
    """A running program. `remembers` means that it reports the jobs that it has data of beyond its caches."""

    name: str
    program: OurProgram
    remembers: bool = False


class Sample(msgspec.Struct, frozen=True):
    """`figures` by name, such as controller_rss, in megabytes or numbers; `seconds` since the begin."""

    seconds: float
    load: float
    figures: dict[str, float]


def figures_of(watched: Watched) -> dict[str, float]:
    """Returns the figures of a program. Raises OSError, and urllib3's HTTPError, if it does not run or respond."""
    program, pid = watched.program, watched.program.pid
    files = _files(pid)
    found: dict[str, float] = {
        "rss": usage.resident_bytes(pid) / 1e6,
        "threads": len(os.listdir(f"/proc/{pid}/task")),
        "fds": len(files),
        "sockets": sum(target.startswith("socket:") for target in files),
        "objects": sum(float(count) for count in _OBJECTS.findall(program.page(METRICS, "/metrics"))),
    }
    if watched.remembers:
        found["remembered"] = msgspec.json.decode(program.page(DEBUG, "/debug/syncs"))["jobs_remembered"]
    return {f"{watched.name}_{name}": value for name, value in found.items()}


def sample(seconds: float, programs: Mapping[str, Watched]) -> Sample:
    """Returns a sample of all programs."""
    figures = {name: value for program in programs.values() for name, value in figures_of(program).items()}
    return Sample(seconds, os.getloadavg()[0], figures)


def _files(pid: int) -> list[str]:
    """Returns the targets of its file descriptors, without those that are closed meanwhile."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(entry))
    return found
