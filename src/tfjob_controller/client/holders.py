"""Who holds what a waiting gang lacks, and when it may start.

`read_waits` reads them, and `waits_of` is pure. `jobends` has when holders end, and `gangstarts` what follows.

The time of a start is the earliest one that limits and estimates allow, and no promise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from tfjob_controller.api.common.quantity import amount_from, quantity_of
from tfjob_controller.api.gang import UNSCHEDULABLE, WAITING, Gang, Missing
from tfjob_controller.client.gangqueue import queue_order
from tfjob_controller.client.gangstarts import StartPlan, least_certain
from tfjob_controller.client.jobends import DELETION, ESTIMATE, LIMIT, NOT_READ, JobEnd, JobEnds
from tfjob_controller.client.jobtimes import JobKey, JobTimes
from tfjob_controller.client.text import one_line, until
from tfjob_controller.client.usage import HeldCapacity, Holding, member_requests, read_capacity
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube.requester import Requester
from tfjob_controller.scheduling.nodefilter import node_filter_of
from tfjob_controller.scheduling.quota import WAITS_FOR_QUOTA
from tfjob_controller.util.timestamps import format_time

MAX_HOLDERS = 5
# The gangs at the front of the queue whose holders are shown.
MAX_WAITS = 20
# With those of other namespaces ahead of them.
_MAX_WALKED = 100
_MAX_NAMED = 3
NOT_SEEN = "you may not list the nodes and the pods of all namespaces"
NOTHING_NAMED = "the gang scheduler names no resource that it lacks"
_AHEAD = "gangs ahead of it come first"
_STARTS = {
    LIMIT: "in {}, by the limits of jobs",
    ESTIMATE: "in about {}, by estimates",
    DELETION: "in {}, when deleted pods have ended",
}
# Prefixes of resources in quotas: `requests.cpu` counts what pods request of `cpu`.
_REQUESTS = "requests."


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that holds some of a resource. `job` is `KIND/NAME`.

    `ends` is when it ends, by its `LIMIT`, an `ESTIMATE` or its `DELETION` (`basis`); both are empty if that is
    unknown, and `unknown` has the reason. Times are RFC 3339.
    """

    namespace: str
    job: str
    amount: str
    since: str
    ends: str = ""
    basis: str = ""
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Lack:
    """A resource that a gang lacks: `available` of what it `requested` is there, the largest holders, and the others.

    Of a quota, `available` is free, and `lacking` the rest. Of nodes it is what whole pods can use; `room` then has how
    many, unless they differ. `more` counts the holders that are left out, and `others` is what pods of no job hold.
    """

    resource: str
    requested: str
    available: str
    lacking: str
    percent: float
    holders: Sequence[Holder]
    more: int = 0
    others: str = ""
    room: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """When a waiting gang may start: at `time` if the holders end as their `basis` says, or why that is unknown.

    `is_quota`: its namespace may then have more pods, wherever there is capacity.
    """

    time: str = ""
    basis: str = ""
    unknown: str = ""
    is_quota: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """What a gang waits for. `is_partial`: the viewer cannot see the holders of other namespaces.

    `is_quota`: for the quota of its namespace.
    """

    lacks: Sequence[Lack]
    start: Start
    is_partial: bool = False
    is_quota: bool = False


# By namespace and name of the gang.
Waits: TypeAlias = Mapping[tuple[str, str], Wait]


@dataclass(frozen=True, slots=True)
class _Held:
    """One holder before it is cut to what is shown."""

    holder: Holder
    amount: int
    end: JobEnd


