"""What breaks, one thing after the other, in the order of the plan. One thread."""

from __future__ import annotations

import functools
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import urllib3

from chaos.kills import Kills
from chaos.owner import Owners
from chaos.plan import Fault, fault
from chaos.requests import TROUBLES
from chaos.room import Room
from chaos.stage import Stage
from localcluster.api import RefusedError
from localcluster.errors import LocalClusterError

_JOIN_SECONDS = 120.0


class Faults:
    """`stop` ends it and makes everything whole again."""

    def __init__(
        self, stage: Stage, owners: Owners, rng: random.Random, mean_seconds: float, kinds: Sequence[str] = ()
    ) -> None:
        """`kinds` are the only ones to come, if there are any."""
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._stage = stage
        self._rng = rng
        self._mean_seconds = mean_seconds
        self._kinds = kinds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)
        self._room = Room(stage, owners)
        self._actions: Mapping[str, Callable[[float], object]] = {
            **self._room.actions,
            **Kills(stage, self._stopping).actions,
            **{kind: functools.partial(stage.requests.turn_on, kind) for kind in TROUBLES},
            "connections cut": self._cut,
        }

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(_JOIN_SECONDS)
        self._stage.requests.turn_off()
        self._room.restore()

    def _run(self) -> None:
        while True:
            coming = fault(self._rng, self._mean_seconds, self._kinds)
            if self._stopping.wait(coming.after_seconds):
                return
            self._do(coming)

    def _cut(self, _: float) -> None:
        self._stage.proxy.cut_all()
        self._stage.tell_outage()

    def _do(self, what: Fault) -> None:
        try:
            self._actions[what.kind](what.chance)
            self.counts[what.kind] += 1
        except (RefusedError, LocalClusterError, urllib3.exceptions.HTTPError) as error:
            self.problems.append(f"{what.kind}: {error}")
