"""The phases of a gang and the status of each transition. Pure.

    Waiting ──fits──▶ Admitted ──all placed members bound──▶ Bound ──no unfinished member──▶ Released
       ▲  ▲               │                                    │                                │
       │  └─no progress───┘                                    │     a member is recreated ─────┘ (bound alone)
       │                                                       │
    Unschedulable (does not fit an empty cluster)              ├── spec.suspend ──▶ Released, without a placement
                                                               └── preempted, and all pods are gone ──▶ Waiting

A gang that spec.suspend released has no placement, and queues again once it is resumed. A gang that finished keeps its
placement: a member that is recreated is bound alone, to its old node if it fits.

A crash leaves nothing but the Gang's phase, attempt and placement. The next leader restores reservations from Admitted
gangs; everything else follows from the pods.

`GangState` is the part of the lifecycle that the admission loop distinguishes: queued, placed or idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from msgspec.structs import replace

from tfjob_controller.api.common.cluster import FINISHED_PHASES, ScheduledPod
from tfjob_controller.api.gang import (
    ADMITTED,
    ATTEMPT_LABEL,
    BOUND,
    RELEASED,
    UNSCHEDULABLE,
    WAITING,
    Gang,
    GangStatus,
    Missing,
    ProvisioningRequestReference,
    member_of,
    members_in_words,
    parse_index,
    placed_nodes,
    wanted_members,
)
from tfjob_controller.gangscheduler.status.conditions import SCHEDULED, condition, preempted_condition
from tfjob_controller.scheduling.autoscaling.elasticgang import elastic_kind
from tfjob_controller.scheduling.placement import placement_by_node
from tfjob_controller.util.timestamps import format_micro_time

SUCCEEDED = "Succeeded"
NO_RESIZE_REQUEST: dict[str, Any] = {"target_members": {}, "target_reason": "", "leaving": ()}
# Longer than the Job controller's backoff before it replaces a failed pod (10 s the first time).
REPLACEMENT_SECONDS = 15.0
# An owner may restart a whole elastic gang with other members, and may lose its own leader election meanwhile.
RESTART_SECONDS = 60.0

# Attempts without any pod after which a gang loses its age: gangs that never start must not starve others.
MAX_EMPTY_ATTEMPTS = 3


class GangState(Enum):
    """A gang's state for the admission loop."""

    QUEUED = "queued"
    PLACED = "placed"
    IDLE = "idle"


def is_wanted(gang: Gang) -> bool:
    """Reports whether the gang should run."""
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
    """Reports whether the gang has any members."""
    return any(member.count > 0 for member in gang.spec.members)


def pods_by_member(gang: Gang, pods: Iterable[ScheduledPod]) -> dict[str, ScheduledPod]:
    """Returns each member's pod in the current attempt.

    Unfinished, not deleted, bound and younger pods win, in this order.
    """
    by_member: dict[str, ScheduledPod] = {}
    attempt = str(gang.status.attempt)
    for pod in sorted(pods, key=_rank):
        if pod.metadata.labels.get(ATTEMPT_LABEL) == attempt:
            by_member[member_of(pod.metadata)] = pod
    return by_member


def with_attempt_of_pods(gang: Gang, pods: Iterable[ScheduledPod]) -> Gang:
    """Returns the gang with an attempt no lower than its pods': those of a deleted Gang of its name must not count."""
    attempt = max((parse_index(pod.metadata.labels.get(ATTEMPT_LABEL, "")) or 0 for pod in pods), default=0)
    if attempt <= gang.status.attempt:
        return gang
    return replace(gang, status=replace(gang.status, attempt=attempt))


def _rank(pod: ScheduledPod) -> tuple[bool, bool, bool, str]:
    """Order pods of one member, so that a second pod does not hide the one that is bound.

    A pod that is being deleted has a successor only once its owner counts it as lost with its node.
    """
    return is_unfinished(pod), keeps_place(pod), is_bound(pod), pod.metadata.creation_timestamp or ""


def is_bound(pod: ScheduledPod) -> bool:
    return bool(pod.spec.node_name)


def is_unschedulable(pod: ScheduledPod) -> bool:
    """Reports whether kube-scheduler found no node for the pod when it tried last."""
    return not is_bound(pod) and pod.status.is_unschedulable


