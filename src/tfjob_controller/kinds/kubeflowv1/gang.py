"""The gang of a job of `kubeflow.org/v1`, from its `schedulingPolicy`.

With `--gang-scheduling=on-request` the jobs that have a `schedulingPolicy` run as gangs. Kueue is no backend here: its
own integrations run these kinds, by `suspend`. A job whose pods exist already continues without a gang
(`jobs.gang.admission`), as one that was taken over from training-operator.

Source: kubeflow/trainer release-1.9 pkg/controller.v1/common/{job,scheduling}.go (SyncPodGroup, calcPGMinResources).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from tfjob_controller.api.common.podrequests import member_of
from tfjob_controller.api.gang import Member
from tfjob_controller.api.kubeflowv1.types import V1_KINDS, WORKER, V1Job
from tfjob_controller.jobs.naming import name_prefix
from tfjob_controller.jobs.plan.gangterms import GangFields, GangPolicy, member_problem, scheduled_by, terms_of
from tfjob_controller.jobs.plan.model import PodCarrier, Replica

_NO_GANG: GangFields = {"gang": None, "pod_group": None}
# Hexadecimal digits that tell apart the Gangs of jobs of different kinds with one name.
_DIGITS = 6


def gang_fields(job: V1Job, policy: GangPolicy, replicas: Iterable[Replica], carrier: PodCarrier) -> GangFields:
    """Returns the gang of a job for the scheduler that the policy names."""
    if not _is_gang(job, policy):
        return _NO_GANG
    scheduling = job.spec.run_policy.scheduling_policy
    terms = terms_of(
        # That of a PodGroup is upstream's.
        job.metadata.name if policy.backend is not None else _gang_name(job),
        policy,
        None,
        tuple(_members(job, replicas, carrier)),
        scaled_role=WORKER.lower(),
        min_workers=_min_workers(job),
        max_workers=0,
    )
    labels: Mapping[str, str] = job.metadata.labels
    if scheduling is not None:
        seconds, warning = scheduling.schedule_timeout_seconds, _min_available_warning(job, scheduling.min_available)
        terms = dataclasses.replace(terms, timeout_seconds=seconds, warning=warning)
        if scheduling.queue and policy.backend is not None:
            labels = {**labels, policy.backend.queue_label: scheduling.queue}
    return scheduled_by(policy, terms, labels)


def _min_available_warning(job: V1Job, count: int | None) -> str:
    total = sum(entry.replicas or 0 for entry in job.spec.replica_specs.values())
    if count is None or 1 <= count <= total:
        return ""
    field = "spec.runPolicy.schedulingPolicy.minAvailable"
    return f"{field} is {count}, which is not between 1 and {total}, the number of replicas"


def gang_problem(job: V1Job, policy: GangPolicy) -> str | None:
    """Returns why the requests of a gang's templates are invalid; None if they are valid."""
    if not _is_gang(job, policy):
        return None
    for name, entry in job.spec.replica_specs.items():
        problem = member_problem(entry.template.get("spec") or {})
        if problem is not None:
            return f"spec.{V1_KINDS[job.kind].replicas_field}[{name}].template: {problem}"
    return None


def _is_gang(job: V1Job, policy: GangPolicy) -> bool:
    is_kueues = policy.backend is not None and policy.backend.admission is not None
    requested = True if job.spec.run_policy.scheduling_policy is not None else None
    return policy.covers(requested) and not is_kueues


def _gang_name(job: V1Job) -> str:
    """Returns the name of the Gang, which is the value of a label as well."""
    return f"{name_prefix(job.metadata.name)}-{hashlib.sha256(job.metadata.uid.encode()).hexdigest()[:_DIGITS]}"


def _members(job: V1Job, replicas: Iterable[Replica], carrier: PodCarrier) -> Iterable[Member]:
    """Yields the members of each type, with the requests of the pods that the controller creates."""
    counts: Counter[str] = Counter()
    specs: dict[str, Mapping[str, Any]] = {}
    for replica in replicas:
        counts[replica.role.name] += 1
        if replica.role.name not in specs:
            specs[replica.role.name] = carrier.pod(replica)["spec"]
    scheduling = job.spec.run_policy.scheduling_policy
    priority_class = scheduling.priority_class if scheduling is not None else ""
    for name, count in counts.items():
        member = member_of(name, count, specs[name])
        yield replace(member, priority_class_name=priority_class or member.priority_class_name)


def _min_workers(job: V1Job) -> int | None:
    """Returns how many workers must start together; None for all. All replicas of other types do.

    `minAvailable` counts the replicas of all types.
    """
    scheduling = job.spec.run_policy.scheduling_policy
    if scheduling is None or scheduling.min_available is None:
        return None
    others = sum(entry.replicas or 0 for name, entry in job.spec.replica_specs.items() if name != WORKER)
    return max(0, scheduling.min_available - others)
