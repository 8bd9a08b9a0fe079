"""What breaks in a run of `make chaos`, in the order of the plan.

Theory of operation. One thread takes fault after fault from the plan. What is done in a moment it does itself; what
lasts (a frozen program, a server that starts again) it gives to a thread of that fault's lane and goes on. A fault
whose lane is busy, that finds nothing to be done to, or whose server is down just then, does not happen and does not
count.

Threads: one for the plan, one for each lane. All are gone after `stop`.
"""

from __future__ import annotations

import functools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import urllib3

from chaos.jobs.breaks import Breaks
from chaos.jobs.faultplan import ELECTED, FAULTS, TROUBLES
from chaos.jobs.stage import JobStage
from chaos.jobs.users import Users
from chaos.kills import Kills
from chaos.plan import Fault, fault
from chaos.room import Room
from localcluster.api import RefusedError
from localcluster.errors import LocalClusterError

_JOIN_SECONDS = 120.0
_PLANE = ("kube-apiserver killed", "etcd killed", "kube-scheduler killed", "kube-controller-manager killed")
_GANGS = ("gang scheduler killed", "gang kube-scheduler killed", "gang scheduler frozen", "gang lease stolen")
_NETWORK = ("connections half-open", "connections refused", "answers slow")
# Those of one lane never happen at the same time.
LANES: Mapping[str, Sequence[str]] = {
    "plane": _PLANE,
    "gangs": _GANGS,
    "controllers": ("controller killed", "both controllers killed", "controller stopped", "controller frozen"),
    "network": _NETWORK,
    "clock": ("clock jump",),
    "disk": ("disk full",),
}
_LANE_OF = {kind: lane for lane, kinds in LANES.items() for kind in kinds}
# Of the faults, at the end: the controllers live through them, so that what they leak adds up.
_SPARED_PART = 0.2


class Faults:
    """`wanted` of them. `stop` ends it and makes everything whole again."""

    def __init__(
        self, stage: JobStage, rng: random.Random, wanted: int, mean_seconds: float, kinds: Sequence[str] = ()
    ) -> None:
        """`kinds` are the only ones to come, if there are any."""
        self.counts: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.problems: list[str] = []
        self._stage = stage
        self._rng = rng
        self._wanted = wanted
        self._mean_seconds = mean_seconds
        self._kinds = kinds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)
        self._pool = ThreadPoolExecutor(len(LANES), thread_name_prefix="lane")
        self._lanes: dict[str, Future[None]] = {}
        self._room = Room(stage.stage, stage.crowd)
        self._breaks = Breaks(stage, self._stopping)
        self._actions = self._all_actions()
        self._began = time.monotonic()

    @property
    def done(self) -> int:
        return sum(self.counts.values())

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(_JOIN_SECONDS)
        self._pool.shutdown(wait=True)
        self._stage.stage.requests.turn_off()
        self._breaks.restore()
        self._room.restore()

    def _all_actions(self) -> Mapping[str, Callable[[float], object]]:
        gangs = Kills(self._stage.stage, self._stopping).actions
        found: dict[str, Callable[[float], object]] = {
            **self._room.actions,
            **self._breaks.actions,
            **Users(self._stage.crowd).actions,
            **{kind: functools.partial(self._stage.stage.requests.turn_on, kind) for kind in TROUBLES},
            **{kind: gangs[kind] for kind in ("gang scheduler killed", "kube-apiserver killed", "etcd killed")},
            "gang kube-scheduler killed": gangs["kube-scheduler killed"],
        }
        return {kind: found[kind] for kind in FAULTS}

    def _run(self) -> None:
        while self.done < self._wanted:
            coming = fault(self._rng, self._mean_seconds, self._kinds, FAULTS)
            if self._stopping.wait(coming.after_seconds):
                return
            if coming.kind in ELECTED and self.done > (1 - _SPARED_PART) * self._wanted and not self._kinds:
                continue
            self._begin(coming)

    def _begin(self, what: Fault) -> None:
        lane = _LANE_OF.get(what.kind)
        if lane is None:
            self._do(what)
        elif lane not in self._lanes or self._lanes[lane].done():
            self._lanes[lane] = self._pool.submit(self._do, what)
        else:
            self.missed[what.kind] += 1

    def _do(self, what: Fault) -> None:
        try:
            self._actions[what.kind](what.chance)
            self.counts[what.kind] += 1
        except (RefusedError, LocalClusterError, urllib3.exceptions.HTTPError, OSError) as error:
            self.missed[what.kind] += 1
            self.problems.append(f"{what.kind}: {error}")
            if what.kind in _PLANE:
                self._breaks.revive()
