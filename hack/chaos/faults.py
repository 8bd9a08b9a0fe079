"""Injects faults in the order of a plan.

Theory of operation. One thread takes faults from the plan. It injects short faults itself; a fault that lasts (a frozen
program, a server that restarts) runs on a thread of that fault's lane, if it has one. A fault whose lane is busy, that
finds no target, or whose server is down is skipped and does not count.

Threads: one for the plan and one for each lane; all have ended after `stop`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import urllib3

from chaos.plan import Fault
from localcluster.api import RefusedError
from localcluster.errors import LocalClusterError

_JOIN_SECONDS = 120.0

# Injects a fault; gets a random number in [0, 1).
Action = Callable[[float], object]


@dataclass(frozen=True, slots=True)
class Injections:
    """`actions` has each kind of fault. Those of one lane never overlap. `ends` end what still lasts.

    `next_fault` gets the number of injected faults and returns the next one, or None at the end. `failed` is called
    with the kind of a fault that could not be injected.
    """

    next_fault: Callable[[int], Fault | None]
    actions: Mapping[str, Action]
    ends: Sequence[Callable[[], None]]
    lanes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    failed: Callable[[str], None] = lambda kind: None


class Faults:
    """Injects faults from `start` to `stop`, which sets `stopping` and also ends all faults that still last."""

    def __init__(self, injections: Injections, stopping: threading.Event) -> None:
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._injections = injections
        self._stopping = stopping
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)
        self._lane_of = {kind: lane for lane, kinds in injections.lanes.items() for kind in kinds}
        self._pool = ThreadPoolExecutor(len(injections.lanes) or 1, thread_name_prefix="lane")
        self._busy: dict[str, Future[None]] = {}

    @property
    def done(self) -> int:
        return self.counts.total()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(_JOIN_SECONDS)
        self._pool.shutdown(wait=True)
        for end in self._injections.ends:
            end()

    def _run(self) -> None:
        while (planned := self._injections.next_fault(self.done)) is not None:
            if self._stopping.wait(planned.after_seconds):
                return
            lane = self._lane_of.get(planned.kind)
            if lane is None:
                self._do(planned)
            elif lane not in self._busy or self._busy[lane].done():
                self._busy[lane] = self._pool.submit(self._do, planned)

    def _do(self, planned: Fault) -> None:
        try:
            self._injections.actions[planned.kind](planned.chance)
            self.counts[planned.kind] += 1
        except (RefusedError, LocalClusterError, urllib3.exceptions.HTTPError, OSError) as error:
            self.problems.append(f"{planned.kind}: {error}")
            self._injections.failed(planned.kind)
