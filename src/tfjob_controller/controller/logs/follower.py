"""Follows logs of jobs: the one with the metrics of the program, and the one of the container that saves checkpoints.

Of the first the last value of each metric is kept, of the second the last lines.

Theory of operation. One thread reads all logs (followedlog.py), each over its own connection
(kube/http/responsestream.py). It sleeps in a selector until data arrives, lets data accumulate for a second, and then
reads all logs. So it wakes once a second whether one line arrives or ten thousand, and its cost follows the bytes. A
log with more data than one round reads does not delay others.

Syncs name the log to read (`follow`, `follow_checkpoints`) and take the values from `metrics_of`, or the lines from
`checkpoint_lines_of`. The thread queues a job with new values by
`enqueue`: at most once in `NOTIFY_SECONDS`, and at once when the log of an ended container was read to its end.

The thread never waits for a node, only for connections to the API server; if one fails, no log is opened for a while.
At most `MAX_FOLLOWED` logs are followed, each of which takes one socket here and two in the API server; others are
polled. Namespaces take turns in both.

A restarted controller has no state and reads the last lines again, which carry their timestamps.
Threads: public methods any, `run_round` and private ones the follower's.
"""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from tfjob_controller.api.common.core import Pod
from tfjob_controller.controller.logs.checkpointparser import checkpoint_lines
from tfjob_controller.controller.logs.followedlog import (
    FollowedLog,
    LogCounters,
    LogKey,
    LogTarget,
    Purpose,
    drop_oldest,
    target_of,
)
from tfjob_controller.controller.logs.metricparser import LoggedMetric, MetricValue
from tfjob_controller.jobs.state.observed import CheckpointLine
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.http.responsestream import Connector
from tfjob_controller.kube.meta import namespace_of
from tfjob_controller.util.backoff import DecorrelatedBackoff
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.fairness import in_turns
from tfjob_controller.util.threads import SupervisedThread
from tfjob_controller.util.timestamps import format_time

log = structlog.get_logger(__name__)

# How long data accumulates.
PERIOD_SECONDS = 1.0
# The same for logs whose end a sync waits for.
_URGENT_PERIOD_SECONDS = 0.1
# At least this long between two notifications of a job, each of which leads to a status write.
NOTIFY_SECONDS = 5.0
MAX_FOLLOWED = 500
# So that no namespace takes all of them.
MAX_FOLLOWED_OF_NAMESPACE = 250
# Each takes some milliseconds of CPU, for TLS.
_OPENED_A_ROUND = 50


@dataclass(frozen=True, slots=True)
class FollowerStatistics:
    """The number of logs, of open ones and of those read to their end. The other fields count since the start.

    `jumps`: how often a log grew faster than it was read. `notifications`: how often a job was queued.
    """

    jobs: int = 0
    open: int = 0
    done: int = 0
    rounds: int = 0
    opened: int = 0
    bytes_read: int = 0
    failures: int = 0
    jumps: int = 0
    notifications: int = 0


@dataclass(slots=True)
class _LogState:
    """What the thread knows of one log. Times are monotonic."""

    log: FollowedLog
    notified_at: float = float("-inf")
    has_news: bool = False
    values: dict[str, MetricValue] = field(default_factory=dict)


