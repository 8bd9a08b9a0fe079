"""Bounds on time or cost that a contract names: measurements are repeated on a busy machine.

The shortest of several measurements is the least disturbed one. A busy machine needs more of them, and the bound stays
the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable

_TRIES, _TRIES_ON_A_BUSY_MACHINE = 3, 10


def shortest(measure: Callable[[], float], bound: float) -> float:
    """Returns the first measurement below the bound; after several above it, the shortest of them."""
    taken = [measure()]
    while taken[-1] >= bound and len(taken) < _tries():
        taken.append(measure())
    return min(taken)


def _tries() -> int:
    is_busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    return _TRIES_ON_A_BUSY_MACHINE if is_busy else _TRIES
