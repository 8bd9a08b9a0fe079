"""Waits for what happens on real nodes, which takes seconds: looks less often than `helpers.poll`, for each look costs
CPU time that containers need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from helpers import poll
from helpers.controller import Jobs

T = TypeVar("T")

PERIOD_SECONDS = 0.1


def eventually(predicate: Callable[[], T], timeout: float = 60.0, period: float = PERIOD_SECONDS) -> T:
    """See `helpers.poll.eventually`."""
    return poll.eventually(predicate, timeout, period)


def await_phase(jobs: Jobs, phase: str, name: str = "example-job", timeout: float = 60.0) -> dict[str, Any]:
    """The status of a job once it is in that phase."""
    eventually(lambda: jobs.phase(name) == phase, timeout)
    return jobs.status(name)
