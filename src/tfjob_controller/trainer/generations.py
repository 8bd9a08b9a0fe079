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
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from tfjob_controller.api.core import Job, Pod
from tfjob_controller.api.tfjob import BY_RESTART, WORKER
from tfjob_controller.api.trainingstatus import ScalingStatus
from tfjob_controller.kube.meta import Object
from tfjob_controller.trainer import replicas
from tfjob_controller.trainer.labels import GENERATION
from tfjob_controller.trainer.observed import Observed
from tfjob_controller.trainer.plan import Plan
from tfjob_controller.trainer.pods import is_finished
from tfjob_controller.trainer.replicas import JOB_COMPLETE, View, job_outcome
from tfjob_controller.util.timestamps import seconds_until


@dataclass(frozen=True, slots=True)
class Turnover:
    """`stale`: Jobs of other generations. `is_clear`: nothing of them is left."""

    stale: Sequence[Job]
    is_clear: bool


def is_of_generation(plan: Plan, obj: Object) -> bool:
    return not plan.has_generations or obj.metadata.labels.get(GENERATION) == str(plan.generation)


def without_lost(plan: Plan, observed: Observed, now: datetime) -> Observed:
    """Without pods of before whose node is gone: nobody will ever say that they have ended, so nobody waits for it."""
    moment = replicas.lost_before(now)
    going = {name for name, some in observed.pods.items() if any(replicas.is_lost(pod, moment) for pod in some)}
    if not going:
        return observed
    pods = {
        name: [pod for pod in some if not (replicas.is_lost(pod, moment) and _is_of_before(plan, observed, name, pod))]
        if name in going
        else some
        for name, some in observed.pods.items()
    }
    return dataclasses.replace(observed, pods=pods)


def _is_of_before(plan: Plan, observed: Observed, name: str, pod: Pod) -> bool:
    """Its Job is gone, or is of another generation where all are restarted together."""
    return name not in observed.jobs or (plan.restarts_together and plan.generation > 0 and not _is_now(plan, pod))


def seconds_to_lost(plan: Plan, observed: Observed, now: datetime) -> float | None:
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
    left = (seconds_until(each, replicas.LOST_AFTER_SECONDS + 1, now) for each in going)
    return min((seconds for seconds in left if seconds > 0), default=None)


def of_this_generation(plan: Plan, observed: Observed) -> Observed:
    """Where all are restarted because one has failed: without those of before, who have had their say."""
    if not plan.restarts_together or not plan.generation:
        return observed
    return dataclasses.replace(
        observed,
        jobs={name: job for name, job in observed.jobs.items() if _is_now(plan, job)},
        pods={name: [pod for pod in pods if _is_now(plan, pod)] for name, pods in observed.pods.items()},
    )


def _is_now(plan: Plan, obj: Object) -> bool:
    """What has no generation belongs to a step that is not restarted with the others."""
    return GENERATION not in obj.metadata.labels or is_of_generation(plan, obj)


def turnover_of(plan: Plan, observed: Observed, views: Sequence[View]) -> Turnover:
    """For a job that is no gang."""
    done = {view.replica.name for view in views if view.state == replicas.SUCCEEDED}
    stale = [
        job
        for name, job in observed.jobs.items()
        if name in plan.by_name
        and not is_of_generation(plan, job)
        and not (name in done and job_outcome(job) == JOB_COMPLETE)
    ]
    pods = (pod for some in observed.pods.values() for pod in some)
    left_over = any(not is_of_generation(plan, pod) and not is_finished(pod) for pod in pods)
    return Turnover(stale, not stale and not left_over)


def workers_to_know(plan: Plan, views: Sequence[View], seated: Collection[str] | None) -> int:
    """How many workers TF_CONFIG should list. `seated`: those with a place, by name; None where none needs one.

    One that was known in this generation stays so: nobody is restarted because a node was lost.
    """
    workers = [view for view in views if view.replica.role.replica_type == WORKER]
    if seated is None:
        return len(workers)
    known = [view for view in workers if view.replica.name in seated or _was_known(plan, view)]
    return max((view.replica.index + 1 for view in known), default=0)


def _was_known(plan: Plan, view: View) -> bool:
    return view.state == replicas.SUCCEEDED or (view.job is not None and is_of_generation(plan, view.job))


def is_due(plan: Plan, scaling: ScalingStatus | None, members: int) -> bool:
    """Must the status be written first? Nothing is created before it knows for how many workers."""
    return plan.resize == BY_RESTART and (scaling is None or scaling.members != members)


def next_generation(scaling: ScalingStatus, members: int) -> ScalingStatus:
    """What is on record when the children for so many workers may be made."""
    was_made = scaling.members > 0
    return replace(scaling, generation=scaling.generation + was_made, members=members)
