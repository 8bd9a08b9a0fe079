"""The gang of a job, as its owner sees it: what the Gang requests, and what the controller may do once it is admitted.

Theory of operation. The Gang is created first, and nothing else. It is placed in the phases Admitted and Bound, and in
Released as long as it has a placement (its pods have all ended). Once it is placed, all children are created at once,
each with an assignment in the current attempt. The labels of a child Job name the attempt that it was created for; a
Job of another attempt is stale, and so is every Job while the gang is not placed. Stale Jobs are deleted, and no Job is
created before all of them and their pods are gone. Services and the ConfigMap stay.

Assignments. A member of the gang (`worker-3`) is not a replica: replicas that have succeeded need no member in later
attempts. Within an attempt a Job keeps the member that it was created for. Replicas without a Job take the lowest free
members that the gang should have (`wanted_members`, which has holes once some have left), in their order. As long as no
replica has succeeded or left, members and replicas have the same names. Jobs of succeeded replicas are never stale:
they run nothing and keep the logs.

A job that is resized by a restart has restart attempts as well: within an attempt of the gang, Jobs of another restart
attempt are stale too.

What a Job or pod reports while it is being deleted is not evidence about the program: see `without_deleted`.

A job that was started without a gang continues without one, even if the flags have changed since.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tfjob_controller.api.common.core import BatchJob, Pod
from tfjob_controller.api.common.policies import BY_RESTART, IN_PLACE
from tfjob_controller.api.gang import (
    ADMITTED,
    ATTEMPT_LABEL,
    BOUND,
    GANGS,
    MAX_MEMBERS,
    MEMBER_LABEL,
    ON_TIMEOUT_WAIT,
    RELEASED,
    Gang,
    GangSpec,
    GangStatus,
    index_of,
    kind_of,
    must_leave,
    placed_nodes,
)
from tfjob_controller.api.provisioningrequest import CLASS_ANNOTATION, CONSUME_ANNOTATION
from tfjob_controller.jobs.gang.assignment import NODE_LABEL, MemberAssignment, node_value, wanted_role_members
from tfjob_controller.jobs.naming import replica_id
from tfjob_controller.jobs.plan.gangterms import GangTerms
from tfjob_controller.jobs.plan.model import Plan, environment_of
from tfjob_controller.jobs.state import replica_state
from tfjob_controller.jobs.state.attempts import StaleChildren, is_of_attempt
from tfjob_controller.jobs.state.observed import JOB_COMPLETE, ObservedState, job_outcome
from tfjob_controller.jobs.state.pods import has_succeeded, is_finished
from tfjob_controller.jobs.state.replica_state import ReplicaState
from tfjob_controller.kube.codec import merge_patch
from tfjob_controller.kube.meta import Object

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GangAdmission:
    """What the gang permits now.

    `assignments`: by name of the replica, of those that may run in this attempt; empty unless the gang is admitted.
    `member_counts`: how many members the gang needs, by role. `stale`: children of other attempts.
    """

    is_admitted: bool
    assignments: Mapping[str, MemberAssignment]
    member_counts: Mapping[str, int]
    stale: StaleChildren


def is_run_as_gang(observed: ObservedState) -> bool:
    """Reports whether a job with a gang was not started without it."""
    return all(ATTEMPT_LABEL in job.metadata.labels for job in observed.jobs.values())


def gang_admission(
    terms: GangTerms, plan: Plan, observed: ObservedState, states: Sequence[ReplicaState]
) -> GangAdmission | None:
    """Returns what the gang permits; None for a job that was started without one."""
    gang = observed.gang
    if not is_run_as_gang(observed):
        return None
    attempt = gang.status.attempt if gang is not None and is_placed(gang) else 0
    done = {state.replica.name for state in states if _is_done(state)}
    now = CurrentAttempt(plan, str(attempt) if attempt else "")
    stale = [job for name, job in observed.jobs.items() if name in plan.replicas.by_name and _is_stale(job, now, done)]
    pods = (pod for of_job in observed.pods.values() for pod in of_job)
    placed = gang if attempt else None
    taken = _taken_members(plan, observed, done, now, placed)
    status = placed.status if placed is not None else GangStatus()
    nodes = placed_nodes(status)
    return GangAdmission(
        is_admitted=attempt > 0,
        assignments={name: _assignment(terms, id_, status, nodes[id_]) for name, id_ in taken.items() if id_ in nodes},
        member_counts=_sizes(taken.values(), placed),
        stale=StaleChildren(stale, not stale and not any(_is_left_over(pod, now) for pod in pods)),
    )


def is_placed(gang: Gang) -> bool:
    """Reports whether the gang's pods may exist; not if it is preempted.

    Pods of a Released gang with a placement restart on their nodes.
    """
    status = gang.status
    if gang.spec.suspend or gang.metadata.deletion_timestamp is not None or must_leave(gang):
        return False
    return status.phase in (ADMITTED, BOUND) or (status.phase == RELEASED and bool(status.placement))


def without_deleted(plan: Plan, observed: ObservedState) -> ObservedState:
    """Returns the state without Jobs that are or will be deleted and without their pods, unless these have succeeded.

    A program that is stopped may exit with an error, which its Job counts until it is deleted.
    """
    attempt = _attempt_of(observed.gang)
    jobs = {name: job for name, job in observed.jobs.items() if _stays(plan, job, attempt)}
    pods = {
        name: pods if name in jobs else [pod for pod in pods if _counts(plan, observed, name, pod, attempt)]
        for name, pods in observed.pods.items()
    }
    return replace(observed, jobs=jobs, pods=pods)


def _attempt_of(gang: Gang | None) -> str | None:
    """Returns the attempt of the Jobs that may exist: empty if the gang must leave its nodes, or has left them.

    None if there is no gang, or none that is to run.
    """
    if gang is None or gang.spec.suspend or gang.metadata.deletion_timestamp is not None:
        return None
    return str(gang.status.attempt) if is_placed(gang) else ""


def _stays(plan: Plan, job: BatchJob, attempt: str | None) -> bool:
    """Reports whether the Job is of the current attempts, or has succeeded, and is not being deleted.

    The controller deletes the Jobs of other attempts, so the ends of their pods are not evidence. The caches of Jobs
    and pods are independent: such a Job may look untouched while its pods end.
    """
    of_gang = job.metadata.labels.get(ATTEMPT_LABEL, "")
    is_current = attempt is None or of_gang in ("", attempt)
    if plan.replicas.restarts_together:
        # The controller deletes no Job of the gang's current attempt, so another client deletes this one.
        return is_current and (bool(attempt and of_gang) or not _is_being_deleted(job))
    is_current &= plan.scaling.resize != BY_RESTART or is_of_attempt(plan, job)
    return not _is_being_deleted(job) and (is_current or job_outcome(job) == JOB_COMPLETE)


def _counts(plan: Plan, observed: ObservedState, name: str, pod: Pod, attempt: str | None) -> bool:
    """Reports whether a pod counts whose Job is being deleted or is deleted.

    Jobs and pods arrive by different watches, so the cache may show a pod unchanged after its Job was deleted with it.
    If all replicas restart together, only pods of the running attempt count, since the controller has deleted the Jobs
    of all other attempts.
    """
    replica = plan.replicas.by_name.get(name)
    if replica is not None and not replica.role.serves and has_succeeded(pod, replica.role.container):
        return True
    if name in observed.jobs or _is_being_deleted(pod):
        return False
    return not plan.replicas.restarts_together or pod.metadata.labels.get(ATTEMPT_LABEL, "") in ("", attempt)


def desired_gang_spec(plan: Plan, terms: GangTerms, admission: GangAdmission) -> GangSpec:
    """Returns the spec that the Gang should have now."""
    role = terms.scaled_role
    count = admission.member_counts.get(role, 0)
    least = {} if terms.min_workers is None else {role: min(terms.min_workers, count)}
    most = {role: max(terms.max_workers, count)} if terms.max_workers else {}
    has_workers = any(member.name == role for member in terms.members)
    return GangSpec(
        members=tuple(
            msgspec.structs.replace(member, count=admission.member_counts.get(member.name, 0))
            for member in terms.members
        ),
        min_members=least if has_workers else {},
        max_members=most if has_workers else {},
        priority=terms.priority,
        timeout_seconds=terms.timeout_seconds,
        on_timeout="" if terms.on_timeout == ON_TIMEOUT_WAIT else terms.on_timeout,
        suspend=plan.policy.suspend,
    )


def plan_for_admitted(plan: Plan, admission: GangAdmission, states: Sequence[ReplicaState]) -> Plan:
    """Returns the plan for new children. If a gang starts with some of its workers, TF_CONFIG lists only assigned ones.

    TensorFlow waits for all tasks in TF_CONFIG, and some workers may not be assigned for a long time. Workers that were
    assigned before stay listed. Roles that serve get the full list: parameter servers wait for no task, and could not
    send to an unlisted worker. With `resize: InPlace` all replicas get the full list and wait for none.
    """
    if plan.scaling.resize == IN_PLACE or plan.replicas.restarts_together:
        return plan
    known = [
        state.replica
        for state in states
        if state.replica.name in admission.assignments or state.job is not None or _is_done(state)
    ]
    if len(known) == len(plan.replicas.all):
        return plan
    # The position in the list is the index of a replica, so no replica before the last one can be left out.
    counts: dict[str, int] = {}
    for replica in known:
        counts[replica.role.name] = max(counts.get(replica.role.name, 0), replica.index + 1)
    part = environment_of(
        [replica for replica in plan.replicas.all if replica.index < counts.get(replica.role.name, 0)]
    )
    return replace(
        plan, environment=lambda replica: plan.environment(replica) if replica.role.serves else part(replica)
    )


def _is_done(state: ReplicaState) -> bool:
    return state.state == replica_state.SUCCEEDED


def build_gang(plan: Plan, spec: GangSpec) -> Body:
    """Returns the Gang, ready for JSON."""
    name = plan.scheduling.gang.name if plan.scheduling.gang is not None else ""
    return {
        "apiVersion": GANGS.api_version,
        "kind": GANGS.kind,
        "metadata": plan.identity.metadata_of(name, plan.identity.labels),
        "spec": msgspec.to_builtins(spec),
    }


def gang_spec_patch(gang: Gang, wanted: GangSpec, terms: GangTerms) -> Body | None:
    """Returns the merge patch that gives the Gang the wanted spec; None if it has it.

    The queue belongs to the user. So do the maximums of members if the job specifies none, but they are raised to the
    number that the job needs.
    """
    counts = {member.name: member.count for member in wanted.members}
    kept = msgspec.structs.replace(wanted, queue=gang.spec.queue)
    if terms.max_workers is None:
        most = {name: max(count, counts.get(name, 0)) for name, count in gang.spec.max_members.items()}
        kept = msgspec.structs.replace(kept, max_members=most)
    if kept == gang.spec:
        return None
    return {"spec": merge_patch(msgspec.to_builtins(gang.spec), msgspec.to_builtins(kept))}


def must_suspend_gang(observed: ObservedState) -> bool:
    """Reports whether the Gang of a job that has ended still waits for capacity, or holds some.

    A Gang that is Bound is released by the gang scheduler when its pods end.
    """
    gang = observed.gang
    return gang is not None and not gang.spec.suspend and gang.status.phase not in (BOUND, RELEASED)


def is_misplaced(state: ReplicaState, assignment: MemberAssignment) -> bool:
    """Reports whether the replica's Job is pinned to another node than the assigned one, and does not run."""
    if (
        not assignment.node
        or state.job is None
        or state.replica.role.job_name
        or state.is_up
        or state.must_redo
        or state.state == replica_state.SUCCEEDED
    ):
        return False
    return state.job.metadata.labels.get(NODE_LABEL) != node_value(assignment.node)


