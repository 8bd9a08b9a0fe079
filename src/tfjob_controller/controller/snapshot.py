"""Snapshots: the children of one job, as the caches hold them, and the indexes by which they are found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tfjob_controller.api.common.core import (
    CONFIG_MAPS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SECRETS,
    SERVICES,
    BatchJob,
    Pod,
    PodGroup,
)
from tfjob_controller.api.gang import GANGS, Gang
from tfjob_controller.controller.writer import ResponseCache
from tfjob_controller.jobs.naming import POD_JOB_NAME, RUNTIME_ID
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.state.observed import ObservedState, Reading
from tfjob_controller.jobs.state.pods import child_job_of
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.meta import Object, ObjectT, Resource, controller_of

# The index over child Jobs, Services, Gangs and PodGroups by the UID of the job that controls them.
BY_OWNER = "owner"
# The index over jobs and pods by `runtime_key`.
BY_RUNTIME = "runtime"


def runtime_key(namespace: str, runtime_id: str) -> str:
    return f"{namespace}/{runtime_id}"


def by_runtime_label(obj: Object) -> tuple[str, ...]:
    """Index function of children, by the label that names their job."""
    runtime_id = obj.metadata.labels.get(RUNTIME_ID, "")
    return (runtime_key(obj.metadata.namespace, runtime_id),) if runtime_id else ()


# Returns what was read from the logs of a job's workers, given the job's UID.
ReadingsOf = Callable[[str], Mapping[str, Reading]]
_ByJob: TypeAlias = dict[str, list[Pod]]


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Takes snapshots. Thread-safe. Each cache is read at one moment, but not all caches at the same one.

    `caches` has the kinds of children that are watched or written. `pod_groups` is the kind of the objects that
    represent gangs to another scheduler. `readings` is None if logs are not read.
    """

    caches: Mapping[Resource[Object], Store[Any] | ResponseCache[Any]]
    pod_groups: Resource[Any] | None = None
    readings: ReadingsOf | None = None

    def take(self, owner: Object, plan: Plan) -> ObservedState:
        """The current children of `owner`."""
        mounts, gang, group = plan.mounts, plan.scheduling.gang, plan.scheduling.pod_group
        jobs = {job.metadata.name: job for job in self._owned(JOBS, owner)}
        pods, orphans = self._pods_of(owner, jobs, plan)
        readings = self.readings if plan.progress.pattern is not None else None
        return ObservedState(
            jobs=jobs,
            services={service.metadata.name: service for service in self._owned(SERVICES, owner)},
            pods=pods,
            orphans=orphans,
            has_config_map=bool(mounts.config_map) and self._holds(CONFIG_MAPS, mounts.config_map, owner),
            has_secret=mounts.secret is not None and self._holds(SECRETS, mounts.secret.name, owner),
            claims=frozenset(
                claim.name for claim in mounts.claims if self._holds(PERSISTENT_VOLUME_CLAIMS, claim.name, owner)
            ),
            gang=_named(gang.name, self._owned(GANGS, owner)) if gang is not None else None,
            pod_group=_named(group.terms.name, self._groups_of(owner)) if group is not None else None,
            objects={
                (planned.resource.kind, planned.name): child.digest
                for planned in plan.objects
                if (child := self._child(planned.resource, planned.name, owner)) is not None
            },
            autoscaler=next(iter(self._owned(HORIZONTAL_POD_AUTOSCALERS, owner)), None),
            readings=readings(owner.metadata.uid) if readings is not None else None,
        )

    def children_to_stop(
        self, owner: Object
    ) -> tuple[Sequence[BatchJob], Sequence[Gang], Sequence[tuple[Resource[Object], PodGroup]], Sequence[Pod]]:
        """What must be stopped if there is no plan: child Jobs, what represents the gang, and pods without Jobs."""
        kind = self.pod_groups
        groups = [(kind, group) for group in self._owned(kind, owner)] if kind is not None else []
        pods = self._owned(PODS, owner) if JOBS not in self.caches else ()
        return self._owned(JOBS, owner), self._owned(GANGS, owner), groups, pods

    def _groups_of(self, owner: Object) -> Sequence[PodGroup]:
        return self._owned(self.pod_groups, owner) if self.pod_groups is not None else ()

    def _owned(self, resource: Resource[ObjectT], owner: Object) -> Sequence[ObjectT]:
        """The children of a kind; none if it is not watched."""
        return self._indexed(resource, BY_OWNER, owner.metadata.uid)

    def _indexed(self, resource: Resource[ObjectT], index: str, value: str) -> Sequence[ObjectT]:
        cache = self.caches.get(resource)
        return cache.by_index(index, value) if isinstance(cache, Store) else ()

    def _holds(self, resource: Resource[Object], name: str, owner: Object) -> bool:
        """Reports whether the object exists and is controlled by the job."""
        return self._child(resource, name, owner) is not None

    def _child(self, resource: Resource[Object], name: str, owner: Object) -> Any:
        """The object of that name that is controlled by the job; None if there is none."""
        cache = self.caches.get(resource)
        child = cache.get(f"{owner.metadata.namespace}/{name}") if cache is not None else None
        controller = controller_of(child) if child is not None else None
        return child if controller is not None and controller.uid == owner.metadata.uid else None

    def _pods_of(self, owner: Object, jobs: Mapping[str, BatchJob], plan: Plan) -> tuple[_ByJob, _ByJob]:
        """The job's pods by child Job, and its orphans. Pods older than the job belonged to a deleted one with the same
        RuntimeId.

        A pod counts only if a Job controls it, so a foreign pod with our labels is neither counted nor deleted.
        """
        if plan.carrier is not None:
            return {pod.metadata.name: [pod] for pod in self._owned(PODS, owner)}, {}
        born = owner.metadata.creation_timestamp or ""
        by_job: _ByJob = {}
        orphans: _ByJob = {}
        for pod in self._indexed(PODS, BY_RUNTIME, runtime_key(owner.metadata.namespace, plan.identity.runtime_id)):
            if (pod.metadata.creation_timestamp or "") < born:
                continue
            name = child_job_of(pod)
            if name in jobs or self._was_ours(owner, plan, pod, name):
                by_job.setdefault(name, []).append(pod)
            elif not name and _is_orphan(plan, pod):
                orphans.setdefault(pod.metadata.labels.get(POD_JOB_NAME, ""), []).append(pod)
        return by_job, orphans

    def _was_ours(self, owner: Object, plan: Plan, pod: Pod, name: str) -> bool:
        """Reports whether the pod's Job was the job's and is deleted, rather than being another job's.

        Two jobs have the same RuntimeId if a manifest was copied with it.
        """
        if not name or self.caches[JOBS].get(f"{owner.metadata.namespace}/{name}") is not None:
            return False
        return plan.identity.labels.items() <= pod.metadata.labels.items()


def _is_orphan(plan: Plan, pod: Pod) -> bool:
    """Reports whether the pod has no controller and carries the labels of the job's pods."""
    return controller_of(pod) is None and plan.identity.labels.items() <= pod.metadata.labels.items()


def _named(name: str, children: Iterable[ObjectT]) -> ObjectT | None:
    return next((child for child in children if child.metadata.name == name), None)
