"""The queue of gangs: those that wait for capacity, in the order in which they will start, and what each lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfjob_controller.api.gang import ADMITTED, BOUND, GANGS, UNSCHEDULABLE, WAITING, Gang, Missing, decode_gang
from tfjob_controller.client.errors import ClientError
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import controller_of
from tfjob_controller.kube.requester import Requester

UNSEEN = "no gang scheduler has seen it yet"
NO_GANGS_KIND = "this cluster has no gang scheduling (no Gang kind is installed): see docs/gang-scheduling.md"
_TIMEOUT_SECONDS = 10.0
_NO_PLACE = 10**9


@dataclass(frozen=True, slots=True)
class WaitingGang:
    """A gang that waits. `position` is 0 for one that does not fit on an empty cluster; `owner` is Kind/name.

    `missing` says by resource what its pods request together, and what remains on the nodes that suit them.
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
    """The waiting gangs in order, the number of gangs with capacity, and that of waiting gangs not seen yet."""

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
    """Gangs with a position come first, then those that no gang scheduler has seen; unschedulable ones come last."""
    waiting = [gang for gang in gangs if gang.status.phase in ("", WAITING, UNSCHEDULABLE) and not gang.spec.suspend]
    running = sum(gang.status.phase in (ADMITTED, BOUND) for gang in gangs)
    unseen = sum(not gang.status.phase for gang in waiting)
    return GangQueue([_row(gang) for gang in sorted(waiting, key=_order)], running, unseen)


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
    """The creation of a Gang, or after its first attempt the time when it entered the queue again.

    Before that attempt `queuedTime` is when a gang scheduler saw the Gang, which may be long after the creation.
    """
    created, waits = gang.metadata.creation_timestamp or "", gang.status.queued_time or ""
    return waits if waits and gang.status.attempt else created or waits
