"""Threads and open files of controllers, before anything broke and after all of it.

A leader has more of both than one who waits, so each is compared with its like. The threads that help to write are left
out: they are a pool, which grows up to its bound when there is much to write at a time, and stays so. Connections are
kept for further use, too, as many as were needed at a time: files are told, and only threads are judged.
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
    """Of one process at rest."""

    threads: int
    files: int


def counts_at_rest(controllers: Sequence[Controller], leader: Controller, rest_seconds: float) -> dict[bool, Count]:
    """By whether it leads: the least of what was seen in that time, since a request under way may have its own.

    Of several that do not lead, the one with the most threads counts. One that does not answer is left out.
    """
    end = time.monotonic() + rest_seconds
    seen: dict[str, list[Count]] = {}
    while time.monotonic() < end:
        for each in controllers:
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                seen.setdefault(each.name, []).append(Count(lasting(each.threads()), each.files))
        time.sleep(_POLL_SECONDS)
    found: dict[bool, Count] = {}
    for each in controllers:
        if counts := seen.get(each.name):
            count = Count(min(one.threads for one in counts), min(one.files for one in counts))
            leads = each is leader
            found[leads] = max(found.get(leads, count), count, key=lambda counted: counted.threads)
    return found


def lasting(names: Iterable[str]) -> int:
    """How many of these threads are in no pool."""
    return sum(not name.startswith(_POOL) for name in names)


def leaked(before: dict[bool, Count], after: dict[bool, Count]) -> int:
    """Threads that are there now and were not then."""
    return sum(max(0, after[role].threads - before[role].threads) for role in after.keys() & before.keys())
