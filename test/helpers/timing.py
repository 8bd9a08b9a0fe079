"""Bounds on time or cost, where a contract names one: a busy machine gets another chance, a slow program does not.

The shortest of several measurements is the one that was disturbed least. On a busy machine there are more of them, and
still each is held against the same bound.
"""

from __future__ import annotations

import os
from collections.abc import Callable

_TRIES, _TRIES_ON_A_BUSY_MACHINE = 3, 10


def shortest(measure: Callable[[], float], bound: float) -> float:
    """The first measurement below the bound; after some that are not, the shortest of them."""
    taken = [measure()]
    while taken[-1] >= bound and len(taken) < _tries():
        taken.append(measure())
    return min(taken)


def _tries() -> int:
    is_busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    return _TRIES_ON_A_BUSY_MACHINE if is_busy else _TRIES
