"""Applies the planned actions: creates, suspends, resumes and deletes children.

Theory of operation. The writes of a sync are sent concurrently. Its tasks form a queue that the calling thread and the
free threads of a pool work off together (`Fanout`). So a single task needs no change of thread, a sync makes progress
however busy the pool is, and the number of concurrent requests is limited over all syncs: by the pool plus the workers.

Each response is put into the cache at once (`Store.assume`), so the next sync sees it and never creates a child twice.
Names are deterministic: if a response was lost, the repeated create fails with AlreadyExists, reads the object, and
adopts it if its controller reference has the job's UID. Any other object of that name is reported and never touched.

A job of a thousand replicas would keep a worker for many seconds. `must_stop` is therefore asked before each write, and
what is left is for the next sync.

If one write fails for a reason that its siblings would meet too (a quota, a server that is down), the others are not
sent: a job of a thousand replicas does not send a thousand requests that fail.

Threads: any.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Generic

import structlog
from cachetools import LRUCache

from tfjob_controller.api.common.core import JOBS
from tfjob_controller.controller.outcome import Fault, fault_of
from tfjob_controller.jobs.actions.model import Actions, Create, Delete, Patch, SetSuspend
from tfjob_controller.jobs.actions.reverted import ADMISSION, KUEUE, RevertedChange
from tfjob_controller.jobs.naming import CHILD_SELECTOR
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.http.transport import default_user_agent
from tfjob_controller.kube.managedfields import managers_of
from tfjob_controller.kube.meta import Object, ObjectT, Resource, controller_of, key_of

log = structlog.get_logger(__name__)

Action = Create | Delete | SetSuspend | Patch

_KUEUE_LABELS = "kueue.x-k8s.io/"
# The API server takes the name of a field manager from the user agent.
_OWN_MANAGER = default_user_agent().partition("/")[0]


class ChildClient(Generic[ObjectT]):
    """Writes one kind of children and updates the cache with the responses.

    A kind that is not watched needs no labels, and the controller has no right to patch it. A child with fields that
    users write is created strictly: a misspelled field is an error that the job shows, and not a field that is absent.
    A job runs without an optional child as well.
    """

    def __init__(
        self,
        client: ResourceClient[ObjectT],
        store: Store[ObjectT] | ResponseCache[ObjectT],
        *,
        is_watched: bool = True,
        is_strict: bool = False,
        is_optional: bool = False,
        selector: str = CHILD_SELECTOR,
    ) -> None:
        """`selector` is the label by which such children are watched, with its value if this matters."""
        self._label, _, self._value = selector.partition("=")
        self._client = client
        self._is_watched = is_watched
        self._is_strict = is_strict
        self.is_optional = is_optional
        self.store = store

    def create(self, namespace: str, body: Mapping[str, Any]) -> None:
        self.store.assume(self._client.create(namespace, body, strict=self._is_strict))

    def adopt(self, namespace: str, name: str, owner_uid: str, body: Mapping[str, Any]) -> str:
        """Takes the object of that name if the owner controls it; otherwise returns why not."""
        child = self._client.get(namespace, name)
        conflict = _ownership_conflict(child, owner_uid)
        if conflict:
            return conflict
        if self._is_watched and not self._selects(child):
            # Without its labels no cache would ever see it.
            child = self._client.patch(namespace, name, {"metadata": {"labels": body["metadata"]["labels"]}})
        self.store.assume(child)
        return ""

    def _selects(self, child: ObjectT) -> bool:
        value = child.metadata.labels.get(self._label)
        return value == self._value if self._value else value is not None

    def editor_of(self, namespace: str, name: str, path: str) -> str:
        """Returns the field manager that wrote a field last; for a Job that Kueue has labelled, Kueue.

        If this is the controller itself, an admission webhook has changed what it wrote: `ADMISSION`.
        """
        metadata = self._client.get_managed(namespace, name).metadata
        if any(label.startswith(_KUEUE_LABELS) for label in metadata.labels):
            return KUEUE
        managers = managers_of(metadata.managed_fields, path)
        if not managers:
            return ""
        return ADMISSION if managers[0] == _OWN_MANAGER else managers[0]

    def patch(self, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        self.store.assume(self._client.patch(namespace, name, patch))

    def read_again(self, namespace: str, selector: str) -> bool:
        changed = [self.store.assume(child) for child in self._client.list(namespace, selector)]
        return any(changed)

    def delete(self, namespace: str, action: Delete) -> None:
        propagation = "Foreground" if action.foreground else "Background"
        terminating = self._client.delete(
            namespace, action.name, uid=action.uid, resource_version=action.version, propagation=propagation
        )
        # Otherwise the watch of pods might show first that they are deleted with this Job, as if nobody had wanted it.
        if terminating is not None:
            self.store.assume(terminating)


@dataclass(slots=True)
class WriteResult:
    """The results of the writes of a sync, in the order of the actions."""

    created: list[Create] = field(default_factory=list)
    # The creates whose child existed already and was adopted.
    adopted: list[Create] = field(default_factory=list)
    deleted: list[Delete] = field(default_factory=list)
    changed: list[SetSuspend | Patch] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    # The creates that failed, for events.
    failed_creates: list[tuple[Create, Fault]] = field(default_factory=list)
    # Reports whether the writes were stopped before the last one.
    is_partial: bool = False


@dataclass(slots=True)
class _Result:
    """Of one action; filled in by the thread that attempts it."""

    done: bool = False
    fault: Fault | None = None
    is_sent: bool = False


class Writer:
    """Writes children of any job. Thread-safe."""

    def __init__(self, children: Mapping[Resource[Object], ChildClient[Any]], fanout: Fanout) -> None:
        self._children = children
        self._fanout = fanout

    def apply(self, owner: Object, actions: Actions, must_stop: Callable[[], bool] = lambda: False) -> WriteResult:
        """Applies the `actions` of the job `owner` and returns after the last response. Raises nothing.

        `must_stop` is called in several threads, and reports whether what is not sent yet stays unsent.
        """
        pending: list[Action] = [*actions.creates, *actions.suspends, *actions.deletes, *actions.patches]
        results = [_Result() for _ in pending]
        halted: list[Fault] = []
        stopped: list[bool] = []

        def task(action: Action, result: _Result) -> Callable[[], None]:
            def attempt() -> None:
                if halted or stopped:
                    return
                if must_stop():
                    stopped.append(True)
                    return
                result.is_sent = True
                result.done, result.fault = self._attempt(owner, action)
                if result.fault is not None and result.fault.halts:
                    halted.append(result.fault)

            return attempt

        self._fanout.run([task(action, result) for action, result in zip(pending, results, strict=True)])
        report = _report(pending, results)
        report.is_partial = bool(stopped)
        return report

    def read_again(self, resource: Resource[Object], namespace: str, selector: str) -> bool:
        """Puts what matches the selector now into the cache; returns whether that was behind. Raises `ApiError`."""
        return self._children[resource].read_again(namespace, selector)

    def editor_of(self, namespace: str, change: RevertedChange) -> str:
        """Returns the client that reverts a change, as far as the API server tells; empty if it does not."""
        if not change.fields:
            return ""
        try:
            return self._children[change.resource].editor_of(namespace, change.name, change.fields[0])
        except ApiError as error:
            log.info("field manager not read", name=change.name, error=error.message)
            return ""

    def _attempt(self, owner: Object, action: Action) -> tuple[bool, Fault | None]:
        """Whether this attempt did it, and the fault if it failed."""
        namespace = owner.metadata.namespace
        try:
            if isinstance(action, Create):
                return self._create(namespace, owner.metadata.uid, action)
            if isinstance(action, Delete):
                self._children[action.resource].delete(namespace, action)
            elif isinstance(action, Patch):
                self._children[action.resource].patch(namespace, action.name, action.body)
            else:
                self._children[JOBS].patch(namespace, action.name, {"spec": {"suspend": action.suspend}})
        except ApiError as error:
            if _is_obsolete(action, error):
                return False, None
            return False, self._fault_of(error, action)
        return True, None

    def _create(self, namespace: str, owner_uid: str, action: Create) -> tuple[bool, Fault | None]:
        children = self._children[action.resource]
        try:
            children.create(namespace, action.body)
        except ApiError as error:
            if not error.is_already_exists:
                return False, self._fault_of(error, action)
        else:
            return True, None
        return False, self._adopt(children, namespace, owner_uid, action)

    def _adopt(self, children: ChildClient[Any], namespace: str, owner_uid: str, action: Create) -> Fault | None:
        try:
            conflict = children.adopt(namespace, action.name, owner_uid, action.body)
        except ApiError as error:
            return self._fault_of(error, action)
        if not conflict:
            log.info("child adopted", kind=action.resource.kind, name=action.name)
            return None
        # Transient, since the other object may be deleted.
        return Fault(f"cannot {_doing(action)}: {action.resource.kind} {action.name} exists already and {conflict}")

    def _fault_of(self, error: ApiError, action: Action) -> Fault:
        is_optional = not isinstance(action, SetSuspend) and self._children[action.resource].is_optional
        return fault_of(error, _doing(action), is_optional=is_optional)


def _is_obsolete(action: Action, error: ApiError) -> bool:
    """Reports whether the object was deleted or replaced since it was observed, which the watch will show."""
    if isinstance(action, Create):
        return False
    return error.is_not_found or (isinstance(action, Delete) and error.is_conflict)


def _ownership_conflict(child: Object, owner_uid: str) -> str:
    """Why an object with a child's name is not the job's; empty if it is."""
    owner = controller_of(child)
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
                report.failed_creates.append((action, result.fault))
            elif result.is_sent:
                report.adopted.append(action)
        elif isinstance(action, Delete):
            if result.done:
                report.deleted.append(action)
        elif result.done:
            report.changed.append(action)
    return report


# Each takes some hundred bytes. More jobs than this do not start at the same time.
MAX_RESPONSES = 2000


class ResponseCache(Generic[ObjectT]):
    """The API server's responses for objects that no informer watches. Thread-safe.

    This holds for Secrets: a right to watch some of them is a right to read all, so the controller does not ask for it.
    It remembers that it created one. If that is forgotten (after a restart, or if the cache is full), it creates the
    Secret again and gets the response that it exists.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: LRUCache[str, ObjectT] = LRUCache(MAX_RESPONSES)

    def get(self, key: str) -> ObjectT | None:
        with self._lock:
            return self._by_key.get(key)

    def assume(self, obj: ObjectT) -> bool:
        with self._lock:
            self._by_key[key_of(obj)] = obj
        return True


