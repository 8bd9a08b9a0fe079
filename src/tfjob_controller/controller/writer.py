"""Carries out what the difference asks for: children are created, suspended, resumed and deleted.

Theory of operation. All writes of a sync go out at the same time, within `Fanout`'s bound. Each answer is put into the
cache at once (`Store.assume`), so the next sync sees it and never creates twice. Names are deterministic: if an answer
was lost, the repeated create is told AlreadyExists, reads what is there, and takes it if its controller reference has
the job's own UID. Anything else under that name is foreign: it is reported and never touched.

When one write meets an obstacle that its siblings would meet too (a quota, a server that is down), those not yet sent
stay unsent: a job of a thousand replicas does not knock a thousand times.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

import structlog
from cachetools import LRUCache

from tfjob_controller.api.core import JOBS
from tfjob_controller.controller.fanout import Fanout
from tfjob_controller.controller.outcome import Fault, fault_of
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import Object, ObjectT, Resource, controller_of, key_of
from tfjob_controller.trainer.actions import Actions, Create, Delete, Patch, SetSuspend
from tfjob_controller.trainer.labels import CHILD_SELECTOR

log = structlog.get_logger(__name__)

Action = Create | Delete | SetSuspend | Patch


class ChildClient(Generic[ObjectT]):
    """One kind of children: how to write them, and the cache that must know at once.

    Those that nobody watches need no labels to be found by, and the controller has no right to give them any.
    """

    def __init__(
        self,
        client: ResourceClient[ObjectT],
        store: Store[ObjectT] | ResponseCache[ObjectT],
        *,
        is_watched: bool = True,
    ) -> None:
        self._client = client
        self._is_watched = is_watched
        self.store = store

    def create(self, namespace: str, body: Mapping[str, Any]) -> None:
        self.store.assume(self._client.create(namespace, body))

    def adopt(self, namespace: str, name: str, owner_uid: str, body: Mapping[str, Any]) -> str:
        """Take what has the name if it is the owner's own; else say what it is."""
        found = self._client.get(namespace, name)
        stranger = _stranger(found, owner_uid)
        if stranger:
            return stranger
        if self._is_watched and CHILD_SELECTOR not in found.metadata.labels:
            # Without its labels no cache would ever see it.
            found = self._client.patch(namespace, name, {"metadata": {"labels": body["metadata"]["labels"]}})
        self.store.assume(found)
        return ""

    def merge(self, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        self.store.assume(self._client.patch(namespace, name, patch))

    def delete(self, namespace: str, action: Delete) -> None:
        propagation = "Foreground" if action.foreground else "Background"
        self._client.delete(
            namespace, action.name, uid=action.uid, resource_version=action.version, propagation=propagation
        )


@dataclass(slots=True)
class WriteResult:
    """What came of the writes of a sync, in the order of the actions."""

    created: list[Create] = field(default_factory=list)
    deleted: list[Delete] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    # Faults of creates alone, for the event.
    refused: list[Fault] = field(default_factory=list)


@dataclass(slots=True)
class _Result:
    """One action's, filled in by the thread that carries it out."""

    done: bool = False
    fault: Fault | None = None


class Writer:
    """Writes children of any job. Thread-safe."""

    def __init__(self, children: Mapping[Resource, ChildClient[Any]], fanout: Fanout) -> None:
        self._children = children
        self._fanout = fanout

    def apply(self, owner: Object, actions: Actions) -> WriteResult:
        """Do all that `actions` say for the job `owner`; returns when every answer is there. Raises nothing."""
        pending: list[Action] = [*actions.creates, *actions.suspends, *actions.deletes, *actions.patches]
        results = [_Result() for _ in pending]
        halted: list[Fault] = []

        def task(action: Action, result: _Result) -> Callable[[], None]:
            def attempt() -> None:
                if halted:
                    return
                result.done, result.fault = self._attempt(owner, action)
                if result.fault is not None and result.fault.halts:
                    halted.append(result.fault)

            return attempt

        self._fanout.run([task(action, result) for action, result in zip(pending, results, strict=True)])
        return _report(pending, results)

    def _attempt(self, owner: Object, action: Action) -> tuple[bool, Fault | None]:
        """Whether it was done by us, or what was in the way."""
        namespace = owner.metadata.namespace
        try:
            if isinstance(action, Create):
                return self._create(namespace, owner.metadata.uid, action)
            if isinstance(action, Delete):
                self._children[action.resource].delete(namespace, action)
            elif isinstance(action, Patch):
                self._children[action.resource].merge(namespace, action.name, action.body)
            else:
                self._children[JOBS].merge(namespace, action.name, {"spec": {"suspend": action.suspend}})
        except ApiError as error:
            if _is_gone(action, error):
                return False, None
            return False, fault_of(error, _doing(action))
        return True, None

    def _create(self, namespace: str, owner_uid: str, action: Create) -> tuple[bool, Fault | None]:
        children = self._children[action.resource]
        try:
            children.create(namespace, action.body)
        except ApiError as error:
            if not error.is_already_exists:
                return False, fault_of(error, _doing(action))
        else:
            return True, None
        return False, self._adopt(children, namespace, owner_uid, action)

    def _adopt(self, children: ChildClient[Any], namespace: str, owner_uid: str, action: Create) -> Fault | None:
        try:
            stranger = children.adopt(namespace, action.name, owner_uid, action.body)
        except ApiError as error:
            return fault_of(error, _doing(action))
        if not stranger:
            log.info("adopted", kind=action.resource.kind, name=action.name)
            return None
        # Its owner may take it away, so this passes; until then the job cannot run, and says why.
        return Fault(f"cannot {_doing(action)}: {action.resource.kind} {action.name} exists already and {stranger}")


def _is_gone(action: Action, error: ApiError) -> bool:
    """What was to be changed is not there any more, or is not what was seen: the watch will tell."""
    if isinstance(action, Create):
        return False
    return error.is_not_found or (isinstance(action, Delete) and error.is_conflict)


def _stranger(found: Object, owner_uid: str) -> str:
    """What an object under a child's name is, if it is not the job's own; empty if it is."""
    owner = controller_of(found)
    if owner is None:
        return "is not this job's: it has no controller; delete or rename it"
    if owner.uid != owner_uid:
        return f"belongs to {owner.kind} {owner.name} ({owner.uid})"
    return ""


def _doing(action: Action) -> str:
    if isinstance(action, Create):
        return f"create {action.resource.kind} {action.name}"
    if isinstance(action, Delete):
        return f"delete {action.resource.kind} {action.name}"
    if isinstance(action, Patch):
        return f"change {action.resource.kind} {action.name}"
    return f"{'suspend' if action.suspend else 'resume'} Job {action.name}"


def _report(actions: Sequence[Action], results: Sequence[_Result]) -> WriteResult:
    report = WriteResult()
    for action, result in zip(actions, results, strict=True):
        if result.fault is not None:
            report.faults.append(result.fault)
        if isinstance(action, Create):
            if result.done:
                report.created.append(action)
            elif result.fault is not None:
                report.refused.append(result.fault)
        elif isinstance(action, Delete) and result.done:
            report.deleted.append(action)
    return report


# Of each some hundred bytes; more jobs than that do not start at one time.
_MOST = 2000


class ResponseCache(Generic[ObjectT]):
    """Any thread. Takes what a `Store` takes of answers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: LRUCache[str, ObjectT] = LRUCache(_MOST)

    def get(self, key: str) -> ObjectT | None:
        with self._lock:
            return self._by_key.get(key)

    def assume(self, obj: ObjectT) -> bool:
        with self._lock:
            self._by_key[key_of(obj)] = obj
        return True
