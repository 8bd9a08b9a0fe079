"""What the pages of one dashboard use, and what each person may have of it at a time."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cachetools import TTLCache
from starlette.requests import Request
from starlette.responses import Response

from tfjob_controller.client.gangqueue import GangQueue
from tfjob_controller.client.holders import Waits
from tfjob_controller.client.liveuse.prometheus import Queries
from tfjob_controller.client.statusreports import StatusReport
from tfjob_controller.client.usage import ClusterUsage
from tfjob_controller.dashboard.choices import Choices
from tfjob_controller.dashboard.clustersummary import ClusterSummary
from tfjob_controller.dashboard.feeds import FEEDS_EACH, MAX_FEEDS, STARTS_PER_SECOND, Feeds
from tfjob_controller.dashboard.idlejobs import IdleJobs
from tfjob_controller.dashboard.keptjobs import KeptJobs
from tfjob_controller.dashboard.metrichistory import MetricSeries
from tfjob_controller.dashboard.shownuse import ShownUse
from tfjob_controller.dashboard.streams import Places
from tfjob_controller.dashboard.turns import PersonTurns
from tfjob_controller.dashboard.users import User
from tfjob_controller.util.clock import Clock

_MAX_READINGS = 100
# Less than the time after which a page asks again.
_READING_SECONDS = 1.5
# metrics-server and exporters measure every 15 to 30 seconds; the half hour before changes slowly.
_USE_SECONDS, _IDLE_SECONDS = 10.0, 60.0
# For what takes all pods of the cluster to read; less than the time after which a page asks again.
_SLOW_READING_SECONDS = 9.0
# What a form offers is read again while a person fills it in, but not at each change.
_CHOICE_SECONDS = 10.0

ReadT = TypeVar("ReadT")


class Readings(Generic[ReadT]):
    """What was read from the API server a moment ago: one reading for all browsers of a person.

    For the event loop's thread.
    """

    def __init__(self, clock: Clock, turns: PersonTurns, seconds: float = _READING_SECONDS) -> None:
        self._values: TTLCache[Hashable, ReadT] = TTLCache(_MAX_READINGS, seconds, timer=clock.monotonic)
        self._pending: dict[Hashable, asyncio.Future[ReadT]] = {}
        self._turns = turns

    async def get(self, user: User, subject: Hashable, read: Callable[[], ReadT]) -> ReadT:
        """The result of `read`, or its exception; callers that come meanwhile wait for the same reading."""
        key = user.identity, subject
        if (value := self._values.get(key)) is not None:
            return value
        if (reading := self._pending.get(key)) is None:
            reading = self._pending[key] = asyncio.wrap_future(self._turns.submit(user.person, read))
            reading.add_done_callback(functools.partial(self._record, key))
        return await asyncio.shield(reading)

    def _record(self, key: Hashable, reading: asyncio.Future[ReadT]) -> None:
        del self._pending[key]
        if not reading.cancelled() and reading.exception() is None:
            self._values[key] = reading.result()


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one person has at a time, and all together.

    `reads` are requests to the API server, which may take long to answer, `logged` those of logs for charts, `use`
    those about what pods use, some of them to a Prometheus, `kept` readings of the history and what is made of them,
    and `yaml` calls that parse or write YAML, which take the CPU; of each `waiting` of one person wait. A read of the
    largest object takes 8 MB, as that of a record does, a log 2 MB, a form 15 MB while it is decoded, and a feed the
    size of an object that changes.
    """

    # A browser opens six connections, so it has six streams at most.
    streams: tuple[int, int] = (12, 60)
    feeds: tuple[int, int] = (FEEDS_EACH, MAX_FEEDS)
    feed_starts_per_second: float = STARTS_PER_SECOND
    logs: tuple[int, int] = (4, 12)
    forms: tuple[int, int] = (2, 8)
    reads: tuple[int, int] = (4, 12)
    logged: tuple[int, int] = (2, 4)
    use: tuple[int, int] = (2, 4)
    kept: tuple[int, int] = (2, 4)
    yaml: tuple[int, int] = (1, 2)
    waiting: int = 24


# A person who shares the dashboard with nobody, on a machine of their own.
ALONE = Bounds(
    streams=(200, 200),
    feeds=(60, 60),
    feed_starts_per_second=10.0,
    logs=(100, 100),
    forms=(8, 8),
    reads=(12, 12),
    logged=(4, 4),
    use=(4, 4),
    kept=(4, 4),
    waiting=200,
)


@dataclass(frozen=True, slots=True)
class Services:
    """What the pages of one dashboard use, as `request.app.state.services`."""

    feeds: Feeds
    reads: PersonTurns
    yaml: PersonTurns
    kept: PersonTurns
    streams: Places
    logs: Places
    forms: Places
    logged: Readings[Sequence[MetricSeries]]
    queues: Readings[GangQueue]
    waits: Readings[Waits]
    usages: Readings[tuple[ClusterUsage, str]]
    reports: Readings[Sequence[StatusReport]]
    uses: Readings[ShownUse]
    idle: Readings[IdleJobs]
    summaries: Readings[ClusterSummary]
    choices: Readings[Choices]
    # Where the use of GPUs is known; None if nobody has named it.
    prometheus: Queries | None = None
    # The history of ended jobs, which `kept` threads read; None without one.
    kept_jobs: KeptJobs | None = None
    # Answers people whose credentials the API server rejects; None if they cannot log in here.
    log_in_again: Callable[[Request], Response] | None = None

    @staticmethod
    def of(
        clock: Clock,
        bounds: Bounds,
        log_in_again: Callable[[Request], Response] | None,
        prometheus: Queries | None = None,
        kept_jobs: KeptJobs | None = None,
    ) -> Services:
        def turns(name: str, bound: tuple[int, int]) -> PersonTurns:
            return PersonTurns(name, threads=bound[1], each=bound[0], waiting=bounds.waiting)

        # Logs, a Prometheus, and a storage that do not answer keep no page waiting.
        reads, logged, yaml = turns("read", bounds.reads), turns("logged", bounds.logged), turns("yaml", bounds.yaml)
        streams, logs, forms = Places(*bounds.streams), Places(*bounds.logs), Places(*bounds.forms)
        feeds = Feeds(clock, *bounds.feeds, bounds.feed_starts_per_second)
        queues, usages, reports = (Readings[Any](clock, reads) for _ in range(3))
        slow = _SLOW_READING_SECONDS
        use = turns("use", bounds.use)
        return Services(
            feeds=feeds,
            reads=reads,
            yaml=yaml,
            kept=turns("kept", bounds.kept),
            streams=streams,
            logs=logs,
            forms=forms,
            logged=Readings[Any](clock, logged),
            queues=queues,
            waits=Readings[Any](clock, reads, slow),
            usages=usages,
            reports=reports,
            uses=Readings[Any](clock, use, _USE_SECONDS),
            idle=Readings[Any](clock, use, _IDLE_SECONDS),
            summaries=Readings[Any](clock, reads, slow),
            choices=Readings[Any](clock, reads, _CHOICE_SECONDS),
            prometheus=prometheus,
            kept_jobs=kept_jobs,
            log_in_again=log_in_again,
        )