def _taken_members(
    plan: Plan, observed: ObservedState, done: set[str], now: CurrentAttempt, gang: Gang | None
) -> dict[str, str]:
    """Returns the member of each replica that needs one, by its name. `gang` is None while it has no placement."""
    members = {
        name: job.metadata.labels.get(MEMBER_LABEL, "")
        for name, job in observed.jobs.items()
        if name in plan.replicas.by_name and now.has(job)
    }
    settled = members.keys() | done
    for role in plan.replicas.roles:
        lacking = [replica for replica in plan.replicas.all if replica.role is role and replica.name not in settled]
        if lacking:
            free = _free_members(role.name, set(members.values()), len(lacking), gang)
            members.update(
                zip(
                    (replica.name for replica in sorted(lacking, key=lambda replica: replica.index)), free, strict=False
                )
            )
    return members


def _free_members(role: str, taken: set[str], lacking: int, gang: Gang | None) -> Iterator[str]:
    """Yields members that are not taken, first those that the gang should have."""
    own = sum(kind_of(member) == role for member in taken)
    wanted = [member for member in wanted_role_members(gang, role, own + lacking) if member not in taken]
    yield from wanted
    beyond = (replica_id(role, index) for index in itertools.count())
    yield from (member for member in beyond if member not in taken and member not in wanted)


