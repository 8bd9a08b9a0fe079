"""Faults that end programs of the leading gang scheduler and of the control plane, which start again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from chaos.outages import leader_name
from chaos.stage import Stage
from chaos.supervised import Replica, SupervisedProgram
from localcluster.programs import APISERVER, ETCD

# The grace period of a deleted pod.
_GRACE_SECONDS = 20.0
_LONGEST_AWAY_SECONDS = 3.0


class Kills:
    """Injects faults: `actions` maps each kind to a function of a random number in [0, 1).

    The functions raise LocalClusterError.
    """

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
        """The leading gang scheduler; the first one if the leader is unknown."""
        name = leader_name(self._stage.api)
        return next((each for each in self._stage.replicas if each.name == name), self._stage.replicas[0])

    def _kill(self, chance: float, *programs: SupervisedProgram) -> None:
        for program in programs:
            program.kill(_LONGEST_AWAY_SECONDS * chance)

    def _stop(self, chance: float, *programs: SupervisedProgram) -> None:
        """Stops programs at the same time, as when their pod is deleted: kube-scheduler releases its Lease."""
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
