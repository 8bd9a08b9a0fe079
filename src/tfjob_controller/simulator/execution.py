"""Jobs that have all their pods: how fast each works, and when its work is done. The same under every policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfjob_controller.simulator.cluster import WORKER, gpus_by_node
from tfjob_controller.simulator.jobs import SECOND, SimJob, SpeedModel
from tfjob_controller.simulator.ledger import PAUSED, WORKING, Ledger
from tfjob_controller.simulator.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job is submitted."""

    job: SimJob


@dataclass(frozen=True, slots=True)
class Turn:
    """A job works on after a pause, or is done. Void if its `number` is not the job's any more."""

    job: str
    number: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Somebody wanted to look again at this moment."""

    number: int = 0


@dataclass(frozen=True, slots=True)
class PodCreated:
    """A job's pod is there, and waits for a node."""

    job: str
    member: str
    incarnation: int


Event = Arrival | Turn | Wake | PodCreated


@dataclass(slots=True)
class Execution:
    """One job at work. `rate` is units of work per second, 0 while it is paused."""

    job: SimJob
    node_of: dict[str, str]
    remaining: float
    since_ms: int
    rate: float = 0.0
    paused_until_ms: int = 0
    number: int = 0

    @property
    def workers(self) -> int:
        return sum(member.startswith(WORKER) for member in self.node_of)

    def nodes(self) -> set[str]:
        return set(self.node_of.values())


@dataclass(slots=True)
class Executions:
    """Starts, resizes and ends of jobs; the ledger is told."""

    timeline: Timeline[Event]
    ledger: Ledger
    speed: SpeedModel
    running: dict[str, Execution] = field(default_factory=dict)
    started_ms: dict[str, int] = field(default_factory=dict)
    ended_ms: dict[str, int] = field(default_factory=dict)
    resizes: int = 0
    restarts: int = 0
    _number: int = 0

    def start(self, job: SimJob, node_of: Mapping[str, str], pause_ms: int = 0) -> None:
        """All its pods have a node; it works after the pause."""
        now = self.timeline.now
        execution = self.running[job.name] = Execution(job, dict(node_of), job.work, now)
        self.started_ms[job.name] = now
        self.ledger.note(now, "start", job.name, execution.workers, list(execution.nodes()))
        self._go_on(execution, pause_ms)

    def resize(self, name: str, node_of: Mapping[str, str], pause_ms: int, reason: str) -> None:
        """Other pods from now on; what is done stays done. A pause that it is in already is not shortened."""
        now = self.timeline.now
        execution = self.running[name]
        self._account(execution)
        execution.node_of = dict(node_of)
        self.resizes += 1
        self.restarts += pause_ms > 0
        self.ledger.note(now, "resize", name, execution.workers, list(execution.nodes()), reason)
        self._go_on(execution, max(pause_ms, execution.paused_until_ms - now))

    def turn(self, event: Turn) -> SimJob | None:
        """The job, if that was its end; it holds nothing then."""
        execution = self.running.get(event.job)
        if execution is None or execution.number != event.number:
            return None
        self._account(execution)
        if not execution.rate:
            self._go_on(execution, 0)
            return None
        del self.running[event.job]
        self.ended_ms[event.job] = self.timeline.now
        self.ledger.release(self.timeline.now, event.job)
        self.ledger.note(self.timeline.now, "end", event.job)
        return execution.job

    def _account(self, execution: Execution) -> None:
        now = self.timeline.now
        execution.remaining -= execution.rate * (now - execution.since_ms) / SECOND
        execution.since_ms = now

    def _go_on(self, execution: Execution, pause_ms: int) -> None:
        now, job = self.timeline.now, execution.job
        self._number += 1
        execution.number = self._number
        held = gpus_by_node(job, execution.node_of)
        if pause_ms > 0:
            execution.rate, execution.paused_until_ms = 0.0, now + pause_ms
            self.ledger.hold(now, job.name, held, PAUSED)
            self.timeline.put(now + pause_ms, Turn(job.name, execution.number))
            return
        execution.rate = self.speed.speed(execution.workers, len(execution.nodes()))
        self.ledger.hold(now, job.name, held, WORKING, execution.rate * job.gpus)
        left = max(execution.remaining, 0.0) / execution.rate
        # Never too early, and at least one tick, so that time goes on.
        self.timeline.put(now + max(-int(-left * SECOND // 1), 1), Turn(job.name, execution.number))
