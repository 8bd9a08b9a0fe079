"""The chart of a job's replicas over time, from the same diagnostics as the timeline of `explain`. Pure.

A replica waits for capacity with its gang, and is then admitted; its pod waits until it is scheduled, is prepared
(volumes, init containers, pulled images) until its training container starts, and runs until that ends. It is blocked
while the kubelet waits before it tries again (a crash, an image that cannot be pulled). Of earlier runs in the same pod
the last one is known, and the time of those before counts as blocked; of pods that were deleted since, the events that
still exist. The chart ends now, or with a job that has ended; nothing waits any more then.

Marks show moments: restarts and evictions of a replica in its lane, and in that of the job its checkpoints, resizes,
preemptions and stalls, as far as its status, its conditions and the events that still exist tell them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tfjob_controller.api.gang import ADMITTED as GANG_ADMITTED
from tfjob_controller.api.gang import BOUND, MAX_MEMBERS, RELEASED, index_of, kind_of
from tfjob_controller.client.diagnostics.collection import Diagnostics, Object, event_time
from tfjob_controller.client.diagnostics.diagnosis import BLOCKING_REASONS, waiting_containers
from tfjob_controller.client.diagnostics.replicas import has_ended
from tfjob_controller.client.diagnostics.timeline import replica_of
from tfjob_controller.client.kinds import status_of
from tfjob_controller.jobs import reasons
from tfjob_controller.jobs.conditions import RESTARTING
from tfjob_controller.jobs.status.checkpoints import named, restored_text
from tfjob_controller.util.text import shortened
from tfjob_controller.util.timestamps import format_time, parse_time_or_none

PHASES = WAITING, ADMITTED, PREPARING, PULLING, BLOCKED, RUNNING, SUCCEEDED, FAILED, EARLIER = (
    "waiting",
    "admitted",
    "preparing",
    "pulling",
    "blocked",
    "running",
    "succeeded",
    "failed",
    "earlier",
)
# Moments.
MARKS = RESTART, CHECKPOINT, RESIZE, PREEMPTION, STALL = ("restart", "checkpoint", "resize", "preemption", "stall")
MAX_REPLICAS = 64
# The newest marks of a lane are shown.
MAX_MARKS = 50
# What events and conditions of a job mark. `Stalled` is that of a job whose program prints nothing.
_MARK_OF_REASON = {
    reasons.CHECKPOINT_SAVED: CHECKPOINT,
    reasons.CHECKPOINT_RESTORED: CHECKPOINT,
    reasons.RESIZED: RESIZE,
    reasons.PREEMPTED: PREEMPTION,
    "Stalled": STALL,
}
# Nodes, whose clocks may be ahead, write some of the times.
_CLOCK_SKEW = timedelta(minutes=1)
# The distances of the times on the axis, in seconds, and the most of them.
_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)
_MAX_TICKS = 5
# A tick behind this place has no text, which would end at the chart's edge and reach into the one before.
_LAST_LABEL = 94.0
# Events of the kubelet about an attempt that failed.
_FAILURES = ("Failed", "BackOff")
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
class Mark:
    """A moment; `at` is a share of the chart's width, from 0 to 100."""

    kind: str
    at: float
    text: str
    time: str


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class ReplicaBars:
    replica: str
    bars: Sequence[Bar]
    marks: Sequence[Mark] = ()


@dataclass(frozen=True, slots=True)
class Gantt:
    """The chart; `hidden` is the number of replicas that it leaves out, `marks` are those of the whole job.

    `phases` and `mark_kinds` are those that occur in it.
    """

    rows: Sequence[ReplicaBars]
    begin: datetime | None
    end: datetime
    hidden: int = 0
    phases: Sequence[str] = ()
    marks: Sequence[Mark] = ()
    mark_kinds: Sequence[str] = ()
    ticks: Sequence[Tick] = ()


@dataclass(frozen=True, slots=True)
class _Span:
    phase: str
    start: datetime
    end: datetime
    text: str


@dataclass(frozen=True, slots=True)
class _Moment:
    kind: str
    time: datetime
    text: str


