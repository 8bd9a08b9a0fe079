"""The controller's caches: the table of child kinds, and an informer for each that is watched.

Children are watched by the label `kubeflow.org`, so the other pods of a cluster cost nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from tfjob_controller.api.common.core import (
    CONFIG_MAPS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from tfjob_controller.api.gang import GANGS
from tfjob_controller.controller.decoders import (
    decode_autoscaler,
    decode_bare_pod,
    decode_claim,
    decode_config_map,
    decode_filled_config_map,
    decode_filled_role,
    decode_job,
    decode_job_gang,
    decode_owned_object,
    decode_pod,
    decode_pod_group,
    decode_secret,
    decode_service,
)
from tfjob_controller.controller.handlers import (
    BATCH_SECONDS,
    NO_TRIGGER_LOG,
    ChildHandler,
    TriggerLog,
    autoscaler_matters,
    child_priority,
    content_matters,
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
from tfjob_controller.controller.snapshot import BY_OWNER, BY_RUNTIME, ReadingsOf, Snapshots, by_runtime_label
from tfjob_controller.controller.writer import ChildClient, Fanout, ResponseCache, Writer
from tfjob_controller.jobs.naming import CHILD_SELECTOR
from tfjob_controller.kube.cache.informer import Informer, InformerGroup
from tfjob_controller.kube.cache.store import IndexFunction, Store, by_controller_uid
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.meta import Object, ObjectT, Resource
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kube.workqueue.queue import RateLimitingQueue
from tfjob_controller.util.clock import Clock

_INDEXES: Mapping[str, IndexFunction[Object]] = {BY_OWNER: by_controller_uid, BY_RUNTIME: by_runtime_label}


@dataclass(frozen=True, slots=True)
class ChildKind(Generic[ObjectT]):
    """A kind of children: how it is read, cached and written, and which of its changes queue a job (`ChildHandler`)."""

    resource: Resource[ObjectT]
    index: str = ""
    """Of the cache: `BY_OWNER`, or `BY_RUNTIME` where the job is not the controller; empty: looked up by name alone."""
    matters: Callable[[ObjectT, ObjectT], bool] = identity_matters
    priority: Callable[[ObjectT, ObjectT], int] = child_priority
    batch_seconds: float = BATCH_SECONDS
    is_watched: bool = True
    """Otherwise only the responses of writes are remembered (`ResponseCache`)."""
    is_strict: bool = False
    """Whether users write fields of it (`ChildClient`)."""
    is_optional: bool = False
    """Whether only jobs of some kinds may have such children, and run without them as well."""


# What a job owns whose launcher starts processes in the pods of workers: see `Plan.objects`.
_OBJECTS: Sequence[ChildKind[Any]] = (
    ChildKind(CONFIG_MAPS.with_decoder(decode_filled_config_map), matters=content_matters),
    ChildKind(SERVICE_ACCOUNTS.with_decoder(decode_owned_object)),
    ChildKind(ROLES.with_decoder(decode_filled_role), matters=content_matters),
    ChildKind(ROLE_BINDINGS.with_decoder(decode_owned_object)),
)


def child_kinds(
    *,
    has_jobs: bool,
    gangs: bool,
    optional: Collection[Resource[Object]],
    pod_groups: Resource[Any] | None,
    has_objects: bool = False,
) -> Sequence[ChildKind[Any]]:
    """Returns the table of the kinds of children. For the parameters see `ControllerCaches`."""
    services = ChildKind(SERVICES.with_decoder(decode_service), BY_OWNER)
    if has_jobs:
        kinds: list[ChildKind[Any]] = [
            ChildKind(JOBS.with_decoder(decode_job), BY_OWNER, state_matters, job_priority, is_strict=True),
            services,
            ChildKind(PODS.with_decoder(decode_pod), BY_RUNTIME, pod_matters, pod_priority),
            ChildKind(CONFIG_MAPS.with_decoder(decode_config_map)),
            ChildKind(SECRETS.with_decoder(decode_secret), is_watched=False),
            ChildKind(PERSISTENT_VOLUME_CLAIMS.with_decoder(decode_claim), is_watched=False, is_strict=True),
        ]
    else:
        pods = ChildKind(PODS.with_decoder(decode_bare_pod), BY_OWNER, pod_matters, pod_priority, is_strict=True)
        kinds = [pods, *_OBJECTS] if has_objects else [pods, services]
    if gangs:
        # A Gang is one object and comes in no burst, and an admitted job should start at once.
        kinds.append(ChildKind(GANGS.with_decoder(decode_job_gang), BY_OWNER, state_matters, gang_priority, 0.0))
    if pod_groups is not None:
        kinds.append(ChildKind(pod_groups.with_decoder(decode_pod_group), BY_OWNER, state_matters))
    if HORIZONTAL_POD_AUTOSCALERS in optional:
        resource = HORIZONTAL_POD_AUTOSCALERS.with_decoder(decode_autoscaler)
        kinds.append(ChildKind(resource, BY_OWNER, autoscaler_matters, is_optional=True))
    return kinds


def _name_of(selector: str) -> str:
    """Returns the end of the names of informers with a selector of their own."""
    return "" if selector == CHILD_SELECTOR else f"-{selector.rpartition('=')[2]}"


class ControllerCaches:
    """Caches of children with their clients. `namespace` "" means all namespaces.

    `kinds` are the caches of the kinds of jobs, which are started and observed with these. Without `gangs` Gangs are
    neither watched nor written. `optional` are the optional kinds of children that jobs of some kind may have;
    `pod_groups` is the kind that represents a gang to another scheduler. Without `has_jobs` they
    are those of a kind of jobs whose replicas are pods without Jobs, with Services or, if it `has_objects`, with what
    lets a launcher reach the pods of workers. Children are watched by the `selector`.
    """

    def __init__(
        self,
        requester: Requester,
        namespace: str,
        clock: Clock,
        kinds: Sequence[KindCaches] = (),
        *,
        gangs: bool = True,
        optional: Collection[Resource[Object]] = (HORIZONTAL_POD_AUTOSCALERS,),
        pod_groups: Resource[Any] | None = None,
        has_jobs: bool = True,
        has_objects: bool = False,
        selector: str = CHILD_SELECTOR,
    ) -> None:
        self._pod_groups = pod_groups
        self._kinds = child_kinds(
            has_jobs=has_jobs, gangs=gangs, optional=optional, pod_groups=pod_groups, has_objects=has_objects
        )
        self.watched: Mapping[Resource[Object], Informer[Any]] = {
            child.resource: Informer(
                requester,
                child.resource,
                namespace=namespace,
                label_selector=selector,
                indexers={child.index: _INDEXES[child.index]} if child.index else None,
                clock=clock,
                name=f"{child.resource.plural}{_name_of(selector)}",
            )
            for child in self._kinds
            if child.is_watched
        }
        self.clients: Mapping[Resource[Object], ChildClient[Any]] = {
            child.resource: ChildClient(
                ResourceClient(requester, child.resource),
                self.store(child.resource) if child.is_watched else ResponseCache(),
                is_watched=child.is_watched,
                is_strict=child.is_strict,
                is_optional=child.is_optional,
                selector=selector,
            )
            for child in self._kinds
        }
        of_jobs = [informer for caches in kinds for informer in caches.all]
        self.informers = InformerGroup([*of_jobs, *self.watched.values()], clock)

    def store(self, resource: Resource[ObjectT]) -> Store[ObjectT]:
        """Returns the cache of a kind that is watched."""
        return self.watched[resource].store

    def feed(
        self,
        kind: Resource[Object],
        jobs: Store[Any],
        queue: RateLimitingQueue[str],
        triggers: TriggerLog = NO_TRIGGER_LOG,
        *,
        optional: Collection[Resource[Object]] = (),
    ) -> None:
        """Makes every relevant change of a child queue the key of its job, for jobs of this kind.

        `optional` are the optional kinds of children that such jobs may have.
        """
        by_owner, by_runtime = keys_by_owner(kind), keys_by_runtime(jobs)
        for child in self._kinds:
            if child.is_watched and (not child.is_optional or child.resource in optional):
                keys = by_runtime if child.index == BY_RUNTIME else by_owner
                handler = ChildHandler(queue, keys, child.matters, child.batch_seconds, child.priority, triggers)
                self.watched[child.resource].add_handler(handler)

    def snapshots(self, readings: ReadingsOf | None = None) -> Snapshots:
        """`readings` returns what was read from workers' logs."""
        caches = {resource: client.store for resource, client in self.clients.items()}
        return Snapshots(caches, self._pod_groups, readings)

    def writer(self, fanout: Fanout) -> Writer:
        """Returns a writer that puts the responses into these caches."""
        return Writer(self.clients, fanout)
