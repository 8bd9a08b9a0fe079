"""Who holds what a waiting gang lacks, and when enough of it is free at the latest.

`read_waits` reads them, and `wait_of` is pure.

A holder ends at its limit (`activeDeadlineSeconds` after its start), which the controller enforces, or when its program
expects to end (`estimatedRemainingSeconds` of a TrainJob), whichever is earlier. Without either its end is unknown.

What is free in total may still be too little on each node, and gangs ahead in the queue may take it. The time of a
start is therefore the earliest one that limits and estimates allow, and no promise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from tfjob_controller.api.common.quantity import amount_from, quantity_of
from tfjob_controller.api.gang import UNSCHEDULABLE, WAITING, Gang, Missing
from tfjob_controller.client.gangqueue import queue_order
from tfjob_controller.client.jobtimes import JobKey, JobTimes
from tfjob_controller.client.text import one_line, until
from tfjob_controller.client.usage import HeldCapacity, Holding, read_capacity
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube.requester import Requester
from tfjob_controller.scheduling.nodefilter import node_filter_of
from tfjob_controller.scheduling.quota import WAITS_FOR_QUOTA
from tfjob_controller.util.timestamps import format_time, parse_time_or_none

MAX_HOLDERS = 5
# The gangs at the front of the queue whose holders are shown.
MAX_WAITS = 20
LIMIT, ESTIMATE = "limit", "estimate"
_MAX_NAMED = 3
# Prefixes of resources in quotas: `requests.cpu` counts what pods request of `cpu`.
_REQUESTS = "requests."


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that holds some of a resource. `job` is `KIND/NAME`.

    `ends` is when it ends, by its `LIMIT` or an `ESTIMATE` (`basis`); both are empty if that is unknown, and `unknown`
    has the reason. Times are RFC 3339.
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
    """A resource that a gang lacks: `available` of what it `requested` is free, the largest holders, and the others.

    `more` counts the holders that are left out, and `others` is what pods of no job hold.
    """

    resource: str
    requested: str
    available: str
    lacking: str
    percent: float
    holders: Sequence[Holder]
    more: int = 0
    others: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """When a waiting gang may start: at `time` if the holders end as their `basis` says, or why that is unknown."""

    time: str = ""
    basis: str = ""
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """What a gang waits for. `is_partial`: the viewer cannot see the holders of other namespaces."""

    lacks: Sequence[Lack]
    start: Start
    is_partial: bool = False


# By namespace and name of the gang.
Waits: TypeAlias = Mapping[tuple[str, str], Wait]


@dataclass(frozen=True, slots=True)
class _Held:
    """One holder before it is cut to what is shown; `end` is None if it is unknown."""

    holder: Holder
    amount: int
    end: datetime | None


def wait_of(gang: Gang, capacity: HeldCapacity, now: datetime) -> Wait | None:
    """Returns what a gang waits for; None for one that has capacity or is not in the queue."""
    if gang.spec.suspend or gang.status.phase not in ("", WAITING, UNSCHEDULABLE):
        return None
    is_partial = capacity.nodes is None
    if gang.status.phase == UNSCHEDULABLE:
        return Wait((), Start(unknown="it does not fit even on an empty cluster"), is_partial)
    if not gang.status.phase:
        return Wait((), Start(unknown="no gang scheduler has processed it yet"), is_partial)
    lacks, starts = [], []
    may_hold = _selection(gang, capacity)
    for missing in gang.status.missing:
        resource = missing.resource.removeprefix(_REQUESTS)
        amounts = _amounts(missing, resource)
        if amounts is None:  # a gang scheduler of another version
            continue
        held = _held(resource, capacity, may_hold, now)
        lacks.append(_lack(missing, amounts, held, _of_no_job(resource, capacity, may_hold)))
        starts.append(_start(resource, amounts[0] - amounts[1], held, is_partial=is_partial))
    unknown = next((start for start in starts if start.unknown), None)
    if not starts:
        start = Start(unknown="the gang scheduler names no resource that it lacks")
    else:
        start = unknown or max(starts, key=lambda start: (start.time, start.basis == ESTIMATE))
    return Wait(lacks, start, is_partial)


def read_waits(requester: Requester, namespace: str, kinds: Sequence[ClientKind], now: datetime) -> Waits:
    """What the first gangs of a queue wait for, by namespace and name; "" is the queue of all namespaces.

    Raises `ApiError`.
    """
    capacity = read_capacity(requester, namespace, kinds)
    gangs = [gang for gang in capacity.gangs.values() if namespace in ("", gang.metadata.namespace)]
    waits: dict[tuple[str, str], Wait] = {}
    for gang in sorted(gangs, key=queue_order):
        if len(waits) < MAX_WAITS and (wait := wait_of(gang, capacity, now)) is not None:
            waits[gang.metadata.namespace, gang.metadata.name] = wait
    return waits


def _selection(gang: Gang, capacity: HeldCapacity) -> Callable[[Holding], bool]:
    """Which holdings count: those on nodes that accept a pod of the gang, or those of its namespace for a quota."""
    if gang.status.message.startswith(WAITS_FOR_QUOTA):
        return lambda holding: holding.namespace == gang.metadata.namespace
    if capacity.nodes is None:
        return lambda holding: True
    filters = {node_filter_of(member) for member in gang.spec.members}
    suitable = {
        node.metadata.name for node in capacity.nodes if any(not node_filter.rejection(node) for node_filter in filters)
    }
    return lambda holding: holding.node in suitable


def _amounts(missing: Missing, resource: str) -> tuple[int, int] | None:
    """What is requested and what is available; None for text that is no quantity."""
    try:
        return amount_from(resource, missing.requested), amount_from(resource, missing.available or "0")
    except ValueError:
        return None


def _held(resource: str, capacity: HeldCapacity, may_hold: Callable[[Holding], bool], now: datetime) -> Sequence[_Held]:
    """The jobs that hold some of a resource, in descending order of amounts."""
    by_name = {key[:2]: key for key in capacity.times}
    totals: dict[JobKey, int] = {}
    since: dict[JobKey, str] = {}
    for holding in capacity.holdings:
        amount = holding.amounts.get(resource, 0)
        if holding.key is None or amount <= 0 or not may_hold(holding):
            continue
        # A Gang does not have the id of its job's pods.
        key = holding.key if holding.key[2] else by_name.get(holding.key[:2], holding.key)
        totals[key] = totals.get(key, 0) + amount
        since[key] = min(filter(None, (since.get(key), holding.since)), default="")
    held = [
        _holder(key, quantity_of(resource, total), total, since[key], capacity.times, now)
        for key, total in totals.items()
    ]
    return sorted(held, key=lambda share: (-share.amount, share.holder.namespace, share.holder.job))


def _holder(
    key: JobKey, quantity: str, amount: int, since: str, times: Mapping[JobKey, JobTimes], now: datetime
) -> _Held:
    namespace, job, _ = key
    known = times.get(key)
    if known is None:
        return _Held(Holder(namespace, job, quantity, since, unknown="you may not read its limits"), amount, None)
    word = job.partition("/")[0]
    end, basis = _end(known, now)
    holder = Holder(
        namespace,
        f"{word}/{known.name}",
        quantity,
        known.started or since,
        format_time(end) if end is not None else "",
        basis,
        "" if end is not None else "it has no limit and no estimate",
    )
    return _Held(holder, amount, end)


def _end(times: JobTimes, now: datetime) -> tuple[datetime | None, str]:
    """The earlier one of limit and estimate. An estimate that has passed was wrong; a limit that has passed is due."""
    limit, estimate = _after(times.started, times.limit_seconds), _after(times.estimated, times.estimated_seconds)
    ends = [(max(limit, now), LIMIT)] if limit is not None else []
    if estimate is not None and estimate > now:
        ends.append((estimate, ESTIMATE))
    return min(ends, default=(None, ""))


def _after(moment: str, seconds: int | None) -> datetime | None:
    begin = parse_time_or_none(moment)
    if begin is None or seconds is None:
        return None
    try:
        return begin + timedelta(seconds=seconds)
    except OverflowError:  # later than any date
        return None


def _of_no_job(resource: str, capacity: HeldCapacity, may_hold: Callable[[Holding], bool]) -> int:
    return sum(
        holding.amounts.get(resource, 0) for holding in capacity.holdings if holding.key is None and may_hold(holding)
    )


def _lack(missing: Missing, amounts: tuple[int, int], held: Sequence[_Held], others: int) -> Lack:
    requested, available = amounts
    resource = missing.resource.removeprefix(_REQUESTS)
    return Lack(
        missing.resource,
        missing.requested,
        missing.available or "0",
        quantity_of(resource, max(0, requested - available)),
        round(min(100.0, 100 * available / requested), 1) if requested > 0 else 100.0,
        [share.holder for share in held[:MAX_HOLDERS]],
        max(0, len(held) - MAX_HOLDERS),
        quantity_of(resource, others) if others > 0 else "",
    )


def _start(resource: str, lacking: int, held: Sequence[_Held], *, is_partial: bool) -> Start:
    """When `lacking` of a resource has been freed."""
    if lacking <= 0:
        return Start(unknown=f"enough {resource} is free in total, but not on the nodes where the pods would fit")
    freed, basis = 0, LIMIT
    for share in sorted((share for share in held if share.end is not None), key=lambda share: share.holder.ends):
        freed += share.amount
        basis = ESTIMATE if share.holder.basis == ESTIMATE else basis
        if freed >= lacking:
            return Start(share.holder.ends, basis)
    endless = [share.holder for share in held if share.end is None]
    if endless:
        return Start(unknown=_endless_text(endless))
    if is_partial:
        return Start(unknown=f"others, which you may not see, hold the {resource} that it lacks")
    return Start(unknown=f"no job holds the {resource} that it lacks")


def _endless_text(endless: Sequence[Holder]) -> str:
    """Such as `no limit of trainjob/a and 3 more`."""
    names = [one_line(holder.job) for holder in endless[:_MAX_NAMED]]
    rest = len(endless) - len(names)
    hidden = all(holder.unknown.startswith("you may not") for holder in endless)
    verb = "you may not read the limit of" if hidden else "no limit or estimate of"
    return f"{verb} {', '.join(names)}{f' and {rest} more' if rest else ''}"


def start_text(start: Start, now: datetime) -> str:
    """Such as `in 12m at the latest, by the limits of jobs` or `unknown: no limit of trainjob/a`."""
    if not start.time:
        return f"unknown: {start.unknown}"
    after = until(start.time, now)
    return f"in about {after}, by estimates" if start.basis == ESTIMATE else f"in {after}, by the limits of jobs"


def end_text(holder: Holder, now: datetime) -> str:
    """Such as `in 12m (limit)` or `unknown`."""
    return f"in {until(holder.ends, now)} ({holder.basis})" if holder.ends else f"unknown: {holder.unknown}"
