"""Reads the queue of gangs from the statuses of Gangs, for `kubectl tfjob queue` and the dashboard.

`read_queue` lists the Gangs and the nodes. `queue_of` computes three tables from them and is pure:

- the gangs that wait for capacity, in the order in which they will start, with the resources that each lacks;
- the running gangs that are requested to shrink, to grow, or to leave because another gang preempts them;
- the resources that the gangs of each namespace hold, and their share of the cluster.

A status stays in the cluster when the gang scheduler stops. `GangQueue.report` therefore has the age of the statuses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from tfjob_controller.api.common.cluster import NAMESPACES, NODES, Node
from tfjob_controller.api.common.quantity import PODS, amount_from, quantity_of
from tfjob_controller.api.gang import (
    ADMITTED,
    BOUND,
    GANGS,
    UNSCHEDULABLE,
    WAITING,
    Gang,
    GangMeta,
    Missing,
    kind_of,
    must_leave,
)
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.statusreports import GANG_SCHEDULER, RUNNING, StatusReport, read_report, status_time
from tfjob_controller.client.usage import member_requests
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import controller_of
from tfjob_controller.kube.names import SYSTEM_NAMESPACE
from tfjob_controller.kube.requester import Requester
from tfjob_controller.scheduling.fairshare import DEFAULT_WEIGHT, weight_in

UNSEEN = "no gang scheduler has processed it yet"
NO_GANGS_KIND = "this cluster has no gang scheduling (no Gang kind is installed): see docs/gang-scheduling.md"
_TIMEOUT_SECONDS = 10.0
_NO_PLACE = 10**9


class NoGangsError(ClientError):
    """The cluster has no gang scheduling."""


@dataclass(frozen=True, slots=True)
class WaitingGang:
    """A gang that waits for capacity.

    `position` is 0 if the gang would not fit even on an empty cluster. `owner` is `Kind/name`. `missing` compares, for
    each resource, the requests of all its pods with the free capacity of the nodes that they may run on.
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
class GangRequest:
    """A request of the gang scheduler to a running gang: `change` is `worker 4 → 2`, or `all pods leave`."""

    namespace: str
    gang: str
    owner: str
    change: str
    reason: str


@dataclass(frozen=True, slots=True)
class NamespaceShare:
    """The gangs of a namespace: how many run and wait, and the quantities that the placed pods request (`held`).

    `share` is the dominant share in percent: of all resources, the largest part that the namespace holds of the
    capacity of all nodes. `resource` is that resource. Without the right to list nodes `share` is None.

    `weight` is that of the namespace in the fair order of the queue; None if it may not be read. `fair` is its part of
    the weights of all namespaces in percent: the share at which the fair order ranks it equal to the others. None if
    the weights or the gangs of some may not be read.

    Source: dominant resource fairness, Ghodsi et al., NSDI 2011.
    """

    namespace: str
    running: int
    waiting: int
    held: Mapping[str, str]
    resource: str = ""
    share: float | None = None
    weight: float | None = None
    fair: float | None = None


@dataclass(frozen=True, slots=True)
class GangQueue:
    """The waiting gangs in order, and the number of gangs that have capacity (`running`).

    `unseen` is the number of waiting gangs that the gang scheduler has not processed yet. `report` describes the gang
    scheduler, which wrote the statuses, and when it did; None if there is no gang.
    """

    waiting: Sequence[WaitingGang]
    running: int
    unseen: int = 0
    requests: Sequence[GangRequest] = ()
    shares: Sequence[NamespaceShare] = ()
    report: StatusReport | None = None


