"""Shows an Indexed Job as one Job for each of its replicas.

A role is carried in one of two ways: each replica by a Job and a Service of its own (TFJobs), or all replicas by one
Indexed Job and one headless Service (the nodes of a TrainJob), in which a replica is a completion index. Only two
modules know the difference: this one, which divides what is observed of an Indexed Job among its replicas, and
`actions.children`, which builds it. The planner combines what it wants of single replicas into writes of their Job.

An elastic role (`Role.is_elastic`) has one more Service, for the first replica alone, under that replica's name. Its
Job may still have another number of indexes than the plan has replicas: pods of indexes beyond them belong to none.

Source: Kubernetes pkg/controller/job/indexed_job_utils.go (completedIndexes), backoff_utils.go and job_controller.go
(failedIndexes, FailureTarget).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from tfjob_controller.api.common.core import BatchJob, Condition, Pod
from tfjob_controller.api.gang import ATTEMPT_LABEL, COMPLETION_INDEX_LABEL, MEMBER_LABEL
from tfjob_controller.jobs.plan.model import Plan, Replica, Role
from tfjob_controller.jobs.state.observed import ObservedState

COMPLETE, FAILED = "Complete", "Failed"
_FAILURES = ("FailureTarget", FAILED)


def by_replica(plan: Plan, observed: ObservedState) -> ObservedState:
    """Returns the state with a Job, a Service and the pods of each replica that an Indexed Job carries."""
    for role in plan.replicas.roles:
        if role.job_name:
            observed = _divided(role, [replica for replica in plan.replicas.all if replica.role is role], observed)
    return observed


def _divided(role: Role, replicas: Sequence[Replica], observed: ObservedState) -> ObservedState:
    jobs, services = dict(observed.jobs), dict(observed.services)
    pods, orphans = _by_index(role, observed.pods), _by_index(role, observed.orphans)
    job, service = jobs.pop(role.job_name, None), services.pop(role.service_name, None)
    first_service = services.pop(f"{role.job_name}-0", None) if role.is_elastic else None
    if service is not None:
        services |= dict.fromkeys((replica.name for replica in replicas), service)
    carried: dict[str, str] = {}
    if job is not None:
        done, failed = indexes(job.status.completed_indexes), indexes(job.status.failed_indexes)
        # A pod tells more than its index.
        gone = {replica.index for replica in replicas if not pods.get(replica.name)}
        outcomes = {**dict.fromkeys(failed & gone, FAILED), **dict.fromkeys(done, COMPLETE)}
        carried = {replica.name: role.job_name for replica in replicas}
        jobs |= {replica.name: _job_of(job, replica, outcomes.get(replica.index, "")) for replica in replicas}
    return dataclasses.replace(
        observed,
        jobs=jobs,
        services=services,
        pods=pods,
        orphans=orphans,
        indexed_jobs={**observed.indexed_jobs, **carried},
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


def _job_of(job: BatchJob, replica: Replica, outcome: str) -> BatchJob:
    """The Job as if it ran this replica alone, under the replica's name. `outcome` is that of its index."""
    labels = job.metadata.labels
    if ATTEMPT_LABEL in labels:
        labels = {**labels, MEMBER_LABEL: replica.id}
    metadata = replace(job.metadata, name=replica.name, labels=labels)
    if not outcome or _condition(job, (outcome,)) is not None:
        return replace(job, metadata=metadata)
    kept = (condition for condition in job.status.conditions if condition.type not in _FAILURES)
    status = replace(job.status, conditions=(*kept, Condition(outcome, "True")))
    return replace(job, metadata=metadata, status=status)


def indexes(text: str) -> frozenset[int]:
    """Parses the indexes in the status of a Job, such as `0-2,5`."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _condition(job: BatchJob, types: Iterable[str]) -> Condition | None:
    return next(
        (condition for condition in job.status.conditions if condition.type in types and condition.status == "True"),
        None,
    )


def pods_of(replica: Replica, observed: ObservedState) -> Sequence[Pod]:
    """The pods of a replica, in a state that is not divided by replica."""
    return _by_index(replica.role, observed.pods).get(replica.name, ())
