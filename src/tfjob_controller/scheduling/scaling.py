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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tfjob_controller.scheduling.elastic import Elastic
from tfjob_controller.scheduling.queue import Queued
from tfjob_controller.scheduling.view import ClusterView


@dataclass(frozen=True, slots=True)
class ScalePolicy:
    """`topology_keys` as for placing: node labels, the widest first."""

    scale_down_after_seconds: float = 30.0
    scale_up_after_seconds: float = 60.0
    topology_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resize:
    """What a gang should be told: to have `target` members of this kind, without those that are `leaving`.

    `for_gang` is who waits for the room; empty for one that is to grow.
    """

    key: str
    kind: str
    target: int
    leaving: tuple[str, ...] = ()
    reason: str = ""
    for_gang: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """Room on a node that counts as taken in the view, and will come free by itself: a pod that is ending."""

    node: str
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Kept:
    """Nodes that nobody but this gang may be placed on, until it has started: `decide` is told."""

    gang_key: str
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Plan:
    """All wishes that should stand now. `due`: when to ask again at the latest, though nothing has changed."""

    resizes: tuple[Resize, ...] = ()
    kept: Kept | None = None
    due: datetime | None = None


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
    return Plan()