def read_queue(requester: Requester, namespace: str, controller_namespace: str = SYSTEM_NAMESPACE) -> GangQueue:
    """Returns the queue of a namespace, or of all if it is "". Positions are those in the whole cluster.

    The gang scheduler is installed in `controller_namespace`.

    Raises `ApiError`, and `NoGangsError` if the cluster has no Gangs.
    """
    client = ResourceClient(requester, GANGS.with_decoder(_decode), timeout_seconds=_TIMEOUT_SECONDS, retry=False)
    try:
        gangs = client.list(namespace)
    except ApiError as error:
        if error.is_not_found:
            raise NoGangsError(NO_GANGS_KIND) from None
        raise
    nodes = _read_nodes(requester)
    weights = _read_weights(requester, namespace) if gangs else {}
    queue = queue_of([item.gang for item in gangs], nodes, weights, is_whole=not namespace)
    if not gangs:
        return queue
    reported = max(item.reported for item in gangs)
    return replace(queue, report=read_report(requester, GANG_SCHEDULER, reported, controller_namespace))


@dataclass(frozen=True, slots=True)
class _ReportedGang:
    """A Gang, and when its status last changed."""

    gang: Gang
    reported: str

    @property
    def metadata(self) -> GangMeta:
        return self.gang.metadata


def _decode(item: bytes | msgspec.Raw) -> _ReportedGang:
    return _ReportedGang(GANGS.decode(item), status_time(item))


def _read_nodes(requester: Requester) -> Sequence[Node] | None:
    try:
        return ResourceClient(requester, NODES, timeout_seconds=_TIMEOUT_SECONDS, retry=False).list()
    except ApiError as error:
        if error.is_forbidden:
            return None
        raise


def _read_weights(requester: Requester, namespace: str) -> Mapping[str, float]:
    """The weights of the namespaces that the user may read; those without the annotation have the default."""
    client = ResourceClient(requester, NAMESPACES, timeout_seconds=_TIMEOUT_SECONDS, retry=False)
    try:
        spaces = [client.get("", namespace)] if namespace else client.list()
    except ApiError as error:
        if error.is_forbidden or error.is_not_found:
            return {}
        raise
    return {
        space.metadata.name: weight_in(space.metadata.annotations.queue_weight) or DEFAULT_WEIGHT for space in spaces
    }


def queue_of(
    gangs: Sequence[Gang],
    nodes: Sequence[Node] | None = None,
    weights: Mapping[str, float] = {},
    *,
    is_whole: bool = False,
) -> GangQueue:
    """Returns the queue: gangs with a position first, then those not processed yet, then unschedulable ones.

    `weights` are those of namespaces in the fair order, as far as they are known. `is_whole`: the gangs are those of
    all namespaces.
    """
    waiting = [gang for gang in gangs if gang.status.phase in ("", WAITING, UNSCHEDULABLE) and not gang.spec.suspend]
    running = [gang for gang in gangs if gang.status.phase in (ADMITTED, BOUND)]
    unseen = sum(not gang.status.phase for gang in waiting)
    return GangQueue(
        [_row(gang) for gang in sorted(waiting, key=queue_order)],
        len(running),
        unseen,
        [_request(gang) for gang in sorted(running, key=_name) if gang.status.target_members or must_leave(gang)],
        _with_fair_shares(_shares(waiting, running, nodes), weights, is_whole=is_whole),
    )


def _with_fair_shares(
    shares: Sequence[NamespaceShare], weights: Mapping[str, float], *, is_whole: bool
) -> list[NamespaceShare]:
    known = [weights.get(share.namespace) for share in shares]
    total = sum(weight for weight in known if weight is not None)
    is_known = is_whole and None not in known and total > 0
    return [
        replace(share, weight=weight, fair=round(100 * weight / total, 1) if is_known and weight is not None else None)
        for share, weight in zip(shares, known, strict=True)
    ]


def _name(gang: Gang) -> tuple[str, str]:
    return gang.metadata.namespace, gang.metadata.name


def _request(gang: Gang) -> GangRequest:
    targets, status = gang.status.target_members, gang.status
    if must_leave(gang) and status.preemption is not None:
        return GangRequest(*_name(gang), _owner(gang), "all pods leave", f"preempted by {status.preemption.by}")
    changes = (
        f"{member.name} {member.count} → {targets[member.name]}"
        for member in gang.spec.members
        if member.name in targets
    )
    return GangRequest(*_name(gang), _owner(gang), ", ".join(changes), status.target_reason)


