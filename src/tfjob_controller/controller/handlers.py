"""Event handlers: they turn watch events into keys of jobs on the queue, each with a priority.

A change of a job is queued at once. Changes of children come in bursts (the pods of a job start within milliseconds of
each other), so the first one waits for `BATCH_SECONDS` and the others join it: one sync, one status write. Only changes
that a sync could act on are queued. A heartbeat in a child's metadata is none.

Priorities. When 1,000 jobs are created at once, their first syncs fill the queue for minutes. Events that require an
action in a running job get a higher priority: a replica ends, fails or is deleted, a gang is admitted or loses its
nodes, a spec changes. Such events are few for each job. All other events keep the priority of first syncs: children
that the controller created appear in the watch, pods are scheduled and become ready. These change only the status, and
creating children matters more: with pod starts at high priority, the children of a burst were created up to 13 % later
(docs/benchmarks.md). Objects of the initial list come last, but a job that was never synced counts as new. No key
starves: see `kube.workqueue`.

A `TriggerLog` records the events behind a sync for debug logs. One sync may answer several events, so they are
collected until a sync takes the key. Recording is off unless enabled and then costs one comparison, since informers
deliver thousands of events per second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic

import structlog

from tfjob_controller.api.common.core import BatchJob, HorizontalPodAutoscaler, OwnedObject, Pod, PodGroup
from tfjob_controller.api.gang import Gang
from tfjob_controller.controller.jobhistory import JobHistory
from tfjob_controller.controller.snapshot import BY_RUNTIME, by_runtime_label
from tfjob_controller.jobs.state.pods import is_finished
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.meta import Object, ObjectT, Resource, controller_of, key_of
from tfjob_controller.kube.workqueue.queue import RateLimitingQueue

log = structlog.get_logger(__name__)

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
# A thousand pods may start together; the first events suffice to explain a sync.
MAX_LOGGED = 20


class TriggerLog:
    """Events behind the keys of one queue. Thread-safe."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._lock = threading.Lock()
        self._events: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}

    def record(self, key: str, type_: str, obj: Object) -> None:
        """Records an event of `obj` that concerns `key`. Call it before the key is queued."""
        if self._enabled:
            meta = obj.metadata
            self._add(key, f"{type_} {type(obj).__name__} {meta.name} resourceVersion={meta.resource_version}")

    def record_timer(self, key: str, seconds: float) -> None:
        """Records that the sync of `key` requested another one after `seconds`."""
        if self._enabled:
            self._add(key, f"requested {seconds:.3g} s ago, or earlier")

    def log_triggers(self, key: str) -> None:
        """Logs and clears the events behind `key`. Call it when a sync begins."""
        if not self._enabled:
            return
        with self._lock:
            events, count = self._events.pop(key, []), self._counts.pop(key, 0)
        log.debug("sync started", triggers=events, triggers_omitted=count - len(events))

    def _add(self, key: str, event: str) -> None:
        with self._lock:
            events = self._events.setdefault(key, [])
            self._counts[key] = self._counts.get(key, 0) + 1
            if len(events) < MAX_LOGGED:
                events.append(event)


NO_TRIGGER_LOG = TriggerLog(enabled=False)


HIGH = 100
NORMAL = 0
# controller-runtime's LowPriority.
LOW = -100


def pod_priority(old: Pod, new: Pod) -> int:
    """High if the pod or one of its containers ends, or if the pod is deleted."""
    return _priority(_pod_transitions(old) != _pod_transitions(new))


def job_priority(old: BatchJob, new: BatchJob) -> int:
    """High if a child Job ends, is suspended, resumed or deleted."""
    return _priority(_is_deletion(old, new) or old.status.conditions != new.status.conditions)


def gang_priority(old: Gang, new: Gang) -> int:
    """High if the gang is admitted, evicted or to be resized. Its queue position changes only the status."""
    return _priority(_is_deletion(old, new) or _gang_transitions(old) != _gang_transitions(new))


def child_priority(old: Object, new: Object) -> int:
    """High if the child is deleted. For kinds of which only the existence matters."""
    return _priority(_is_deletion(old, new))


def _priority(is_urgent: bool) -> int:
    return HIGH if is_urgent else NORMAL


def _is_deletion(old: Object, new: Object) -> bool:
    return old.metadata.deletion_timestamp != new.metadata.deletion_timestamp


def _pod_transitions(pod: Pod) -> object:
    ends = [(status.restart_count, status.state.terminated) for status in pod.status.container_statuses]
    return pod.metadata.deletion_timestamp, is_finished(pod), [end for end in ends if any(end)]


