"""Jobs of which all replicas are restarted: they are stopped, and started anew once nothing of before is left.

Theory of operation. With `resize: Restart` every replica must know the exact cluster, so the Jobs and pods of such a
job carry a generation in a label, and the status says which one is present and how many workers TF_CONFIG lists in it
(`scaling.generation`, `scaling.members`). When another number of workers is due, the status is written first, with the
next generation; what carries another one is stale from then on: it is deleted with its pods, as nobody's failure, and
nothing is created before all of it is gone. A resize during a resize is only one generation more. Services stay, and so
do the Jobs of replicas that have succeeded: they run nothing, and hold the logs.

Jobs that cannot go on without a member do the same when one fails and may be tried again. Their generation is the count
of their restarts; what those of before say, and who of them had succeeded already, counts no more.

A gang counts as many workers as have a place, so that one that starts with a part of them is restarted when more come.

A replica never has two pods that run: its next Job is made once the pods of the one before have ended or gone.

Theory of operation. A Job that is deleted in the foreground stays as long as its pods do, and its name is taken for as
long. One that somebody deletes otherwise is gone at once, and the garbage collector comes to its pods some time later:
they are waited for by themselves. A pod that is lost with its node is not among them (`generations.without_lost`), for
nobody will ever say that it has ended.

A pod that its Job left behind (`kubectl delete job --cascade=orphan`) is nobody's: it is neither counted nor deleted.
But it runs under the replica's name, and so it is waited for, too, as a StatefulSet waits for a pod of that name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from msgspec.structs import replace

from tfjob_controller.api.common.core import BatchJob, Pod
from tfjob_controller.api.common.status import ScalingStatus
from tfjob_controller.api.tfjob.types import BY_RESTART, WORKER
from tfjob_controller.kube.meta import Object
from tfjob_controller.trainer.naming import RESTART_ATTEMPT
from tfjob_controller.trainer.plan.model import Plan
from tfjob_controller.trainer.state import replica_state
from tfjob_controller.trainer.state.observed import ObservedState
from tfjob_controller.trainer.state.pods import is_finished
from tfjob_controller.trainer.state.replica_state import JOB_COMPLETE, ReplicaState, job_outcome
from tfjob_controller.util.timestamps import seconds_until


@dataclass(frozen=True, slots=True)
class StaleChildren:
    """Children of earlier attempts. `jobs` are to be deleted; `are_deleted` if neither Jobs nor pods are left."""

    jobs: Sequence[BatchJob]
    are_deleted: bool


def is_of_attempt(plan: Plan, obj: Object) -> bool:
    return not plan.has_restart_attempts or obj.metadata.labels.get(RESTART_ATTEMPT) == str(plan.restart_attempt)


def without_lost_pods(plan: Plan, observed: ObservedState, now: datetime) -> ObservedState:
    """Without pods of before whose node is gone: nobody will ever say that they have ended, so nobody waits for it."""
    moment = replica_state.lost_before(now)
    going = {name for name, some in observed.pods.items() if any(replica_state.is_lost(pod, moment) for pod in some)}
    if not going:
        return observed
    pods = {
        name: [
            pod for pod in some if not (replica_state.is_lost(pod, moment) and _is_of_before(plan, observed, name, pod))
        ]
        if name in going
        else some
        for name, some in observed.pods.items()
    }
    return dataclasses.replace(observed, pods=pods)


def _is_of_before(plan: Plan, observed: ObservedState, name: str, pod: Pod) -> bool:
    """Its Job is gone, or is of another generation where all are restarted together."""
    return name not in observed.jobs or (
        plan.replicas.restarts_together and plan.restart_attempt > 0 and not _is_now(plan, pod)
    )


def seconds_until_pod_lost(plan: Plan, observed: ObservedState, now: datetime) -> float | None:
    """When the first pod of before will be given up for lost; None if none can be."""
    going = (
        pod.metadata.deletion_timestamp
        for name, some in observed.pods.items()
        for pod in some
        if pod.metadata.deletion_timestamp is not None
        and not is_finished(pod)
        and _is_of_before(plan, observed, name, pod)
    )
    # One more: times are whole seconds.
    left = (seconds_until(each, replica_state.LOST_AFTER_SECONDS + 1, now) for each in going)
    return min((seconds for seconds in left if seconds > 0), default=None)


def of_current_attempt(plan: Plan, observed: ObservedState) -> ObservedState:
    """Where all are restarted because one has failed: without those of before, who have had their say."""
    if not plan.replicas.restarts_together or not plan.restart_attempt:
        return observed
    return dataclasses.replace(
        observed,
        jobs={name: job for name, job in observed.jobs.items() if _is_now(plan, job)},
        pods={name: [pod for pod in pods if _is_now(plan, pod)] for name, pods in observed.pods.items()},
    )


def _is_now(plan: Plan, obj: Object) -> bool:
    """What has no generation belongs to a step that is not restarted with the others."""
    return RESTART_ATTEMPT not in obj.metadata.labels or is_of_attempt(plan, obj)


def stale_children(plan: Plan, observed: ObservedState, states: Sequence[ReplicaState]) -> StaleChildren:
    """For a job that is no gang."""
    done = {state.replica.name for state in states if state.state == replica_state.SUCCEEDED}
    stale = [
        job
        for name, job in observed.jobs.items()
        if name in plan.replicas.by_name
        and not is_of_attempt(plan, job)
        and not (name in done and job_outcome(job) == JOB_COMPLETE)
    ]
    pods = (pod for some in observed.pods.values() for pod in some)
    left_over = any(not is_of_attempt(plan, pod) and not is_finished(pod) for pod in pods)
    return StaleChildren(stale, not stale and not left_over)


def tf_config_workers(plan: Plan, states: Sequence[ReplicaState], assigned: Collection[str] | None) -> int:
    """How many workers TF_CONFIG should list. `assigned`: the names of replicas with an assignment; None if they need
    none.

    One that was known in this generation stays so: nobody is restarted because a node was lost.
    """
    workers = [state for state in states if state.replica.role.replica_type == WORKER]
    if assigned is None:
        return len(workers)
    known = [state for state in workers if state.replica.name in assigned or _was_known(plan, state)]
    return max((state.replica.index + 1 for state in known), default=0)


def _was_known(plan: Plan, state: ReplicaState) -> bool:
    return state.state == replica_state.SUCCEEDED or (state.job is not None and is_of_attempt(plan, state.job))


def is_scaling_unrecorded(plan: Plan, scaling: ScalingStatus | None, members: int) -> bool:
    """Must the status be written first? Nothing is created before it knows for how many workers."""
    return plan.scaling.resize == BY_RESTART and (scaling is None or scaling.members != members)


def next_attempt(scaling: ScalingStatus, members: int) -> ScalingStatus:
    """What is on record when the children for so many workers may be made."""
    was_made = scaling.members > 0
    return replace(scaling, generation=scaling.generation + was_made, members=members)


def can_create_job(observed: ObservedState, name: str) -> bool:
    """May a Job be made under that name? `observed` is without lost pods."""
    return name not in observed.jobs and _in_the_way(observed, name) is None


def _in_the_way(observed: ObservedState, name: str) -> Pod | None:
    pods = chain(observed.pods.get(name, ()), observed.orphans.get(name, ()))
    return next((pod for pod in pods if not is_finished(pod)), None)


def blocking_pod_message(observed: ObservedState, state: ReplicaState) -> str:
    """What a replica without a Job waits for, in words; empty if there is no such pod."""
    name = state.replica.name
    pod = _in_the_way(observed, name) if name not in observed.jobs and state.state != replica_state.SUCCEEDED else None
    if pod is None:
        return ""
    if pod in observed.orphans.get(name, ()):
        return f"waits for pod {pod.metadata.name}, which no Job controls any more, to end; or delete it"
    return f"waits for pod {pod.metadata.name} of its deleted Job to go"
