"""The gang of a job, seen from its owner: what it asks for, and what it lets the controller do.

Theory of operation. The Gang is written first, and nothing else. Once it is placed (Admitted, Bound; Released with its
placement, which is a gang whose pods have all ended), the gate is open: all children are created at once, each with a
seat in the current attempt. A child Job says in its labels for which attempt it was made; one of any other attempt is
stale. While the gate is closed every child Job is stale. Stale Jobs are deleted, and no Job is created before all of
them are gone with their pods. Services and ConfigMap stay.

Seats. A member of the gang (`worker-3`) is a seat, not a replica, for replicas that have succeeded take none in the
attempts after that. In an attempt a Job keeps the seat that it was made for; replicas without a Job take the lowest
free ones of those that the gang should have (`wanted_members`: it may have holes, once some have left), in their order.
As long as none has succeeded or left, seats and replicas have the same names. The Jobs of replicas that have succeeded
are never stale: they run nothing, and hold the logs.

A job that is resized by a restart has generations besides: within an attempt, Jobs of another generation than the
plan's are stale just as those of other attempts are.

What a Job or pod says while it is taken down says nothing about the program: see `living`.

A job that was started without a gang goes on without one, also if the flag says otherwise by now.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tfjob_controller.api.core import Job, Pod
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
    placed_nodes,
)
from tfjob_controller.api.tfjob import BY_RESTART, IN_PLACE
from tfjob_controller.kube.codec import merge_patch
from tfjob_controller.kube.meta import Object
from tfjob_controller.trainer import replicas
from tfjob_controller.trainer.cluster import environment_of
from tfjob_controller.trainer.gangseat import NODE_LABEL, Seat, node_value, wanted_seats
from tfjob_controller.trainer.gangterms import GangTerms
from tfjob_controller.trainer.generations import Turnover, is_of_generation
from tfjob_controller.trainer.names import replica_id
from tfjob_controller.trainer.observed import Observed
from tfjob_controller.trainer.plan import WORKER_ROLE, Plan, Replica
from tfjob_controller.trainer.pods import has_succeeded, is_finished
from tfjob_controller.trainer.replicas import JOB_COMPLETE, View, job_outcome

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Gate:
    """What the gang lets be done now.

    `seats`: by name of the replica, of those that may run in this attempt; none while the gate is closed. `members`:
    how many seats the gang needs, by role. `turnover`: children of other attempts or generations.
    """

    is_open: bool
    seats: Mapping[str, Seat]
    members: Mapping[str, int]
    turnover: Turnover


def takes_part(plan: Plan, observed: Observed) -> bool:
    """Is the job run as a gang?"""
    if plan.gang is None:
        return False
    return all(ATTEMPT_LABEL in job.metadata.labels for job in observed.jobs.values())


def gate_of(plan: Plan, observed: Observed, views: Sequence[View]) -> Gate | None:
    """None for a job that is no gang."""
    if plan.gang is None or not takes_part(plan, observed):
        return None
    gang = observed.gang
    attempt = gang.status.attempt if gang is not None and is_placed(gang) else 0
    done = {view.replica.name for view in views if _is_done(view)}
    now = Present(plan, str(attempt) if attempt else "")
    stale = [job for name, job in observed.jobs.items() if name in plan.by_name and _is_stale(job, now, done)]
    pods = (pod for some in observed.pods.values() for pod in some)
    placed = gang if attempt else None
    taken = _taken_seats(plan, observed, done, now, placed)
    nodes = placed_nodes(placed.status) if placed is not None else {}
    return Gate(
        is_open=attempt > 0,
        seats={name: _seat(plan.gang, id_, attempt, nodes[id_]) for name, id_ in taken.items() if id_ in nodes},
        members=_sizes(taken.values(), placed),
        turnover=Turnover(stale, not stale and not any(_is_left_over(pod, now) for pod in pods)),
    )


def is_placed(gang: Gang) -> bool:
    """Its pods may exist. Released with a placement: all have ended, and one that runs again keeps its node."""
    status = gang.status
    if gang.spec.suspend or gang.metadata.deletion_timestamp is not None:
        return False
    return status.phase in (ADMITTED, BOUND) or (status.phase == RELEASED and bool(status.placement))


def living(plan: Plan, observed: Observed) -> Observed:
    """Without Jobs that are on their way out, and without pods that go with theirs, but for those that have succeeded.

    A program that is told to end may well exit with an error, and its Job counts that as long as it is there.
    """
    if (plan.gang is None and plan.resize != BY_RESTART) or not _is_anything_going(observed):
        return observed
    now = _attempt_of(plan, observed)
    jobs = {name: job for name, job in observed.jobs.items() if not _is_going(job) or _is_taken_by_others(job, now)}
    pods = {
        name: some if name in jobs else [pod for pod in some if _tells(plan, observed, name, pod, now)]
        for name, some in observed.pods.items()
    }
    return replace(observed, jobs=jobs, pods=pods)


def _tells(plan: Plan, observed: Observed, name: str, pod: Pod, attempt: str) -> bool:
    """Does a pod count whose Job is going, or gone?

    Jobs and pods are seen by watches of their own: a Job that was deleted with its pod may be gone while the pod still
    looks as if it stayed. Where all replicas are restarted together, it counts only if it is of the attempt that runs:
    we have deleted the Jobs of any other one.
    """
    replica = plan.by_name.get(name)
    if replica is not None and not replica.role.serves and has_succeeded(pod, replica.role.container):
        return True
    if name in observed.jobs or _is_going(pod):
        return False
    return not plan.restarts_together or pod.metadata.labels.get(ATTEMPT_LABEL, attempt) == attempt


def _attempt_of(plan: Plan, observed: Observed) -> str:
    """Where all are restarted because one has failed: the attempt that runs. Else, and while none does, it is empty."""
    gang = observed.gang
    runs = plan.restarts_together and gang is not None and is_placed(gang)
    return str(gang.status.attempt) if runs and gang is not None else ""


def _is_taken_by_others(job: Job, attempt: str) -> bool:
    """We take down none of the attempt that runs, but for another generation: those who do so have ended a member."""
    return attempt != "" and job.metadata.labels.get(ATTEMPT_LABEL) == attempt


def _is_anything_going(observed: Observed) -> bool:
    jobs = observed.jobs
    return any(map(_is_going, jobs.values())) or any(pods and name not in jobs for name, pods in observed.pods.items())


def wanted_spec(plan: Plan, terms: GangTerms, gate: Gate) -> GangSpec:
    """What the Gang should ask for now."""
    count = gate.members.get(WORKER_ROLE, 0)
    least = {} if terms.min_workers is None else {WORKER_ROLE: min(terms.min_workers, count)}
    most = {WORKER_ROLE: max(terms.max_workers, count)} if terms.max_workers else {}
    has_workers = any(each.name == WORKER_ROLE for each in terms.members)
    return GangSpec(
        members=tuple(msgspec.structs.replace(each, count=gate.members.get(each.name, 0)) for each in terms.members),
        min_members=least if has_workers else {},
        max_members=most if has_workers else {},
        priority=terms.priority,
        timeout_seconds=terms.timeout_seconds,
        on_timeout="" if terms.on_timeout == ON_TIMEOUT_WAIT else terms.on_timeout,
        suspend=plan.policy.suspend,
    )


def as_placed(plan: Plan, gate: Gate, views: Sequence[View]) -> Plan:
    """The plan for children that are made now: of a gang that starts with a part of its workers, TF_CONFIG names those
    that have a place, or have had one.

    TensorFlow waits until all that it was told of have come, and some may have no room for long. A role that serves is
    told of all: parameter servers wait for nobody, and could not send to a worker that they do not know when it comes.
    Where workers come and go all are told of all, and wait for nobody.
    """
    if plan.resize == IN_PLACE or plan.restarts_together:
        return plan
    known = [
        view.replica for view in views if view.replica.name in gate.seats or view.job is not None or _is_done(view)
    ]
    if len(known) == len(plan.replicas):
        return plan
    # The place in the list is a replica's index, so none before the last one can be left out.
    counts: dict[str, int] = {}
    for each in known:
        counts[each.role.name] = max(counts.get(each.role.name, 0), each.index + 1)
    part = environment_of([each for each in plan.replicas if each.index < counts.get(each.role.name, 0)])
    return replace(plan, environment=lambda each: plan.environment(each) if each.role.serves else part(each))


def _is_done(view: View) -> bool:
    return view.state == replicas.SUCCEEDED


def gang_body(plan: Plan, spec: GangSpec) -> Body:
    """The Gang, ready for JSON."""
    metadata: Body = {
        "name": plan.gang.name if plan.gang is not None else "",
        "namespace": plan.namespace,
        "labels": {**plan.added_labels, **plan.labels},
        "ownerReferences": [msgspec.to_builtins(plan.owner)],
    }
    return {
        "apiVersion": GANGS.api_version,
        "kind": GANGS.kind,
        "metadata": metadata,
        "spec": msgspec.to_builtins(spec),
    }


def spec_patch(gang: Gang, wanted: GangSpec, terms: GangTerms) -> Body | None:
    """The merge patch that makes the Gang ask for what is wanted; None if it does.

    Its queue is the user's, and so are the most that its members may go to, where the job says nothing of that; but
    what is wanted is never more than that.
    """
    counts = {each.name: each.count for each in wanted.members}
    kept = msgspec.structs.replace(wanted, queue=gang.spec.queue)
    if terms.max_workers is None:
        most = {name: max(count, counts.get(name, 0)) for name, count in gang.spec.max_members.items()}
        kept = msgspec.structs.replace(kept, max_members=most)
    if kept == gang.spec:
        return None
    return {"spec": merge_patch(msgspec.to_builtins(gang.spec), msgspec.to_builtins(kept))}


def must_let_go(observed: Observed) -> bool:
    """For a job that is over: would its Gang go on to wait for room, or hold some that nobody will use?

    One that is Bound is released by the gang scheduler as its pods end.
    """
    gang = observed.gang
    return gang is not None and not gang.spec.suspend and gang.status.phase not in (BOUND, RELEASED)


def is_misplaced(view: View, seat: Seat) -> bool:
    """Is the replica's Job pinned to another node than its seat, and does not run there either?"""
    if not seat.node or view.job is None or view.is_up or view.must_redo or view.state == replicas.SUCCEEDED:
        return False
    return view.job.metadata.labels.get(NODE_LABEL) != node_value(seat.node)


