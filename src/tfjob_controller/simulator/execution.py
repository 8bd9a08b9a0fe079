"""The parts of a simulation that all policies share: events in time, the jobs that run, and the record of GPU usage.

At every moment a GPU is free, or held by a job without all its pods (`partial`), by a job that starts or restarts
(`paused`), or by a job that works (`working`). The *useful* part of the last is less, since workers that work together
do less each: it is counted in GPUs that would have done the same work alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfjob_controller.simulator.cluster import WORKER, gpus_by_node
from tfjob_controller.simulator.model import SECOND, SimJob, SpeedModel


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job is submitted."""

    job: SimJob


@dataclass(frozen=True, slots=True)
class JobDue:
    """A pause of a job ends, or its work is done. Outdated if its `number` is no longer the job's."""

    job: str
    number: int


@dataclass(frozen=True, slots=True)
class Wake:
    """A scheduler requested a step at this time."""

    number: int = 0


@dataclass(frozen=True, slots=True)
class PodCreated:
    """A pod of a job exists, and waits for a node."""

    job: str
    member: str
    incarnation: int


Event = Arrival | JobDue | Wake | PodCreated


@dataclass(slots=True)
class Timeline:
    """Events by time. Events of one instant come in the order in which they were put. Times are milliseconds."""

    now: int = 0
    _heap: list[tuple[int, int, Event]] = field(default_factory=list)
    _count: int = 0

    def put(self, moment: int, event: Event) -> None:
        """Adds an event; one in the past happens now."""
        self._count += 1
        heapq.heappush(self._heap, (max(moment, self.now), self._count, event))

    def __bool__(self) -> bool:
        return bool(self._heap)

    def take(self) -> list[Event]:
        """Advances the time to the next instant, and returns all its events."""
        self.now = self._heap[0][0]
        events: list[Event] = []
        while self._heap and self._heap[0][0] == self.now:
            events.append(heapq.heappop(self._heap)[2])
        return events


PARTIAL, PAUSED, WORKING = "partial", "paused", "working"


