"""Shows an Indexed Job as one Job for each of its replicas.

A role is carried in one of two ways: each replica by a Job and a Service of its own (TFJobs), or all replicas by one
Indexed Job and one headless Service (the nodes of a TrainJob), in which a replica is a completion index. Only two
modules know the difference: this one, which divides what is observed of an Indexed Job among its replicas, and
`actions.children`, which builds it. The planner combines what it wants of single replicas into writes of their Job.

A failed Indexed Job. With `backoffLimit: 0` the Job controller ends all pods as soon as one has failed. Only the
replicas whose pods failed caused that; the others are `interrupted`, and what their pods exit with says nothing. The
Job controller deletes pods before it writes the condition of the Job, so a failed pod shows the failure as well. A
replica is a cause if its pod failed by itself, or was deleted before the Job failed. A pod that was deleted by force
leaves no trace: then those without a pod are the causes, unless the Job is so new that none of its pods may have been
seen yet. As long as no cause is seen, since watches are behind, all are interrupted, but not for longer than
`LOST_AFTER_SECONDS`: afterwards all are causes, and are restarted.

An elastic role (`Role.is_elastic`) has one more Service, for the first replica alone, under that replica's name. Its
Job may still have another number of indexes than the plan has replicas: pods of indexes beyond them belong to none.

TrainJobs of releases before this one have a Job and a Service per node. They keep them until the set is restarted.

Source: Kubernetes pkg/controller/job/indexed_job_utils.go (completedIndexes), job_controller.go (FailureTarget).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from tfjob_controller.api.common.core import BatchJob, Condition, Pod
from tfjob_controller.api.gang import ATTEMPT_LABEL, COMPLETION_INDEX_LABEL, MEMBER_LABEL
from tfjob_controller.kube.meta import controller_of
from tfjob_controller.trainer.plan.model import Plan, Replica, Role
from tfjob_controller.trainer.state.observed import ObservedState
from tfjob_controller.trainer.state.pods import (
    is_disrupted,
    is_finished,
    last_exit,
    newest,
    training_container,
    was_told_to_end,
)
from tfjob_controller.util.timestamps import format_time, parse_time

COMPLETE, FAILED = "Complete", "Failed"
_FAILURES = ("FailureTarget", FAILED)
# How long the pods of a failed Job are waited for if its cause is not seen; a Job of that age may have unseen pods.
LOST_AFTER_SECONDS = 30


def by_replica(plan: Plan, observed: ObservedState, now: datetime) -> ObservedState:
    """Returns the state with a Job, a Service and the pods of each replica that an Indexed Job carries."""
    for role in plan.replicas.roles:
        if role.job_name:
            observed = _divided(role, [each for each in plan.replicas.all if each.role is role], observed, now)
    return observed


def _divided(role: Role, replicas: Sequence[Replica], observed: ObservedState, now: datetime) -> ObservedState:
    jobs, services = dict(observed.jobs), dict(observed.services)
    pods, orphans = _by_index(role, observed.pods), _by_index(role, observed.orphans)
    job, service = jobs.pop(role.job_name, None), services.pop(role.service_name, None)
    first_service = services.pop(f"{role.job_name}-0", None) if role.is_elastic else None
    single = [each.name for each in replicas if each.name in jobs]
    if len(single) < len(replicas) or job is not None:
        # They are not under the name of a replica, so the planner deletes them.
        jobs |= {f"{name}/": jobs.pop(name) for name in single}
    if job is not None or not single:
        services |= {f"{each.name}/": services.pop(each.name) for each in replicas if each.name in services}
    if service is not None:
        services |= dict.fromkeys((each.name for each in replicas), service)
    interrupted: frozenset[str] = frozenset()
    carried: dict[str, str] = {}
    if job is not None:
        done = completed_indexes(job)
        carried = {each.name: role.job_name for each in replicas}
        jobs |= {each.name: _job_of(job, each, is_completed=each.index in done) for each in replicas}
        interrupted = frozenset(_interrupted(job, [each for each in replicas if each.index not in done], pods, now))
    return dataclasses.replace(
        observed,
        jobs=jobs,
        services=services,
        pods=pods,
        orphans=orphans,
        indexed_jobs={**observed.indexed_jobs, **carried},
        interrupted=observed.interrupted | interrupted,
        has_first_service=observed.has_first_service or first_service is not None,
    )


def _by_index(role: Role, pods: Mapping[str, Sequence[Pod]]) -> Mapping[str, Sequence[Pod]]:
    if role.job_name not in pods:
        return pods
    divided = {name: list(some) for name, some in pods.items() if name != role.job_name}
    for pod in pods[role.job_name]:
        index = pod.metadata.labels.get(COMPLETION_INDEX_LABEL, "")
        divided.setdefault(f"{role.job_name}-{index}", []).append(pod)
    return divided


def _job_of(job: BatchJob, replica: Replica, *, is_completed: bool) -> BatchJob:
    """The Job as if it ran this replica alone, under the replica's name."""
    labels = job.metadata.labels
    if ATTEMPT_LABEL in labels:
        labels = {**labels, MEMBER_LABEL: replica.id}
    metadata = replace(job.metadata, name=replica.name, labels=labels)
    if not is_completed or _condition(job, (COMPLETE,)) is not None:
        return replace(job, metadata=metadata)
    kept = (each for each in job.status.conditions if each.type not in _FAILURES)
    status = replace(job.status, conditions=(*kept, Condition(COMPLETE, "True")))
    return replace(job, metadata=metadata, status=status)


