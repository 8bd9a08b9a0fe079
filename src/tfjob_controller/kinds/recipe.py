"""Shared by the compilers of the kinds: owners of children, the order of replicas, gangs, and steps of a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import msgspec

from tfjob_controller.api.common.podrequests import member_of
from tfjob_controller.api.gang import Member
from tfjob_controller.jobs.plan.gangterms import member_problem
from tfjob_controller.jobs.plan.model import Plan, PlannedReplicas, Replica, Role, UnplannableError
from tfjob_controller.kube.meta import Object, ObjectMeta, OwnerReference, Resource


def owner_of(resource: Resource[Object], meta: ObjectMeta) -> OwnerReference:
    """Returns the owner reference of every child, by which the garbage collector deletes it with its job."""
    return OwnerReference(resource.api_version, resource.kind, meta.name, meta.uid, True, True)


def chief_first(replicas: Iterable[Replica]) -> tuple[Replica, ...]:
    return tuple(sorted(replicas, key=lambda replica: not replica.is_chief))


def planned(roles: Iterable[Role], replicas: tuple[Replica, ...], needed: tuple[Replica, ...]) -> PlannedReplicas:
    """The first replica is the chief."""
    by_name = {replica.name: replica for replica in replicas}
    return PlannedReplicas(tuple(roles), replicas, by_name, chief=replicas[0], needed=needed)


def gang_members(roles: Iterable[Role]) -> tuple[Member, ...]:
    """Returns the members of a gang of these roles. Raises UnplannableError if the requests of one are invalid."""
    return tuple(map(_gang_member, roles))


def _gang_member(role: Role) -> Member:
    pod_spec = role.template["spec"]
    if (problem := member_problem(pod_spec)) is not None:
        raise UnplannableError(f"the pods of {role.name}: {problem}")
    return msgspec.structs.replace(member_of(role.name, role.replicas, pod_spec), indexed=bool(role.job_name))


def step_of(whole: Plan, replicas: tuple[Replica, ...], needed: tuple[Replica, ...], *, trains: bool) -> Plan:
    """Returns the step of a plan that runs these replicas. Only the step that trains has a gang and mounts."""
    names = {replica.role.name for replica in replicas}
    roles = (role for role in whole.replicas.roles if role.name in names)
    scheduling, mounts = whole.scheduling, whole.mounts
    if not trains:
        scheduling = dataclasses.replace(scheduling, gang=None, pod_group=None, is_gang_refused=False)
        mounts = dataclasses.replace(mounts, config_map="", secret=None)
    return dataclasses.replace(whole, replicas=planned(roles, replicas, needed), scheduling=scheduling, mounts=mounts)


def in_steps(whole: Plan, steps: Sequence[Plan], needed: tuple[Replica, ...]) -> Plan:
    """Returns the plan with its steps. The job succeeds once the replicas `needed` have succeeded."""
    return dataclasses.replace(whole, steps=tuple(steps), replicas=dataclasses.replace(whole.replicas, needed=needed))
