"""What triggers a sync: the priority of an event in the queue, and a record of the events behind a sync.

Theory of operation. When 1,000 jobs are created at once, their first syncs fill the queue for minutes. Events that
require an action in a running job get a higher priority: a replica ends, fails or is deleted, a gang is admitted or
loses its nodes, a spec changes. Such events are few for each job. All other events keep the priority of first syncs:
children that the controller created appear in the watch, pods are scheduled and become ready. These change only the
status, and creating children matters more: with pod starts at high priority, the children of a burst were created up
to 13 % later (docs/benchmarks.md). Objects of the initial list come last. No key starves: see `kube.workqueue`.

The record serves debug logs. One sync may answer several events, so they are collected until a sync takes the key.
Recording is off unless enabled and then costs one comparison, since informers deliver thousands of events per second.
"""

from __future__ import annotations

import threading

import structlog

from tfjob_controller.api.common.core import BatchJob, Pod
from tfjob_controller.api.gang import Gang
from tfjob_controller.kube.meta import Object
from tfjob_controller.trainer.state.pods import is_finished

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
    ends = [(each.restart_count, each.state.terminated) for each in pod.status.container_statuses]
    return pod.metadata.deletion_timestamp, is_finished(pod), [each for each in ends if any(each)]


def _gang_transitions(gang: Gang) -> object:
    status = gang.status
    return status.phase, status.attempt, status.target_members, status.leaving
