"""Who held what, and what came of it. The one place where a simulation is written down.

Every moment of every GPU is one of: free; held by a job that has not all its pods (`partial`); held by one that starts
or restarts (`paused`); held by one that works (`working`). What is *useful* of the last is less, since workers that
work together do less each: it is counted in GPUs that would have done the same work alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfjob_controller.simulator.jobs import SECOND

PARTIAL, PAUSED, WORKING = "partial", "paused", "working"


@dataclass(frozen=True, slots=True)
class Segment:
    """A job held the same GPUs of a node from one moment to another."""

    job: str
    node: str
    gpus: int
    state: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Level:
    """GPUs, from this moment on."""

    moment_ms: int
    held: int
    working: int
    useful: float


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that was decided: `start`, `resize`, `end`, or `evict`. In the order in which it happened."""

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
    """Segments and levels are kept only where they are wanted (`detailed`): they are many. Sums are GPU seconds."""

    detailed: bool = False
    segments: list[Segment] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys((PARTIAL, PAUSED, WORKING), 0.0))
    useful_seconds: float = 0.0
    _holdings: dict[str, _Holding] = field(default_factory=dict)

    def note(
        self, now: int, what: str, job: str, workers: int = 0, nodes: Sequence[str] = (), reason: str = ""
    ) -> None:
        self.entries.append(Entry(now, what, job, workers, tuple(sorted(nodes)), reason))

    def hold(self, now: int, job: str, gpus_by_node: Mapping[str, int], state: str, useful: float = 0.0) -> None:
        """From now on the job holds exactly this; `useful` is in GPUs."""
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
        working = sum(each.gpus for each in holdings if each.state == WORKING)
        useful = sum(each.useful for each in holdings)
        self.levels.append(Level(now, sum(each.gpus for each in holdings), working, useful))