def _gang_transitions(gang: Gang) -> object:
    status = gang.status
    return status.phase, status.attempt, status.target_members, status.leaving, status.preemption


# Longer than the time between the pods of a burst, too short for a person to notice.
BATCH_SECONDS = 0.1


class JobHandler(Generic[ObjectT]):
    """Queues a job on any change, including the controller's own writes, after which further writes may be due.

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


class DeletionHandler(Generic[ObjectT]):
    """Has jobs recorded that no longer exist: only the watch has their last state."""

    def __init__(self, history: JobHistory, is_managed: Callable[[ObjectT], bool]) -> None:
        self._history = history
        self._is_managed = is_managed

    def on_add(self, obj: ObjectT, is_initial: bool) -> None:
        """Does nothing: the job exists."""

    def on_update(self, old: ObjectT, new: ObjectT) -> None:
        """Does nothing: the job exists."""

    def on_delete(self, obj: ObjectT, final: bool) -> None:
        if self._is_managed(obj):
            self._history.record_deletion(obj)


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


def keys_by_owner(kind: Resource[Object]) -> Callable[[Object], Iterable[str]]:
    """Returns a function from a child Job, Service or ConfigMap to the key of the job that controls it."""
    group = kind.group + "/"

    def owner_keys(obj: Object) -> Iterable[str]:
        owner = controller_of(obj)
        if owner is None or owner.kind != kind.kind or not owner.api_version.startswith(group):
            return ()
        return (f"{obj.metadata.namespace}/{owner.name}",)

    return owner_keys


def keys_by_runtime(jobs: Store[ObjectT]) -> Callable[[Object], Iterable[str]]:
    """Returns a function from a pod, which a child Job controls, to the keys of the jobs with its RuntimeId.

    There are several jobs if a manifest was copied with its RuntimeId.
    """

    def owner_keys(obj: Object) -> Iterable[str]:
        return [key_of(job) for value in by_runtime_label(obj) for job in jobs.by_index(BY_RUNTIME, value)]

    return owner_keys


def identity_matters(old: Object, new: Object) -> bool:
    """For Services and ConfigMaps: reports whether the owner has changed, or the deletion was requested."""
    before, after = old.metadata, new.metadata
    return (before.deletion_timestamp, before.owner_references) != (after.deletion_timestamp, after.owner_references)


def content_matters(old: OwnedObject, new: OwnedObject) -> bool:
    """For objects whose content is written again if somebody changes it."""
    return identity_matters(old, new) or old.digest != new.digest


def pod_matters(old: Pod, new: Pod) -> bool:
    """For pods: also if the reported steps have changed."""
    return state_matters(old, new) or old.metadata.annotations != new.metadata.annotations


def state_matters(old: BatchJob | Pod | Gang | PodGroup, new: BatchJob | Pod | Gang | PodGroup) -> bool:
    """For Jobs, pods, Gangs and PodGroups: also if a decoded field of spec or status has changed."""
    return (old.status, old.spec) != (new.status, new.spec) or identity_matters(old, new)


def autoscaler_matters(old: HorizontalPodAutoscaler, new: HorizontalPodAutoscaler) -> bool:
    """For HorizontalPodAutoscalers, whose status Kubernetes writes several times a minute."""
    return old.spec != new.spec or old.metadata.labels != new.metadata.labels or identity_matters(old, new)


class RuntimeHandler(Generic[ObjectT]):
    """Queues the jobs that wait for a new or changed runtime. Jobs that have started keep theirs.

    `waits_for` reports whether a job refers to the runtime and has not started.
    """

    def __init__(
        self,
        queue: RateLimitingQueue[str],
        jobs: Store[ObjectT],
        waits_for: Callable[[ObjectT, Any], bool],
        triggers: TriggerLog = NO_TRIGGER_LOG,
    ) -> None:
        self._queue = queue
        self._jobs = jobs
        self._waits_for = waits_for
        self._triggers = triggers

    def on_add(self, obj: Object, is_initial: bool) -> None:
        for job in () if is_initial else self._jobs.list():
            if self._waits_for(job, obj):
                self._triggers.record(key_of(job), ADDED, obj)
                self._queue.add(key_of(job))

    def on_update(self, old: Object, new: Object) -> None:
        if old is not new:
            self.on_add(new, is_initial=False)

    def on_delete(self, obj: Object, final: bool) -> None:
        """Does nothing: a job that has started keeps its runtime."""
