"""The controller's caches: one informer for each kind of child of jobs.

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
from tfjob_controller.api.gang import GANGS, Gang
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
from tfjob_controller.controller.kind import KindCaches
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

    `kinds` are the caches of the kinds of jobs, which are started and observed with these. Without `gangs` Gangs are
    neither watched nor written, without `autoscalers` not HorizontalPodAutoscalers. `pod_groups` is the kind that
    represents a gang to another scheduler.
    """

    def __init__(
        self,
        requester: Requester,
        namespace: str,
        clock: Clock,
        kinds: Sequence[KindCaches] = (),
        *,
        gangs: bool = True,
        autoscalers: bool = True,
        pod_groups: Resource | None = None,
    ) -> None:
        self._requester = requester
        common: dict[str, Any] = {"namespace": namespace, "clock": clock}
        selected = {**common, "label_selector": CHILD_SELECTOR}
        owner, runtime = {BY_OWNER: by_controller_uid}, {BY_RUNTIME: by_runtime_label}
        self.jobs: Informer[BatchJob] = Informer(requester, JOBS, decode_job, indexers=owner, **selected)
        self.services: Informer[Service] = Informer(requester, SERVICES, decode_service, indexers=owner, **selected)
        self.pods: Informer[Pod] = Informer(requester, PODS, decode_pod, indexers=runtime, **selected)
        self.config_maps: Informer[ConfigMap] = Informer(requester, CONFIG_MAPS, decode_config_map, **selected)
        self.secrets: ResponseCache[Secret] = ResponseCache()
        self.claims: ResponseCache[PersistentVolumeClaim] = ResponseCache()
        self.gangs: Informer[Gang] | None = (
            Informer(requester, GANGS, decode_job_gang, indexers=owner, **selected) if gangs else None
        )
        self.pod_groups: Informer[PodGroup] | None = (
            Informer(requester, pod_groups, decode_pod_group, indexers=owner, **selected) if pod_groups else None
        )
        self._pod_groups = (
            PodGroupCache(pod_groups, self.pod_groups.store)
            if pod_groups is not None and self.pod_groups is not None
            else None
        )
        self.autoscalers: Informer[HorizontalPodAutoscaler] | None = (
            Informer(
                requester,
                HORIZONTAL_POD_AUTOSCALERS,
                decode_autoscaler,
                indexers=owner,
                **selected,
            )
            if autoscalers
            else None
        )
        of_kinds = [informer for caches in kinds for informer in caches.all]
        of_children = (self.jobs, self.services, self.pods, self.config_maps)
        optional = (self.gangs, self.pod_groups, self.autoscalers)
        watched = [informer for informer in optional if informer is not None]
        self.informers = InformerGroup([*of_kinds, *of_children, *watched], clock)

    def feed(
        self,
        kind: Resource,
        jobs: Store[Any],
        queue: RateLimitingQueue[str],
        triggers: TriggerLog = NO_TRIGGER_LOG,
        *,
        autoscalers: bool = False,
    ) -> None:
        """Makes every relevant change of a child queue the key of its job, for jobs of this kind.

        `autoscalers`: such jobs may have HorizontalPodAutoscalers.
        """
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
        if autoscalers and self.autoscalers is not None:
            self.autoscalers.add_handler(queues(by_owner, autoscaler_matters))
        self.pods.add_handler(queues(keys_by_runtime(jobs), pod_matters, priority=pod_priority))

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