class LogFollower:
    """See the module. `enqueue` receives the key of a job with new values, in the follower's thread."""

    def __init__(self, connector: Connector, enqueue: Callable[[str], object], clock: Clock) -> None:
        self._connector = connector
        self._enqueue = enqueue
        self._clock = clock
        self._lock = threading.Lock()
        self._wanted: dict[LogKey, LogTarget] = {}
        # Logs whose target changed since the thread last looked.
        self._changed: set[LogKey] = set()
        self._values: dict[LogKey, Mapping[str, MetricValue]] = {}
        # The targets whose logs were read to their end.
        self._read_all: dict[LogKey, LogTarget] = {}
        # The thread's own: logs that are not complete.
        self._logs: dict[LogKey, _LogState] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._read_at = clock.monotonic() - PERIOD_SECONDS
        self._open_not_before = clock.monotonic()
        self._rng = random.Random()  # noqa: S311 -- spreads load, guards nothing
        self._backoff = DecorrelatedBackoff(clock, self._rng)
        self._counters = LogCounters()
        self._rounds = self._notifications = 0
        self._stop = threading.Event()
        self._thread = SupervisedThread("logs-follow", self._run, stop=self._stop, clock=clock)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Returns False if the thread still waits for a connection after `timeout_seconds`."""
        self._stop.set()
        self._wake()
        return self._thread.join(timeout_seconds)

    @property
    def restarts(self) -> int:
        return self._thread.restarts

    def follow(self, job_key: str, job_uid: str, pod: Pod, container: str, names: tuple[str, ...]) -> None:
        """Reads the job's metrics of these names from this container from now on.

        Every sync calls this; it costs nothing if nothing has changed. A pod that has not started changes nothing, so
        the values of the pod before it stay.
        """
        self._follow(target_of(job_key, job_uid, pod, container, names))

    def follow_checkpoints(self, job_key: str, job_uid: str, pod: Pod, container: str) -> None:
        """Follows the log of this container, which saves checkpoints, from now on; as `follow`."""
        self._follow(target_of(job_key, job_uid, pod, container, (), "checkpoints"))

    def _follow(self, target: LogTarget | None) -> None:
        if target is None or self._wanted.get(target.key) == target:
            return
        with self._lock:
            self._wanted[target.key] = target
            self._changed.add(target.key)
        self._wake()

    def forget(self, job_uid: str) -> None:
        """Stops following the job and drops its values."""
        with self._lock:
            for key in _keys_of(job_uid):
                if self._wanted.pop(key, None) is not None:
                    self._changed.add(key)
                self._values.pop(key, None)
                self._read_all.pop(key, None)
        self._wake()

    def forget_key(self, job_key: str) -> None:
        """The same for a job whose UID is not known any more."""
        with self._lock:
            uids = {target.job_uid for target in self._wanted.values() if target.job_key == job_key}
        for uid in uids:
            self.forget(uid)

    def metrics_of(self, job_uid: str) -> Mapping[str, MetricValue]:
        """The last value of each metric by name, as far as this process has read it."""
        return self._values.get((job_uid, "metrics"), {})

    def checkpoint_lines_of(self, job_uid: str) -> Sequence[CheckpointLine]:
        """The last lines of the container that saves checkpoints, as far as this process has read them."""
        return checkpoint_lines(self._values.get((job_uid, "checkpoints"), {}).values())

    def has_read_all(self, job_uid: str) -> bool:
        """Reports whether the log of the ended container was read to its end, or is not tried any more.

        This takes a moment after the `follow` with the ended pod, and some seconds if the node does not respond.
        """
        return self._has_read(job_uid, "metrics")

    def has_read_checkpoints(self, job_uid: str) -> bool:
        """Reports the same of the log of the container that saves checkpoints."""
        return self._has_read(job_uid, "checkpoints")

    def _has_read(self, job_uid: str, purpose: Purpose) -> bool:
        wanted = self._wanted.get((job_uid, purpose))
        return wanted is None or self._read_all.get(wanted.key) == wanted

    def statistics(self) -> FollowerStatistics:
        states, counted = list(self._logs.values()), self._counters
        return FollowerStatistics(
            jobs=len(self._wanted),
            open=sum(state.log.is_open for state in states),
            done=len(self._read_all),
            rounds=self._rounds,
            opened=counted.opened,
            bytes_read=counted.bytes_read,
            failures=counted.failures,
            jumps=counted.jumps,
            notifications=self._notifications,
        )

    def run_round(self) -> None:
        """Runs one round, which waits for nothing but connections. For the thread, or a test without one."""
        self._rounds += 1
        self._take_over()
        now = self._clock.monotonic()
        is_full = now - self._read_at >= PERIOD_SECONDS
        if is_full:
            self._read_at = now
        for state in self._readable():
            if is_full or state.log.is_urgent:
                self._take(state, state.log.read())
        for state in self._logs.values():
            state.log.check()
        self._open()
        self._notify()

    # The thread

    def _run(self) -> None:
        while not self._stop.is_set():
            self._gather()
            if not self._stop.is_set():
                self.run_round()
        for state in self._logs.values():
            state.log.close()
        self._selector.close()
        self._woken.close()
        self._waker.close()

    def _gather(self) -> None:
        """Sleeps until there is something to do, and then lets data accumulate."""
        now = self._clock.monotonic()
        due_at = self._due_at()
        ready = self._selector.select(None if due_at == float("inf") else max(0.0, due_at - now))
        if any(key.data is None for key, _ in ready):
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
            return
        rest = self._read_at + PERIOD_SECONDS - self._clock.monotonic()
        if ready and rest > 0:
            is_urgent = any(state.log.is_urgent for state in self._logs.values())
            self._clock.sleep(min(rest, _URGENT_PERIOD_SECONDS) if is_urgent else rest, self._stop)

    def _due_at(self) -> float:
        """When the thread has to act even if no data arrives; monotonic."""
        next_round = self._read_at + PERIOD_SECONDS
        due_at = float("inf")
        for state in self._logs.values():
            of_log = max(state.log.due_at, self._open_not_before) if not state.log.is_open else state.log.due_at
            of_news = state.notified_at + NOTIFY_SECONDS if state.has_news else float("inf")
            due_at = min(due_at, of_log, of_news, next_round if state.log.has_more else float("inf"))
        return due_at

    def _wake(self) -> None:
        # OSError: the socket is full, which wakes the thread as well, or closed.
        with contextlib.suppress(OSError):
            self._waker.send(b"!")

    def _take_over(self) -> None:
        """Applies the targets that syncs have set since the last round."""
        with self._lock:
            changed = {key: self._wanted.get(key) for key in self._changed}
            self._changed.clear()
        for key, target in changed.items():
            state = self._logs.get(key)
            if state is not None and target is not None and state.log.target.is_same_log(target):
                state.log.retarget(target)
                continue
            if state is not None:
                self._logs.pop(key).log.close()
            if target is not None:
                values = state.values if state is not None else self._values.get(key, {})
                self._logs[key] = self._state_of(target, values, has_news=state is not None and state.has_news)

    def _state_of(self, target: LogTarget, before: Mapping[str, MetricValue], *, has_news: bool) -> _LogState:
        """Keeps the known values of the metrics that are still requested, and lines of an earlier pod."""
        log_ = FollowedLog(target, self._connector, self._selector, self._clock, self._rng, self._counters)
        keeps_all = target.purpose == "checkpoints"
        values = {name: value for name, value in before.items() if keeps_all or name in target.names}
        return _LogState(log_, has_news=has_news, values=values)

    def _readable(self) -> list[_LogState]:
        ready = {entry.data.target.key for entry, _ in self._selector.select(0) if entry.data is not None}
        return [state for key, state in self._logs.items() if key in ready or state.log.has_more]

    def _take(self, state: _LogState, values: Mapping[str, LoggedMetric]) -> None:
        now = format_time(self._clock.now())
        for name, pair in values.items():
            before = state.values.get(name)
            new = MetricValue(pair.value, format_time(pair.logged_at) if pair.logged_at else now)
            state.values[name] = new
            is_repeated_line = state.log.target.purpose == "checkpoints" and new != before
            state.has_news |= before is None or before.value != pair.value or is_repeated_line
        drop_oldest(state.values)

    def _open(self) -> None:
        now = self._clock.monotonic()
        if now < self._open_not_before:
            return
        waiting = [state.log for state in self._logs.values() if not state.log.is_open and state.log.due_at <= now]
        due = in_turns(sorted(waiting, key=lambda log: log.due_at), _namespace_of)
        followed = Counter(_namespace_of(state.log) for state in self._logs.values() if state.log.is_open)
        for log_ in due[:_OPENED_A_ROUND]:
            namespace = _namespace_of(log_)
            may_follow = followed.total() < MAX_FOLLOWED and followed[namespace] < MAX_FOLLOWED_OF_NAMESPACE
            try:
                log_.open(may_follow=may_follow)
            except ApiError as error:
                # The API server does not respond, so the other logs are not tried.
                self._open_not_before = self._clock.monotonic() + self._backoff.next_seconds()
                log.debug("cannot follow logs", error=str(error))
                for other in due:
                    other.open_failed(error)
                return
            followed[namespace] += 1

    def _notify(self) -> None:
        now = self._clock.monotonic()
        for key, state in list(self._logs.items()):
            if not state.log.is_done and not (state.has_news and now >= state.notified_at + NOTIFY_SECONDS):
                continue
            if state.log.is_done:
                del self._logs[key]
            state.has_news, state.notified_at = False, now
            if self._publish(key, state):
                self._notifications += 1
                self._enqueue(state.log.target.job_key)

    def _publish(self, key: LogKey, state: _LogState) -> bool:
        """Makes the values visible to syncs; False if the log was forgotten meanwhile."""
        with self._lock:
            if key not in self._wanted:
                return False
            self._values[key] = dict(state.values)
            if state.log.is_done:
                self._read_all[key] = state.log.target
            return True


def _keys_of(job_uid: str) -> tuple[LogKey, LogKey]:
    return (job_uid, "metrics"), (job_uid, "checkpoints")


def _namespace_of(followed: FollowedLog) -> str:
    return namespace_of(followed.target.job_key)
