"""`kubectl tfjob queue`: the gangs that wait for capacity, in the order in which they will start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tfjob_controller.api.gang import ADMITTED, BOUND, GANGS, UNSCHEDULABLE, WAITING, Gang, Missing, decode_gang
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.text import age
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import controller_of
from tfjob_controller.kube.requester import Requester

UNSEEN = "no gang scheduler has looked at it yet"
NO_GANGS_KIND = "this cluster has no gang scheduling (no Gang kind is installed): see docs/gang-scheduling.md"
_TIMEOUT_SECONDS = 10.0
_NO_PLACE = 10**9


@dataclass(frozen=True, slots=True)
class WaitingGang:
    """One gang that waits. `position` is 0 for one that could not run on an empty cluster; `owner` is Kind/name.

    `missing` says by resource what its pods request together, and what the nodes that suit them have left.
    """

    position: int
    namespace: str
    gang: str
    owner: str
    pods: int
    priority: int
    since: str
    message: str
    missing: Sequence[Missing] = ()


@dataclass(frozen=True, slots=True)
class GangQueue:
    """Who waits, in order; how many gangs have their room; how many of those that wait no gang scheduler has seen."""

    waiting: Sequence[WaitingGang]
    running: int
    unseen: int = 0


def read_queue(requester: Requester, namespace: str) -> GangQueue:
    """The queue of a namespace ("" is all of them). Positions count over the whole cluster. Raises `ApiError`."""
    client = ResourceClient(requester, GANGS, decode_gang, timeout_seconds=_TIMEOUT_SECONDS, retry=False)
    try:
        gangs = client.list(namespace)
    except ApiError as error:
        if error.is_not_found:
            raise ClientError(NO_GANGS_KIND) from None
        raise
    return queue_of(gangs)


def queue_of(gangs: Sequence[Gang]) -> GangQueue:
    """Those that nobody has looked at yet come after those with a place, and what can never run last."""
    waiting = [gang for gang in gangs if gang.status.phase in ("", WAITING, UNSCHEDULABLE) and not gang.spec.suspend]
    running = sum(gang.status.phase in (ADMITTED, BOUND) for gang in gangs)
    unseen = sum(not gang.status.phase for gang in waiting)
    return GangQueue([_row(gang) for gang in sorted(waiting, key=_order)], running, unseen)


def summary(queue: GangQueue) -> str:
    """One line below the table: who has room, or what to look at where nobody decides that."""
    look = (
        "look whether one runs: kubectl get pods -A -l app=gang-scheduler "
        "(docs/gang-scheduling.md says how it is installed)"
    )
    if queue.unseen and queue.unseen == len(queue.waiting) and not queue.running:
        return f"no gang scheduler has looked at any gang; {look}"
    running = f"{_gangs(queue.running)} with room"
    if queue.unseen:
        return f"{running}; no gang scheduler has looked at {_gangs(queue.unseen)} yet; {look}"
    return running


def _gangs(count: int) -> str:
    return f"{count} gang{'' if count == 1 else 's'}"


def _order(gang: Gang) -> tuple[bool, int, str, str]:
    meta, status = gang.metadata, gang.status
    return status.phase == UNSCHEDULABLE, status.position or _NO_PLACE, meta.namespace, meta.name


def _row(gang: Gang) -> WaitingGang:
    meta, status = gang.metadata, gang.status
    owner = controller_of(gang)
    return WaitingGang(
        position=status.position,
        namespace=meta.namespace,
        gang=meta.name,
        owner=f"{owner.kind}/{owner.name}" if owner is not None else "",
        pods=sum(member.count for member in gang.spec.members),
        priority=gang.spec.priority,
        since=_waits_since(gang),
        message=status.message if status.phase else UNSEEN,
        missing=status.missing,
    )


def _waits_since(gang: Gang) -> str:
    """Its creation, unless it was placed or released meanwhile: then the moment when it came into the queue again.

    Before its first attempt a gang scheduler counts from when it saw the Gang, which may be long after the creation.
    """
    created, waits = gang.metadata.creation_timestamp or "", gang.status.queued_time or ""
    return waits if waits and gang.status.attempt else created or waits


def rows_of(
    queue: GangQueue, now: datetime, *, with_namespace: bool, wide: bool = False
) -> tuple[list[str], list[list[str]]]:
    """For people: headers and cells; `wide` adds the figures of what is missing."""
    space = ["Namespace"] if with_namespace else []
    headers = ["Position", *space, "Gang", "Of", "Pods", "Priority", "Waits", *(["Missing"] if wide else []), "Message"]
    rows = [
        [
            str(each.position or "-"),
            *([each.namespace] if with_namespace else []),
            each.gang,
            each.owner,
            str(each.pods),
            str(each.priority),
            age(each.since, now),
            *([_missing(each.missing)] if wide else []),
            each.message,
        ]
        for each in queue.waiting
    ]
    return headers, rows


def _missing(missing: Sequence[Missing]) -> str:
    """Such as `cpu 4 of 16`: what is left of what is asked for."""
    return ", ".join(f"{each.resource} {each.available or '0'} of {each.requested}" for each in missing)
