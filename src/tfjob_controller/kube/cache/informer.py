"""A local copy of one kind of object, and everybody who wants to hear of its changes.

Theory of operation.

    socket → Reflector (one thread) → WatchStream: lines become events → Store: state, indexes
                                                                           │ under its lock: each change, in order
                                                                           ▼
                                                       one inbox per handler → the handler's own thread

There is one log of events for each informer, in the server's order, with a whole list as one entry of it: the reflector
applies it to the store, and the store tells each change to every inbox under the lock that made it. So a handler
finds in the store what it is told or something newer, never something older; all handlers see the same changes in the
same order; a slow one delays only itself. An own write that was assumed takes the same way.

- A handler is told `on_add` before any `on_update` or `on_delete` of an object. An update never changes the uid: an
  object that was deleted and created anew while nobody watched is told as `on_delete(final=False)` and `on_add`.
- A handler that is added late first gets the present state as `on_add(is_initial=True)`.
- `is_initial` is True for everything up to the end of the first list; `has_synced` says that the handler has been
  handed (not: has finished with) all of that.
- What a handler raises is logged and counted; the next change is delivered as if nothing had been.

`stop` ends all threads, also one that is blocked in a read. An informer runs once.
Source: client-go tools/cache shared_informer.go, the_real_fifo.go.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from tfjob_controller.kube.cache.processor import Handler, HandlerProcessor, HandlerStatistics, Registration
from tfjob_controller.kube.cache.reflector import READ_TIMEOUT_SECONDS, Reflector, ReflectorStatistics
from tfjob_controller.kube.cache.store import IndexFunction, Store
from tfjob_controller.kube.cache.watchdecoder import BookmarkDelta, Decode, DeleteDelta, Delta, SkipDelta, UpsertDelta
from tfjob_controller.kube.meta import ObjectT, Resource
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.threads import SupervisedThread


@dataclass(frozen=True, slots=True)
class InformerStatistics:
    objects: int
    resource_version: int
    is_synced: bool
    thread_restarts: int
    reflector: ReflectorStatistics
    handlers: tuple[HandlerStatistics, ...]


class Informer(Generic[ObjectT]):
    """See the module's text. `decode` turns one object's JSON into its type; what it cannot read is skipped."""

    def __init__(
        self,
        requester: Requester,
        resource: Resource,
        decode: Decode[ObjectT],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, IndexFunction[ObjectT]] | None = None,
        clock: Clock,
        read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
        rng: random.Random | None = None,
    ) -> None:
        self.store: Store[ObjectT] = Store(indexers)
        self.name = resource.plural
        self._clock = clock
        self._rng = rng or random.Random()  # noqa: S311 (spreads load, keeps no secret)
        self._lock = threading.Lock()
        self._feeds: list[HandlerProcessor[ObjectT]] = []
        self._started = False
        self._stopped = threading.Event()
        self._reflector = Reflector(
            requester,
            resource,
            decode,
            self._apply,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            read_timeout_seconds=read_timeout_seconds,
            clock=clock,
            rng=self._rng,
        )
        self._thread = SupervisedThread(f"informer-{self.name}", self._reflector.run, stop=self._stopped, clock=clock)

    def add_handler(self, handler: Handler[ObjectT], name: str = "") -> Registration:
        """Feed a handler from now on, the present state first. Before or after `start`; RuntimeError once stopped."""
        with self._lock:
            if self._stopped.is_set():
                raise RuntimeError(f"the informer of {self.name} has stopped")
            feed = HandlerProcessor(
                handler,
                name or f"{self.name}-{len(self._feeds)}",
                self.store,
                clock=self._clock,
            )
            self._feeds.append(feed)
            if self._started:
                feed.start()
            return feed

    def start(self) -> None:
        """Start all threads. RuntimeError on a second call: an informer runs once."""
        with self._lock:
            if self._started or self._stopped.is_set():
                raise RuntimeError(f"the informer of {self.name} runs only once")
            self._started = True
            for feed in self._feeds:
                feed.start()
            self._thread.start()

    def stop(self, timeout_seconds: float = 10.0) -> bool:
        """End all threads; what handlers were not yet told, they never are. False if one has not ended in time."""
        deadline = self._clock.monotonic() + timeout_seconds
        feeds = self.begin_stop()
        threads = [self._thread, *(feed.thread for feed in feeds)]
        ended = [thread.join(deadline - self._clock.monotonic()) for thread in threads]
        return all(ended)

    def begin_stop(self) -> Sequence[HandlerProcessor[ObjectT]]:
        """Tell all threads to end and return at once, for whoever has several informers to `stop`; gives the feeds."""
        with self._lock:
            self._stopped.set()
            feeds = [*self._feeds]
        self._reflector.stop()
        for feed in feeds:
            feed.stop()
        return feeds

    @property
    def is_synced(self) -> bool:
        """Whether the store has held a whole list; it stays True when the watch is lost later."""
        return self.store.is_synced

    @property
    def last_error(self) -> str:
        """Why there is no watch just now, in words a user can act on; empty when all is well."""
        return self._reflector.last_error

    def statistics(self) -> InformerStatistics:
        with self._lock:
            feeds = [*self._feeds]
        return InformerStatistics(
            objects=len(self.store),
            resource_version=self.store.last_resource_version,
            is_synced=self.is_synced,
            thread_restarts=self._thread.restarts,
            reflector=self._reflector.statistics(),
            handlers=tuple(feed.statistics() for feed in feeds),
        )

    def _apply(self, event: Delta[ObjectT]) -> None:
        """The sink: the log's next entry goes to the store, which tells the feeds."""
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
        """End all threads; False if one has not ended in that time, which is for all together."""
        deadline = self._clock.monotonic() + timeout_seconds
        for informer in self._informers:
            informer.begin_stop()
        ended = [informer.stop(deadline - self._clock.monotonic()) for informer in self._informers]
        return all(ended)

    @property
    def is_synced(self) -> bool:
        return all(informer.is_synced for informer in self._informers)

    def problems(self) -> list[str]:
        """Which caches are not filled, and why, in words that name the missing CRD or right."""
        return [
            f"{informer.name} not synced: {informer.last_error or 'the first list has not come yet'}"
            for informer in self._informers
            if not informer.is_synced
        ]

    def statistics(self) -> Mapping[str, InformerStatistics]:
        """By resource."""
        return {informer.name: informer.statistics() for informer in self._informers}

    def restarts(self) -> dict[str, int]:
        """How often each thread of the informers died."""
        counts: dict[str, int] = {}
        for name, figures in self.statistics().items():
            counts[f"informer-{name}"] = figures.thread_restarts
            counts.update({f"handler-{handler.name}": handler.thread_restarts for handler in figures.handlers})
        return counts
