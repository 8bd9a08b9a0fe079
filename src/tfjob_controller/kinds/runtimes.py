"""Jobs that refer to a runtime: the informers of both, which jobs a new runtime queues, how long a job waits for one.

A runtime may be created a moment after its job, as when a folder of manifests is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from tfjob_controller.controller.handlers import NO_TRIGGER_LOG, JobHandler, RuntimeHandler, TriggerLog
from tfjob_controller.controller.kind import RUNTIME_TIMEOUT_SECONDS
from tfjob_controller.controller.snapshot import BY_RUNTIME, runtime_key
from tfjob_controller.jobs.naming import KUBEFLOW, runtime_id_of
from tfjob_controller.kube.cache.informer import Informer
from tfjob_controller.kube.meta import Object, ObjectT, Resource, key_of
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kube.workqueue.queue import RateLimitingQueue
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.timestamps import seconds_until

JobT = TypeVar("JobT", bound=Object)
RuntimeT = TypeVar("RuntimeT", bound=Object)
FoundT = TypeVar("FoundT", covariant=True)


class Lookup(Protocol[FoundT]):
    """A cache, or a dict."""

    def get(self, key: str, /) -> FoundT | None: ...


class _Started(Protocol):
    """What is asked of the status of a job."""

    @property
    def phase(self) -> str: ...
    @property
    def start_time(self) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeKinds(Generic[JobT, RuntimeT]):
    """A kind of jobs and its two kinds of runtimes."""

    jobs: Resource[JobT]
    namespaced: Resource[RuntimeT]
    cluster: Resource[RuntimeT]
    runtime_of: Callable[[JobT], str]
    """The key of the runtime to which the job refers (`kube.meta.key_of`); empty if to none."""
    status_of: Callable[[JobT], _Started]


def by_runtime_id(job: Object) -> Iterable[str]:
    """Index function of jobs whose RuntimeId follows from their UID."""
    return (runtime_key(job.metadata.namespace, runtime_id_of(job.metadata.uid)),)


class RuntimeCaches(Generic[JobT, RuntimeT]):
    """Informers of jobs and their runtimes. `namespace` "" means all namespaces."""

    def __init__(self, kinds: RuntimeKinds[JobT, RuntimeT], requester: Requester, namespace: str, clock: Clock) -> None:
        self._kinds = kinds

        def watch(resource: Resource[ObjectT], scope: str, **more: Any) -> Informer[ObjectT]:
            # Kubeflow's kinds have the plurals of this project's.
            name = resource.plural if resource.group == KUBEFLOW else f"{resource.plural}.{resource.group}"
            return Informer(requester, resource, namespace=scope, clock=clock, name=name, **more)

        self.jobs = watch(kinds.jobs, namespace, indexers={BY_RUNTIME: by_runtime_id})
        self.namespaced = watch(kinds.namespaced, namespace)
        self.cluster = watch(kinds.cluster, "")

    @property
    def all(self) -> Sequence[Informer[Any]]:
        return (self.jobs, self.namespaced, self.cluster)

    def feed(self, queue: RateLimitingQueue[str], triggers: TriggerLog = NO_TRIGGER_LOG) -> None:
        """Queues jobs, also when a runtime that they wait for appears."""
        status_of = self._kinds.status_of
        self.jobs.add_handler(JobHandler(queue, is_new=lambda job: not status_of(job).phase, triggers=triggers))
        for informer in (self.namespaced, self.cluster):
            informer.add_handler(RuntimeHandler(queue, self.jobs.store, self.waits_for, triggers))

    def waits_for(self, job: JobT, runtime: RuntimeT) -> bool:
        """Reports whether the job refers to this runtime and has not started."""
        return self._kinds.runtime_of(job) == key_of(runtime) and self._kinds.status_of(job).start_time is None


def reference_key(job: Object, name: str, *, is_namespaced: bool) -> str:
    """Returns the key of the runtime of that name, in the job's namespace or of the whole cluster."""
    return f"{job.metadata.namespace}/{name}" if is_namespaced else name


def find_runtime(namespaced: Lookup[RuntimeT], cluster: Lookup[RuntimeT], key: str) -> RuntimeT | None:
    """Returns the runtime of a `reference_key`; None if there is none (yet)."""
    return (namespaced if "/" in key else cluster).get(key)


def seconds_to_wait(job: Object, *, has_run: bool, now: datetime) -> float:
    """Returns how much longer a job waits for its runtime. One that runs does not fail because that was deleted."""
    if has_run:
        return RUNTIME_TIMEOUT_SECONDS
    since = job.metadata.creation_timestamp
    return max(0.0, seconds_until(since, RUNTIME_TIMEOUT_SECONDS, now)) if since else 0.0
