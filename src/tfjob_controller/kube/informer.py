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

- A handler is told `on_add` before any `on_update` or `on_delete` of an object. An update never changes the uid: an object
  that was deleted and created anew while nobody watched is told as `on_delete(final=False)` and `on_add`.
- A handler that is added late first gets the present state as `on_add(is_initial=True)`.
- `is_initial` is True for everything up to the end of the first list; `has_synced` says that the handler has been handed
  (not: has finished with) all of that.
- What a handler raises is logged and counted; the next change is delivered as if nothing had been.
- With `resync_seconds` each handler gets every object again as `on_update(obj, obj)`, first after that time and then in
  intervals of that plus up to a fifth of it, so that many informers do not do it at once. 0 never does.

`stop` ends all threads, also one that is blocked in a read. An informer runs once.
Source: client-go tools/cache shared_informer.go, the_real_fifo.go.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec
import structlog

from tfjob_controller.kube.clock import Clock
from tfjob_controller.kube.meta import Object, ObjectT, Resource, key_of
from tfjob_controller.kube.reflector import Reflector, ReflectorStatistics
from tfjob_controller.kube.store import Added, Change, Deleted, IndexFunction, Store, Synced, Updated
from tfjob_controller.kube.threads import SupervisedThread

if TYPE_CHECKING:
    from tfjob_controller.kube.transport import Requester

log = structlog.get_logger(__name__)

# Added to a resync interval at random, as a share of it.
_RESYNC_JITTER = 0.2

HandledT = TypeVar("HandledT", bound=Object, contravariant=True)


class Handler(Protocol[HandledT]):
    """Hears of changes, one call at a time. Must return quickly: put a key on a queue, do no I/O."""

    def on_add(self, obj: HandledT, is_initial: bool) -> None: ...

    def on_update(self, old: HandledT, new: HandledT) -> None: ...

    def on_delete(self, obj: HandledT, final: bool) -> None:
        """`obj` is the last known state; the very last one only if `final`."""


@dataclass(frozen=True, slots=True)
class HandlerStatistics:
    name: str
    pending: int
    delivered: int
    failures: int
    has_synced: bool
    thread_restarts: int


@dataclass(frozen=True, slots=True)
class InformerStatistics:
    objects: int
    resource_version: int
    is_synced: bool
    thread_restarts: int
    reflector: ReflectorStatistics
    handlers: tuple[HandlerStatistics, ...]


class Registration(Protocol):
    """What `add_handler` gives back."""

    @property
    def has_synced(self) -> bool:
        """Whether the handler was handed the whole first list (for a late one: the state it came to)."""

    def statistics(self) -> HandlerStatistics: ...


class Informer(Generic[ObjectT]):
    """See the module's text. `decode` turns one object's JSON into its type; what it cannot read is skipped."""

    def __init__(
        self,
        requester: Requester,
        resource: Resource,
        decode: Callable[[bytes | msgspec.Raw], ObjectT],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, IndexFunction[ObjectT]] | None = None,
        clock: Clock,
        resync_seconds: float = 0.0,
        rng: random.Random | None = None,
    ) -> None: ...

    store: Store[ObjectT]

    def add_handler(self, handler: Handler[ObjectT], name: str = "") -> Registration: ...

    def start(self) -> None: ...

    def stop(self, timeout_seconds: float = 10.0) -> None: ...

    @property
    def is_synced(self) -> bool: ...

    @property
    def last_error(self) -> str:
        """Why there is no watch just now, in words a user can act on; empty when all is well."""

    def wait_for_sync(self, timeout_seconds: float) -> bool: ...

    def statistics(self) -> InformerStatistics: ...
