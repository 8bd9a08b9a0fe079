"""One log that is followed: what is asked for next, when, and when there is no more to come.

Theory of operation. While the container runs, its log is one answer without an end (`follow=true`). The kubelet goes on
over rotations, and ends the answer when the container has ended; it or somebody in between may end it at any time, or
fall silent. So once the pod says that its container has ended, the log is read once more from where we were, without
following, and that answer's end alone is the log's: a kubelet that was behind when it rotated ends an answer with the
old file. Before that an end is followed by another request after a rest.

Where we were is known from the lines themselves, each of which comes with its time (`timestamps=true`), by the clock of
the node: `sinceTime` has whole seconds, so some lines come twice, and pairs older than those known are left out. Each
request asks for the end of the log only, so that a long past is never read.

A log that brings more than is read of it, round after round, would be read later and later: it is asked for its end
again, and what is in between is lost. The last value counts.

Threads: one. Source: cri-client pkg/logs/logs.go (ReadLogs), kubelet pkg/kubelet/server/server.go (getContainerLogs).
"""

from __future__ import annotations

import random
import selectors
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import structlog

from tfjob_controller.api.core import PODS, Pod
from tfjob_controller.controller.logs.metricparser import LoggedMetric, MetricParser
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.http.responsestream import Connector, ResponseStream
from tfjob_controller.trainer.pods import is_finished
from tfjob_controller.util.backoff import DecorrelatedBackoff
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.timestamps import format_time

log = structlog.get_logger(__name__)

# How far back a log is read, at first and after a break. A line of the runtime has 16 KiB at most.
TAIL_LINES = 1000
# After a jump to the end: what one round reads at most.
JUMP_LINES = 16
# In a round; more of a log that has ended, for there is only so much of it.
ROUND_BYTES = 16384 * JUMP_LINES
_LAST_BYTES = 4 * 1024 * 1024
# Rounds in which more was left than was read, one after another, before it jumps.
BEHIND_ROUNDS = 8
# The API server gives a node 30 s to answer. Who waits here holds nobody up.
HEAD_SECONDS = 40.0
# So long a log may say nothing before it is asked for anew, in case its answer comes from nowhere any more.
QUIET_SECONDS = 900.0
# Of an ended container: the kubelet sees it within a second, and ends the answer.
GRACE_SECONDS = 5.0
_LAST_TRIES = 3
# A pod that was not found so often is not there; a kubelet that starts does not know its pods for a moment.
_GONE_TRIES = 10
# Where there are too many to follow them all, the others are looked at so often.
POLL_SECONDS = 30.0
_FIRST_REST_SECONDS = 0.5
_CAP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class LogTarget:
    """Which log is wanted for a job. `run` counts the container's restarts in its pod."""

    job_key: str
    job_uid: str
    path: str
    pod_uid: str
    container: str
    names: tuple[str, ...]
    run: int
    has_ended: bool

    def is_same_log(self, other: LogTarget) -> bool:
        mine, others = (self.pod_uid, self.container, self.names), (other.pod_uid, other.container, other.names)
        return mine == others


def target_of(job_key: str, job_uid: str, pod: Pod, container: str, names: tuple[str, ...]) -> LogTarget | None:
    """None before the container has started: there is no log."""
    found = next((each for each in pod.status.container_statuses if each.name == container), None)
    has_ended = is_finished(pod) or (found is not None and found.state.terminated is not None)
    has_run = found is not None and (found.state.running or found.last_state.terminated) is not None
    if not has_ended and not has_run:
        return None
    meta, run = pod.metadata, found.restart_count if found is not None else 0
    path = PODS.path(meta.namespace, meta.name, "log")
    return LogTarget(job_key, job_uid, path, meta.uid, container, names, run, has_ended)


@dataclass(slots=True)
class LogCounters:
    """Of all logs, since the start."""

    opened: int = 0
    bytes_read: int = 0
    failures: int = 0
    jumps: int = 0


class FollowedLog:
    """See the module. `is_done`: there is no more to come, or it was given up."""

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
        self._scanner = MetricParser(target.names)
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
    def is_hurried(self) -> bool:
        """Somebody may wait for its end."""
        return self.target.has_ended and not self.is_done

    @property
    def has_more(self) -> bool:
        """Is there something to read of which no selector tells?"""
        return self._stream is not None and self._stream.has_more

    @property
    def due_at(self) -> float:
        """When it is to be opened, or lost patience with; monotonic."""
        if self.is_done:
            return float("inf")
        if self._stream is None:
            return self._not_before
        return self._active_at + self._patience_seconds

    @property
    def _patience_seconds(self) -> float:
        if self.target.has_ended:
            return GRACE_SECONDS
        return QUIET_SECONDS if self._may_be_silent else HEAD_SECONDS

    @property
    def _may_be_silent(self) -> bool:
        return self._is_following and self._stream is not None and self._stream.has_begun

    def retarget(self, target: LogTarget) -> None:
        """The same log, of which more is known by now."""
        if target != self.target:
            self.target, self.is_done = target, False
            self._not_before = self._active_at = self._clock.monotonic()
            self._last_failures = 0

    def open(self, *, may_follow: bool) -> None:
        """Ask for it. Raises ApiError if the API server cannot be connected to."""
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
        self._scanner = MetricParser(self.target.names)

    def open_failed(self, error: ApiError) -> None:
        """There is no connection to be had: nobody waits for ever for the end of a log."""
        if self.target.has_ended:
            self._failed(error)

    def read(self) -> Mapping[str, LoggedMetric]:
        """What has come since the last time: the last pair of each name."""
        stream = self._stream
        if stream is None:
            return {}
        try:
            data = stream.read(_LAST_BYTES if self.target.has_ended else ROUND_BYTES)
        except ApiError as error:
            self._failed(error)
            return {}
        found = dict(self._scanner.feed(data))
        if data:
            self._counters.bytes_read += len(data)
            self._active_at = self._clock.monotonic()
        if stream.has_ended:
            found |= self._scanner.end()
            self._ended()
        elif not self.target.has_ended:
            self._keep_pace(stream)
        return self._news(found)

    def check(self) -> None:
        """To be called when `due_at` has come: an answer that keeps silent for too long is given up."""
        if self._stream is None or self._clock.monotonic() < self.due_at:
            return
        if self._may_be_silent:
            self._hang_up()
            self._not_before = self._clock.monotonic()
        else:
            self._failed(ApiError(NO_RESPONSE, "Timeout", "the node did not answer in time"))

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

    def _news(self, found: Mapping[str, LoggedMetric]) -> Mapping[str, LoggedMetric]:
        """Without those that are older than what is known, which come twice."""
        news = {}
        for name, pair in found.items():
            if pair.logged_at is not None:
                if pair.logged_at < self._latest.get(name, pair.logged_at):
                    continue
                self._latest[name] = pair.logged_at
            news[name] = pair
        return news

    def _rest(self, seconds: float) -> None:
        # Of one that has ended somebody may wait for the end.
        self._not_before = self._clock.monotonic() + (min(seconds, 1.0) if self.target.has_ended else seconds)

    def _hang_up(self) -> None:
        if self._stream is None:
            return
        self._since = self._scanner.last_logged_at or self._since
        self._selector.unregister(self._stream)
        self._stream.close()
        self._stream = None
