"""The policies to compare, and the assumptions that all of them share.

The model of speed is an assumption with parameters. One worker alone does one unit of work per second; w workers do `w
* doubling ** log2(w)`: each doubling keeps 90 % of its worth, since parameter servers and the network take their part
(0.9 was fixed before anything was simulated; DRAGON, Lin et al., CLOSER 2019, has no formula). A job whose pods are on
several nodes works at `spread` of that (0.75, likewise). A restart is half a minute without progress: pods end and
start, programs load, the checkpoint is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

IN_PLACE, RESTART = "InPlace", "Restart"


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """With `gang` the live queue and placement start all pods or none; otherwise pods are scheduled one by one.

    With `locality` a gang is placed on few nodes, and single pods on the fullest node (kube-scheduler's MostAllocated).
    Without it pods are spread (LeastAllocated), which the live code cannot do: that is the simulator's own baseline.
    With `autoscaling` the live rules resize jobs; they only know gangs.
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
# The policy that all others are compared with.
BASELINE = "default"


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """See the module's text."""

    doubling: float = 0.9
    spread: float = 0.75
    restart_seconds: float = 30.0

    def speed(self, workers: int, nodes: int) -> float:
        """Returns units of work per second of so many workers, with the job's pods on so many nodes."""
        if workers < 1:
            return 0.0
        alone: float = workers * self.doubling ** math.log2(workers)
        return alone * self.spread if nodes > 1 else alone


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """The gang scheduler's flags of the same names, and assumptions about the cluster.

    `pod_seconds` is the time between the creations of two pods of a job: kube-controller-manager creates about ten a
    second with its default limits. `deadlock_timeout_seconds`: Kubernetes itself never ends a deadlock; after so long
    without progress the pods of the youngest job that holds GPUs are deleted and recreated.
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