def _shares(waiting: Iterable[Gang], running: Sequence[Gang], nodes: Sequence[Node] | None) -> list[NamespaceShare]:
    """Returns a row for each namespace that has a gang, in descending order of shares."""
    waits, runs = (Counter(gang.metadata.namespace for gang in gangs) for gangs in (waiting, running))
    held: dict[str, dict[str, int]] = {}
    for gang in running:
        _add_held(held.setdefault(gang.metadata.namespace, {}), gang)
    totals = _totals(nodes)
    shares = [_share(space, runs[space], waits[space], held.get(space, {}), totals) for space in {*waits, *runs}]
    return sorted(shares, key=lambda share: (-(share.share or 0), share.namespace))


def _add_held(total: dict[str, int], gang: Gang) -> None:
    """Adds the requests of the gang's members that have a node."""
    placed = Counter(kind_of(member) for node in gang.status.placement for member in node.members)
    for kind in gang.spec.members:
        for resource, amount in member_requests(kind).items():
            if resource != PODS:
                total[resource] = total.get(resource, 0) + placed[kind.name] * amount


def _totals(nodes: Sequence[Node] | None) -> Mapping[str, int] | None:
    if nodes is None:
        return None
    total = Counter[str]()
    for node in nodes:
        for resource, text in node.status.allocatable.items():
            total[resource] += amount_from(resource, text)
    return total


def _share(
    namespace: str, running: int, waiting: int, held: Mapping[str, int], totals: Mapping[str, int] | None
) -> NamespaceShare:
    quantities = {resource: quantity_of(resource, amount) for resource, amount in sorted(held.items()) if amount}
    if totals is None:
        return NamespaceShare(namespace, running, waiting, quantities)
    shares = [
        (100 * held[resource] / total, resource) for resource, total in totals.items() if total and resource in held
    ]
    share, resource = max(shares, default=(0.0, ""))
    return NamespaceShare(namespace, running, waiting, quantities, resource if share else "", round(share, 1))


def queue_order(gang: Gang) -> tuple[bool, int, str, str]:
    """The key by which waiting gangs are sorted."""
    meta, status = gang.metadata, gang.status
    return status.phase == UNSCHEDULABLE, status.position or _NO_PLACE, meta.namespace, meta.name


def _row(gang: Gang) -> WaitingGang:
    meta, status = gang.metadata, gang.status
    return WaitingGang(
        position=status.position,
        namespace=meta.namespace,
        gang=meta.name,
        owner=_owner(gang),
        pods=sum(member.count for member in gang.spec.members),
        priority=gang.spec.priority,
        since=_waits_since(gang),
        message=status.message if status.phase else UNSEEN,
        missing=status.missing,
    )


def _owner(gang: Gang) -> str:
    owner = controller_of(gang)
    return f"{owner.kind}/{owner.name}" if owner is not None else ""


def _waits_since(gang: Gang) -> str:
    """Returns since when a Gang waits: its creation, or after its first attempt its return to the queue.

    Before the first attempt `queuedTime` is the time when a gang scheduler first processed the Gang, which may be long
    after the creation.
    """
    created, waits = gang.metadata.creation_timestamp or "", gang.status.queued_time or ""
    return waits if waits and gang.status.attempt else created or waits


def report_origin(queue: GangQueue, now: datetime) -> str:
    """Returns the end of a sentence: who reported the queue and when. Empty while the gang scheduler runs."""
    report = queue.report
    return f", {report.origin(now)}" if report is not None and report.state != RUNNING else ""


def share_text(share: NamespaceShare) -> str:
    """Returns a text such as `62.5 % of nvidia.com/gpu`; `-` if the share is unknown or 0."""
    return f"{share.share:g} % of {share.resource}" if share.share else "-"


def held_text(share: NamespaceShare) -> str:
    return ", ".join(f"{resource} {quantity}" for resource, quantity in share.held.items())
