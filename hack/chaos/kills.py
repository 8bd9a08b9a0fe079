"""Faults of programs: the gang scheduler's, whichever leads, and the control plane's own are killed and come back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from chaos.kept import Kept, Replica
from chaos.stage import Stage
from chaos.watchman import leader_name
from localcluster.programs import APISERVER, ETCD

# As long as a pod that is deleted has to end.
_GRACE_SECONDS = 20.0
_LONGEST_AWAY_SECONDS = 3.0


class Kills:
    """`actions` by kind, each to be called with a chance. They raise LocalClusterError."""

    def __init__(self, stage: Stage, stopping: threading.Event) -> None:
        self._stage = stage
        self._stopping = stopping
        self.actions: Mapping[str, Callable[[float], None]] = {
            "gang scheduler killed": lambda chance: self._kill(chance, self._leader.extender),
            "kube-scheduler killed": lambda chance: self._kill(chance, self._leader.scheduler),
            "leader killed": lambda chance: self._kill(chance, *self._leader.programs),
            "kube-scheduler stopped": lambda chance: self._stop(chance, self._leader.scheduler),
            "leader stopped": lambda chance: self._stop(chance, *self._leader.programs),
            "kube-apiserver killed": lambda chance: self._restart(APISERVER, chance),
            "etcd killed": lambda chance: self._restart(ETCD, chance),
        }

    @property
    def _leader(self) -> Replica:
        """Whoever it is, the first one in doubt."""
        name = leader_name(self._stage.api)
        return next((each for each in self._stage.replicas if each.name == name), self._stage.replicas[0])

    def _kill(self, chance: float, *programs: Kept) -> None:
        for program in programs:
            program.kill(_LONGEST_AWAY_SECONDS * chance)

    def _stop(self, chance: float, *programs: Kept) -> None:
        """At the same time, as when their pod is deleted: kube-scheduler gives its Lease back, another may take it."""
        ends = [
            threading.Thread(
                target=program.kill, args=(_LONGEST_AWAY_SECONDS * chance,), kwargs={"grace_seconds": _GRACE_SECONDS}
            )
            for program in programs
        ]
        for each in ends:
            each.start()
        for each in ends:
            each.join()

    def _restart(self, name: str, chance: float) -> None:
        self._stage.plane.kill(name)
        self._stopping.wait(_LONGEST_AWAY_SECONDS * chance)
        self._stage.plane.start_program(name)