@dataclass(frozen=True, slots=True)
class _Wait:
    """How long the replicas of a gang waited for capacity; `until` is None while they do."""

    since: datetime
    until: datetime | None


def gantt(case: Diagnostics, now: datetime, preferred: Collection[str] = ()) -> Gantt:
    """The chart of a job's replicas. If it has more than `MAX_REPLICAS`, it has the preferred ones of them first."""
    gang = case.gangs[0] if case.gangs else None
    wait = _wait(gang) if gang is not None else None
    status = status_of(case.seen.job)
    end = min(now, parse_time_or_none(status.completion_time) or now)
    is_active = end == now and not has_ended(status)
    blocked = _blocked(case.pods) if is_active else {}
    spans: dict[str, list[_Span]] = {}
    moments: dict[str, list[_Moment]] = {}
    for replica, earlier_events in _earlier_pods(case):
        spans.setdefault(replica, []).extend(_spans_of_events(earlier_events, now))
    events = _events_by_pod(case.events)
    for pod in case.pods:
        if replica := replica_of(pod):
            pod_events = events.get(pod["metadata"].get("uid", ""), ())
            pod_spans = _spans(pod, pod_events, wait, blocked.get(replica, ""), end, now)
            spans.setdefault(replica, []).extend(pod_spans)
            moments.setdefault(replica, []).extend(_evictions(pod))
    if gang is not None and wait is not None:
        for replica in {*spans, *_members(gang)}:
            queued = _Span(WAITING, wait.since, wait.until or max(end, wait.since), "waits for capacity as a gang")
            spans[replica] = [queued, *spans.get(replica, ())]
    spans = {replica: _with_pauses(of_replica, case, end) for replica, of_replica in spans.items() if of_replica}
    for replica, of_replica in spans.items():
        moments.setdefault(replica, []).extend(_restarts(of_replica))
    return _chart(spans, moments, list(_moments_of_job(case)), now, preferred, is_active=is_active)


def _blocked(pods: list[Object]) -> dict[str, str]:
    """The replicas that the kubelet will try to start again, and why they do not run.

    A container that rules restart has ended meanwhile, and does not wait like one that its pod restarts.
    """
    waiting = {name: text for name, (reason, text) in waiting_containers(pods) if reason in BLOCKING_REASONS}
    return {replica: text for pod in pods if (replica := replica_of(pod)) and (text := _crash(pod))} | waiting


def _crash(pod: Object) -> str:
    """How the training container of a pod that has not ended failed; empty if it has not."""
    status = pod.get("status", {})
    if status.get("phase") in ("Succeeded", "Failed") or pod["metadata"].get("deletionTimestamp"):
        return ""
    containers: Sequence[Object] = status.get("containerStatuses") or ({},)
    code = ((containers[0].get("state") or {}).get("terminated") or {}).get("exitCode")
    return f"ended with exit code {code} and is not started again yet" if code else ""


def _chart(
    spans: Mapping[str, Sequence[_Span]],
    moments: Mapping[str, Sequence[_Moment]],
    of_job: Sequence[_Moment],
    now: datetime,
    preferred: Collection[str],
    *,
    is_active: bool,
) -> Gantt:
    if not spans:
        return Gantt((), None, now)
    names = sorted(spans, key=lambda name: (name not in preferred, kind_of(name), index_of(name) or 0))[:MAX_REPLICAS]
    names.sort(key=lambda name: (kind_of(name), index_of(name) or 0))
    begin = min(span.start for of_replica in spans.values() for span in of_replica)
    end = max([span.end for of_replica in spans.values() for span in of_replica] + [now] * is_active)
    seconds = max(1.0, (end - begin).total_seconds())

    def share(moment: datetime) -> float:
        return round(100 * (moment - begin).total_seconds() / seconds, 2)

    def marks(moments_of_row: Iterable[_Moment]) -> list[Mark]:
        """The newest of those within the chart, one of each kind and second."""
        known = (moment for moment in moments_of_row if begin <= moment.time <= end + _CLOCK_SKEW)
        by_second = {(moment.kind, int(moment.time.timestamp())): moment for moment in known}
        newest = sorted(by_second.values(), key=lambda moment: moment.time)[-MAX_MARKS:]
        return [
            Mark(moment.kind, min(100.0, share(moment.time)), moment.text, format_time(moment.time))
            for moment in newest
        ]

    rows = [
        ReplicaBars(
            name,
            [Bar(span.phase, share(span.start), share(span.end), span.text) for span in spans[name]],
            marks(moments.get(name, ())),
        )
        for name in names
    ]
    job_marks = marks(of_job)
    phases = {bar.phase for row in rows for bar in row.bars}
    kinds = {mark.kind for marked in (job_marks, *(row.marks for row in rows)) for mark in marked}
    return Gantt(
        rows,
        begin,
        end,
        len(spans) - len(rows),
        [phase for phase in PHASES if phase in phases],
        job_marks,
        [kind for kind in MARKS if kind in kinds],
        [_tick(share(time), text) for time, text in _ticks(begin, end)],
    )


