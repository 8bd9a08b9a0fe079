"""Injects the faults of `make chaos` in the order of the plan.

Theory of operation. One thread takes faults from the plan. It injects short faults itself; a fault that lasts (a frozen
program, a server that restarts) runs on a thread of that fault's lane. A fault whose lane is busy, that finds no
target, or whose server is down is skipped and does not count.

Threads: one for the plan and one for each lane; all have ended after `stop`.
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

from chaos.capacity import CapacityFaults
from chaos.jobs.faultplan import ELECTED, FAULTS, REQUEST_FAULTS
from chaos.jobs.stage import JobStage
from chaos.jobs.systemfaults import SystemFaults
from chaos.jobs.users import Users
from chaos.kills import Kills
from chaos.plan import Fault, fault
from localcluster.api import RefusedError
from localcluster.errors import LocalClusterError

_JOIN_SECONDS = 120.0
_PLANE = ("kube-apiserver killed", "etcd killed", "kube-scheduler killed", "kube-controller-manager killed")
_GANGS = ("gang scheduler killed", "gang kube-scheduler killed", "gang scheduler frozen", "gang lease stolen")
_NETWORK = ("connections half-open", "connections refused", "answers slow")
# Faults of one lane never overlap.
LANES: Mapping[str, Sequence[str]] = {
    "plane": _PLANE,
    "gangs": _GANGS,
    "controllers": ("controller killed", "both controllers killed", "controller stopped", "controller frozen"),
    "network": _NETWORK,
    "clock": ("clock jump",),
    "disk": ("disk full",),
}
_LANE_OF = {kind: lane for lane, kinds in LANES.items() for kind in kinds}
# The last part of the faults spares the controllers, so that their leaks add up.
_SPARED_PART = 0.2


class Faults:
    """Injects `wanted` faults from `start` to `stop`, which also ends all faults that still last."""

    def __init__(
        self, stage: JobStage, rng: random.Random, wanted: int, mean_seconds: float, kinds: Sequence[str] = ()
    ) -> None:
        """If `kinds` are given, only those are injected."""
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
        self._capacity = CapacityFaults(stage.stage, stage.jobs)
        self._system = SystemFaults(stage, self._stopping)
        self._actions = self._all_actions()
        self._began = time.monotonic()

    @property
    def done(self) -> int:
        return sum(self.counts.values())

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(_JOIN_SECONDS)
        self._pool.shutdown(wait=True)
        self._stage.stage.requests.turn_off()
        self._system.restore()
        self._capacity.restore()

    def _all_actions(self) -> Mapping[str, Callable[[float], object]]:
        gangs = Kills(self._stage.stage, self._stopping).actions
        actions: dict[str, Callable[[float], object]] = {
            **self._capacity.actions,
            **self._system.actions,
            **Users(self._stage.jobs).actions,
            **{kind: functools.partial(self._stage.stage.requests.turn_on, kind) for kind in REQUEST_FAULTS},
            **{kind: gangs[kind] for kind in ("gang scheduler killed", "kube-apiserver killed", "etcd killed")},
            "gang kube-scheduler killed": gangs["kube-scheduler killed"],
        }
        return {kind: actions[kind] for kind in FAULTS}

    def _run(self) -> None:
        while self.done < self._wanted:
            next_fault = fault(self._rng, self._mean_seconds, self._kinds, FAULTS)
            if self._stopping.wait(next_fault.after_seconds):
                return
            if next_fault.kind in ELECTED and self.done > (1 - _SPARED_PART) * self._wanted and not self._kinds:
                continue
            self._begin(next_fault)

    def _begin(self, planned: Fault) -> None:
        lane = _LANE_OF.get(planned.kind)
        if lane is None:
            self._do(planned)
        elif lane not in self._lanes or self._lanes[lane].done():
            self._lanes[lane] = self._pool.submit(self._do, planned)
        else:
            self.missed[planned.kind] += 1

    def _do(self, planned: Fault) -> None:
        try:
            self._actions[planned.kind](planned.chance)
            self.counts[planned.kind] += 1
        except (RefusedError, LocalClusterError, urllib3.exceptions.HTTPError, OSError) as error:
            self.missed[planned.kind] += 1
            self.problems.append(f"{planned.kind}: {error}")
            if planned.kind in _PLANE:
                self._system.revive()