def completed_indexes(job: BatchJob) -> frozenset[int]:
    """Parses `status.completedIndexes`, such as `0-2,5`."""
    found: set[int] = set()
    for part in filter(None, job.status.completed_indexes.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _condition(job: BatchJob, types: Iterable[str]) -> Condition | None:
    return next((each for each in job.status.conditions if each.type in types and each.status == "True"), None)


def _interrupted(
    job: BatchJob, replicas: Sequence[Replica], pods: Mapping[str, Sequence[Pod]], now: datetime
) -> set[str]:
    """The names of the replicas whose pods the Job controller ended because of others."""
    latest = {each.name: newest(pods.get(each.name, ())) for each in replicas}
    containers = {each.name: each.role.container for each in replicas}
    failure = _condition(job, _FAILURES)
    if failure is None and any(each.role.is_elastic for each in replicas):
        # The Job controller replaces a pod that failed, and the Job goes on.
        return set()
    if failure is None:
        return _deleted_after_failure(job, latest, containers)
    moment = failure.last_transition_time or ""
    causes = {name for name, pod in latest.items() if pod is not None and _has_failed(pod, containers[name], moment)}
    is_unseen = not job.spec.suspend and _is_new(job, moment) and all(pod is None for pod in latest.values())
    is_gone = all(pod is None or pod.metadata.deletion_timestamp is not None for pod in latest.values())
    if not causes and is_gone and not is_unseen:
        causes = {name for name, pod in latest.items() if pod is None}
    if not causes and moment < format_time(now - timedelta(seconds=LOST_AFTER_SECONDS)):
        return set()
    return latest.keys() - causes


def _is_new(job: BatchJob, moment: str) -> bool:
    """Reports whether the Job was created shortly before `moment`."""
    created = job.metadata.creation_timestamp
    if created is None or not moment:
        return False
    return parse_time(moment) - parse_time(created) < timedelta(seconds=LOST_AFTER_SECONDS)


def _deleted_after_failure(job: BatchJob, latest: Mapping[str, Pod | None], containers: Mapping[str, str]) -> set[str]:
    """Returns the replicas whose pods were deleted because another one has failed, before the Job shows its failure."""
    pods = {name: pod for name, pod in latest.items() if pod is not None}
    failures = [at for name, pod in pods.items() if (at := _failed_at(pod, containers[name], job)) is not None]
    if not failures:
        return set()
    moment = min(failures)
    return {
        name
        for name, pod in pods.items()
        if pod.metadata.deletion_timestamp is not None and not _has_failed(pod, containers[name], moment)
    }


def _failed_at(pod: Pod, container: str, job: BatchJob) -> str | None:
    """Returns when a pod of the Job failed by itself, which is empty if unknown; None if it did not."""
    owner = controller_of(pod)
    if pod.status.phase != FAILED or pod.metadata.deletion_timestamp is not None:
        return None
    if owner is None or owner.uid != job.metadata.uid:
        return None
    status = training_container(pod, container)
    exited = last_exit(status) if status is not None else None
    return (exited.finished_at or "") if exited is not None else ""


def _has_failed(pod: Pod, container: str, moment: str) -> bool:
    """Reports whether the pod failed, or was deleted or disrupted, before the Job controller ended it."""
    deleted = pod.metadata.deletion_timestamp
    if deleted is None:
        return is_finished(pod) or is_disrupted(pod, None)
    requested = format_time(parse_time(deleted) - timedelta(seconds=pod.metadata.deletion_grace_period_seconds))
    status = training_container(pod, container)
    exited = last_exit(status) if status is not None else None
    return requested < moment or (exited is not None and not was_told_to_end(pod, exited))


def pods_of(replica: Replica, observed: ObservedState) -> Sequence[Pod]:
    """The pods of a replica, in a state that is not divided by replica."""
    return _by_index(replica.role, observed.pods).get(replica.name, ())