class _Queue:
    """Computes what gangs wait for, which are added in the order of the queue."""

    def __init__(self, capacity: HeldCapacity, now: datetime) -> None:
        self._capacity = capacity
        self._now = now
        self._ends = JobEnds(capacity, now)
        self._plan = StartPlan(capacity, self._ends, now) if capacity.nodes is not None else None
        self._ahead: list[tuple[Gang, Start]] = []

    def add(self, gang: Gang) -> Wait | None:
        """Returns what a gang waits for; None for one that has capacity or is not in the queue."""
        capacity = self._capacity
        if gang.spec.suspend or gang.status.phase not in ("", WAITING, UNSCHEDULABLE):
            return None
        is_partial, is_quota = capacity.nodes is None, _is_quota(gang)
        if gang.status.phase == UNSCHEDULABLE:
            return Wait((), Start(unknown="it does not fit even on an empty cluster"), is_partial)
        if not gang.status.phase:
            return Wait((), Start(unknown="no gang scheduler has processed it yet"), is_partial)
        holdings = _selection(gang, capacity)
        lacks: list[Lack] = []
        held: dict[str, Sequence[_Held]] = {}
        for missing in gang.status.missing:
            resource = missing.resource.removeprefix(_REQUESTS)
            amounts = _amounts(missing, resource)
            if amounts is None:  # a gang scheduler of another version
                continue
            held[resource] = _held(resource, holdings, self._ends, capacity.times)
            room = "" if is_quota else _room(gang, resource, amounts)
            lacks.append(_lack(missing, amounts, held[resource], _of_no_job(resource, holdings), room))
        start = self._quota_start(gang, held) if is_quota else self._start(gang, held)
        self._ahead.append((gang, start))
        return Wait(lacks, start, is_partial, is_quota)

    def _start(self, gang: Gang, held: Mapping[str, Sequence[_Held]]) -> Start:
        # Without the right to list all gangs, not all that are ahead are known.
        is_first = gang.status.position <= 1
        if self._plan is None:
            return Start(unknown=NOT_SEEN if is_first else f"{_AHEAD}, and {NOT_SEEN}")
        planned = self._plan.add(gang)
        if planned.is_behind or gang.status.position > len(self._ahead) + 1:
            return Start(unknown=f"{_AHEAD}, and their start is unknown")
        if planned.time is not None and planned.time > self._now:
            return Start(format_time(planned.time), planned.basis)
        if not held:
            return Start(unknown=NOTHING_NAMED if is_first else _AHEAD)
        if planned.time is not None:
            return Start(unknown="the nodes seem to have enough capacity now")
        endless = {each.holder.job: each.holder for found in held.values() for each in found if each.end.time is None}
        if endless:
            return Start(unknown=_endless_text([*endless.values()]))
        if not is_first:
            return Start(unknown="gangs ahead of it take what is freed")
        return Start(unknown=f"the ends of jobs do not free enough {', '.join(sorted(held))} on the nodes")

    def _quota_start(self, gang: Gang, held: Mapping[str, Sequence[_Held]]) -> Start:
        """When its namespace has freed enough; gangs ahead in it take their part first."""
        before = [
            (each, start)
            for each, start in self._ahead
            if _is_quota(each) and each.metadata.namespace == gang.metadata.namespace
        ]
        starts = []
        for missing in gang.status.missing:
            resource = missing.resource.removeprefix(_REQUESTS)
            if resource not in held or (amounts := _amounts(missing, resource)) is None:
                continue
            same = [
                (other, start)
                for each, start in before
                for other in each.status.missing
                if other.resource == missing.resource
            ]
            if any(start.unknown for _, start in same):
                return Start(unknown=f"{_AHEAD}, and their start is unknown")
            taken = sum((_amounts(other, resource) or (0, 0))[0] for other, _ in same)
            starts.append(_freed(resource, taken + amounts[0] - amounts[1], held[resource]))
        if not starts:
            return Start(unknown=NOTHING_NAMED)
        unknown = next((start for start in starts if start.unknown), None)
        latest = max(start.time for start in starts)
        return unknown or Start(latest, least_certain(start.basis for start in starts), is_quota=True)


def waits_of(capacity: HeldCapacity, namespace: str, now: datetime) -> Waits:
    """What the first gangs of a queue wait for, by namespace and name; "" is the queue of all namespaces."""
    queue = _Queue(capacity, now)
    waits: dict[tuple[str, str], Wait] = {}
    walked = 0
    for gang in sorted(capacity.gangs.values(), key=queue_order):
        if len(waits) >= MAX_WAITS or walked >= _MAX_WALKED:
            break
        if (wait := queue.add(gang)) is None:
            continue
        walked += 1
        if namespace in ("", gang.metadata.namespace):
            waits[gang.metadata.namespace, gang.metadata.name] = wait
    return waits


def read_waits(requester: Requester, namespace: str, kinds: Sequence[ClientKind], now: datetime) -> Waits:
    """As `waits_of`. Raises `ApiError`."""
    return waits_of(read_capacity(requester, namespace, kinds), namespace, now)


def _is_quota(gang: Gang) -> bool:
    return gang.status.message.startswith(WAITS_FOR_QUOTA)


def _room(gang: Gang, resource: str, amounts: tuple[int, int]) -> str:
    """What is available as whole pods, which is how the gang scheduler counts; empty if pods differ in size."""
    sizes = {size for member in gang.spec.members if (size := member_requests(member).get(resource, 0)) > 0}
    if len(sizes) != 1:
        return ""
    size = sizes.pop()
    wanted = amounts[0] // size
    return f"room for {amounts[1] // size} of {wanted} pod{'' if wanted == 1 else 's'}"


