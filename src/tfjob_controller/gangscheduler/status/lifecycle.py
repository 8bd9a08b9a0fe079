"""The phases of a gang, and what leads from each to the next. Pure.

    Waiting ──fits──▶ Admitted ──all placed members bound──▶ Bound ──no member lives any more──▶ Released
       ▲  ▲               │                                    │                                    │
       │  └─no progress───┘                                    │     a member is made anew ─────────┘ (bound alone)
       │                                                       │
    Unschedulable (an empty cluster would be too small)        └── spec.suspend ──▶ Released, without a placement

A gang that was released by spec.suspend has no placement; once it is resumed it queues anew. One that has ended keeps
its placement: a member that is started again is bound alone, on its old node if that has room.

What each crash leaves behind: nothing but the phase, the attempt and the placement of the Gang. Whoever becomes the
gang scheduler reads reservations back from Admitted gangs; everything else is counted from pods.

A gang's *standing* is what it is to the admission loop: queued, placed or idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum

from msgspec.structs import replace

from tfjob_controller.api.cluster import FINISHED_PHASES, ScheduledPod
from tfjob_controller.api.gang import (
    ADMITTED,
    ATTEMPT_LABEL,
    BOUND,
    MEMBER_LABEL,
    RELEASED,
    UNSCHEDULABLE,
    WAITING,
    Gang,
    GangCondition,
    GangStatus,
    members_in_words,
    placed_nodes,
    wanted_members,
)
from tfjob_controller.scheduling.autoscaling.elasticgang import elastic_kind
from tfjob_controller.scheduling.placement import placement_by_node
from tfjob_controller.util.timestamps import format_micro_time, format_time

SCHEDULED = "Scheduled"
REASON_ADMITTED = "Admitted"
REASON_BOUND = "Bound"
REASON_WAITING = "WaitingForCapacity"
REASON_NO_PROGRESS = "NoProgress"
REASON_SUSPENDED = "Suspended"
REASON_FINISHED = "Finished"

SUCCEEDED = "Succeeded"
# Longer than the Job controller waits before it replaces a failed pod (10 s the first time).
REPLACEMENT_SECONDS = 15.0
# An elastic gang may be stopped as a whole to be started with other members, by an owner whose next leader must wait
# for the Lease of the last one meanwhile.
RESTART_SECONDS = 60.0
# Whoever labels a pod with a number that no gang comes to must not bring one there.
_ATTEMPT_DIGITS = 9


class GangState(Enum):
    """What a gang is to the admission loop."""

    QUEUED = "queued"
    PLACED = "placed"
    IDLE = "idle"


def is_wanted(gang: Gang) -> bool:
    """Whether it is to run at all."""
    return not gang.spec.suspend and gang.metadata.deletion_timestamp is None


def state_of(gang: Gang) -> GangState:
    if not is_wanted(gang):
        return GangState.IDLE
    status = gang.status
    if status.phase in (ADMITTED, BOUND):
        return GangState.PLACED
    is_over = status.phase == RELEASED and (status.placement or not has_pods(gang))
    return GangState.IDLE if is_over else GangState.QUEUED


def has_pods(gang: Gang) -> bool:
    """A gang of none has nothing to wait for."""
    return any(member.count > 0 for member in gang.spec.members)


def pods_by_member(gang: Gang, pods: Iterable[ScheduledPod]) -> dict[str, ScheduledPod]:
    """The pod of each member in the current attempt; of two the one that lives, is bound, is younger, in this order."""
    found: dict[str, ScheduledPod] = {}
    attempt = str(gang.status.attempt)
    for pod in sorted(pods, key=_rank):
        if pod.metadata.labels.get(ATTEMPT_LABEL) == attempt:
            found[pod.metadata.labels.get(MEMBER_LABEL, "")] = pod
    return found


def with_attempt_of_pods(gang: Gang, pods: Iterable[ScheduledPod]) -> Gang:
    """The gang with an attempt that no pod is ahead of: an earlier Gang's of its name must not count as its own."""
    attempt = max((_attempt(pod) for pod in pods), default=0)
    if attempt <= gang.status.attempt:
        return gang
    return with_status(gang, replace(gang.status, attempt=attempt))


