"""The controller's caches: one informer for each kind of job, and for each kind of their children.

Children are watched by the label `kubeflow.org`, so the other pods of a cluster cost nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tfjob_controller.api.common.core import (
    CONFIG_MAPS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SECRETS,
    SERVICES,
    BatchJob,
    ConfigMap,
    HorizontalPodAutoscaler,
    PersistentVolumeClaim,
    Pod,
    PodGroup,
    Secret,
    Service,
)
from tfjob_controller.api.decode import decode_tfjob, decode_training_runtime, decode_trainjob
from tfjob_controller.api.gang import GANGS, Gang
from tfjob_controller.api.kubeflowtrainer.types import KUBEFLOW_TRAINJOBS
from tfjob_controller.api.tfjob.types import TFJOBS, TFJob
from tfjob_controller.api.trainjob.runtime import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES, TrainingRuntime
from tfjob_controller.api.trainjob.types import CLUSTER_RUNTIME, NAMESPACED_RUNTIME, TRAINJOBS, TrainJob
from tfjob_controller.controller.adapters import tfjob_by_runtime_id, trainjob_by_runtime_id
from tfjob_controller.controller.decoders import (
    decode_autoscaler,
    decode_claim,
    decode_config_map,
    decode_job,
    decode_job_gang,
    decode_pod,
    decode_pod_group,
    decode_secret,
    decode_service,
)
from tfjob_controller.controller.handlers import (
    BY_RUNTIME,
    NO_TRIGGER_LOG,
    ChildHandler,
    JobHandler,
    RuntimeHandler,
    TriggerLog,
    autoscaler_matters,
    by_runtime_label,
    gang_priority,
    identity_matters,
    job_priority,
    keys_by_owner,
    keys_by_runtime,
    pod_matters,
    pod_priority,
    state_matters,
)
from tfjob_controller.controller.kubeflowtrainer import KubeflowTrainerCaches
from tfjob_controller.controller.runtimes import RuntimeResolver
from tfjob_controller.controller.snapshot import BY_OWNER, PodGroupCache, ReadingsOf, Snapshots
from tfjob_controller.controller.writer import ChildClient, Fanout, ResponseCache, Writer
from tfjob_controller.kube.cache.informer import Informer, InformerGroup
from tfjob_controller.kube.cache.store import Store, by_controller_uid
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.meta import Resource
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kube.workqueue.queue import RateLimitingQueue
from tfjob_controller.trainer.naming import CHILD_SELECTOR
from tfjob_controller.util.clock import Clock


class ControllerCaches:
    """Informers with their indexes. `namespace` "" means all namespaces.

    Without `gangs` Gangs are neither watched nor written; without `trainjobs` neither TrainJobs nor their runtimes are
    watched, and without `kubeflow_trainer` not those of Kubeflow Trainer. `pod_groups` is the kind that represents a
    gang to another scheduler.
    """

    def __init__(
        self,
        requester: Requester,
        namespace: str,
        clock: Clock,
        *,
        gangs: bool = True,
        trainjobs: bool = True,
        kubeflow_trainer: bool = False,
        pod_groups: Resource | None = None,
    ) -> None:
        self._requester = requester
        common: dict[str, Any] = {"namespace": namespace, "clock": clock}
        of_children = {**common, "label_selector": CHILD_SELECTOR}
        owner, runtime = {BY_OWNER: by_controller_uid}, {BY_RUNTIME: by_runtime_label}
        self.tfjobs: Informer[TFJob] = Informer(
            requester, TFJOBS, decode_tfjob, indexers={BY_RUNTIME: tfjob_by_runtime_id}, **common
        )
        self.jobs: Informer[BatchJob] = Informer(requester, JOBS, decode_job, indexers=owner, **of_children)
        self.services: Informer[Service] = Informer(requester, SERVICES, decode_service, indexers=owner, **of_children)
        self.pods: Informer[Pod] = Informer(requester, PODS, decode_pod, indexers=runtime, **of_children)
        self.config_maps: Informer[ConfigMap] = Informer(requester, CONFIG_MAPS, decode_config_map, **of_children)
        self.secrets: ResponseCache[Secret] = ResponseCache()
        self.claims: ResponseCache[PersistentVolumeClaim] = ResponseCache()
        self.gangs: Informer[Gang] | None = (
            Informer(requester, GANGS, decode_job_gang, indexers=owner, **of_children) if gangs else None
        )
        self.pod_groups: Informer[PodGroup] | None = (
            Informer(requester, pod_groups, decode_pod_group, indexers=owner, **of_children) if pod_groups else None
        )
        self._pod_groups = (
            PodGroupCache(pod_groups, self.pod_groups.store)
            if pod_groups is not None and self.pod_groups is not None
            else None
        )
        self.trainjobs = TrainJobCaches(requester, namespace, clock) if trainjobs else None
        self.autoscalers: Informer[HorizontalPodAutoscaler] | None = (
            Informer(
                requester,
                HORIZONTAL_POD_AUTOSCALERS,
                decode_autoscaler,
                indexers=owner,
                **of_children,
            )
            if trainjobs
            else None
        )
        watched = (self.tfjobs, self.jobs, self.services, self.pods, self.config_maps, self.gangs, self.pod_groups)
        self.kubeflow = KubeflowTrainerCaches(requester, namespace, clock) if kubeflow_trainer else None
        of_trainjobs = [each for caches in (self.trainjobs, self.kubeflow) if caches is not None for each in caches.all]
        self.informers = InformerGroup(
            [*(each for each in (*watched, self.autoscalers) if each is not None), *of_trainjobs], clock
        )

    def feed(self, queue: RateLimitingQueue[str], triggers: TriggerLog = NO_TRIGGER_LOG) -> None:
        """Makes every relevant change queue the key of its TFJob."""
        self.tfjobs.add_handler(JobHandler(queue, is_new=lambda job: not job.status.phase, triggers=triggers))
        self._feed_by_children(queue, TFJOBS, self.tfjobs.store, triggers)

    def feed_trainjobs(self, queue: RateLimitingQueue[str], triggers: TriggerLog = NO_TRIGGER_LOG) -> None:
        """Makes every relevant change queue the key of its TrainJob, if TrainJobs are watched."""
        if self.trainjobs is not None:
            self.trainjobs.feed(queue, triggers)
            self._feed_by_children(queue, TRAINJOBS, self.trainjobs.jobs.store, triggers)
        if self.autoscalers is not None:
            self.autoscalers.add_handler(
                ChildHandler(queue, keys_by_owner(TRAINJOBS), autoscaler_matters, triggers=triggers)
            )

    def feed_kubeflow_trainjobs(self, queue: RateLimitingQueue[str], triggers: TriggerLog = NO_TRIGGER_LOG) -> None:
        """The same for TrainJobs of Kubeflow Trainer."""
        if self.kubeflow is not None:
            self.kubeflow.feed(queue, triggers)
            self._feed_by_children(queue, KUBEFLOW_TRAINJOBS, self.kubeflow.jobs.store, triggers)

    def _feed_by_children(
        self, queue: RateLimitingQueue[str], kind: Resource, store: Store[Any], triggers: TriggerLog
    ) -> None:
        by_owner = keys_by_owner(kind)
        queues = partial(ChildHandler[Any], queue, triggers=triggers)
        self.jobs.add_handler(queues(by_owner, state_matters, priority=job_priority))
        self.services.add_handler(queues(by_owner, identity_matters))
        self.config_maps.add_handler(queues(by_owner, identity_matters))
        if self.gangs is not None:
            # A Gang is one object and comes in no burst, and an admitted job should start at once.
            self.gangs.add_handler(queues(by_owner, state_matters, batch_seconds=0.0, priority=gang_priority))
        if self.pod_groups is not None:
            self.pod_groups.add_handler(queues(by_owner, state_matters))
        self.pods.add_handler(queues(keys_by_runtime(store), pod_matters, priority=pod_priority))

    def snapshots(self, readings: ReadingsOf | None = None) -> Snapshots:
        """`readings` returns what was read from workers' logs."""
        gangs = self.gangs.store if self.gangs is not None else None
        of_children = (self.jobs.store, self.services.store, self.pods.store, self.config_maps.store)
        autoscalers = self.autoscalers.store if self.autoscalers is not None else None
        return Snapshots(*of_children, gangs, readings, self.secrets, self._pod_groups, self.claims, autoscalers)

    def writer(self, fanout: Fanout) -> Writer:
        """Returns a writer that puts the responses into these caches."""
        send = self._requester
        gangs = (
            {GANGS: ChildClient(ResourceClient(send, GANGS, decode_job_gang), self.gangs.store)}
            if self.gangs is not None
            else {}
        )
        return Writer(
            {
                **gangs,
                **self._children_of_pod_groups(),
                **self._children_of_autoscalers(),
                JOBS: ChildClient(ResourceClient(send, JOBS, decode_job), self.jobs.store, is_strict=True),
                SERVICES: ChildClient(ResourceClient(send, SERVICES, decode_service), self.services.store),
                CONFIG_MAPS: ChildClient(ResourceClient(send, CONFIG_MAPS, decode_config_map), self.config_maps.store),
                SECRETS: ChildClient(ResourceClient(send, SECRETS, decode_secret), self.secrets, is_watched=False),
                PERSISTENT_VOLUME_CLAIMS: ChildClient(
                    ResourceClient(send, PERSISTENT_VOLUME_CLAIMS, decode_claim),
                    self.claims,
                    is_watched=False,
                    is_strict=True,
                ),
                PODS: ChildClient(ResourceClient(send, PODS, decode_pod), self.pods.store),
            },
            fanout,
        )

    def _children_of_pod_groups(self) -> dict[Resource, ChildClient[PodGroup]]:
        if self._pod_groups is None:
            return {}
        resource, store = self._pod_groups.resource, self._pod_groups.store
        return {resource: ChildClient(ResourceClient(self._requester, resource, decode_pod_group), store)}

    def _children_of_autoscalers(self) -> dict[Resource, ChildClient[HorizontalPodAutoscaler]]:
        if self.autoscalers is None:
            return {}
        resource = HORIZONTAL_POD_AUTOSCALERS
        client = ResourceClient(self._requester, resource, decode_autoscaler)
        return {resource: ChildClient(client, self.autoscalers.store)}


