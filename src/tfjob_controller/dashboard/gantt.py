"""The chart of a job's replicas over time: what each pod did when, as far as its status still says. Pure.

A pod waits until it is scheduled, is prepared (volumes, images, init containers) until its training container starts,
and runs until that ends. Of earlier runs in the same pod the last one is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tfjob_controller.api.gang import index_of, kind_of
from tfjob_controller.client.diagnostics.timeline import replica_of
from tfjob_controller.util.timestamps import parse_time

WAITING, PREPARING, RUNNING, FAILED = "waiting", "preparing", "running", "failed"
MAX_REPLICAS = 64
_NEVER = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Bar:
    """`start` and `end` are shares of the chart's width, from 0 to 100."""

    phase: str
    start: float
    end: float
    text: str

    @property
    def width(self) -> float:
        return max(0.2, self.end - self.start)


@dataclass(frozen=True, slots=True)
class ReplicaBars:
    replica: str
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Gantt:
    """The chart; `hidden` is the number of replicas that it leaves out."""

    rows: Sequence[ReplicaBars]
    begin: datetime | None
    end: datetime
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class _Span:
    phase: str
    start: datetime
    end: datetime
    text: str


def gantt(pods: Iterable[Mapping[str, Any]], now: datetime) -> Gantt:
    """The chart of these pods, which are plain JSON objects."""
    spans: dict[str, list[_Span]] = {}
    for pod in pods:
        if replica := replica_of(dict(pod)):
            spans.setdefault(replica, []).extend(_spans(pod, now))
    names = sorted((name for name in spans if spans[name]), key=lambda name: (kind_of(name), index_of(name) or 0))
    if not names:
        return Gantt((), None, now)
    begin = min(span.start for name in names for span in spans[name])
    end = max(span.end for name in names for span in spans[name])
    seconds = max(1.0, (end - begin).total_seconds())

    def share(moment: datetime) -> float:
        return round(100 * (moment - begin).total_seconds() / seconds, 2)

    rows = [
        ReplicaBars(name, [Bar(span.phase, share(span.start), share(span.end), span.text) for span in spans[name]])
        for name in names[:MAX_REPLICAS]
    ]
    return Gantt(rows, begin, end, len(names) - len(rows))


def _spans(pod: Mapping[str, Any], now: datetime) -> Iterator[_Span]:
    status = pod.get("status", {})
    created = _time(pod["metadata"].get("creationTimestamp"))
    if created is None:
        return
    conditions = {each["type"]: each for each in status.get("conditions") or () if each.get("status") == "True"}
    scheduled = _time(conditions.get("PodScheduled", {}).get("lastTransitionTime"))
    runs = sorted(_runs(status, now), key=lambda run: run.start)
    until = runs[0].start if runs else _time(status.get("startTime")) if status.get("phase") == "Failed" else None
    yield _Span(WAITING, created, scheduled or until or now, "waits for a node")
    if scheduled is not None:
        yield _Span(PREPARING, scheduled, until or now, f"prepared on {pod['spec'].get('nodeName', 'its node')}")
    yield from runs


def _runs(status: Mapping[str, Any], now: datetime) -> Iterator[_Span]:
    """The known runs of the first container, which is the training container."""
    containers = status.get("containerStatuses") or ()
    for each in containers[:1]:
        for state in (each.get("lastState") or {}, each.get("state") or {}):
            ended, running = state.get("terminated"), state.get("running")
            if running and (start := _time(running.get("startedAt"))):
                yield _Span(RUNNING, start, now, "runs")
            elif ended and ended.get("startedAt") != _NEVER and (start := _time(ended.get("startedAt"))):
                code = ended.get("exitCode", 0)
                phase = FAILED if code else RUNNING
                yield _Span(phase, start, _time(ended.get("finishedAt")) or now, f"ended with exit code {code}")


def _time(text: Any) -> datetime | None:
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None
