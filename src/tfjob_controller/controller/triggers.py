"""What caused a sync: which event of which object put its key on the queue. For debug lines only.

Several events come together in one sync, so what is noted for a key is collected until a sync takes it. Unless it is
enabled nothing is noted, and a note costs the look at one flag: informers deliver thousands of events per second.
"""

from __future__ import annotations

import threading

import structlog

from tfjob_controller.api.core import Job, Pod
from tfjob_controller.api.gang import Gang
from tfjob_controller.kube.meta import Object
from tfjob_controller.trainer.pods import is_finished

log = structlog.get_logger(__name__)

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
# A thousand pods may start in one swarm: the first ones tell what it was.
MAX_LOGGED = 20


class TriggerLog:
    """Notes of one queue. Thread-safe."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._lock = threading.Lock()
        self._noted: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}

    def record(self, key: str, type_: str, obj: Object) -> None:
        """An event of `obj` concerns `key`. To be called before the key is queued."""
        if self._enabled:
            meta = obj.metadata
            self._note(key, f"{type_} {type(obj).__name__} {meta.name} resourceVersion={meta.resource_version}")

    def record_timer(self, key: str, seconds: float) -> None:
        """The sync of `key` that ends now wants another after so many seconds."""
        if self._enabled:
            self._note(key, f"asked for {seconds:.3g} s ago, or earlier")

    def log_triggers(self, key: str) -> None:
        """A sync of `key` begins: say what is noted, and forget it."""
        if not self._enabled:
            return
        with self._lock:
            noted, count = self._noted.pop(key, []), self._counts.pop(key, 0)
        log.debug("sync begins", triggers=noted, causes_left_out=count - len(noted))

    def _note(self, key: str, words: str) -> None:
        with self._lock:
            noted = self._noted.setdefault(key, [])
            self._counts[key] = self._counts.get(key, 0) + 1
            if len(noted) < MAX_LOGGED:
                noted.append(words)


NO_TRIGGER_LOG = TriggerLog(enabled=False)


HIGH = 100
NORMAL = 0
# controller-runtime's number for the same.
LOW = -100


def pod_priority(old: Pod, new: Pod) -> int:
    """It ends or goes, or a container of it ends."""
    return _of(_turns_of_pod(old) != _turns_of_pod(new))


def job_priority(old: Job, new: Job) -> int:
    """Of a child Job: it is over, it is suspended or resumed, it goes."""
    return _of(_goes(old, new) or old.status.conditions != new.status.conditions)


def gang_priority(old: Gang, new: Gang) -> int:
    """It gets room or loses it, or is to be resized. Its place in the queue is mere words."""
    return _of(_goes(old, new) or _turns_of_gang(old) != _turns_of_gang(new))


def child_priority(old: Object, new: Object) -> int:
    """Of a child of which only matters whether it is there."""
    return _of(_goes(old, new))


def _of(is_urgent: bool) -> int:
    return HIGH if is_urgent else NORMAL


def _goes(old: Object, new: Object) -> bool:
    return old.metadata.deletion_timestamp != new.metadata.deletion_timestamp


def _turns_of_pod(pod: Pod) -> object:
    ends = [(each.restart_count, each.state.terminated) for each in pod.status.container_statuses]
    return pod.metadata.deletion_timestamp, is_finished(pod), [each for each in ends if any(each)]


def _turns_of_gang(gang: Gang) -> object:
    status = gang.status
    return status.phase, status.attempt, status.target_members, status.leaving