class TrainJobCaches:
    """Informers of TrainJobs and their runtimes. `namespace` "" means all namespaces."""

    def __init__(self, requester: Requester, namespace: str, clock: Clock) -> None:
        common: dict[str, Any] = {"namespace": namespace, "clock": clock}
        self.jobs: Informer[TrainJob] = Informer(
            requester, TRAINJOBS, decode_trainjob, indexers={BY_RUNTIME: trainjob_by_runtime_id}, **common
        )
        self._namespaced: Informer[TrainingRuntime] = Informer(
            requester, TRAINING_RUNTIMES, decode_training_runtime, **common
        )
        self._cluster: Informer[TrainingRuntime] = Informer(
            requester, CLUSTER_TRAINING_RUNTIMES, decode_training_runtime, clock=clock
        )

    @property
    def all(self) -> Sequence[Informer[Any]]:
        return (self.jobs, self._namespaced, self._cluster)

    @property
    def runtimes(self) -> RuntimeResolver:
        return RuntimeResolver(self._namespaced.store, self._cluster.store)

    def feed(self, queue: RateLimitingQueue[str], triggers: TriggerLog = NO_TRIGGER_LOG) -> None:
        """Queues jobs, also when a runtime that they wait for appears."""
        self.jobs.add_handler(JobHandler(queue, is_new=lambda job: not job.status.phase, triggers=triggers))
        self._namespaced.add_handler(RuntimeHandler(queue, self.jobs.store, NAMESPACED_RUNTIME, triggers))
        self._cluster.add_handler(RuntimeHandler(queue, self.jobs.store, CLUSTER_RUNTIME, triggers))
