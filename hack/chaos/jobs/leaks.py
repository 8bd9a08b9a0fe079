"""Threads and open files of controllers, before anything broke and after all of it.

A leader has more of both than one who waits, so each is compared with its like. Connections are kept for further use,
as many as were needed at a time: files are told, and only threads are judged.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.jobs.controllers import Controller

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Count:
    """Of one process at rest."""

    threads: int
    files: int


def counts_at_rest(controllers: Sequence[Controller], leader: Controller, rest_seconds: float) -> dict[bool, Count]:
    """By whether it leads: the least of what was seen in that time, since a request under way may have its own.

    Of several that do not lead, the one with the most threads counts.
    """
    end = time.monotonic() + rest_seconds
    least: dict[str, Count] = {}
    while time.monotonic() < end:
        for each in controllers:
            seen, known = Count(each.threads, each.files), least.get(each.name)
            least[each.name] = Count(min(seen.threads, known.threads), min(seen.files, known.files)) if known else seen
        time.sleep(_POLL_SECONDS)
    found: dict[bool, Count] = {}
    for each in controllers:
        leads, count = each is leader, least[each.name]
        found[leads] = max(found.get(leads, count), count, key=lambda counted: counted.threads)
    return found


def leaked(before: dict[bool, Count], after: dict[bool, Count]) -> int:
    """Threads that are there now and were not then."""
    return sum(max(0, after[role].threads - before[role].threads) for role in after.keys() & before.keys())