def _selection(gang: Gang, capacity: HeldCapacity) -> Sequence[Holding]:
    """Which holdings count: those on nodes that accept a pod of the gang, or those of its namespace for a quota."""
    if _is_quota(gang):
        return [each for each in capacity.requested if each.namespace == gang.metadata.namespace]
    if capacity.nodes is None:
        return capacity.holdings
    filters = {node_filter_of(member) for member in gang.spec.members}
    suitable = {node.metadata.name for node in capacity.nodes if any(not each.rejection(node) for each in filters)}
    return [each for each in capacity.holdings if each.node in suitable]


def _amounts(missing: Missing, resource: str) -> tuple[int, int] | None:
    """What is requested and what is available; None for text that is no quantity."""
    try:
        return amount_from(resource, missing.requested), amount_from(resource, missing.available or "0")
    except ValueError:
        return None


def _held(
    resource: str, holdings: Sequence[Holding], ends: JobEnds, times: Mapping[JobKey, JobTimes]
) -> Sequence[_Held]:
    """The jobs that hold some of a resource, in descending order of amounts."""
    totals: dict[JobKey, int] = {}
    since: dict[JobKey, str] = {}
    for holding in holdings:
        amount, key = holding.amounts.get(resource, 0), ends.key_of(holding)
        if key is None or amount <= 0:
            continue
        totals[key] = totals.get(key, 0) + amount
        since[key] = min(filter(None, (since.get(key), holding.since)), default="")
    held = [
        _holder(key, quantity_of(resource, total), total, since[key], times.get(key), ends.end_of(key))
        for key, total in totals.items()
    ]
    return sorted(held, key=lambda each: (-each.amount, each.holder.namespace, each.holder.job))


def _holder(key: JobKey, quantity: str, amount: int, since: str, known: JobTimes | None, end: JobEnd) -> _Held:
    namespace, job, _ = key
    if known is not None:
        job, since = f"{job.partition('/')[0]}/{known.name}", known.started or since
    ends = format_time(end.time) if end.time is not None else ""
    return _Held(Holder(namespace, job, quantity, since, ends, end.basis, end.unknown), amount, end)


def _of_no_job(resource: str, holdings: Sequence[Holding]) -> int:
    return sum(holding.amounts.get(resource, 0) for holding in holdings if holding.key is None)


def _lack(missing: Missing, amounts: tuple[int, int], held: Sequence[_Held], others: int, room: str) -> Lack:
    requested, available = amounts
    resource = missing.resource.removeprefix(_REQUESTS)
    return Lack(
        missing.resource,
        missing.requested,
        missing.available or "0",
        quantity_of(resource, max(0, requested - available)),
        round(min(100.0, 100 * available / requested), 1) if requested > 0 else 100.0,
        [each.holder for each in held[:MAX_HOLDERS]],
        max(0, len(held) - MAX_HOLDERS),
        quantity_of(resource, others) if others > 0 else "",
        room,
    )


def _freed(resource: str, lacking: int, held: Sequence[_Held]) -> Start:
    """When the jobs of a namespace have freed `lacking` of a resource."""
    bases = []
    for each in sorted((each for each in held if each.end.time is not None), key=lambda each: each.holder.ends):
        lacking -= each.amount
        bases.append(each.holder.basis)
        if lacking <= 0:
            return Start(each.holder.ends, least_certain(bases), is_quota=True)
    endless = [each.holder for each in held if each.end.time is None]
    return Start(unknown=_endless_text(endless) if endless else f"no job holds the {resource} that it lacks")


def _endless_text(endless: Sequence[Holder]) -> str:
    """Such as `no limit of trainjob/a and 3 more`."""
    names = [one_line(holder.job) for holder in endless[:_MAX_NAMED]]
    rest = len(endless) - len(names)
    hidden = all(holder.unknown == NOT_READ for holder in endless)
    if all(holder.unknown.startswith("it is being deleted") for holder in endless):
        return f"the deletion of {', '.join(names)}{f' and {rest} more' if rest else ''} has no known end"
    verb = "you may not read the limit of" if hidden else "no limit or estimate of"
    return f"{verb} {', '.join(names)}{f' and {rest} more' if rest else ''}"


def start_text(start: Start, now: datetime) -> str:
    """Such as `in 12m, by the limits of jobs` or `unknown: no limit of trainjob/a`."""
    if not start.time:
        return f"unknown: {start.unknown}"
    text = _STARTS.get(start.basis, "in {}").format(until(start.time, now))
    return f"{text}, if a node has capacity then" if start.is_quota else text


def end_text(holder: Holder, now: datetime) -> str:
    """Such as `in 12m (limit)` or `unknown`."""
    return f"in {until(holder.ends, now)} ({holder.basis})" if holder.ends else f"unknown: {holder.unknown}"