def _tick(at: float, text: str) -> Tick:
    return Tick(at, text if at <= _LAST_LABEL else "")


def _ticks(begin: datetime, end: datetime) -> Iterator[tuple[datetime, str]]:
    """Round times between both, and their texts in UTC; the date where another day begins."""
    seconds = (end - begin).total_seconds()
    step = next((step for step in _TICKS if seconds / step <= _MAX_TICKS), 0) or int(seconds / _MAX_TICKS)
    first = -(-begin.timestamp() // step) * step
    before = begin.astimezone(UTC).date()
    for index in range(_MAX_TICKS + 1):
        time = datetime.fromtimestamp(first, UTC) + timedelta(seconds=index * step)
        if time > end:
            return
        shown = "%H:%M:%S" if step < 60 else "%H:%M" if time.date() == before and step < 86400 else "%b %d %H:%M"
        before = time.date()
        yield time, time.strftime(shown)


def _with_pauses(spans: Sequence[_Span], case: Diagnostics, end: datetime) -> list[_Span]:
    """Adds the pauses after pods that were deleted because their programs had failed, unless the job was suspended."""
    has_restarted = any(event.get("reason") == reasons.RESTARTED for event in case.events)
    stops = [
        moment
        for event in case.events
        if event.get("reason") in (reasons.SUSPENDED, reasons.RESUMED)
        and (moment := parse_time_or_none(event_time(event)))
    ]
    is_restarting = any(
        condition.type == RESTARTING and condition.status == "True" for condition in case.seen.conditions
    )
    ordered = sorted(spans, key=_start)
    pauses = []
    for span in (span for span in ordered if span.phase == EARLIER and has_restarted):
        following = [other.start for other in ordered if other.start > span.start]
        until = min(following, default=end if is_restarting else span.end)
        if until > span.end and not any(span.end <= stop <= until for stop in stops):
            pauses.append(_Span(BLOCKED, span.end, until, "waits before it is started again"))
    return [*spans, *pauses]


def _restarts(spans: Sequence[_Span]) -> list[_Moment]:
    """The begin of each run after an earlier one."""
    runs = sorted((span for span in spans if span.phase in (RUNNING, SUCCEEDED, FAILED, EARLIER)), key=_start)
    return [_Moment(RESTART, run.start, f"restart {number}") for number, run in enumerate(runs[1:], 1)]


def _evictions(pod: Object) -> Iterator[_Moment]:
    for condition in pod.get("status", {}).get("conditions") or ():
        time = parse_time_or_none(condition.get("lastTransitionTime"))
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True" and time is not None:
            text = ": ".join(part for part in (condition.get("reason"), condition.get("message")) if part)
            yield _Moment(PREEMPTION, time, shortened(text or "evicted"))


def _moments_of_job(case: Diagnostics) -> Iterator[_Moment]:
    status, uid = status_of(case.seen.job), case.seen.metadata.uid
    entries: list[tuple[str, str | None, str]] = []
    if (checkpoint := status.checkpoint) is not None:
        entries.append((CHECKPOINT, checkpoint.time, f"saved {named(checkpoint)}"))
        if (restored := checkpoint.restored) is not None:
            entries.append((CHECKPOINT, restored.time, f"training {restored_text(restored)}"))
    entries += [
        (RESIZE, gang.get("status", {}).get("lastResizeTime"), "the gang was resized") for gang in case.gangs[:1]
    ]
    entries += [
        (kind, condition.last_transition_time, condition.message)
        for condition in case.seen.conditions
        if condition.status == "True" and (kind := _MARK_OF_REASON.get(condition.type))
    ]
    for event in case.events:
        kind = _MARK_OF_REASON.get(event.get("reason", ""))
        if kind and (event.get("involvedObject") or {}).get("uid") == uid:
            entries += [
                (kind, time, event.get("message", "")) for time in (event_time(event), event.get("lastTimestamp"))
            ]
    for kind, text_of_time, text in entries:
        if (time := parse_time_or_none(text_of_time)) is not None:
            yield _Moment(kind, time, shortened(text))


def _start(span: _Span) -> datetime:
    return span.start


def _wait(gang: Object) -> _Wait | None:
    status = gang.get("status") or {}
    since = parse_time_or_none(gang["metadata"].get("creationTimestamp"))
    was_admitted = status.get("phase") in (GANG_ADMITTED, BOUND, RELEASED)
    admitted = parse_time_or_none(status.get("admittedTime")) if was_admitted else None
    if admitted is not None:  # the creation of a pod, which follows, is known to the second only
        admitted = admitted.replace(microsecond=0)
    return _Wait(since, admitted) if since is not None else None


def _members(gang: Object) -> Iterator[str]:
    kinds = gang.get("spec", {}).get("members") or ()
    names = (f"{kind['name']}-{index}" for kind in kinds for index in range(kind.get("count", 1)))
    return itertools.islice(names, MAX_MEMBERS)


def _spans(
    pod: Object, events: Sequence[Object], wait: _Wait | None, blocked: str, end: datetime, now: datetime
) -> Iterator[_Span]:
    """`blocked` is the reason why the pod is blocked, if it is; `end` is the end of the job, or now."""
    status = pod.get("status", {})
    created = parse_time_or_none(pod["metadata"].get("creationTimestamp"))
    if created is None:
        return
    conditions = {
        condition["type"]: condition
        for condition in status.get("conditions") or ()
        if condition.get("status") == "True"
    }
    scheduled = parse_time_or_none(conditions.get("PodScheduled", {}).get("lastTransitionTime"))
    runs = sorted(_runs(status, now), key=_start)
    failed = parse_time_or_none(status.get("startTime")) if status.get("phase") == "Failed" else None
    blocked_since = _blocked_since(events, runs, scheduled or created) if blocked else None
    until = runs[0].start if runs else failed or blocked_since or max(end, created)
    first_run = min(until, _first_run(status, events, len(runs)) or until)
    if wait is not None and wait.until is not None and wait.until <= created:
        yield _Span(ADMITTED, wait.until, scheduled or until, "has capacity and waits for its node")
    else:
        yield _Span(WAITING, created, scheduled or until, "waits for a node")
    if scheduled is not None:
        first_run = max(scheduled, first_run)
        yield _Span(PREPARING, scheduled, first_run, f"prepared on {pod['spec'].get('nodeName', 'its node')}")
        yield from _pulls(events, first_run)
    if first_run < until:
        yield _Span(
            BLOCKED, first_run, until, "earlier runs, which the pod's status no longer has, and pauses after them"
        )
    yield from runs
    for run, following in itertools.pairwise(runs):
        if run.end < following.start:
            yield _Span(BLOCKED, run.end, following.start, "waits before it is started again")
    if blocked_since is not None:
        yield _Span(BLOCKED, blocked_since, end, shortened(blocked))


def _first_run(status: Object, events: Sequence[Object], known: int) -> datetime | None:
    """When the kubelet first started the training container, if it did so more often than the known runs tell."""
    containers: Sequence[Object] = status.get("containerStatuses") or ({},)
    restarts = containers[0].get("restartCount") or 0
    moments = (
        parse_time_or_none(event_time(event))
        for event in events
        if event.get("reason") in ("Started", "BackOff")
        and not str(event["involvedObject"].get("fieldPath", "")).startswith("spec.initContainers")
    )
    return min((each for each in moments if each), default=None) if 0 < restarts >= known else None


def _blocked_since(events: Sequence[Object], runs: Sequence[_Span], scheduled: datetime) -> datetime:
    """The end of the last run, or else the kubelet's first failed attempt to start the pod."""
    failed = (event_time(event) for event in events if event.get("reason") in _FAILURES)
    moments = [run.end for run in runs[-1:]] or [moment for time in failed if (moment := parse_time_or_none(time))]
    return min(moments, default=scheduled)


def _pulls(events: Sequence[Object], until: datetime) -> Iterator[_Span]:
    """The time in which the kubelet pulled images, according to its events."""
    started = [
        moment
        for event in events
        if event.get("reason") == "Pulling" and (moment := parse_time_or_none(event_time(event)))
    ]
    ended = [
        moment
        for event in events
        if event.get("reason") == "Pulled" and (moment := parse_time_or_none(event_time(event)))
    ]
    if started:
        yield _Span(PULLING, min(started), min(max(ended, default=until), until), "pulls images")


def _runs(status: Object, now: datetime) -> Iterator[_Span]:
    """The known runs of the first container, which is the training container."""
    containers = status.get("containerStatuses") or ()
    for container in containers[:1]:
        for state in (container.get("lastState") or {}, container.get("state") or {}):
            ended, running = state.get("terminated"), state.get("running")
            if running and (start := parse_time_or_none(running.get("startedAt"))):
                yield _Span(RUNNING, start, now, "runs")
            elif ended and ended.get("startedAt") != _NEVER and (start := parse_time_or_none(ended.get("startedAt"))):
                code = ended.get("exitCode", 0)
                phase = FAILED if code else SUCCEEDED
                yield _Span(
                    phase, start, parse_time_or_none(ended.get("finishedAt")) or now, f"ended with exit code {code}"
                )


def _earlier_pods(case: Diagnostics) -> Iterator[tuple[str, Sequence[Object]]]:
    """The replica and the events of each pod that no longer exists."""
    alive = {pod["metadata"].get("uid") for pod in case.pods}
    runtime = case.seen.runtime_id
    name = re.compile(rf"-([a-z]+)-{re.escape(runtime)}-(\d{{1,9}})-[a-z0-9]+")
    for uid, events in _events_by_pod(case.events).items():
        match = name.search(events[0]["involvedObject"].get("name", "")) if runtime and uid not in alive else None
        if match is not None:
            yield f"{match[1]}-{match[2]}", events


def _spans_of_events(events: Sequence[Object], now: datetime) -> Iterator[_Span]:
    moments: dict[str, list[datetime]] = {}
    for event in events:
        if moment := parse_time_or_none(event_time(event)):  # kubelets write whole seconds, and others more
            moments.setdefault(event.get("reason", ""), []).append(moment.replace(microsecond=0))
    started = min(moments.get("Started", ()), default=None)
    last = max((moment for of_reason in moments.values() for moment in of_reason), default=now)
    if scheduled := min(moments.get("Scheduled", ()), default=None):
        yield _Span(PREPARING, scheduled, started or last, "prepared in a pod that was deleted since")
    yield from _pulls(events, started or last)
    if started is not None:
        yield _Span(EARLIER, started, last, "ran in a pod that was deleted since")


def _events_by_pod(events: Iterable[Object]) -> dict[str, list[Object]]:
    by_pod: dict[str, list[Object]] = {}
    for event in events:
        about = event.get("involvedObject") or {}
        if about.get("kind") == "Pod" and about.get("uid"):
            by_pod.setdefault(about["uid"], []).append(event)
    return by_pod
