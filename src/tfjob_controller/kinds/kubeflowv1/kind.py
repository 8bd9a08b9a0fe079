"""The adapter of the jobs of `kubeflow.org/v1`, and how the program runs them.

Threads: any; workers share one adapter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from cachetools import LRUCache

from tfjob_controller.api.common.core import HORIZONTAL_POD_AUTOSCALERS, Pod
from tfjob_controller.api.common.record import record_patch
from tfjob_controller.api.kubeflowv1.defaults import with_defaults
from tfjob_controller.api.kubeflowv1.types import (
    JAX_JOB,
    MANAGED_HERE,
    MPI_JOB,
    PYTORCH_JOB,
    V1_KINDS,
    V1_RESOURCES,
    V1Job,
)
from tfjob_controller.api.kubeflowv1.validation import problem
from tfjob_controller.controller.caches import ControllerCaches
from tfjob_controller.controller.handlers import NO_TRIGGER_LOG, JobHandler, TriggerLog
from tfjob_controller.jobs.conditions import PodEvent, StatusEvent
from tfjob_controller.jobs.naming import OPERATOR_NAME_LABEL
from tfjob_controller.jobs.plan.gangterms import NO_GANGS, GangPolicy
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.status.summary import as_finished
from tfjob_controller.jobs.trainingjob import PHASE_CLEAN_UP, TrainingJob, TrainingStatus, is_finished
from tfjob_controller.kinds.kindcontroller import Kind, LogReaders, Shared
from tfjob_controller.kinds.kubeflowv1.gang import gang_problem
from tfjob_controller.kinds.kubeflowv1.plan import DEFAULT_CONTAINERS, AddedContainers, build_v1_plan
from tfjob_controller.kinds.kubeflowv1.podevents import deletion_event, pod_events
from tfjob_controller.kinds.kubeflowv1.status import events_of, record_of, recorded_status, wire_status
from tfjob_controller.kube.cache.informer import Informer
from tfjob_controller.kube.codec import status_patch
from tfjob_controller.kube.meta import Object, Resource
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kube.workqueue.queue import RateLimitingQueue
from tfjob_controller.telemetry.jobmetrics import JobSeries
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.timestamps import format_time

# Long enough for a burst of replicas to become ready, short enough for a user who watches the job.
V1_DEBOUNCE_SECONDS = 2.0
# The variable by which training-operator is told how names of hosts end.
_CLUSTER_DOMAIN = "CUSTOM_CLUSTER_DOMAIN"
# All kinds share their series.
_SERIES = JobSeries("kubeflow_v1_job", frameworks=tuple((kind.kind, kind.framework) for kind in V1_KINDS.values()))
# How many finished jobs are remembered as cleaned up. Others are looked at once more when something of them changes.
_REMEMBERED = 50_000


def _optional_children(kind: str) -> Collection[Resource[Object]]:
    """Returns the kinds of children without which a job of this kind runs as well."""
    return (HORIZONTAL_POD_AUTOSCALERS,) if kind == PYTORCH_JOB else ()


class V1Caches:
    """The informers of one kind of jobs and of what such jobs own. `namespace` "" means all namespaces."""

    def __init__(
        self,
        resource: Resource[V1Job],
        requester: Requester,
        namespace: str,
        clock: Clock,
        gangs: GangPolicy = NO_GANGS,
    ) -> None:
        name, operator_name = f"{resource.full_name}-{resource.version}", V1_KINDS[resource.kind].operator_name
        self.jobs = Informer(requester, resource, namespace=namespace, clock=clock, name=name)
        self.children = ControllerCaches(
            requester,
            namespace,
            clock,
            gangs=gangs.has_gangs,
            pod_groups=gangs.pod_groups,
            has_jobs=False,
            has_objects=resource.kind == MPI_JOB,
            optional=_optional_children(resource.kind),
            selector=f"{OPERATOR_NAME_LABEL}={operator_name}",
        )

    @property
    def all(self) -> Sequence[Informer[Any]]:
        return (self.jobs, *self.children.watched.values())

    def feed(self, queue: RateLimitingQueue[str], triggers: TriggerLog = NO_TRIGGER_LOG) -> None:
        self.jobs.add_handler(JobHandler(queue, is_new=lambda job: not job.status.conditions, triggers=triggers))


class V1Adapter:
    """See `KindAdapter`."""

    status_debounce_seconds: ClassVar[float] = V1_DEBOUNCE_SECONDS
    is_deleted_when_expired: ClassVar[bool] = True

    def __init__(
        self,
        resource: Resource[V1Job],
        clock: Clock,
        cluster_domain: str = "",
        gangs: GangPolicy = NO_GANGS,
        added: AddedContainers = DEFAULT_CONTAINERS,
        *,
        strict: bool = False,
    ) -> None:
        """`cluster_domain` ends the names of hosts in TF_CONFIG; empty for those that the cluster completes.

        `added` are the init containers that pods get. `strict`: see `build_v1_plan`.
        """
        self._strict = strict
        self._cluster_domain, self._gangs, self._added = cluster_domain, gangs, added
        self.resource: Resource[Object] = resource
        self._clock = clock
        # The UIDs of finished jobs that are cleaned up: their status has no field for it.
        self._cleaned: LRUCache[str, bool] = LRUCache(_REMEMBERED)

    def is_managed(self, job: V1Job) -> bool:
        ignores_manager = self._strict and job.kind == JAX_JOB
        return ignores_manager or job.spec.run_policy.managed_by in (None, "", MANAGED_HERE)

    def work_of(self, job: V1Job) -> TrainingJob:
        return v1_work(job, self._is_cleaned_up)

    def _is_cleaned_up(self, job: V1Job) -> bool:
        # Nothing is done for a job that has become invalid after its end.
        return job.metadata.uid in self._cleaned or problem(job) is not None

    def problem(self, job: V1Job, before: V1Job | None, *, has_children: bool = False) -> str | None:
        return problem(job) or gang_problem(job, self._gangs)

    def plan(self, job: V1Job) -> Plan:
        return build_v1_plan(with_defaults(job), self._cluster_domain, self._gangs, self._added, strict=self._strict)

    def record_change(self, job: V1Job, status: TrainingStatus) -> Mapping[str, Any] | None:
        record = record_of(job, status)
        return None if record is None else record_patch(job.metadata, record)

    def status_change(self, job: V1Job, status: TrainingStatus) -> Mapping[str, Any] | None:
        if is_finished(status):
            self._cleaned[job.metadata.uid] = True
        wire = wire_status(with_defaults(job), status, format_time(self._clock.now()))
        if wire == job.status:
            return None
        return status_patch(job.status, wire, job.metadata.resource_version)

    def events(self, job: V1Job, status: TrainingStatus, events: Sequence[StatusEvent]) -> Sequence[StatusEvent]:
        wire = wire_status(with_defaults(job), status, format_time(self._clock.now()))
        return tuple(events_of(job, wire, status, events))

    def pod_events(self, job: V1Job, pods: Iterable[Pod]) -> Iterable[PodEvent]:
        return pod_events(V1_KINDS[job.kind], pods)

    def deletion_event(self, job: V1Job) -> StatusEvent:
        return deletion_event(job)


def v1_work(job: V1Job, is_cleaned_up: Callable[[V1Job], bool] = lambda job: True) -> TrainingJob:
    """Returns a job for decisions or metrics. One that has ended is finished once `is_cleaned_up`."""
    status, policy = recorded_status(job), job.spec.run_policy
    if status.phase == PHASE_CLEAN_UP and is_cleaned_up(job):
        status = as_finished(status)
    return TrainingJob(job.metadata, status, None if policy.suspend else policy.ttl_seconds_after_finished)


def _adapter(resource: Resource[V1Job], shared: Shared, caches: V1Caches, readers: LogReaders) -> V1Adapter:
    domain = os.environ.get(_CLUSTER_DOMAIN, "")
    added = AddedContainers(shared.master_wait, shared.kubectl_image)
    return V1Adapter(resource, shared.clock, domain, shared.gangs, added, strict=shared.kubeflow_v1_strict)


def _kind(name: str) -> Kind:
    resource = V1_RESOURCES[name]
    return Kind(
        name=f"{name.lower()}-v1",
        resource=resource,
        label=f"{name}.{resource.version}",
        queue_page=f"{resource.plural}-v1",
        series=_SERIES,
        is_scaled=False,
        optional_children=_optional_children(name),
        is_enabled=lambda options: name in options.kubeflow_v1_api,
        new_caches=partial(V1Caches, resource),
        children_of=lambda caches: caches.children,
        new_adapter=partial(_adapter, resource),
        work_of=v1_work,
    )


V1_JOB_KINDS: Sequence[Kind] = tuple(map(_kind, V1_KINDS))
