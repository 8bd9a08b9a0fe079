"""When the jobs that hold capacity end.

A job ends at its limit (`activeDeadlineSeconds` after its start), which the controller enforces, or when its program
expects to end (`estimatedRemainingSeconds` of a TrainJob), whichever is earlier. One that no longer exists ends when
its pods have been deleted. Without any of these its end is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tfjob_controller.client.jobtimes import JobKey, JobTimes
from tfjob_controller.client.usage import HeldCapacity, Holding
from tfjob_controller.util.timestamps import parse_time_or_none

LIMIT, ESTIMATE, DELETION = "limit", "estimate", "deletion"
NOT_READ = "you may not read its limits"


@dataclass(frozen=True, slots=True)
class JobEnd:
    """When a job ends, by its `basis`; `time` is None if that is unknown, and `unknown` has the reason."""

    time: datetime | None
    basis: str = ""
    unknown: str = ""


class JobEnds:
    """The jobs of holdings, and their ends."""

    def __init__(self, capacity: HeldCapacity, now: datetime) -> None:
        self._capacity = capacity
        self._now = now
        self._by_name = {key[:2]: key for key in capacity.times}
        # When the pods of each job have been deleted; empty if some are not deleted.
        self._deletions: dict[JobKey, str] = {}
        for holding in capacity.holdings:
            if (key := self.key_of(holding)) is not None:
                before = self._deletions.get(key, holding.deletion)
                self._deletions[key] = max(before, holding.deletion) if before and holding.deletion else ""

    def key_of(self, holding: Holding) -> JobKey | None:
        """The job of a holding. A Gang does not have the id of its job's pods."""
        key = holding.key
        return key if key is None or key[2] else self._by_name.get(key[:2], key)

    def end_of(self, key: JobKey) -> JobEnd:
        known = self._capacity.times.get(key)
        if known is not None:
            return _end(known, self._now)
        if not _is_gone(key, self._capacity.known):
            return JobEnd(None, unknown=NOT_READ)
        deletion = parse_time_or_none(self._deletions.get(key, ""))
        if deletion is None:
            return JobEnd(None, unknown="it is being deleted")
        if deletion < self._now:
            return JobEnd(None, unknown="it is being deleted, and its pods have not ended in time")
        return JobEnd(deletion, DELETION)


def _is_gone(key: JobKey, known: Mapping[str, frozenset[str]]) -> bool:
    """Whether a job that was not found does not exist: all jobs of its kind are known there."""
    word = key[1].partition("/")[0]
    return any(word in known.get(scope, ()) for scope in ("", key[0]))


def _end(times: JobTimes, now: datetime) -> JobEnd:
    """The earlier one of limit and estimate. An estimate that has passed was wrong; a limit that has passed is due."""
    limit, estimate = _after(times.started, times.limit_seconds), _after(times.estimated, times.estimated_seconds)
    ends = [(max(limit, now), LIMIT)] if limit is not None else []
    if estimate is not None and estimate > now:
        ends.append((estimate, ESTIMATE))
    if not ends:
        return JobEnd(None, unknown="it has no limit and no estimate")
    return JobEnd(*min(ends))


def _after(moment: str, seconds: int | None) -> datetime | None:
    begin = parse_time_or_none(moment)
    if begin is None or seconds is None:
        return None
    try:
        return begin + timedelta(seconds=seconds)
    except OverflowError:  # later than any date
        return None
