"""From what happens in the cluster to keys on the queue.

A change of a job itself is queued at once. Changes of its children come in swarms (the pods of one job start within
milliseconds of each other), so the first one of a swarm waits `BATCH_SECONDS` and all others join it: one sync, one
status write. What the initial list brings goes behind everything that is live, but for jobs that nobody has seen yet;
what asks for something to be done goes before all else (triggers.py).

Only changes that a sync could act on are queued: a heartbeat in a child's metadata is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic

from tfjob_controller.api.core import Job, Pod
from tfjob_controller.api.gang import Gang
from tfjob_controller.api.podgroup import PodGroup
from tfjob_controller.api.trainingruntime import TrainingRuntime
from tfjob_controller.api.trainjob import TrainJob
from tfjob_controller.controller.triggers import (
    ADDED,
    DELETED,
    HIGH,
    LOW,
    MODIFIED,
    NO_TRIGGER_LOG,
    NORMAL,
    TriggerLog,
    child_priority,
)
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.meta import Object, ObjectT, Resource, controller_of, key_of
from tfjob_controller.kube.workqueue.ratelimiting import RateLimitingQueue
from tfjob_controller.trainer.labels import RUNTIME_ID

# Longer than it takes the pods of a swarm to follow one another, shorter than a person's "at once".
BATCH_SECONDS = 0.1

# The index over jobs and pods by `runtime_key`.
BY_RUNTIME = "runtime"


def runtime_key(namespace: str, runtime_id: str) -> str:
    return f"{namespace}/{runtime_id}"


def by_runtime_label(obj: Object) -> tuple[str, ...]:
    """Index function for children: whose they are by their label."""
    runtime_id = obj.metadata.labels.get(RUNTIME_ID, "")
    return (runtime_key(obj.metadata.namespace, runtime_id),) if runtime_id else ()


class JobHandler(Generic[ObjectT]):
    """Queues jobs, whatever changed in them: also our own writes, after which there may be more to do.

    `is_new` says whether a job has never been synced: then it is as urgent as one that is created now. A change of the
    spec of any other is urgent.
    """

    def __init__(
        self, queue: RateLimitingQueue[str], is_new: Callable[[ObjectT], bool], triggers: TriggerLog = NO_TRIGGER_LOG
    ) -> None:
        self._queue = queue
        self._is_new = is_new
        self._triggers = triggers

    def on_add(self, obj: ObjectT, is_initial: bool) -> None:
        self._add(ADDED, obj, LOW if is_initial and not self._is_new(obj) else NORMAL)

    def on_update(self, old: ObjectT, new: ObjectT) -> None:
        if old is not new:
            is_changed = old.metadata.generation != new.metadata.generation
            self._add(MODIFIED, new, HIGH if is_changed and not self._is_new(new) else NORMAL)

    def on_delete(self, obj: ObjectT, final: bool) -> None:
        self._add(DELETED, obj, NORMAL)

    def _add(self, type_: str, obj: ObjectT, priority: int) -> None:
        key = key_of(obj)
        self._triggers.record(key, type_, obj)
        self._queue.add(key, priority)


class ChildHandler(Generic[ObjectT]):
    """Queues the job of a child, in batches. `owner_keys` finds it; `matters` says whether a change is one, and
    `priority` how urgent. One that has gone is urgent: it may have to be made again.

    A child that changes hands is news for both, the former owner and the new one.
    """

    def __init__(
        self,
        queue: RateLimitingQueue[str],
        owner_keys: Callable[[ObjectT], Iterable[str]],
        matters: Callable[[ObjectT, ObjectT], bool],
        batch_seconds: float = BATCH_SECONDS,
        priority: Callable[[ObjectT, ObjectT], int] = child_priority,
        triggers: TriggerLog = NO_TRIGGER_LOG,
    ) -> None:
        self._batch_seconds = batch_seconds
        self._queue = queue
        self._owner_keys = owner_keys
        self._matters = matters
        self._priority = priority
        self._triggers = triggers

    def on_add(self, obj: ObjectT, is_initial: bool) -> None:
        self._queue_owner(ADDED, obj, LOW if is_initial else NORMAL)

    def on_update(self, old: ObjectT, new: ObjectT) -> None:
        if old is not new and self._matters(old, new):
            priority = self._priority(old, new)
            self._queue_owner(MODIFIED, new, priority)
            if old.metadata.owner_references != new.metadata.owner_references:
                self._queue_owner(MODIFIED, old, priority)

    def on_delete(self, obj: ObjectT, final: bool) -> None:
        self._queue_owner(DELETED, obj, HIGH)

    def _queue_owner(self, type_: str, obj: ObjectT, priority: int) -> None:
        for key in self._owner_keys(obj):
            self._triggers.record(key, type_, obj)
            self._queue.add_after(key, self._batch_seconds, priority)


def keys_by_owner(kind: Resource) -> Callable[[Object], Iterable[str]]:
    """Finds the job that controls a child Job, Service or ConfigMap."""
    group = kind.group + "/"

    def owner_keys(obj: Object) -> Iterable[str]:
        owner = controller_of(obj)
        if owner is None or owner.kind != kind.kind or not owner.api_version.startswith(group):
            return ()
        return (f"{obj.metadata.namespace}/{owner.name}",)

    return owner_keys


def keys_by_runtime(jobs: Store[ObjectT]) -> Callable[[Object], Iterable[str]]:
    """Finds the job of a pod, which is controlled by a child Job and not by the job itself.

    There may be several: somebody has copied a manifest with its RuntimeId.
    """

    def owner_keys(obj: Object) -> Iterable[str]:
        return [key_of(job) for value in by_runtime_label(obj) for job in jobs.by_index(BY_RUNTIME, value)]

    return owner_keys


def identity_matters(old: Object, new: Object) -> bool:
    """Of a Service or ConfigMap: only whose it is, and whether it goes."""
    before, after = old.metadata, new.metadata
    return (before.deletion_timestamp, before.owner_references) != (after.deletion_timestamp, after.owner_references)


def pod_matters(old: Pod, new: Pod) -> bool:
    """Of a pod: its state, and the steps that it says it has done."""
    return state_matters(old, new) or old.metadata.annotations != new.metadata.annotations


def state_matters(old: Job | Pod | Gang | PodGroup, new: Job | Pod | Gang | PodGroup) -> bool:
    """Of a Job, pod, Gang or PodGroup: also what it says of itself, as far as it is read."""
    return (old.status, old.spec) != (new.status, new.spec) or identity_matters(old, new)


class RuntimeHandler:
    """Queues the jobs that name a new runtime and have not started. What started keeps what it started with."""

    def __init__(
        self, queue: RateLimitingQueue[str], jobs: Store[TrainJob], kind: str, triggers: TriggerLog = NO_TRIGGER_LOG
    ) -> None:
        self._queue = queue
        self._triggers = triggers
        self._jobs = jobs
        self._kind = kind

    def on_add(self, obj: TrainingRuntime, is_initial: bool) -> None:
        if is_initial:
            return
        for job in self._jobs.list():
            if job.status.start_time is None and self._is_named(job, obj):
                self._triggers.record(key_of(job), ADDED, obj)
                self._queue.add(key_of(job))

    def _is_named(self, job: TrainJob, runtime: TrainingRuntime) -> bool:
        ref = job.spec.runtime_ref
        if ref is None or ref.kind != self._kind or ref.name != runtime.metadata.name:
            return False
        return runtime.metadata.namespace in ("", job.metadata.namespace)

    def on_update(self, old: TrainingRuntime, new: TrainingRuntime) -> None:
        if old is not new:
            self.on_add(new, is_initial=False)

    def on_delete(self, obj: TrainingRuntime, final: bool) -> None:
        """Nobody loses what has started."""
