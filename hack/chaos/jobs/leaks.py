"""Counts threads and open files of controllers before the first fault and after the last one.

A leader has more of both than a standby, so each role is compared with itself. Threads of the writer pool are excluded:
the pool grows up to its bound when many writes are pending, and keeps its size. Connections are pooled in the same way:
files are reported, and only threads are judged.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import urllib3

from chaos.jobs.controllers import Controller

_POLL_SECONDS = 0.25
_POOL = "writer"


@dataclass(frozen=True, slots=True)
class Count:
    """Threads and open files of an idle process."""

    threads: int
    files: int


def counts_at_rest(controllers: Sequence[Controller], leader: Controller, rest_seconds: float) -> dict[bool, Count]:
    """Returns the smallest counts within that time, by whether the controller is the leader.

    The smallest counts exclude threads of requests in progress. Of several standbys, the one with the most threads
    counts. A controller that does not respond is left out.
    """
    end = time.monotonic() + rest_seconds
    seen: dict[str, list[Count]] = {}
    while time.monotonic() < end:
        for each in controllers:
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                seen.setdefault(each.name, []).append(Count(count_outside_pool(each.threads()), each.files))
        time.sleep(_POLL_SECONDS)
    found: dict[bool, Count] = {}
    for each in controllers:
        if counts := seen.get(each.name):
            count = Count(min(one.threads for one in counts), min(one.files for one in counts))
            is_leader = each is leader
            found[is_leader] = max(found.get(is_leader, count), count, key=lambda counted: counted.threads)
    return found


def count_outside_pool(names: Iterable[str]) -> int:
    """Returns how many of these threads do not belong to the pool."""
    return sum(not name.startswith(_POOL) for name in names)


def leaked(before: dict[bool, Count], after: dict[bool, Count]) -> int:
    """Returns how many threads were added."""
    return sum(max(0, after[role].threads - before[role].threads) for role in after.keys() & before.keys())