Task = Callable[[], None]


class Fanout:
    """Runs tasks concurrently; `helpers` is the size of the pool, 0 for none."""

    def __init__(self, helpers: int) -> None:
        self._helpers = helpers
        self._pool = ThreadPoolExecutor(helpers, thread_name_prefix="writer") if helpers > 0 else None

    def run(self, tasks: Sequence[Task]) -> None:
        """Runs all tasks and returns when all have ended. Raises what the first failed one raised."""
        pile = deque(tasks)
        helpers = self._call_helpers(pile, len(tasks) - 1)
        try:
            _work_off(pile)
        finally:
            # A helper that has not begun has nothing left to do and is cancelled.
            begun = [helper for helper in helpers if not helper.cancel()]
            wait(begun)
        for helper in begun:
            helper.result()

    def stop(self) -> None:
        """Ends the pool's threads as soon as they are free. Later calls of `run` use the calling thread alone."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def _call_helpers(self, pile: deque[Task], wanted: int) -> list[Future[None]]:
        pool = self._pool
        if pool is None:
            return []
        called: list[Future[None]] = []
        # RuntimeError: the pool was stopped. The caller and the helpers that have begun do all tasks.
        with contextlib.suppress(RuntimeError):
            for _ in range(min(wanted, self._helpers)):
                # With a copy of the caller's context, so that its log lines carry the same reconcile_id.
                called.append(pool.submit(contextvars.copy_context().run, _work_off, pile))  # noqa: PERF401 -- kept if one fails
        return called


def _work_off(pile: deque[Task]) -> None:
    while True:
        try:
            task = pile.popleft()
        except IndexError:
            return
        task()
