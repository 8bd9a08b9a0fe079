"""What is compared, and the numbers that all of it shares."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

IN_PLACE, RESTART = "InPlace", "Restart"


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """`gang`: by the live queue and placement, all pods or none; else pod by pod, as kube-scheduler does it.

    `locality`: a gang goes to few nodes, as the live placement has it; single pods to the fullest node (MostAllocated
    of kube-scheduler). Without it pods are spread (LeastAllocated), which the live code cannot do: that is a baseline
    of the simulator's own. `autoscaling`: by the live rules, which know gangs only.
    """

    name: str
    gang: bool = False
    locality: bool = False
    autoscaling: bool = False


POLICIES = {
    each.name: each
    for each in (
        SchedulingPolicy("default"),
        SchedulingPolicy("locality", locality=True),
        SchedulingPolicy("gang", gang=True),
        SchedulingPolicy("gang+locality", gang=True, locality=True),
        SchedulingPolicy("gang+autoscaling", gang=True, autoscaling=True),
        SchedulingPolicy("gang+locality+autoscaling", gang=True, locality=True, autoscaling=True),
    )
}
# What all others are compared with.
BASELINE = "default"


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """See the module."""

    doubling: float = 0.9
    spread: float = 0.75
    restart_seconds: float = 30.0

    def speed(self, workers: int, nodes: int) -> float:
        """Units of work per second of so many workers, when all pods of the job are on so many nodes."""
        if workers < 1:
            return 0.0
        alone: float = workers * self.doubling ** math.log2(workers)
        return alone * self.spread if nodes > 1 else alone


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """The extender's flags of the same names, and what is assumed about the cluster.

    `pod_seconds` is the time between the creations of two pods of a job: kube-controller-manager makes about ten a
    second with its own limits. `deadlock_timeout_seconds`: Kubernetes itself never ends a deadlock; so long after
    nothing works any more somebody deletes the pods of the youngest job that holds some, and they are made anew.
    """

    speed: SpeedModel = field(default_factory=SpeedModel)
    resize: str = IN_PLACE
    starvation_timeout_seconds: float = 30.0
    scale_down_after_seconds: float = 30.0
    scale_up_after_seconds: float = 60.0
    pod_seconds: float = 0.1
    deadlock_timeout_seconds: float = 600.0

    @property
    def pause_seconds(self) -> float:
        """What a resize costs."""
        return self.speed.restart_seconds if self.resize == RESTART else 0.0