def _sizes(members: Iterable[str], gang: Gang | None) -> dict[str, int]:
    """Returns how many members of each role the gang must have to include these members."""
    by_role: dict[str, set[int]] = {}
    for member in members:
        index = index_of(member)
        # Users may edit labels.
        if index is not None and index < MAX_MEMBERS:
            by_role.setdefault(kind_of(member), set()).add(index)
    return {role: _size(role, indexes, gang) for role, indexes in by_role.items()}


def _size(role: str, indexes: set[int], gang: Gang | None) -> int:
    """Returns how many members the role needs. If indexes are missing, the Gang tells which members a size includes."""
    most = max(indexes) + 1
    if len(indexes) == most or gang is None:
        return most
    needed = {replica_id(role, index) for index in indexes}
    # The members of a smaller gang are also members of a larger one.
    sizes = range(len(indexes), most)
    return sizes.start + bisect_left(
        sizes, True, key=lambda size: needed.issubset(wanted_role_members(gang, role, size))
    )


def _assignment(terms: GangTerms, member: str, status: GangStatus, node: str) -> MemberAssignment:
    request = status.provisioning_request
    annotations = (
        {CONSUME_ANNOTATION: request.name, CLASS_ANNOTATION: request.class_name} if request is not None else {}
    )
    pinned = node if terms.pins else ""
    return MemberAssignment(terms.name, member, status.attempt, terms.scheduler_name, pinned, annotations)


@dataclass(frozen=True, slots=True)
class CurrentAttempt:
    """The attempts of gang and plan that the labels of current children have. If it is empty, no child is current."""

    plan: Plan
    attempt: str

    def has(self, obj: Object) -> bool:
        same_attempt = self.attempt != "" and obj.metadata.labels.get(ATTEMPT_LABEL) == self.attempt
        return same_attempt and is_of_attempt(self.plan, obj)


def _is_stale(job: BatchJob, now: CurrentAttempt, done: set[str]) -> bool:
    if job.metadata.name in done and job_outcome(job) == JOB_COMPLETE:
        return False
    return not now.has(job)


def _is_left_over(pod: Pod, now: CurrentAttempt) -> bool:
    return not now.has(pod) and not is_finished(pod)


def _is_being_deleted(obj: Object) -> bool:
    return obj.metadata.deletion_timestamp is not None
