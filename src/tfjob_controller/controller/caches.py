"""The controller's caches: one informer for each kind of child of jobs.

Children are watched by the label `kubeflow.org`, so the other pods of a cluster cost nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from tfjob_controller.controller.snapshot import BY_OWNER, ReadingsOf, Snapshots
from tfjob_controller.controller.writer import ChildClient, Fanout, ResponseCache, Writer
from tfjob_controller.jobs.naming import CHILD_SELECTOR
from tfjob_controller.kube.cache.informer import Informer, InformerGroup
from tfjob_controller.kube.cache.store import IndexFunction, Store, by_controller_uid
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.meta import Decode, ObjectT, Resource
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kube.workqueue.queue import RateLimitingQueue
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
        pod_groups: Resource[Any] | None = None,
    ) -> None:
        self._requester, self._namespace, self._clock = requester, namespace, clock
        self._informers = [informer for caches in kinds for informer in caches.all]
        # The only list of the kinds of children; each kind adds itself.
        self._clients: dict[Resource[Any], ChildClient[Any]] = {}
        owner = {BY_OWNER: by_controller_uid}
        self.jobs: Informer[BatchJob] = self._watch(JOBS, decode_job, owner, is_strict=True)
        self.services: Informer[Service] = self._watch(SERVICES, decode_service, owner)
        self.pods: Informer[Pod] = self._watch(PODS, decode_pod, {BY_RUNTIME: by_runtime_label})
        self.config_maps: Informer[ConfigMap] = self._watch(CONFIG_MAPS, decode_config_map)
        self.secrets: ResponseCache[Secret] = self._remember(SECRETS, decode_secret)
        self.claims: ResponseCache[PersistentVolumeClaim] = self._remember(
            PERSISTENT_VOLUME_CLAIMS, decode_claim, is_strict=True
        )
        self.gangs: Informer[Gang] | None = self._watch(GANGS, decode_job_gang, owner) if gangs else None
        self.pod_groups: Informer[PodGroup] | None = (
            self._watch(pod_groups, decode_pod_group, owner) if pod_groups is not None else None
        )
        self._pod_group_kind = pod_groups
        self.autoscalers: Informer[HorizontalPodAutoscaler] | None = (
            self._watch(HORIZONTAL_POD_AUTOSCALERS, decode_autoscaler, owner) if autoscalers else None
        )
        self.informers = InformerGroup(self._informers, clock)

    def _watch(
        self,
        resource: Resource[Any],
        decode: Decode[ObjectT],
        indexers: Mapping[str, IndexFunction[ObjectT]] | None = None,
        *,
        is_strict: bool = False,
    ) -> Informer[ObjectT]:
        kind = resource.with_decoder(decode)
        informer: Informer[ObjectT] = Informer(
            self._requester,
            kind,
            namespace=self._namespace,
            label_selector=CHILD_SELECTOR,
            indexers=indexers,
            clock=self._clock,
        )
        self._informers.append(informer)
        client = ResourceClient(self._requester, kind)
        self._clients[resource] = ChildClient(client, informer.store, is_strict=is_strict)
        return informer

    def _remember(
        self, resource: Resource[Any], decode: Decode[ObjectT], *, is_strict: bool = False
    ) -> ResponseCache[ObjectT]:
        responses: ResponseCache[ObjectT] = ResponseCache()
        client = ResourceClient(self._requester, resource.with_decoder(decode))
        self._clients[resource] = ChildClient(client, responses, is_watched=False, is_strict=is_strict)
        return responses

    def feed(
        self,
        kind: Resource[Any],
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
        return Snapshots(
            jobs=self.jobs.store,
            services=self.services.store,
            pods=self.pods.store,
            config_maps=self.config_maps.store,
            secrets=self.secrets,
            claims=self.claims,
            gangs=self.gangs.store if self.gangs is not None else None,
            pod_groups=self.pod_groups.store if self.pod_groups is not None else None,
            pod_group_kind=self._pod_group_kind,
            autoscalers=self.autoscalers.store if self.autoscalers is not None else None,
            readings=readings,
        )

    def writer(self, fanout: Fanout) -> Writer:
        """Returns a writer that puts the responses into these caches."""
        return Writer(self._clients, fanout)
