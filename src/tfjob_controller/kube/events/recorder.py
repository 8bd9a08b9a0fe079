"""Writes Events for `kubectl describe` without ever delaying a sync.

Theory of operation. `event` puts what happened into a bounded queue and returns. A thread of its own takes it from
there, asks `correlator.py` what to write, and writes it, one request after the other. If the server is slow or down,
the queue fills, and for each further event one of the namespace with the most is dropped and counted, since events are
best effort.

Source: client-go tools/events/{event_broadcaster,event_recorder}.go.
"""

from __future__ import annotations

import itertools
import random
import threading
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec
import structlog

from tfjob_controller.kube import trace
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.events.correlator import (
    MAX_NOTE_BYTES,
    MAX_WORD_BYTES,
    Correlator,
    EventCounts,
    truncate_utf8,
)
from tfjob_controller.kube.events.series import ObjectReference, Observation, Write
from tfjob_controller.kube.meta import Resource
from tfjob_controller.kube.requester import MERGE_PATCH, Requester
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.fairness import FairCache
from tfjob_controller.util.threads import SupervisedThread
from tfjob_controller.util.timestamps import format_micro_time

__all__ = ["EventRecorder", "EventStatistics", "ObjectReference"]

log = structlog.get_logger(__name__)

EVENTS: Resource[Any] = Resource("events.k8s.io", "v1", "events", "Event")

# client-go's limit.
MAX_QUEUED = 1000
# One slow response must delay neither the others nor the end of the program.
REQUEST_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class EventStatistics:
    """Counted since the start; `queued` and `pending` (not yet written) are present values."""

    queued: int
    pending: int
    dropped: int
    counts: EventCounts
    restarts: int


class EventRecorder:
    """Reports events as `component` (a qualified name), process `instance`. Thread-safe; one per process."""

    def __init__(
        self, requester: Requester, clock: Clock, component: str, instance: str, rng: random.Random | None = None
    ) -> None:
        self._requester = requester
        self._clock = clock
        self._component = component
        self._instance = truncate_utf8(instance, MAX_WORD_BYTES)
        self._correlator = Correlator(clock, rng)  # the thread's alone
        self._changed = threading.Condition()
        self._queue: FairCache[int, Observation] = FairCache(MAX_QUEUED)
        self._numbers = itertools.count()
        self._dropped = 0
        self._flush_until: float | None = None  # set by stop
        self._stop = threading.Event()
        self._thread = SupervisedThread("events", self._run, stop=self._stop, clock=clock)

    def event(
        self,
        regarding: ObjectReference,
        type_: str,
        reason: str,
        note: str,
        action: str = "",
        *,
        related: ObjectReference | None = None,
    ) -> None:
        """Report an event about `regarding`. Returns at once and raises nothing.

        `type_` is Normal or Warning; `reason` is why it happened and `action` what was done (default: the reason), both
        in CamelCase; `note` is for people, cut to 1,024 bytes; `related` is another object concerned.
        """
        observation = Observation(
            regarding,
            type_,
            truncate_utf8(reason, MAX_WORD_BYTES),
            truncate_utf8(note, MAX_NOTE_BYTES),
            truncate_utf8(action or reason, MAX_WORD_BYTES),
            self._clock.now(),
            related,
            trace.current(),
        )
        with self._changed:
            if self._flush_until is not None:
                self._dropped += 1
                return
            displaced = self._queue.put(observation.namespace, next(self._numbers), observation)
            self._dropped += displaced is not None
            self._changed.notify()

    def start(self) -> None:
        self._thread.start()

    def stop(self, flush_timeout_seconds: float) -> bool:
        """Accept no more events and write pending ones within the limit; returns False if the thread still runs then.

        A request cannot be interrupted: the thread then ends with its response or time-out (5 s).
        """
        with self._changed:
            self._flush_until = self._clock.monotonic() + flush_timeout_seconds
            self._changed.notify()
        ended = self._thread.join(flush_timeout_seconds)
        self._stop.set()
        return ended

    def statistics(self) -> EventStatistics:
        with self._changed:
            queued, dropped = len(self._queue), self._dropped
        return EventStatistics(
            queued, self._correlator.pending, dropped, replace(self._correlator.counts), self._thread.restarts
        )

    def _run(self) -> None:
        is_flushing = False
        while not (is_flushing and (self._correlator.pending == 0 or self._left_seconds() <= 0)):
            for observation in self._take(is_flushing):
                self._correlator.observe(observation)
            if not is_flushing and self._flush_until is not None:
                is_flushing = True
                self._correlator.flush()
            write = self._correlator.next_write()
            if write is not None:
                self._write(write)
        if self._correlator.pending:
            log.warning("events not written before shutdown", events=self._correlator.pending)

    def _take(self, is_flushing: bool) -> list[Observation]:
        """All queued observations; waits until there is one, a write is due, or the recorder stops."""
        with self._changed:
            while not self._queue and (is_flushing or self._flush_until is None):
                rest = self._rest_seconds()
                if rest is not None and rest <= 0:
                    break
                self._clock.wait(self._changed, rest)
            return self._queue.drain()

    def _rest_seconds(self) -> float | None:
        rest = self._correlator.rest_seconds()
        if self._flush_until is None:
            return rest
        return self._left_seconds() if rest is None else min(rest, self._left_seconds())

    def _write(self, write: Write) -> None:
        try:
            with trace.use_trace(write.trace):
                self._send(write)
        except ApiError as error:
            self._correlator.record_failure(write, error)
        else:
            self._correlator.record_success(write)

    def _send(self, write: Write) -> None:
        series = write.series
        timeout = max(0.001, min(REQUEST_TIMEOUT_SECONDS, self._left_seconds()))
        if write.is_create:
            path, body = EVENTS.path(series.namespace), msgspec.json.encode(self._body(write))
            self._requester.request("POST", path, body=body, timeout_seconds=timeout, retry=False)
            return
        path = EVENTS.path(series.namespace, series.name)
        body = msgspec.json.encode({"series": _series(write.count, write.last_observed), "metadata": _annotated(write)})
        self._requester.request(
            "PATCH", path, body=body, content_type=MERGE_PATCH, timeout_seconds=timeout, retry=False
        )

    def _body(self, write: Write) -> dict[str, Any]:
        series, first = write.series, write.series.first
        body: dict[str, Any] = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": series.name, "namespace": series.namespace, **_annotated(write)},
            "eventTime": format_micro_time(first.observed),
            "reportingController": self._component,
            "reportingInstance": self._instance,
            "action": first.action,
            "reason": first.reason,
            "regarding": first.regarding,
            "note": series.note,
            "type": first.type,
        }
        if first.related is not None:
            body["related"] = first.related
        if write.count > 1:
            body["series"] = _series(write.count, write.last_observed)
        return body

    def _left_seconds(self) -> float:
        return float("inf") if self._flush_until is None else self._flush_until - self._clock.monotonic()


def _annotated(write: Write) -> dict[str, Any]:
    """The annotation with the sync that reported it last; empty outside of one."""
    return {"annotations": {trace.RECONCILE_ID_ANNOTATION: write.trace.id}} if write.trace is not None else {}


def _series(count: int, last_observed: datetime) -> dict[str, object]:
    return {"count": count, "lastObservedTime": format_micro_time(last_observed)}
