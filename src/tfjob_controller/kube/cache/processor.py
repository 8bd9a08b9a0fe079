"""One handler of an informer, with its inbox and its thread. `informer.py` states what a handler may rely on.

Threads: the store's writers put changes into the inbox, under the store's lock; one thread takes them out. Other
threads start, stop and read statistics. Source: client-go tools/cache/shared_informer.go (processorListener).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog

from tfjob_controller.kube.cache.store import Added, Change, Deleted, Store, Synced, Updated
from tfjob_controller.kube.meta import Object, ObjectT, key_of
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.threads import SupervisedThread

log = structlog.get_logger(__name__)

HandledT = TypeVar("HandledT", bound=Object, contravariant=True)


class Handler(Protocol[HandledT]):
    """Is told of changes, one call at a time. Must return quickly: add a key to a queue, do no I/O."""

    def on_add(self, obj: HandledT, is_initial: bool) -> None: ...

    def on_update(self, old: HandledT, new: HandledT) -> None: ...

    def on_delete(self, obj: HandledT, final: bool) -> None:
        """`obj` is the object's last state if `final`, otherwise the last one that was seen."""


@dataclass(frozen=True, slots=True)
class HandlerStatistics:
    name: str
    pending: int
    delivered: int
    failures: int
    has_synced: bool
    thread_restarts: int


class Registration(Protocol):
    """The result of `add_handler`."""

    @property
    def has_synced(self) -> bool:
        """Whether the handler has received the complete first list, or the present state if it was added late."""

    def statistics(self) -> HandlerStatistics: ...


class HandlerProcessor(Generic[ObjectT]):
    """Delivers the store's changes to one handler."""

    def __init__(
        self,
        handler: Handler[ObjectT],
        name: str,
        store: Store[ObjectT],
        *,
        clock: Clock,
    ) -> None:
        self._handler = handler
        self._name = name
        self._clock = clock
        self._inbox: deque[Change[ObjectT]] = deque()
        self._filled = threading.Condition()
        self._stopped = threading.Event()
        self._has_synced = False
        self._received = 0
        self._delivered = 0
        self._failures = 0
        self.thread = SupervisedThread(f"handler-{name}", self._run, stop=self._stopped, clock=clock)
        store.subscribe(self._put)

    @property
    def has_synced(self) -> bool:
        return self._has_synced

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        with self._filled:
            self._stopped.set()
            self._filled.notify_all()

    def statistics(self) -> HandlerStatistics:
        return HandlerStatistics(
            name=self._name,
            pending=self._received - self._delivered,
            delivered=self._delivered,
            failures=self._failures,
            has_synced=self._has_synced,
            thread_restarts=self.thread.restarts,
        )

    def _put(self, change: Change[ObjectT]) -> None:
        """Called under the store's lock, so that the inbox has the store's order."""
        with self._filled:
            self._received += 1
            self._inbox.append(change)
            if len(self._inbox) == 1:
                self._filled.notify()

    def _run(self) -> None:
        while not self._stopped.is_set():
            for change in self._take():
                if self._stopped.is_set():
                    return
                self._deliver(change)

    def _take(self) -> Iterable[Change[ObjectT]]:
        """The content of the inbox, once there is some; nothing after `stop`."""
        with self._filled:
            while not (self._inbox or self._stopped.is_set()):
                self._clock.wait(self._filled, None)
            taken, self._inbox = self._inbox, deque()
            return taken

    def _deliver(self, change: Change[ObjectT]) -> None:
        try:
            self._hand_over(change)
        except Exception:
            self._failures += 1
            log.exception("handler failed", handler=self._name, change=type(change).__name__, key=_key_of(change))
        self._delivered += 1

    def _hand_over(self, change: Change[ObjectT]) -> None:
        if isinstance(change, Added):
            self._handler.on_add(change.obj, is_initial=not self._has_synced)
        elif isinstance(change, Updated):
            self._handler.on_update(change.old, change.new)
        elif isinstance(change, Deleted):
            self._handler.on_delete(change.obj, final=change.final)
        else:
            self._has_synced = True


def _key_of(change: Change[ObjectT]) -> str:
    if isinstance(change, Synced):
        return ""
    return key_of(change.new if isinstance(change, Updated) else change.obj)
