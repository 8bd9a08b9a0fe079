"""Counts threads and open files of controllers before the first fault and after the last one.

A leader has more of both than a standby, so each role is compared with itself. Threads of the writer pool are excluded:
the pool grows up to its bound when many writes are pending, and keeps its size. Connections are pooled in the same way:
files are reported, and only threads are judged.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import urllib3

from lab.programs import Controller

_POLL_SECONDS = 0.25
_POOL = "writer"


@dataclass(frozen=True, slots=True)
class Count:
    """Threads and open files of an idle process."""

    threads: int
    files: int


def counts_at_rest(controllers: Sequence[Controller], leader: Controller, rest_seconds: float) -> dict[str, Count]:
    """Returns the smallest counts within that time, by role: leader or standby.

    The smallest counts exclude threads of requests in progress. Of several standbys, the one with the most threads
    counts. A controller that does not respond is left out.
    """
    end = time.monotonic() + rest_seconds
    threads: dict[str, list[int]] = defaultdict(list)
    files: dict[str, list[int]] = defaultdict(list)
    while time.monotonic() < end:
        for controller in controllers:
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                threads[controller.name].append(count_outside_pool(controller.threads()))
                files[controller.name].append(controller.files)
        time.sleep(_POLL_SECONDS)
    counts: dict[str, Count] = {}
    for name, numbers in threads.items():
        role, count = "leader" if name == leader.name else "standby", Count(min(numbers), min(files[name]))
        counts[role] = max(counts.get(role, count), count, key=lambda count: count.threads)
    return counts


def count_outside_pool(names: Iterable[str]) -> int:
    """Returns how many of these threads do not belong to the pool."""
    return sum(not name.startswith(_POOL) for name in names)


def leaked(before: Mapping[str, Count], after: Mapping[str, Count]) -> int:
    """Returns how many threads were added."""
    return sum(max(0, after[role].threads - before[role].threads) for role in after.keys() & before.keys())