def is_unfinished(pod: ScheduledPod) -> bool:
    """Reports whether the pod takes capacity, or will."""
    return pod.status.phase not in FINISHED_PHASES


def keeps_place(pod: ScheduledPod) -> bool:
    """Reports whether the pod keeps its member's place: it is neither finished nor being deleted."""
    return is_unfinished(pod) and pod.metadata.deletion_timestamp is None


def has_ended(gang: Gang, pods: Mapping[str, ScheduledPod], idle_seconds: float, any_succeeded: bool = False) -> bool:
    """Reports whether a bound gang has ended: it has had no unfinished pod for `idle_seconds`.

    Without a succeeded member its pods may be recreated: see `replacement_seconds`.
    """
    if any(is_unfinished(pod) for pod in pods.values()):
        return False
    return any_succeeded or any(map(has_succeeded, pods.values())) or idle_seconds >= replacement_seconds(gang, pods)


def replacement_seconds(gang: Gang, pods: Mapping[str, ScheduledPod]) -> float:
    """Returns how long the Job controller or the owner may take to recreate members."""
    return RESTART_SECONDS if not pods and elastic_kind(gang.spec) is not None else REPLACEMENT_SECONDS


def has_succeeded(pod: ScheduledPod) -> bool:
    return pod.status.phase == SUCCEEDED


