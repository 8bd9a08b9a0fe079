"""A local copy of one kind of object, and handlers that are notified of its changes.

Theory of operation.

    socket → Reflector (one thread) → WatchDecoder: lines become deltas → Store: state, indexes
                                                                            │ under its lock: each change, in order
                                                                            ▼
                                                        one inbox per handler → the handler's own thread

Each informer has one log of deltas, in the server's order, in which a complete list is one entry: the reflector applies
it to the store, and the store puts each change into every inbox under the same lock. So a handler finds in the store
the reported state or a newer one, never an older one; all handlers see the same changes in the same order; a slow
handler delays only itself. Assumed writes take the same way.

- A handler receives `on_add` before any `on_update` or `on_delete` of an object. An update never changes the uid: an
  object that was deleted and recreated unseen is reported as `on_delete(final=False)` and `on_add`.
- A handler that is added late first receives the present state as `on_add(is_initial=True)`.
- `is_initial` is True for everything up to the end of the first list; `has_synced` reports that the handler has been
  called with all of that.
- An exception of a handler is logged and counted; the next change is delivered all the same.

`stop` ends all threads, even one that is blocked in a read. An informer runs once.
Source: client-go tools/cache shared_informer.go (processorListener), the_real_fifo.go.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import structlog

from tfjob_controller.kube.cache.reflector import READ_TIMEOUT_SECONDS, Reflector, ReflectorStatistics
from tfjob_controller.kube.cache.store import Added, Change, Deleted, IndexFunction, Store, Synced, Updated
from tfjob_controller.kube.cache.watchdecoder import BookmarkDelta, DeleteDelta, Delta, SkipDelta, UpsertDelta
from tfjob_controller.kube.meta import Object, ObjectT, Resource, key_of
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.threads import SupervisedThread

log = structlog.get_logger(__name__)


HandledT = TypeVar("HandledT", bound=Object, contravariant=True)


class Handler(Protocol[HandledT]):
    """Is notified of changes, one call at a time. Must return quickly: add a key to a queue, do no I/O."""

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


class HandlerProcessor(Generic[ObjectT]):
    """One handler with its inbox and its thread, which delivers the store's changes.

    The store's writers fill the inbox under the store's lock; other threads start, stop and read statistics.
    """

    def __init__(self, handler: Handler[ObjectT], name: str, store: Store[ObjectT], *, clock: Clock) -> None:
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
        """Whether the handler has received the complete first list, or the present state if it was added late."""
        return self._has_synced

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


@dataclass(frozen=True, slots=True)
class InformerStatistics:
    objects: int
    resource_version: int
    is_synced: bool
    thread_restarts: int
    reflector: ReflectorStatistics
    handlers: tuple[HandlerStatistics, ...]


class Informer(Generic[ObjectT]):
    """See the module's docstring. Objects that cannot be decoded are skipped.

    `name` is that of its figures and threads, which no other informer of the program may have; by default the plural.
    """

    def __init__(
        self,
        requester: Requester,
        resource: Resource[ObjectT],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, IndexFunction[ObjectT]] | None = None,
        clock: Clock,
        read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
        rng: random.Random | None = None,
        name: str = "",
    ) -> None:
        self.store: Store[ObjectT] = Store(indexers)
        self.name = name or resource.plural
        self.watched = resource, namespace
        self._clock = clock
        self._rng = rng or random.Random()  # noqa: S311 (spreads load, keeps no secret)
        self._lock = threading.Lock()
        self._processors: list[HandlerProcessor[ObjectT]] = []
        self._started = False
        self._stopped = threading.Event()
        self._reflector = Reflector(
            requester,
            resource,
            self._apply,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            read_timeout_seconds=read_timeout_seconds,
            clock=clock,
            rng=self._rng,
        )
        self._thread = SupervisedThread(f"informer-{self.name}", self._reflector.run, stop=self._stopped, clock=clock)

    def add_handler(self, handler: Handler[ObjectT], name: str = "") -> HandlerProcessor[ObjectT]:
        """Add a handler, before or after `start`; it receives the present state first. RuntimeError once stopped."""
        with self._lock:
            if self._stopped.is_set():
                raise RuntimeError(f"the informer of {self.name} is stopped")
            name = name or f"{self.name}-{len(self._processors)}"
            processor = HandlerProcessor(handler, name, self.store, clock=self._clock)
            self._processors.append(processor)
            if self._started:
                processor.thread.start()
            return processor

    def start(self) -> None:
        """Start all threads. RuntimeError on a second call."""
        with self._lock:
            if self._started or self._stopped.is_set():
                raise RuntimeError(f"the informer of {self.name} runs only once")
            self._started = True
            for processor in self._processors:
                processor.thread.start()
            self._thread.start()

    def stop(self, timeout_seconds: float = 10.0) -> bool:
        """End all threads; undelivered changes are lost. Returns False if a thread has not ended in time."""
        deadline = self._clock.monotonic() + timeout_seconds
        self.begin_stop()
        threads = [self._thread, *(processor.thread for processor in self._processors)]
        ended = [thread.join(deadline - self._clock.monotonic()) for thread in threads]
        return all(ended)

    def begin_stop(self) -> None:
        """Ask all threads to end and return at once, so that several informers can stop together."""
        with self._lock:
            self._stopped.set()
        self._reflector.stop()
        for processor in self._processors:  # none is added once `_stopped` is set
            processor.stop()

    @property
    def is_synced(self) -> bool:
        """Whether the store has received a complete list; stays True if the watch is lost later."""
        return self.store.is_synced

    @property
    def last_error(self) -> str:
        """Why list or watch fails at present, in words a user can act on; empty if it does not."""
        return self._reflector.last_error

    @property
    def is_unserved(self) -> bool:
        """Whether the API server does not serve the kind, by the last request. A list follows once it does."""
        return self._reflector.is_unserved

    @property
    def is_forbidden(self) -> bool:
        """Whether the API server refuses the list or watch because of missing rights, by the last request."""
        return self._reflector.is_forbidden

    def statistics(self) -> InformerStatistics:
        with self._lock:
            processors = [*self._processors]
        return InformerStatistics(
            objects=len(self.store),
            resource_version=self.store.last_resource_version,
            is_synced=self.is_synced,
            thread_restarts=self._thread.restarts,
            reflector=self._reflector.statistics(),
            handlers=tuple(processor.statistics() for processor in processors),
        )

    def _apply(self, event: Delta[ObjectT]) -> None:
        """Apply the next delta to the store, which passes the change to all handlers."""
        if isinstance(event, UpsertDelta):
            self.store.upsert(event.obj)
        elif isinstance(event, DeleteDelta):
            self.store.delete(event.key, event.version, event.last_state)
        elif isinstance(event, BookmarkDelta):
            self.store.bookmark(event.version)
        elif isinstance(event, SkipDelta):
            self.store.skip(event.key, event.version)
        else:
            self.store.replace(event.objects, event.version, event.unreadable)


class InformerGroup:
    """The informers of one program, started and stopped together. Thread-safe; `start` once, `stop` at the end."""

    def __init__(self, informers: Sequence[Informer[Any]], clock: Clock) -> None:
        self._informers = tuple(informers)
        self._clock = clock

    def start(self) -> None:
        for informer in self._informers:
            informer.start()

    def stop(self, timeout_seconds: float) -> bool:
        """End all threads; returns False if one has not ended within the common time limit."""
        deadline = self._clock.monotonic() + timeout_seconds
        for informer in self._informers:
            informer.begin_stop()
        ended = [informer.stop(deadline - self._clock.monotonic()) for informer in self._informers]
        return all(ended)

    @property
    def is_synced(self) -> bool:
        return all(informer.is_synced for informer in self._informers)

    def problems(self, may_be_unserved: Collection[Resource[Object]] = ()) -> list[str]:
        """Which caches are not synced, and why, with the name of the missing CRD or permission.

        Resources that may be unserved are left out if the API server does not serve them.
        """
        return [
            f"{informer.name} not synced: {informer.last_error or 'the first list has not arrived yet'}"
            for informer in self._informers
            if not informer.is_synced and not (informer.is_unserved and informer.watched[0] in may_be_unserved)
        ]

    @property
    def watched(self) -> list[tuple[Resource[Object], str]]:
        """Each resource with its namespace, or "" for all."""
        return [informer.watched for informer in self._informers]

    def statistics(self) -> Mapping[str, InformerStatistics]:
        """By the name of the informer."""
        return {informer.name: informer.statistics() for informer in self._informers}

    def restarts(self) -> dict[str, int]:
        """How often each thread of the informers was restarted."""
        counts: dict[str, int] = {}
        for name, figures in self.statistics().items():
            counts[f"informer-{name}"] = figures.thread_restarts
            counts.update({f"handler-{handler.name}": handler.thread_restarts for handler in figures.handlers})
        return counts


def _key_of(change: Change[ObjectT]) -> str:
    if isinstance(change, Synced):
        return ""
    return key_of(change.new if isinstance(change, Updated) else change.obj)
