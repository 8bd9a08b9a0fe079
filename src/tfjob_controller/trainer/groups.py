"""The gang of a job that another scheduler runs: the object that it is known by there, and when that is needed.

Theory of operation. The object is there as long as the job may run: made with the first child, made anew when it is
lost, deleted when the job is suspended or over, so that it holds no place in a queue. It asks for what may still run:
replicas that have succeeded need no node any more.

A backend that lets gangs in holds the job's pods until it has: then the plan says `suspend`, as if its user did. What
was let in and is not any more is deleted once its pods are gone, and queues anew.

A job whose children were made without a group goes on without one, also if the flag says otherwise by now.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from tfjob_controller.api.gang import Member
from tfjob_controller.api.podgroup import PodGroup
from tfjob_controller.api.podrequests import amounts_of
from tfjob_controller.api.quantity import PODS, quantity_of
from tfjob_controller.trainer.gangbackends.backend import Body, Wanted
from tfjob_controller.trainer.gangterms import GangTerms, GroupTerms
from tfjob_controller.trainer.groupseat import GROUP_LABEL
from tfjob_controller.trainer.plan.model import WORKER_ROLE, Plan
from tfjob_controller.trainer.state import replica_state
from tfjob_controller.trainer.state.completion import Step
from tfjob_controller.trainer.state.observed import ObservedState
from tfjob_controller.trainer.state.pods import is_finished
from tfjob_controller.trainer.state.replica_state import ReplicaState


def held(plan: Plan, observed: ObservedState) -> Plan:
    """The plan as it is for a job that its scheduler holds; without a group for one that was started without."""
    if plan.pod_group is None:
        return plan
    if not _takes_part(plan, observed):
        return _with(plan, pod_group=None)
    gate = plan.pod_group.backend.gate
    if plan.policy.suspend or gate is None or not gate.holds(observed.pod_group):
        return plan
    return _with(plan, policy=dataclasses.replace(plan.policy, suspend=True), is_held=True)


def _with(plan: Plan, **changes: Any) -> Plan:
    steps = tuple(dataclasses.replace(step, **changes) for step in plan.steps)
    return dataclasses.replace(plan, steps=steps, **changes)


def _takes_part(plan: Plan, observed: ObservedState) -> bool:
    members = {member.name for member in plan.pod_group.terms.members} if plan.pod_group is not None else set()
    of_gang = (job for name, job in observed.jobs.items() if name in plan.by_name and _role(plan, name) in members)
    return all(GROUP_LABEL in job.metadata.labels for job in of_gang)


def _role(plan: Plan, name: str) -> str:
    return plan.by_name[name].role.name


def is_group_there(observed: ObservedState) -> bool:
    return observed.pod_group is not None and observed.pod_group.metadata.deletion_timestamp is None


def has_to_go(plan: Plan, step: Step, terms: GroupTerms) -> bool:
    """Nothing is to run by it now; where it has to queue anew, once no pod runs any more."""
    gate = terms.backend.gate
    if plan.is_suspended or (step.plan.pod_group is None and gate is None):
        return True
    group = step.observed.pod_group
    if group is None or gate is None or not gate.has_returned(group):
        return False
    return all(is_finished(pod) for pods in step.observed.pods.values() for pod in pods)


def group_body(plan: Plan, terms: GroupTerms, views: Sequence[ReplicaState]) -> Body:
    """The object, ready for JSON."""
    resource = terms.backend.resource
    metadata: Body = {
        "name": terms.terms.name,
        "namespace": plan.namespace,
        "labels": {**plan.added_labels, **plan.labels},
        "ownerReferences": [msgspec.to_builtins(plan.owner)],
    }
    spec = terms.backend.spec(_wanted(terms, views))
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def misfit(terms: GroupTerms, group: PodGroup, views: Sequence[ReplicaState]) -> Body | None:
    """The merge patch that makes the object ask for what is wanted; None if it does."""
    spec = terms.backend.spec(_wanted(terms, views))
    return None if terms.backend.fits(group.spec, spec) else {"spec": spec}


def _wanted(terms: GroupTerms, views: Sequence[ReplicaState]) -> Wanted:
    done = Counter(view.replica.role.name for view in views if view.state == replica_state.SUCCEEDED)
    counts = least_of(terms.terms, done)
    least = [replace(member, count=counts[member.name]) for member in terms.terms.members]
    return Wanted(
        members=[member for member in terms.terms.members if member.count > 0],
        start_count=sum(least_of(terms.terms, {}).values()),
        # A group of none is refused, and one that has nothing left to do is deleted in a moment.
        min_count=max(1, sum(member.count for member in least)),
        min_resources=_sum(least),
        queue=terms.queue,
        priority=terms.terms.priority,
        priority_class_name=next((each.priority_class_name for each in least if each.priority_class_name), ""),
        timeout_seconds=terms.terms.timeout_seconds,
    )


def least_of(terms: GangTerms, done: Mapping[str, int]) -> dict[str, int]:
    """How many of each kind have to run at least, beside those that are done."""
    counts = {}
    for member in terms.members:
        enough = terms.min_workers if member.name == WORKER_ROLE and terms.min_workers is not None else member.count
        counts[member.name] = max(0, min(enough, member.count) - done.get(member.name, 0))
    return counts


def _sum(members: Sequence[Member]) -> dict[str, str]:
    total: Counter[str] = Counter()
    for member in members:
        total.update({name: amount * member.count for name, amount in _amounts(member).items() if name != PODS})
    return {name: quantity_of(name, amount) for name, amount in sorted(total.items()) if amount}


def _amounts(member: Member) -> dict[str, int]:
    """The API server refuses pods of negative requests, and says so."""
    try:
        return amounts_of(member)
    except ValueError:
        return {}