def observed_status(
    gang: Gang, pods: Mapping[str, ScheduledPod], idle_seconds: float, now: datetime, *, any_succeeded: bool = False
) -> GangStatus | None:
    """Returns the status that follows from pods and spec without a decision; None if it does not change.

    `pods` are the current attempt's, by member. None was unfinished for `idle_seconds`; `any_succeeded` if a member
    succeeded, even if its pod is deleted.
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


def admitted_status(
    gang: Gang,
    placement: Mapping[str, str],
    now: datetime,
    provisioning_request: ProvisioningRequestReference | None = None,
) -> GangStatus:
    """Returns the status of an admission. `placement` is the node of each member that starts.

    `provisioning_request` is the one that a node autoscaler has provided nodes for, if any.
    """
    message = f"Admitted: {len(placement)} pods on {len(set(placement.values()))} nodes"
    return changed_status(
        gang,
        ADMITTED,
        "Admitted",
        message,
        now,
        attempt=gang.status.attempt + 1,
        placement=placement_by_node(placement),
        members=members_in_words(gang.spec, len(placement)),
        position=0,
        missing=(),
        requeue_time=None,
        admitted_time=format_micro_time(now),
        bound_time=None,
        last_resize_time=None,
        preemption=None,
        provisioning_request=provisioning_request,
        queued_time=gang.status.queued_time or gang.metadata.creation_timestamp,
    )


def reassigned_status(gang: Gang, nodes: Mapping[str, str]) -> GangStatus:
    """Returns the status with other nodes for some members, in the same attempt."""
    return _placed_status(gang, {**placed_nodes(gang.status), **nodes})


def without_removed_members(gang: Gang) -> Gang:
    """Returns an admitted gang without the members that its spec no longer has.

    Their pods will not be created, so nothing may wait for them. Added members wait until the gang is bound.
    """
    if gang.status.phase != ADMITTED:
        return gang
    nodes, wanted = placed_nodes(gang.status), set(wanted_members(gang))
    if nodes.keys() <= wanted:
        return gang
    return replace(
        gang, status=_placed_status(gang, {member: node for member, node in nodes.items() if member in wanted})
    )


def with_observed_nodes(gang: Gang, pods: Mapping[str, ScheduledPod]) -> Gang:
    """Returns the gang with its pods' nodes where they differ from the status.

    They differ only if the status was edited by hand or another scheduler bound the pods.
    """
    nodes = placed_nodes(gang.status)
    others = {
        member: pod.spec.node_name
        for member, pod in pods.items()
        if is_bound(pod) and is_unfinished(pod) and nodes.get(member, pod.spec.node_name) != pod.spec.node_name
    }
    return replace(gang, status=reassigned_status(gang, others)) if others else gang


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
    """Returns the Bound status with the present members. A fulfilled resize request is cleared."""
    status = gang.status
    is_other = nodes.keys() != placed_nodes(status).keys()
    return changed_status(
        gang if has_resize_request(gang) else replace(gang, status=without_resize_request(status)),
        BOUND,
        "Bound",
        f"Bound: {len(nodes)} pods",
        now,
        bound_time=status.bound_time or format_micro_time(now),
        last_resize_time=format_micro_time(now) if is_other else status.last_resize_time,
        placement=placement_by_node(nodes),
        members=members_in_words(gang.spec, len(nodes)),
    )


def has_resize_request(gang: Gang) -> bool:
    """Reports whether the status requests another number of members than the spec has."""
    counts = {member.name: member.count for member in gang.spec.members}
    return any(counts.get(name, target) != target for name, target in gang.status.target_members.items())


def resize_request_status(gang: Gang, kind: str, target: int, leaving: tuple[str, ...], reason: str) -> GangStatus:
    """Returns the status with a resize request: `target` members of this kind, without those that are `leaving`.

    observedGeneration records which spec was considered; the owner ignores a request for another one.
    """
    return replace(
        gang.status,
        target_members={kind: target},
        target_reason=reason,
        leaving=leaving,
        observed_generation=gang.metadata.generation,
    )


def without_resize_request(status: GangStatus) -> GangStatus:
    return replace(status, **NO_RESIZE_REQUEST)


def finished_status(gang: Gang, now: datetime) -> GangStatus:
    message = "Released: no pod of the gang runs any more"
    return changed_status(gang, RELEASED, "Finished", message, now, preemption=None, **NO_RESIZE_REQUEST)


def suspended_status(gang: Gang, now: datetime) -> GangStatus:
    message = "Released: spec.suspend is true"
    changes = {"position": 0, "missing": (), "queued_time": None, "requeue_time": None, "preemption": None}
    changes |= NO_RESIZE_REQUEST
    return unplaced_status(gang, RELEASED, "Suspended", message, now, **changes)


def requeued_status(
    gang: Gang, bound_count: int, backoff_seconds: float, empty_attempts: int, now: datetime
) -> GangStatus:
    """Returns the status of a gang that is requeued after a failed attempt.

    It keeps its queue time, unless `MAX_EMPTY_ATTEMPTS` of its attempts had no pod.
    """
    wanted = len(placed_nodes(gang.status))
    message = f"Attempt {gang.status.attempt} was given up: {bound_count} of {wanted} pods were bound in time"
    changes: dict[str, Any] = {"requeue_time": format_micro_time(now + timedelta(seconds=backoff_seconds))}
    if empty_attempts >= MAX_EMPTY_ATTEMPTS:
        message += f". No pod was created in {empty_attempts} attempts, so its age counts from now"
        changes["queued_time"] = format_micro_time(now)
    return unplaced_status(gang, WAITING, "NoProgress", message, now, **changes, **NO_RESIZE_REQUEST)


def waiting_status(
    gang: Gang, position: int, missing: tuple[Missing, ...], message: str, now: datetime, *, preempts: bool = False
) -> GangStatus:
    """Returns the status of a gang in the queue; `preempts` while other gangs leave their nodes for it."""
    queued_time = gang.status.queued_time or format_micro_time(now)
    changes = {"position": position, "missing": missing, "queued_time": queued_time}
    reason = "Preempting" if preempts else "WaitingForCapacity"
    return unplaced_status(gang, WAITING, reason, message, now, **changes)


def unschedulable_status(gang: Gang, reason: str, message: str, now: datetime) -> GangStatus:
    """Returns the status of a gang that does not fit an empty cluster, or whose spec is invalid."""
    changes = {"position": 0, "missing": (), "queued_time": gang.status.queued_time or format_micro_time(now)}
    return unplaced_status(gang, UNSCHEDULABLE, reason, message, now, **changes)


def unplaced_status(gang: Gang, phase: str, reason: str, message: str, now: datetime, **changes: Any) -> GangStatus:
    members = members_in_words(gang.spec, 0)
    changes |= {"placement": (), "members": members, "provisioning_request": None}
    return changed_status(gang, phase, reason, message, now, **changes)


def changed_status(gang: Gang, phase: str, reason: str, message: str, now: datetime, **changes: Any) -> GangStatus:
    status = replace(gang.status, phase=phase, message=message, observed_generation=gang.metadata.generation, **changes)
    scheduled = condition(gang, SCHEDULED, phase in (ADMITTED, BOUND), reason, message, now)
    return replace(status, conditions=(scheduled, *preempted_condition(gang, status.preemption, now)))