@dataclass(frozen=True, slots=True)
class Segment:
    """A period in which a job held the same GPUs of a node."""

    job: str
    node: str
    gpus: int
    state: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class UsageLevel:
    """GPUs in use from this moment on."""

    moment_ms: int
    held: int
    working: int
    useful: float


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A decision: `start`, `resize`, `end`, `preempt` or `evict`, in the order in which they happened."""

    moment_ms: int
    what: str
    job: str
    workers: int
    nodes: tuple[str, ...]
    reason: str = ""


@dataclass(slots=True)
class _Holding:
    gpus_by_node: Mapping[str, int]
    state: str
    useful: float
    since_ms: int

    @property
    def gpus(self) -> int:
        return sum(self.gpus_by_node.values())


@dataclass(slots=True)
class Ledger:
    """Records the GPUs that jobs held. Segments and levels, which are many, are kept only if `detailed`.

    Sums are GPU seconds.
    """

    detailed: bool = False
    segments: list[Segment] = field(default_factory=list)
    levels: list[UsageLevel] = field(default_factory=list)
    entries: list[LedgerEntry] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys((PARTIAL, PAUSED, WORKING), 0.0))
    useful_seconds: float = 0.0
    _holdings: dict[str, _Holding] = field(default_factory=dict)

    def record(
        self, now: int, what: str, job: str, workers: int = 0, nodes: Sequence[str] = (), reason: str = ""
    ) -> None:
        self.entries.append(LedgerEntry(now, what, job, workers, tuple(sorted(nodes)), reason))

    def hold(self, now: int, job: str, gpus_by_node: Mapping[str, int], state: str, useful: float = 0.0) -> None:
        """Records that from now on the job holds exactly these GPUs; `useful` is in GPUs."""
        self._close(now, job)
        if gpus_by_node:
            self._holdings[job] = _Holding(gpus_by_node, state, useful, now)
        self._level(now)

    def release(self, now: int, job: str) -> None:
        self.hold(now, job, {}, PARTIAL)

    def _close(self, now: int, job: str) -> None:
        held = self._holdings.pop(job, None)
        if held is None or held.since_ms == now:
            return
        seconds = (now - held.since_ms) / SECOND
        self.seconds[held.state] += seconds * held.gpus
        self.useful_seconds += seconds * held.useful
        if self.detailed:
            self.segments += [
                Segment(job, node, gpus, held.state, held.since_ms, now) for node, gpus in held.gpus_by_node.items()
            ]

    def _level(self, now: int) -> None:
        if not self.detailed:
            return
        if self.levels and self.levels[-1].moment_ms == now:
            self.levels.pop()
        holdings = self._holdings.values()
        working = sum(holding.gpus for holding in holdings if holding.state == WORKING)
        useful = sum(holding.useful for holding in holdings)
        self.levels.append(UsageLevel(now, sum(holding.gpus for holding in holdings), working, useful))


@dataclass(slots=True)
class Execution:
    """A running job. `rate` is units of work per second, 0 during a pause."""

    job: SimJob
    node_of: dict[str, str]
    remaining: float
    since_ms: int
    rate: float = 0.0
    paused_until_ms: int = 0
    number: int = 0
    # The work that was left when it was saved last, and when.
    saved_remaining: float = 0.0
    saved_ms: int = 0

    @property
    def workers(self) -> int:
        return sum(member.startswith(WORKER) for member in self.node_of)

    def nodes(self) -> set[str]:
        return set(self.node_of.values())


@dataclass(slots=True)
class Executions:
    """Starts, resizes and ends jobs, and records it in the ledger."""

    timeline: Timeline
    ledger: Ledger
    speed: SpeedModel
    running: dict[str, Execution] = field(default_factory=dict)
    started_ms: dict[str, int] = field(default_factory=dict)
    ended_ms: dict[str, int] = field(default_factory=dict)
    resizes: int = 0
    restarts: int = 0
    preemptions: int = 0
    # GPU seconds whose work was lost, and done again.
    wasted_seconds: float = 0.0
    checkpoint_ms: int = 60 * SECOND
    _number: int = 0
    # The work that is left of preempted jobs.
    _left: dict[str, float] = field(default_factory=dict)

    def start(self, job: SimJob, node_of: Mapping[str, str], pause_ms: int = 0) -> None:
        """Starts a job whose pods all have a node; it works after the pause. One that was preempted restarts."""
        now = self.timeline.now
        if job.name in self._left:
            pause_ms += round(self.speed.restart_seconds * SECOND)
        left = self._left.pop(job.name, job.work)
        execution = Execution(job, dict(node_of), left, now, saved_remaining=left, saved_ms=now)
        self.running[job.name] = execution
        self.started_ms.setdefault(job.name, now)
        self.ledger.record(now, "start", job.name, execution.workers, list(execution.nodes()))
        self._continue(execution, pause_ms)

    def resize(self, name: str, node_of: Mapping[str, str], pause_ms: int, reason: str) -> None:
        """Changes the pods; work done stays done. A pause that has begun is not shortened."""
        now = self.timeline.now
        execution = self.running[name]
        self._account(execution)
        execution.node_of = dict(node_of)
        self.resizes += 1
        self.restarts += pause_ms > 0
        self.ledger.record(now, "resize", name, execution.workers, list(execution.nodes()), reason)
        self._continue(execution, max(pause_ms, execution.paused_until_ms - now))

    def preempt(self, name: str, reason: str) -> None:
        """Stops a job, which loses what it has done since its last checkpoint and can start again."""
        now = self.timeline.now
        execution = self.running.pop(name)
        self._account(execution)
        self._left[name] = execution.saved_remaining
        lost = max(execution.saved_remaining - execution.remaining, 0.0)
        speed = self.speed.speed(execution.workers, len(execution.nodes()))
        self.wasted_seconds += lost / speed * execution.workers * execution.job.gpus if speed else 0.0
        self.preemptions += 1
        self.ledger.release(now, name)
        self.ledger.record(now, "preempt", name, reason=reason)

    def saved_ms(self, name: str) -> int:
        """Returns when a running job saved its work last, or started."""
        execution = self.running[name]
        self._account(execution)
        return execution.saved_ms

    def advance(self, event: JobDue) -> SimJob | None:
        """Returns the job if it has ended, after releasing its GPUs."""
        execution = self.running.get(event.job)
        if execution is None or execution.number != event.number:
            return None
        self._account(execution)
        if not execution.rate:
            self._continue(execution, 0)
            return None
        del self.running[event.job]
        self.ended_ms[event.job] = self.timeline.now
        self.ledger.release(self.timeline.now, event.job)
        self.ledger.record(self.timeline.now, "end", event.job)
        return execution.job

    def _account(self, execution: Execution) -> None:
        now = self.timeline.now
        done = execution.rate * (now - execution.since_ms) / SECOND
        passed = now - execution.saved_ms
        if execution.rate and passed >= self.checkpoint_ms:
            # What was done after the last whole interval is not saved.
            after = min(passed % self.checkpoint_ms, now - execution.since_ms)
            execution.saved_remaining = execution.remaining - done + execution.rate * after / SECOND
            execution.saved_ms = now - after
        execution.remaining -= done
        execution.since_ms = now

    def _continue(self, execution: Execution, pause_ms: int) -> None:
        now, job = self.timeline.now, execution.job
        self._number += 1
        execution.number = self._number
        held = gpus_by_node(job, execution.node_of)
        if pause_ms > 0:
            execution.rate, execution.paused_until_ms = 0.0, now + pause_ms
            self.ledger.hold(now, job.name, held, PAUSED)
            self.timeline.put(now + pause_ms, JobDue(job.name, execution.number))
            return
        execution.rate = self.speed.speed(execution.workers, len(execution.nodes()))
        self.ledger.hold(now, job.name, held, WORKING, execution.rate * job.gpus)
        left = max(execution.remaining, 0.0) / execution.rate
        # Rounded up to at least one millisecond, so that time advances.
        self.timeline.put(now + max(-int(-left * SECOND // 1), 1), JobDue(job.name, execution.number))