def _taken_seats(plan: Plan, observed: Observed, done: set[str], now: Present, gang: Gang | None) -> dict[str, str]:
    """The seat of each replica that takes one, by its name. `gang` is None while it has no placement."""
    seats = {
        name: job.metadata.labels.get(MEMBER_LABEL, "")
        for name, job in observed.jobs.items()
        if name in plan.by_name and now.has(job)
    }
    settled = seats.keys() | done
    for role in plan.roles:
        lacking = [each for each in plan.replicas if each.role is role and each.name not in settled]
        if lacking:
            free = _free_seats(role.name, set(seats.values()), len(lacking), gang)
            seats.update(zip((each.name for each in sorted(lacking, key=_index)), free, strict=False))
    return seats


def _index(replica: Replica) -> int:
    return replica.index


def _free_seats(role: str, taken: set[str], lacking: int, gang: Gang | None) -> Iterator[str]:
    """First those that the gang should have."""
    own = sum(seat.rpartition("-")[0] == role for seat in taken)
    wanted = [seat for seat in wanted_seats(gang, role, own + lacking) if seat not in taken]
    yield from wanted
    beyond = (replica_id(role, index) for index in itertools.count())
    yield from (seat for seat in beyond if seat not in taken and seat not in wanted)


def _sizes(seats: Iterable[str], gang: Gang | None) -> dict[str, int]:
    """How many seats of each role the gang must have so that these are among them."""
    by_role: dict[str, set[int]] = {}
    for seat in seats:
        role, _, index = seat.rpartition("-")
        # Labels are edited by hand, too.
        if index.isdecimal() and int(index) < MAX_MEMBERS:
            by_role.setdefault(role, set()).add(int(index))
    return {role: _size(role, indexes, gang) for role, indexes in by_role.items()}


