"""Chooses faults at random from one seed and injects them.

Theory of operation. One thread takes faults from the plan. It injects short faults itself; a fault that lasts (a frozen
program, a server that restarts) runs on a thread of that fault's lane, if it has one. A fault whose lane is busy, that
finds no target, or whose server is down is skipped and does not count.

Threads: one for the plan and one for each lane; all have ended after `stop`.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import urllib3

from localcluster.api import RefusedError
from localcluster.errors import LocalClusterError

REQUEST_ERRORS = (RefusedError, urllib3.exceptions.HTTPError, OSError)
FAULT_ERRORS = (LocalClusterError, *REQUEST_ERRORS)
_JOIN_SECONDS = 120.0

# Injects a fault; gets a random number in [0, 1). Raises one of FAULT_ERRORS if the fault cannot happen.
Action = Callable[[float], object]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: its kind, the time since the previous one, and `chance` for its target and duration."""

    kind: str
    after_seconds: float
    chance: float


def random_fault(rng: random.Random, mean_seconds: float, table: Mapping[str, int], only: Sequence[str] = ()) -> Fault:
    """Returns the next fault of the kinds in the table, which has their relative frequency; only those in `only`."""
    weights = {kind: weight for kind, weight in table.items() if not only or kind in only}
    kind = rng.choices(list(weights), weights=list(weights.values()))[0]
    return Fault(kind, rng.uniform(0.2, 1.8) * mean_seconds, rng.random())


def one_of(things: Sequence[T], chance: float) -> T:
    """Returns an element. Raises LocalClusterError if there are none."""
    if not things:
        raise LocalClusterError("the fault has no target")
    return things[int(chance * len(things))]


def between(bounds: tuple[float, float], chance: float) -> float:
    """Returns the number at that share of the way from the lower to the upper bound."""
    low, high = bounds
    return low + (high - low) * chance


def second_chance(chance: float) -> float:
    """Returns another random number, made of the later digits of the first one."""
    return chance * 1000 % 1


@dataclass(frozen=True, slots=True)
class Injections:
    """`actions` has each kind of fault. Those of one lane never overlap. `ends` end what still lasts.

    `next_fault` gets the number of injected faults and returns the next one, or None at the end. `failed` is called
    with the kind of a fault that could not be injected.
    """

    next_fault: Callable[[int], Fault | None]
    actions: Mapping[str, Action]
    ends: Sequence[Callable[[], None]] = ()
    lanes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    failed: Callable[[str], None] = lambda kind: None


class Faults:
    """Injects faults from `start` to `stop`, which sets `stopping` and also ends all faults that still last."""

    def __init__(self, injections: Injections, stopping: threading.Event) -> None:
        self.counts: Counter[str] = Counter()
        self.problems: set[str] = set()
        self._injections = injections
        self._stopping = stopping
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)
        self._lane_of = {kind: lane for lane, kinds in injections.lanes.items() for kind in kinds}
        self._pool = ThreadPoolExecutor(len(injections.lanes) or 1, thread_name_prefix="lane")
        self._busy: dict[str, Future[None]] = {}

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    @property
    def summary(self) -> str:
        return f"{self.counts.total()} faults of {len(self.counts)} kinds"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)
        self._pool.shutdown(wait=True)
        for end in self._injections.ends:
            end()

    def _run(self) -> None:
        while (planned := self._injections.next_fault(self.counts.total())) is not None:
            if self._stopping.wait(planned.after_seconds):
                return
            lane = self._lane_of.get(planned.kind)
            if lane is None:
                self._inject(planned)
            elif lane not in self._busy or self._busy[lane].done():
                self._busy[lane] = self._pool.submit(self._inject, planned)

    def _inject(self, planned: Fault) -> None:
        try:
            self._injections.actions[planned.kind](planned.chance)
            self.counts[planned.kind] += 1
        except FAULT_ERRORS as error:
            self.problems.add(f"{planned.kind}: {error}")
            self._injections.failed(planned.kind)
