"""One followed log: which request comes next, when, and when the log is complete.

Theory of operation. While the container runs, its log is a response without an end (`follow=true`). The kubelet
continues over rotations and ends the response when the container has ended, but it or a proxy may end it at any time,
or stop sending. So once the pod's status shows that the container has ended, the log is read once more from the last
position, without following, and only the end of that response is the end of the log: a kubelet that was behind at a
rotation ends a response with the old file. Before that, the end of a response leads to another request after a delay.

The position follows from the timestamps of the lines (`timestamps=true`), by the node's clock. `sinceTime` has whole
seconds, so some lines are received twice, and values older than the known ones are dropped. Each request is limited to
the end of the log, so a long history is never read.

A log that grows faster than it is read, round after round, would be read with a growing delay. It is requested again
from its end, and the lines in between are lost: only the last value counts.

Threads: one. Source: cri-client pkg/logs/logs.go (ReadLogs), kubelet pkg/kubelet/server/server.go (getContainerLogs).
"""

from __future__ import annotations

import random
import selectors
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

import structlog

from tfjob_controller.api.common.core import PODS, Pod
from tfjob_controller.controller.logs.checkpointparser import MAX_KEPT_LINES, CheckpointLogParser
from tfjob_controller.controller.logs.metricparser import LoggedMetric, MetricParser
from tfjob_controller.jobs.state.pods import is_finished
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.http.responsestream import Connector, ResponseStream
from tfjob_controller.util.backoff import DecorrelatedBackoff
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.timestamps import format_time

log = structlog.get_logger(__name__)

# How far back a log is read, at first and after an interruption. The container runtime limits a line to 16 KiB.
TAIL_LINES = 1000
# After a jump to the end: at most what one round reads.
JUMP_LINES = 16
# Read in one round; more of a log that has ended, since that is finite.
ROUND_BYTES = 16384 * JUMP_LINES
_LAST_BYTES = 4 * 1024 * 1024
# Consecutive rounds that left data unread before the position jumps to the end.
BEHIND_ROUNDS = 8
# The API server gives a node 30 s to respond. Waiting here delays no other log.
HEAD_SECONDS = 40.0
# A followed log without data for this long is requested again, in case its connection is dead.
QUIET_SECONDS = 900.0
# For an ended container, whose response the kubelet ends within about a second.
GRACE_SECONDS = 5.0
_LAST_TRIES = 3
# After this many 404 responses the pod does not exist. A kubelet that starts does not know its pods for a moment.
_GONE_TRIES = 10
# Logs beyond the limit of followed ones are polled at this interval.
POLL_SECONDS = 30.0
_FIRST_REST_SECONDS = 0.5
_CAP_SECONDS = 30.0


# What a log is read for: each job has at most one log for each.
Purpose = Literal["metrics", "checkpoints"]
LogKey = tuple[str, Purpose]


class LogParser(Protocol):
    """Parses one log piece by piece. Keys are the names of metrics, or one for each line that is kept."""

    @property
    def last_logged_at(self) -> datetime | None: ...

    def feed(self, data: bytes) -> Mapping[str, LoggedMetric]: ...

    def end(self) -> Mapping[str, LoggedMetric]: ...


@dataclass(frozen=True, slots=True)
class LogTarget:
    """The log to read for a job, of a container or an init container. `run` is the container's restart count."""

    job_key: str
    job_uid: str
    path: str
    pod_uid: str
    container: str
    names: tuple[str, ...]
    run: int
    has_ended: bool
    purpose: Purpose = "metrics"

    @property
    def key(self) -> LogKey:
        return self.job_uid, self.purpose

    def is_same_log(self, other: LogTarget) -> bool:
        mine, others = (self.pod_uid, self.container, self.names), (other.pod_uid, other.container, other.names)
        return mine == others and self.purpose == other.purpose

    def new_parser(self) -> LogParser:
        return MetricParser(self.names) if self.purpose == "metrics" else CheckpointLogParser()


