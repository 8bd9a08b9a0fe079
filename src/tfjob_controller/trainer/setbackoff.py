"""How long a job waits before all of its replicas are started again, so that one that always fails does not do so all
day long.

The first restart waits for nothing: most failures are a lost node, or an eviction. Each further one waits twice as long
as the one before, up to the cap, counted from the failure: that is when the condition Restarting became True, or was
said anew of a set that failed before all of it ran.
"""

from __future__ import annotations

from datetime import datetime

from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.trainer import conditions
from tfjob_controller.trainer.plan import Plan
from tfjob_controller.util.timestamps import seconds_until

# As the kubelet's own for containers (pkg/kubelet, MaxContainerBackOff).
BASE_SECONDS, CAP_SECONDS = 10, 300
# More than this comes to the cap.
_DOUBLINGS = 10


def delay_seconds(restarts: int) -> int:
    """Before that restart."""
    if restarts < 2:
        return 0
    return min(BASE_SECONDS << min(restarts - 2, _DOUBLINGS), CAP_SECONDS)


def seconds_to_start(plan: Plan, status: TrainingStatus, now: datetime) -> float:
    """Until replicas may be made; 0 if they may be now."""
    restarting = conditions.find(status.conditions, conditions.RESTARTING)
    if not plan.restarts_together or restarting is None or restarting.status != conditions.TRUE:
        return 0.0
    return max(0.0, seconds_until(restarting.last_transition_time, delay_seconds(status.restarts), now))
