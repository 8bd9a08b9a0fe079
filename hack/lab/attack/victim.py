"""The jobs of the other tenant, who creates a small one at intervals: TFJobs, gangs and TrainJobs in turn.

A job has started when its status says that it runs: its children exist, and a gang is admitted.
"""

from __future__ import annotations

import statistics
from typing import Any

from lab.jobs import TFJOB, TRAINJOB, JobPlan, Part
from lab.submitted import SubmittedJobs

RUN_SECONDS = 2.0
_KINDS = ("tfjob", "gang", "trainjob")
_TTL_SECONDS = 600


def small_job(number: int) -> JobPlan:
    """Returns the plan of a job; its name begins with its kind."""
    kind, spec = _KINDS[number % len(_KINDS)], {"ttlSecondsAfterFinished": _TTL_SECONDS}
    name = f"{kind}-{number}"
    if kind == "trainjob":
        return JobPlan(TRAINJOB, [Part("node", 2, RUN_SECONDS)], name, framework="torch", cpu="1", spec=spec)
    parts = [Part("MASTER", 1, RUN_SECONDS), Part("WORKER", 2, RUN_SECONDS)]
    return JobPlan(TFJOB, parts, name, is_gang=kind == "gang", cpu="1", spec=spec)


def broken(jobs: SubmittedJobs, start_seconds: float) -> list[str]:
    """Returns the limits that are violated."""
    late = {name: seconds for name, seconds in jobs.start_seconds.items() if seconds > start_seconds}
    ended_badly = jobs.unfinished | jobs.wrong
    return [
        *(f"{name} started after {seconds:.1f} s" for name, seconds in late.items()),
        *(f"{name} did not succeed: {status}" for name, status in ended_badly.items()),
    ]


def figures(jobs: SubmittedJobs) -> dict[str, Any]:
    """Returns the figures; times are medians and maxima in seconds."""
    times = jobs.start_seconds
    started = {"started": list(times.values())}
    for kind in _KINDS:
        started[f"{kind}_started"] = [seconds for name, seconds in times.items() if name.startswith(kind)]
    return {
        "jobs": jobs.completed + len(jobs.unfinished),
        "succeeded": jobs.completed - len(jobs.wrong),
        **{
            name: {"p50": round(statistics.median(seconds), 2), "max": round(max(seconds), 2)}
            for name, seconds in started.items()
            if seconds
        },
    }
