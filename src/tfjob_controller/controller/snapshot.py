"""Snapshots: the children of one job, as the caches hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tfjob_controller.api.common.core import BatchJob, ConfigMap, HorizontalPodAutoscaler, Pod, PodGroup, Service
from tfjob_controller.api.gang import Gang
from tfjob_controller.controller.handlers import BY_RUNTIME, runtime_key
from tfjob_controller.jobs.naming import POD_JOB_NAME
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.state.observed import ObservedState, Reading
from tfjob_controller.jobs.state.pods import child_job_of
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.meta import Object, Resource, controller_of

# The index over child Jobs, Services, Gangs and PodGroups by the UID of the job that controls them.
BY_OWNER = "owner"


# Returns what was read from the logs of a job's workers, given the job's UID.
ReadingsOf = Callable[[str], Mapping[str, Reading]]
_ByJob: TypeAlias = dict[str, list[Pod]]


class ObjectLookup(Protocol):
    """Objects by key: a watched cache, or the responses of writes."""

    def get(self, key: str) -> Object | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshots:
    """Takes snapshots. Thread-safe. Each store is read at one moment, but not all stores at the same one.

    `gangs`, `pod_groups` and `autoscalers` are None if they are not watched, `readings` if logs are not read.
    `pod_group_kind` is the kind of the objects that represent gangs to another scheduler.
    """

    jobs: Store[BatchJob]
    services: Store[Service]
    pods: Store[Pod]
    config_maps: Store[ConfigMap]
    secrets: ObjectLookup | None = None
    claims: ObjectLookup | None = None
    gangs: Store[Gang] | None = None
    pod_groups: Store[PodGroup] | None = None
    pod_group_kind: Resource[Object] | None = None
    autoscalers: Store[HorizontalPodAutoscaler] | None = None
    readings: ReadingsOf | None = None

    def take(self, owner: Object, plan: Plan) -> ObservedState:
        """The current children of `owner`."""
        uid, namespace = owner.metadata.uid, owner.metadata.namespace
        jobs = {job.metadata.name: job for job in self.jobs.by_index(BY_OWNER, uid)}
        pods, orphans = self._pods_of(owner, jobs, plan)
        return ObservedState(
            jobs=jobs,
            services={service.metadata.name: service for service in self.services.by_index(BY_OWNER, uid)},
            pods=pods,
            orphans=orphans,
            has_config_map=bool(plan.mounts.config_map)
            and _holds(self.config_maps, f"{namespace}/{plan.mounts.config_map}", uid),
            has_secret=self._has_secret(namespace, plan, uid),
            claims=self._claims_of(namespace, plan, uid),
            gang=self._gang_of(owner, plan.scheduling.gang.name) if plan.scheduling.gang is not None else None,
            pod_group=self._pod_group_of(owner, plan),
            autoscaler=self._autoscaler_of(owner),
            readings=self.readings(uid) if self.readings is not None and plan.progress.pattern is not None else None,
        )

    def _has_secret(self, namespace: str, plan: Plan, uid: str) -> bool:
        if plan.mounts.secret is None or self.secrets is None:
            return False
        return _holds(self.secrets, f"{namespace}/{plan.mounts.secret.name}", uid)

    def _claims_of(self, namespace: str, plan: Plan, uid: str) -> frozenset[str]:
        names = (claim.name for claim in plan.mounts.claims)
        known = self.claims
        return frozenset(name for name in names if known is not None and _holds(known, f"{namespace}/{name}", uid))

    def children_to_stop(
        self, owner: Object
    ) -> tuple[Sequence[BatchJob], Sequence[Gang], Sequence[tuple[Resource[Object], PodGroup]]]:
        """What must be stopped if there is no plan: the child Jobs, and the objects that represent the gang."""
        jobs = self.jobs.by_index(BY_OWNER, owner.metadata.uid)
        return jobs, self._gangs_of(owner), self._pod_groups_of(owner)

    def _gangs_of(self, owner: Object) -> Sequence[Gang]:
        return self.gangs.by_index(BY_OWNER, owner.metadata.uid) if self.gangs is not None else ()

    def _gang_of(self, owner: Object, name: str) -> Gang | None:
        return next((gang for gang in self._gangs_of(owner) if gang.metadata.name == name), None)

    def _pod_group_of(self, owner: Object, plan: Plan) -> PodGroup | None:
        if plan.scheduling.pod_group is None:
            return None
        name = plan.scheduling.pod_group.terms.name
        return next((group for _, group in self._pod_groups_of(owner) if group.metadata.name == name), None)

    def _pod_groups_of(self, owner: Object) -> Sequence[tuple[Resource[Object], PodGroup]]:
        if self.pod_groups is None or self.pod_group_kind is None:
            return ()
        return [(self.pod_group_kind, group) for group in self.pod_groups.by_index(BY_OWNER, owner.metadata.uid)]

    def _autoscaler_of(self, owner: Object) -> HorizontalPodAutoscaler | None:
        found = self.autoscalers.by_index(BY_OWNER, owner.metadata.uid) if self.autoscalers is not None else ()
        return found[0] if found else None

    def _pods_of(self, owner: Object, jobs: Mapping[str, BatchJob], plan: Plan) -> tuple[_ByJob, _ByJob]:
        """The job's pods by child Job, and its orphans. Pods older than the job belonged to a deleted one with the same
        RuntimeId.

        A pod counts only if a Job controls it, so a foreign pod with our labels is neither counted nor deleted.
        """
        born = owner.metadata.creation_timestamp or ""
        by_job: _ByJob = {}
        orphans: _ByJob = {}
        for pod in self.pods.by_index(BY_RUNTIME, runtime_key(owner.metadata.namespace, plan.identity.runtime_id)):
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
        if not name or self.jobs.get(f"{owner.metadata.namespace}/{name}") is not None:
            return False
        return plan.identity.labels.items() <= pod.metadata.labels.items()


def _is_orphan(plan: Plan, pod: Pod) -> bool:
    """Reports whether the pod has no controller and carries the labels of the job's pods."""
    return controller_of(pod) is None and plan.identity.labels.items() <= pod.metadata.labels.items()


def _holds(known: ObjectLookup, key: str, uid: str) -> bool:
    """Reports whether the object exists and is controlled by the job."""
    found = known.get(key)
    owner = controller_of(found) if found is not None else None
    return owner is not None and owner.uid == uid
