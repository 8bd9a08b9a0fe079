"""The object that represents a job's gang to another scheduler, and when it is needed.

Theory of operation. The object exists while the job may run: it is created with the first child, recreated if it is
lost, and deleted when the job is suspended or finished, so that it takes no place in a queue. It requests what may
still run: replicas that have succeeded need no node any more.

A backend with an admission check holds the job's pods until it admits the gang; until then the plan is suspended, as if
the user had done it. The object of an evicted gang is deleted after its pods, and queues again.

A job whose children were created without a group continues without one, even if the flag has changed since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tfjob_controller.api.common.core import PodGroup
from tfjob_controller.api.common.podrequests import amounts_of
from tfjob_controller.api.common.quantity import PODS, quantity_of
from tfjob_controller.api.gang import Member
from tfjob_controller.jobs.plan.gangterms import GangTerms, PodGroupTerms
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.plan.podgroupbackends import Body, PodGroupRequest, add_metadata
from tfjob_controller.jobs.state import replica_state
from tfjob_controller.jobs.state.completion import Step
from tfjob_controller.jobs.state.pods import is_finished
from tfjob_controller.jobs.state.replica_state import ReplicaState


def must_delete_pod_group(plan: Plan, step: Step, terms: PodGroupTerms) -> bool:
    """Reports whether no pod needs the object now, or whether an evicted gang has no running pod left."""
    admission = terms.backend.admission
    if plan.policy.is_suspended_by_user or (step.plan.scheduling.pod_group is None and admission is None):
        return True
    group = step.observed.pod_group
    if group is None or admission is None or not admission.is_evicted(group):
        return False
    return all(is_finished(pod) for pods in step.observed.pods.values() for pod in pods)


def build_pod_group(plan: Plan, terms: PodGroupTerms, views: Sequence[ReplicaState]) -> Body:
    """Returns the object, ready for JSON."""
    resource = terms.backend.resource
    metadata = plan.identity.metadata_of(terms.terms.name, plan.identity.labels)
    spec = terms.backend.spec(_request(terms, views))
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def pod_group_patch(terms: PodGroupTerms, group: PodGroup, views: Sequence[ReplicaState]) -> Body | None:
    """The merge patch that updates what the object requests; None if it is up to date."""
    spec = terms.backend.spec(_request(terms, views))
    return None if terms.backend.is_satisfied(group.spec, spec) else {"spec": spec}


def _request(terms: PodGroupTerms, views: Sequence[ReplicaState]) -> PodGroupRequest:
    done = Counter(view.replica.role.name for view in views if view.state == replica_state.SUCCEEDED)
    counts = min_counts(terms.terms, done)
    least = [replace(member, count=counts[member.name]) for member in terms.terms.members]
    return PodGroupRequest(
        members=[member for member in terms.terms.members if member.count > 0],
        start_count=sum(min_counts(terms.terms, {}).values()),
        # An empty group is invalid, and one that has nothing left to do is deleted in a moment.
        min_count=max(1, sum(member.count for member in least)),
        min_resources=_sum(least),
        queue=terms.queue,
        priority=terms.terms.priority,
        priority_class_name=next((member.priority_class_name for member in least if member.priority_class_name), ""),
        timeout_seconds=terms.terms.timeout_seconds,
    )


def min_counts(terms: GangTerms, done: Mapping[str, int]) -> dict[str, int]:
    """The minimum of running members by role, besides those that are done."""
    counts = {}
    for member in terms.members:
        is_scaled = member.name == terms.scaled_role and terms.min_workers is not None
        enough = (terms.min_workers or 0) if is_scaled else member.count
        counts[member.name] = max(0, min(enough, member.count) - done.get(member.name, 0))
    return counts


def _sum(members: Sequence[Member]) -> dict[str, str]:
    total: Counter[str] = Counter()
    for member in members:
        total.update({name: amount * member.count for name, amount in _amounts(member).items() if name != PODS})
    return {name: quantity_of(name, amount) for name, amount in sorted(total.items()) if amount}


def _amounts(member: Member) -> dict[str, int]:
    """Empty for invalid requests, which the API server rejects with the pods."""
    try:
        return amounts_of(member)
    except ValueError:
        return {}


# On child Jobs and pods: the object that represents their gang.
GROUP_LABEL = "scheduling.kubeflow.org/pod-group"


def pod_group_label(group: PodGroupTerms) -> dict[str, str]:
    return {GROUP_LABEL: group.terms.name}


def join_pod_group(template: dict[str, Any], group: PodGroupTerms) -> None:
    """Changes a pod template in place, so that its pods belong to the job's group."""
    add_metadata(template, "labels", GROUP_LABEL, group.terms.name)
    if group.terms.scheduler_name:
        template["spec"] = {**template["spec"], "schedulerName": group.terms.scheduler_name}
    group.backend.join(group.terms.name, template)
