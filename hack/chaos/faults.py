"""Injects faults one after another, in the order of the plan. It uses one thread."""

from __future__ import annotations

import functools
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import urllib3

from chaos.capacity import CapacityFaults
from chaos.kills import Kills
from chaos.owner import Owners
from chaos.plan import Fault, fault
from chaos.requests import REQUEST_FAULTS
from chaos.stage import Stage
from localcluster.api import RefusedError
from localcluster.errors import LocalClusterError

_JOIN_SECONDS = 120.0


class Faults:
    """Injects faults from `start` to `stop`, which also ends all faults that still last."""

    def __init__(
        self, stage: Stage, owners: Owners, rng: random.Random, mean_seconds: float, kinds: Sequence[str] = ()
    ) -> None:
        """If `kinds` are given, only those are injected."""
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._stage = stage
        self._rng = rng
        self._mean_seconds = mean_seconds
        self._kinds = kinds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)
        self._capacity = CapacityFaults(stage, owners)
        self._actions: Mapping[str, Callable[[float], object]] = {
            **self._capacity.actions,
            **Kills(stage, self._stopping).actions,
            **{kind: functools.partial(stage.requests.turn_on, kind) for kind in REQUEST_FAULTS},
            "connections cut": self._cut,
        }

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(_JOIN_SECONDS)
        self._stage.requests.turn_off()
        self._capacity.restore()

    def _run(self) -> None:
        while True:
            next_fault = fault(self._rng, self._mean_seconds, self._kinds)
            if self._stopping.wait(next_fault.after_seconds):
                return
            self._do(next_fault)

    def _cut(self, _: float) -> None:
        self._stage.proxy.cut_all()
        self._stage.report_outage()

    def _do(self, planned: Fault) -> None:
        try:
            self._actions[planned.kind](planned.chance)
            self.counts[planned.kind] += 1
        except (RefusedError, LocalClusterError, urllib3.exceptions.HTTPError) as error:
            self.problems.append(f"{planned.kind}: {error}")