def _attempt(pod: ScheduledPod) -> int:
    """Of its label; 0 if that is no number that a gang could come to."""
    text = pod.metadata.labels.get(ATTEMPT_LABEL, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _ATTEMPT_DIGITS else 0


def _rank(pod: ScheduledPod) -> tuple[bool, bool, str]:
    """A second pod that somebody made must not hide the one that has the member's seat."""
    return is_unfinished(pod), is_bound(pod), pod.metadata.creation_timestamp or ""


def is_bound(pod: ScheduledPod) -> bool:
    return bool(pod.spec.node_name)


def is_unfinished(pod: ScheduledPod) -> bool:
    """It takes, or will take, room."""
    return pod.status.phase not in FINISHED_PHASES


def has_ended(gang: Gang, pods: Mapping[str, ScheduledPod], idle_seconds: float, any_succeeded: bool = False) -> bool:
    """Whether a bound gang has come to its end: no member lives, for `idle_seconds` by now.

    Unless some have succeeded they may be started again: see `replacement_seconds`.
    """
    if any(is_unfinished(pod) for pod in pods.values()):
        return False
    return any_succeeded or any(map(has_succeeded, pods.values())) or idle_seconds >= replacement_seconds(gang, pods)


def replacement_seconds(gang: Gang, pods: Mapping[str, ScheduledPod]) -> float:
    """For how long members of which none lives may be made anew, by the Job controller or by the gang's owner."""
    return RESTART_SECONDS if not pods and elastic_kind(gang.spec) is not None else REPLACEMENT_SECONDS


def has_succeeded(pod: ScheduledPod) -> bool:
    return pod.status.phase == SUCCEEDED


def observed_status(
    gang: Gang, pods: Mapping[str, ScheduledPod], idle_seconds: float, now: datetime, *, any_succeeded: bool = False
) -> GangStatus | None:
    """The status that pods and spec lead to without any decision; None if that is the one it has.

    `pods` are those of the current attempt, by member; no one of them has lived for `idle_seconds`, and some member
    `any_succeeded`, whose pod may be gone.
    """
    status = gang.status
    if gang.spec.suspend:
        return None if status.phase == RELEASED and not status.placement else suspended_status(gang, now)
    if not has_pods(gang):
        return None if status.phase == RELEASED else finished_status(gang, now)
    if status.phase == ADMITTED and all(is_bound_member(pods, member) for member in placed_nodes(status)):
        return bound_status(gang, now)
    if status.phase == BOUND and has_ended(gang, pods, idle_seconds, any_succeeded):
        return finished_status(gang, now)
    if status.phase == RELEASED and status.placement and any(is_unfinished(pod) for pod in pods.values()):
        return bound_status(gang, now)
    return None


def is_bound_member(pods: Mapping[str, ScheduledPod], member: str) -> bool:
    return member in pods and is_bound(pods[member])


def admitted_status(gang: Gang, placement: Mapping[str, str], now: datetime) -> GangStatus:
    """`placement` is the node of each member that starts."""
    message = f"Admitted: {len(placement)} pods on {len(set(placement.values()))} nodes"
    return replace(
        gang.status,
        phase=ADMITTED,
        attempt=gang.status.attempt + 1,
        placement=placement_by_node(placement),
        members=members_in_words(gang.spec, len(placement)),
        position=0,
        missing=(),
        message=message,
        requeue_time=None,
        admitted_time=format_micro_time(now),
        bound_time=None,
        last_resize_time=None,
        queued_time=gang.status.queued_time or gang.metadata.creation_timestamp,
        observed_generation=gang.metadata.generation,
        conditions=_conditions(gang, True, REASON_ADMITTED, message, now),
    )


def reassigned_status(gang: Gang, nodes: Mapping[str, str]) -> GangStatus:
    """The same attempt with other nodes for some members."""
    return _placed_status(gang, {**placed_nodes(gang.status), **nodes})


def without_removed_members(gang: Gang) -> Gang:
    """A gang that is still to be bound, without the members that were taken away since it was admitted.

    Nobody will make their pods, so nobody must wait for them. Members that were added wait until it is bound.
    """
    if gang.status.phase != ADMITTED:
        return gang
    nodes, wanted = placed_nodes(gang.status), set(wanted_members(gang))
    if nodes.keys() <= wanted:
        return gang
    return with_status(gang, _placed_status(gang, {each: node for each, node in nodes.items() if each in wanted}))


def with_observed_nodes(gang: Gang, pods: Mapping[str, ScheduledPod]) -> Gang:
    """The gang with the nodes that its pods are bound to, should they be others than its status says.

    Nobody but a hand that edited the status, or another scheduler, makes them differ.
    """
    nodes = placed_nodes(gang.status)
    others = {
        member: pod.spec.node_name
        for member, pod in pods.items()
        if is_bound(pod) and is_unfinished(pod) and nodes.get(member, pod.spec.node_name) != pod.spec.node_name
    }
    return with_status(gang, reassigned_status(gang, others)) if others else gang


def with_status(gang: Gang, status: GangStatus) -> Gang:
    return replace(gang, status=status)


def _placed_status(gang: Gang, nodes: Mapping[str, str]) -> GangStatus:
    return replace(
        gang.status,
        placement=placement_by_node(nodes),
        members=members_in_words(gang.spec, len(nodes)),
        observed_generation=gang.metadata.generation,
    )


def bound_status(gang: Gang, now: datetime) -> GangStatus:
    return resized_status(gang, placed_nodes(gang.status), now)


def resized_status(gang: Gang, nodes: Mapping[str, str], now: datetime) -> GangStatus:
    """Bound, with the members that it has now; nothing is asked of its owner any more that has been done."""
    message = f"Bound: {len(nodes)} pods"
    status = gang.status
    is_other = nodes.keys() != placed_nodes(status).keys()
    return replace(
        status if has_resize_request(gang) else without_resize_request(status),
        phase=BOUND,
        bound_time=status.bound_time or format_micro_time(now),
        last_resize_time=format_micro_time(now) if is_other else status.last_resize_time,
        placement=placement_by_node(nodes),
        members=members_in_words(gang.spec, len(nodes)),
        message=message,
        observed_generation=gang.metadata.generation,
        conditions=_conditions(gang, True, REASON_BOUND, message, now),
    )


def has_resize_request(gang: Gang) -> bool:
    """Whether its owner should have another number of some members than it has."""
    counts = {member.name: member.count for member in gang.spec.members}
    return any(counts.get(name, target) != target for name, target in gang.status.target_members.items())


def resize_request_status(gang: Gang, kind: str, target: int, leaving: tuple[str, ...], reason: str) -> GangStatus:
    """Its owner should have so many members of this kind, without those that are leaving.

    It says which spec was looked at: what was wished of another one is not for the owner to act on.
    """
    return replace(
        gang.status,
        target_members={kind: target},
        target_reason=reason,
        leaving=leaving,
        observed_generation=gang.metadata.generation,
    )


def without_resize_request(status: GangStatus) -> GangStatus:
    """Nobody is asked for more members or fewer."""
    return replace(status, target_members={}, target_reason="", leaving=())


def finished_status(gang: Gang, now: datetime) -> GangStatus:
    message = "Released: no pod of the gang runs any more"
    return replace(
        without_resize_request(gang.status),
        phase=RELEASED,
        message=message,
        observed_generation=gang.metadata.generation,
        conditions=_conditions(gang, False, REASON_FINISHED, message, now),
    )


def suspended_status(gang: Gang, now: datetime) -> GangStatus:
    message = "Released: spec.suspend is true"
    return replace(
        without_resize_request(gang.status),
        phase=RELEASED,
        placement=(),
        members=members_in_words(gang.spec, 0),
        position=0,
        missing=(),
        message=message,
        queued_time=None,
        requeue_time=None,
        observed_generation=gang.metadata.generation,
        conditions=_conditions(gang, False, REASON_SUSPENDED, message, now),
    )


def requeued_status(gang: Gang, bound_count: int, backoff_seconds: float, now: datetime) -> GangStatus:
    """Back in the queue after an attempt that came to nothing; its age is kept."""
    wanted = len(placed_nodes(gang.status))
    message = f"Attempt {gang.status.attempt} was given up: {bound_count} of {wanted} pods were bound in time"
    return replace(
        without_resize_request(gang.status),
        phase=WAITING,
        placement=(),
        members=members_in_words(gang.spec, 0),
        message=message,
        requeue_time=format_micro_time(now + timedelta(seconds=backoff_seconds)),
        observed_generation=gang.metadata.generation,
        conditions=_conditions(gang, False, REASON_NO_PROGRESS, message, now),
    )


def waiting_status(gang: Gang, status: GangStatus, now: datetime) -> GangStatus:
    """`status` with position, missing and message as the queue has them, made whole."""
    return _unplaced(gang, status, WAITING, REASON_WAITING, now)


def unschedulable_status(gang: Gang, status: GangStatus, now: datetime, *, reason: str) -> GangStatus:
    """The same for a gang that could not run on an empty cluster, or that nobody understands."""
    return _unplaced(gang, status, UNSCHEDULABLE, reason, now)


def _unplaced(gang: Gang, status: GangStatus, phase: str, reason: str, now: datetime) -> GangStatus:
    return replace(
        status,
        phase=phase,
        placement=(),
        members=members_in_words(gang.spec, 0),
        queued_time=gang.status.queued_time or format_micro_time(now),
        observed_generation=gang.metadata.generation,
        conditions=_conditions(gang, False, reason, status.message, now),
    )


def _conditions(gang: Gang, is_true: bool, reason: str, message: str, now: datetime) -> tuple[GangCondition, ...]:
    """The condition Scheduled; its time is that of the last change between True and False."""
    status = "True" if is_true else "False"
    old = next((each for each in gang.status.conditions if each.type == SCHEDULED), None)
    since = old.last_transition_time if old is not None and old.status == status else format_time(now)
    return (GangCondition(SCHEDULED, status, reason, message, since, gang.metadata.generation),)
