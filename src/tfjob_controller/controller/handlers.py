"""Event handlers: they turn watch events into keys of jobs on the queue.

A change of a job is queued at once. Changes of children come in bursts (the pods of a job start within milliseconds of
each other), so the first one waits for `BATCH_SECONDS` and the others join it: one sync, one status write. Priorities
are in triggers.py; a job of the initial list that was never synced counts as new.

Only changes that a sync could act on are queued. A heartbeat in a child's metadata is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic

from tfjob_controller.api.common.core import BatchJob, Pod, PodGroup
from tfjob_controller.api.gang import Gang
from tfjob_controller.api.trainjob.runtime import TrainingRuntime
from tfjob_controller.api.trainjob.types import TrainJob
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
from tfjob_controller.kube.workqueue.queue import RateLimitingQueue
from tfjob_controller.trainer.naming import RUNTIME_ID

# Longer than the time between the pods of a burst, too short for a person to notice.
BATCH_SECONDS = 0.1

# The index over jobs and pods by `runtime_key`.
BY_RUNTIME = "runtime"


def runtime_key(namespace: str, runtime_id: str) -> str:
    return f"{namespace}/{runtime_id}"


def by_runtime_label(obj: Object) -> tuple[str, ...]:
    """Index function of children, by the label that names their job."""
    runtime_id = obj.metadata.labels.get(RUNTIME_ID, "")
    return (runtime_key(obj.metadata.namespace, runtime_id),) if runtime_id else ()


class JobHandler(Generic[ObjectT]):
    """Queues jobs on any change, also on the controller's own writes, after which there may be more to do.

    `is_new` reports whether a job was never synced; such a job has the priority of one that is created now. A change of
    the spec of any other job has high priority.
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
    """Queues the job of a child, in batches.

    `owner_keys` finds the job, `matters` reports whether a change is relevant, and `priority` returns its priority. A
    deletion has high priority, since the child may have to be recreated. A child whose owner changes queues both jobs.
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
    """Returns a function that finds the job which controls a child Job, Service or ConfigMap."""
    group = kind.group + "/"

    def owner_keys(obj: Object) -> Iterable[str]:
        owner = controller_of(obj)
        if owner is None or owner.kind != kind.kind or not owner.api_version.startswith(group):
            return ()
        return (f"{obj.metadata.namespace}/{owner.name}",)

    return owner_keys


def keys_by_runtime(jobs: Store[ObjectT]) -> Callable[[Object], Iterable[str]]:
    """Returns a function that finds the job of a pod, whose controller is a child Job and not the job itself.

    There are several if a manifest was copied with its RuntimeId.
    """

    def owner_keys(obj: Object) -> Iterable[str]:
        return [key_of(job) for value in by_runtime_label(obj) for job in jobs.by_index(BY_RUNTIME, value)]

    return owner_keys


def identity_matters(old: Object, new: Object) -> bool:
    """For Services and ConfigMaps: a change of the owner, or the deletion."""
    before, after = old.metadata, new.metadata
    return (before.deletion_timestamp, before.owner_references) != (after.deletion_timestamp, after.owner_references)


def pod_matters(old: Pod, new: Pod) -> bool:
    """For pods: also a change of the reported steps."""
    return state_matters(old, new) or old.metadata.annotations != new.metadata.annotations


def state_matters(old: BatchJob | Pod | Gang | PodGroup, new: BatchJob | Pod | Gang | PodGroup) -> bool:
    """For Jobs, pods, Gangs and PodGroups: also a change of the fields of spec and status that are decoded."""
    return (old.status, old.spec) != (new.status, new.spec) or identity_matters(old, new)


class RuntimeHandler:
    """Queues the jobs that reference a new or changed runtime and have not started. Others keep their runtime."""

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
        """Does nothing: a job that has started keeps its runtime."""