def target_of(
    job_key: str, job_uid: str, pod: Pod, container: str, names: tuple[str, ...], purpose: Purpose = "metrics"
) -> LogTarget | None:
    """The log of `container` in `pod`; None before the container has started."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    status = next((status for status in statuses if status.name == container), None)
    has_ended = is_finished(pod) or (status is not None and status.state.terminated is not None)
    has_run = status is not None and (status.state.running or status.last_state.terminated) is not None
    if not has_ended and not has_run:
        return None
    meta, run = pod.metadata, status.restart_count if status is not None else 0
    path = PODS.path(meta.namespace, meta.name, "log")
    return LogTarget(job_key, job_uid, path, meta.uid, container, names, run, has_ended, purpose)


def drop_oldest(kept: MutableMapping[str, Any]) -> None:
    """Drops the entries that were added first, so that the memory for a log is bounded."""
    while len(kept) > MAX_KEPT_LINES:
        del kept[next(iter(kept))]


@dataclass(slots=True)
class LogCounters:
    """Totals of all logs since the start."""

    opened: int = 0
    bytes_read: int = 0
    failures: int = 0
    jumps: int = 0


class FollowedLog:
    """See the module. `is_done`: the log was read to its end, or is not tried any more."""

    def __init__(
        self,
        target: LogTarget,
        connector: Connector,
        selector: selectors.BaseSelector,
        clock: Clock,
        rng: random.Random,
        counters: LogCounters,
    ) -> None:
        self.target = target
        self.is_done = False
        self._connector = connector
        self._selector = selector
        self._clock = clock
        self._counters = counters
        self._problem = ""
        self._stream: ResponseStream | None = None
        self._is_following = False
        self._scanner = target.new_parser()
        self._since: datetime | None = None
        self._latest: dict[str, datetime] = {}
        self._tail_lines = TAIL_LINES
        self._behind = self._gone = self._last_failures = 0
        self._not_before = self._active_at = clock.monotonic()
        self._backoff = DecorrelatedBackoff(clock, rng, base_seconds=_FIRST_REST_SECONDS, cap_seconds=_CAP_SECONDS)

    @property
    def is_open(self) -> bool:
        return self._stream is not None

    @property
    def is_urgent(self) -> bool:
        """Reports whether a sync may wait for the end of this log."""
        return self.target.has_ended and not self.is_done

    @property
    def has_more(self) -> bool:
        """Reports whether buffered data can be read, which a selector does not show."""
        return self._stream is not None and self._stream.has_more

    @property
    def due_at(self) -> float:
        """When the log is to be opened, or its response times out; monotonic."""
        if self.is_done:
            return float("inf")
        if self._stream is None:
            return self._not_before
        return self._active_at + self._timeout_seconds

    @property
    def _timeout_seconds(self) -> float:
        if self.target.has_ended:
            return GRACE_SECONDS
        return QUIET_SECONDS if self._may_be_silent else HEAD_SECONDS

    @property
    def _may_be_silent(self) -> bool:
        return self._is_following and self._stream is not None and self._stream.has_begun

    def retarget(self, target: LogTarget) -> None:
        """Updates the target, which must be the same log in a later state."""
        if target != self.target:
            self.target, self.is_done = target, False
            self._not_before = self._active_at = self._clock.monotonic()
            self._last_failures = 0

    def open(self, *, may_follow: bool) -> None:
        """Requests the log. Raises ApiError if the connection to the API server fails."""
        self._is_following = may_follow and not self.target.has_ended
        query = {"container": self.target.container, "timestamps": "true", "tailLines": str(self._tail_lines)}
        if self._is_following:
            query["follow"] = "true"
        if self._since is not None:
            query["sinceTime"] = format_time(self._since)
        self._stream = self._connector.open(self.target.path, query)
        self._selector.register(self._stream, selectors.EVENT_READ, self)
        self._counters.opened += 1
        self._active_at = self._clock.monotonic()
        self._tail_lines, self._behind = TAIL_LINES, 0
        self._scanner = self.target.new_parser()

    def open_failed(self, error: ApiError) -> None:
        """Counts a failed connection, so that no sync waits forever for the end of a log."""
        if self.target.has_ended:
            self._failed(error)

    def read(self) -> Mapping[str, LoggedMetric]:
        """Reads new data and returns the last value of each metric in it."""
        stream = self._stream
        if stream is None:
            return {}
        try:
            data = stream.read(_LAST_BYTES if self.target.has_ended else ROUND_BYTES)
        except ApiError as error:
            self._failed(error)
            return {}
        values = dict(self._scanner.feed(data))
        if data:
            self._counters.bytes_read += len(data)
            self._active_at = self._clock.monotonic()
        if stream.has_ended:
            values |= self._scanner.end()
            self._ended()
        elif not self.target.has_ended:
            self._keep_pace(stream)
        return self._news(values)

    def check(self) -> None:
        """Ends a response that has sent nothing for too long. Call it at `due_at`."""
        if self._stream is None or self._clock.monotonic() < self.due_at:
            return
        if self._may_be_silent:
            self._hang_up()
            self._not_before = self._clock.monotonic()
        else:
            self._failed(ApiError(NO_RESPONSE, "Timeout", "the node did not respond in time"))

    def close(self) -> None:
        self._hang_up()
        self.is_done = True

    def _ended(self) -> None:
        self._hang_up()
        self._gone = 0
        if self.target.has_ended:
            self.is_done = not self._is_following
            self._rest(0.0)
        else:
            self._rest(self._backoff.next_seconds() if self._is_following else POLL_SECONDS)

    def _failed(self, error: ApiError) -> None:
        self._hang_up()
        self._counters.failures += 1
        if str(error) != self._problem:
            self._problem = str(error)
            say = log.warning if error.is_forbidden else log.debug
            say("cannot follow a log", path=self.target.path, error=self._problem)
        self._gone = self._gone + 1 if error.is_not_found else 0
        self._last_failures += self.target.has_ended
        is_lost = error.is_not_found and self.target.has_ended
        self.is_done = is_lost or self._last_failures >= _LAST_TRIES or self._gone >= _GONE_TRIES
        self._rest(self._backoff.next_seconds(error.retry_after_seconds or 0.0))

    def _keep_pace(self, stream: ResponseStream) -> None:
        self._behind = self._behind + 1 if stream.has_more else 0
        if self._behind >= BEHIND_ROUNDS:
            self._counters.jumps += 1
            self._hang_up()
            self._tail_lines, self._not_before = JUMP_LINES, self._clock.monotonic()

    def _news(self, values: Mapping[str, LoggedMetric]) -> Mapping[str, LoggedMetric]:
        """Drops values that are older than the known ones, since some lines are received twice."""
        news = {}
        for name, pair in values.items():
            if pair.logged_at is not None:
                if pair.logged_at < self._latest.get(name, pair.logged_at):
                    continue
                self._latest[name] = pair.logged_at
            news[name] = pair
        drop_oldest(self._latest)
        return news

    def _rest(self, seconds: float) -> None:
        # A sync may wait for the end of an ended log.
        self._not_before = self._clock.monotonic() + (min(seconds, 1.0) if self.target.has_ended else seconds)

    def _hang_up(self) -> None:
        if self._stream is None:
            return
        self._since = self._scanner.last_logged_at or self._since
        self._selector.unregister(self._stream)
        self._stream.close()
        self._stream = None
