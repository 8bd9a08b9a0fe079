"""Which running gangs should have fewer members or more: the rules of autoscaling. Pure; live and simulated alike.

Theory of operation. `plan_resizes` says at each moment which wishes should stand, all of them; a wish that stands
already is among them as long as it holds, and one that is not among them is to be withdrawn. Nothing is remembered:
what is under way is seen from the gangs themselves (`Elastic.target`, `leaving`, `last_resize`) and from the room that
will come free by itself (`Ending`). A plan that a crash has interrupted is therefore found again.

*Shrink* (shrinking.py): for the first gang of the queue, once it has waited `scale_down_after_seconds`, running gangs
give members away, if that lets all of its least start; all or nothing. From the decision until it has started the nodes
of its planned placement are kept for it (`Kept`): nobody else may be placed there, whatever its priority.

*Grow* (growing.py): while nobody waits, and after `scale_up_after_seconds` without a resize or a gang that had waited,
one gang is given one member more.

Threads: as the view's. The time is an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tfjob_controller.api.gang import UNSCHEDULABLE
from tfjob_controller.scheduling.elastic import Elastic
from tfjob_controller.scheduling.growing import grown
from tfjob_controller.scheduling.queue import Queued
from tfjob_controller.scheduling.resizes import Ending, Kept, Plan, Resize, ScalePolicy
from tfjob_controller.scheduling.shrinking import shrunk
from tfjob_controller.scheduling.view import ClusterView

__all__ = ["Ending", "Kept", "Plan", "Resize", "ScalePolicy", "plan_resizes"]


def plan_resizes(
    view: ClusterView,
    queue: Sequence[Queued],
    running: Sequence[Elastic],
    now: datetime,
    policy: ScalePolicy,
    *,
    ending: Sequence[Ending] = (),
    waited_at: datetime | None = None,
) -> Plan:
    """To be asked before the queue is decided on, since it says what is kept for whom (`decide(..., kept=)`).

    `queue` is in order (`queue.in_order`), without gangs that could not run on an empty cluster. `running` are all
    elastic gangs that are bound, also those that may not be resized now. `ending` is room of pods that are on their way
    out, also of gangs that have ended; `waited_at` when a gang was last admitted that had had to wait.
    """
    if not running:
        return Plan()
    waiting = [each for each in queue if each.gang.status.phase != UNSCHEDULABLE]
    if waiting:
        return shrunk(view, waiting, running, now, policy, ending, waited_at)
    return grown(view, running, now, policy, waited_at)