def _size(role: str, indexes: set[int], gang: Gang | None) -> int:
    """Without holes it is plain."""
    most = max(indexes) + 1
    if len(indexes) == most or gang is None:
        return most
    needed = {replica_id(role, index) for index in indexes}
    # Who is wanted in a smaller gang is wanted in a larger one.
    sizes = range(len(indexes), most)
    return sizes.start + bisect_left(sizes, True, key=lambda size: needed.issubset(wanted_seats(gang, role, size)))


def _seat(terms: GangTerms, member: str, attempt: int, node: str) -> Seat:
    return Seat(terms.name, member, attempt, terms.scheduler_name, node if terms.pins else "")


@dataclass(frozen=True, slots=True)
class Present:
    """The attempt and generation that children may be of, as their labels say it; an empty attempt is none."""

    plan: Plan
    attempt: str

    def has(self, obj: Object) -> bool:
        same_attempt = self.attempt != "" and obj.metadata.labels.get(ATTEMPT_LABEL) == self.attempt
        return same_attempt and is_of_generation(self.plan, obj)


def _is_stale(job: Job, now: Present, done: set[str]) -> bool:
    if job.metadata.name in done and job_outcome(job) == JOB_COMPLETE:
        return False
    return not now.has(job)


def _is_left_over(pod: Pod, now: Present) -> bool:
    return not now.has(pod) and not is_finished(pod)


def _is_going(obj: Object) -> bool:
    return obj.metadata.deletion_timestamp is not None
