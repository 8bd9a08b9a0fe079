"""Live jobs: one set of informers for each person and namespace or job, whatever the number of browsers.

A feed starts with its first reader and stops `KEPT_SECONDS` after the last one has gone. A person has at most
`FEEDS_EACH` and all have `MAX_FEEDS`; a new one displaces one without readers, or else the person's oldest (`shares`),
which ends the streams that follow it. Since a feed that starts costs the API server a copy of all that it follows, a
person who has started many waits between two starts, so that the watches of others, and of the controllers, do not
fall behind. Informer threads change the rows; readers are coroutines, which wait for the next
change with `changed_after`. Changes within `COALESCE_SECONDS` are seen as one, so that a busy cluster does not render
every event.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import msgspec
from cachetools import TTLCache

from tfjob_controller.api.common.core import PODS
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.kinds import OWN_KINDS, Snapshot
from tfjob_controller.dashboard.idlejobs import IdleJobs
from tfjob_controller.dashboard.jobrows import JobRow, identity_of, metrics_of, row_decoder, with_pod_reason
from tfjob_controller.dashboard.metrichistory import ReportedMetrics
from tfjob_controller.dashboard.shares import Shares, tenant_of
from tfjob_controller.dashboard.shownuse import ShownUse
from tfjob_controller.dashboard.users import User
from tfjob_controller.dashboard.waitingpods import WaitingPods
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube.cache.informer import Informer, InformerGroup
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.flowcontrol import TokenBuckets
from tfjob_controller.kube.kept import kept_decoder
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.threads import SupervisedThread

KEPT_SECONDS = 60.0
COALESCE_SECONDS = 0.25
FEEDS_EACH, MAX_FEEDS = 12, 40
# Starts per second of one user, after twice the number that may run at a time.
STARTS_PER_SECOND = 0.25
_START_POLL_SECONDS = 0.5
# Values of a loss that are kept for the line beside it.
_LOSSES = 40
_STOP_SECONDS = 5.0
# How often a feed looks for kinds that are served, or may be listed, only now. The answers are kept for a minute.
_KINDS_SECONDS = 10.0
# Tables of different selections that are kept, and for how long, since they contain ages.
_MAX_CONTENTS = 8
_CONTENT_SECONDS = 5.0


class Notifier:
    """Wakes coroutines of one event loop when something has changed. `notify` may be called by any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._is_scheduled = False
        self._changed = asyncio.Event()
        self.version = 0
        self.is_over = False
        """Nothing follows any more: another feed has displaced this one."""

    def end(self) -> None:
        """Wakes everybody for the last time. For the thread of the event loop."""
        self.is_over = True
        self._changed.set()

    def notify(self) -> None:
        with self._lock:
            if self._is_scheduled:
                return
            self._is_scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._wake_soon)
        except RuntimeError:  # the loop has ended, and no caller waits any more
            return

    async def changed_after(self, version: int, timeout_seconds: float) -> int:
        """The present version, once it is newer than `version` or the time has passed."""
        if self.version == version and not self.is_over:
            event = self._changed
            try:
                await asyncio.wait_for(event.wait(), timeout_seconds)
            except TimeoutError:
                return version
        return self.version

    def _wake_soon(self) -> None:
        self._loop.call_later(COALESCE_SECONDS, self._wake)

    def _wake(self) -> None:
        with self._lock:
            self._is_scheduled = False
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()


class JobFeed:
    """The rows of all jobs in a namespace ("" is all of them), with the last losses of each. Thread-safe.

    It follows the kinds that the cluster serves and the person may list. Those that are added later follow. `idle` are
    the jobs whose GPUs are unused, as a reader has noted them.
    """

    def __init__(self, user: User, namespace: str, notifier: Notifier, clock: Clock) -> None:
        self.changes = notifier
        self.idle = IdleJobs()
        self._user = user
        self._namespace = namespace
        self._clock = clock
        self._losses: dict[str, deque[float]] = {}
        self._lock = threading.Lock()
        self._contents: TTLCache[Hashable, str] = TTLCache(_MAX_CONTENTS, _CONTENT_SECONDS, timer=clock.monotonic)
        self._contents_lock = threading.Lock()
        # Replaced, and never changed.
        self._informers: Mapping[ClientKind, Informer[JobRow]] = {}
        # None while no kind is followed whose statuses leave out why pods wait.
        self._pods: WaitingPods | None = None
        self._stopped = threading.Event()
        self._thread = SupervisedThread("job-kinds", self._follow_kinds, stop=self._stopped, clock=clock)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._lock:
            self._stopped.set()
        # The thread ends by itself, as soon as its request does.
        InformerGroup([*self._informers.values()], self._clock).stop(_STOP_SECONDS)
        if self._pods is not None:
            self._pods.stop(_STOP_SECONDS)

    def note_idle(self, idle: IdleJobs) -> None:
        """Which jobs leave their GPUs unused has been read."""
        if idle != self.idle:
            self.idle = idle
            self.changes.notify()

    @property
    def kinds(self) -> Sequence[ClientKind]:
        """The kinds that are shown now; none before the API server has answered which it serves."""
        return tuple(self._shown)

    @property
    def is_synced(self) -> bool:
        informers = self._shown.values()
        return bool(informers) and all(informer.is_synced for informer in informers)

    @property
    def problems(self) -> Sequence[str]:
        """Why rows are missing or may be old, in sentences for people."""
        return _problems(self._shown.values())

    def rows(self) -> list[JobRow]:
        rows = [row for informer in self._shown.values() for row in informer.store.list()]
        waits = self._pods.reasons() if self._pods is not None else {}
        return [with_pod_reason(row, waits[row.metadata.uid]) if row.metadata.uid in waits else row for row in rows]

    @property
    def _shown(self) -> Mapping[ClientKind, Informer[JobRow]]:
        """The informers without those of kinds that the cluster lacks, unless it lacks all."""
        informers = self._informers
        return {kind: informer for kind, informer in informers.items() if not informer.is_unserved} or informers

    def content(self, selection: Hashable, read: Callable[[], str]) -> str:
        """The result of `read` for the present rows; other readers of the same selection wait for it and share it."""
        with self._contents_lock:
            key = selection, self.changes.version, tuple(self.problems), self.is_synced
            if (content := self._contents.get(key)) is None:
                content = self._contents[key] = read()
            return content

    def losses(self, uid: str) -> Sequence[float]:
        """The last finite values of the job's loss, oldest first."""
        with self._lock:
            return tuple(self._losses.get(uid, ()))

    # The thread of the kinds

    def _follow_kinds(self) -> None:
        while not self._stopped.is_set():
            kinds = self._listed_kinds()
            self._follow(kinds)
            if self._pods is None and any(kind.owns_pods for kind in kinds):
                self._follow_pods()
            self._clock.sleep(_KINDS_SECONDS, self._stopped)

    def _listed_kinds(self) -> Sequence[ClientKind]:
        """The kinds to follow; without an answer of the API server those of before, or this project's."""
        known = [kind for kind, informer in self._informers.items() if informer.is_synced and not informer.last_error]
        try:
            return self._user.listed_kinds(self._namespace, known)
        except (ApiError, ClientError):
            return tuple(self._informers) or OWN_KINDS

    def _follow(self, kinds: Sequence[ClientKind]) -> None:
        before = self._informers
        added = {kind: self._informer(kind) for kind in kinds if kind not in before}
        dropped = [informer for kind, informer in before.items() if kind not in kinds]
        with self._lock:
            if self._stopped.is_set():
                return
            self._informers = {kind: before.get(kind) or added[kind] for kind in kinds}
            for informer in added.values():
                informer.start()
        if dropped:
            InformerGroup(dropped, self._clock).stop(_STOP_SECONDS)
            self.changes.notify()

    def _follow_pods(self) -> None:
        try:
            if not self._user.may("list", PODS, self._namespace):
                return
        except ApiError:
            return
        with self._lock:
            if not self._stopped.is_set():
                self._pods = WaitingPods(self._user, self._namespace, self.changes.notify, self._clock)
                self._pods.start()

    def _informer(self, kind: ClientKind) -> Informer[JobRow]:
        rows = kind.resource.with_decoder(row_decoder(kind))
        informer = Informer(self._user.requester, rows, namespace=self._namespace, clock=self._clock)
        informer.add_handler(self)
        return informer

    # Called by the threads of the informers.

    def on_add(self, obj: JobRow, is_initial: bool) -> None:
        self._record(obj)

    def on_update(self, old: JobRow, new: JobRow) -> None:
        self._record(new, old.loss)

    def on_delete(self, obj: JobRow, final: bool) -> None:
        with self._lock:
            self._losses.pop(obj.metadata.uid, None)
        self.changes.notify()

    def _record(self, row: JobRow, before: float | None = None) -> None:
        if row.loss is not None and math.isfinite(row.loss) and row.loss != before:
            with self._lock:
                self._losses.setdefault(row.metadata.uid, deque(maxlen=_LOSSES)).append(row.loss)
        self.changes.notify()


@dataclass(frozen=True, slots=True)
class WatchedJob:
    """What a watch keeps of a job: an object has up to 1.5 MB, and a page may be open for days."""

    kind: ClientKind
    namespace: str
    name: str
    uid: str
    child_selector: str
    """Empty before the job has children."""

    @staticmethod
    def of(snapshot: Snapshot) -> WatchedJob:
        meta = snapshot.metadata
        return WatchedJob(
            snapshot.kind, meta.namespace, meta.name, meta.uid, snapshot.kind.child_selector(snapshot.job)
        )


@dataclass(frozen=True, slots=True)
class JobView:
    """What the page of a job shows: its head and details as one text, and the names of its replicas, chief first."""

    html: str = ""
    replicas: Sequence[str] = ()


class JobWatch:
    """Wakes the readers of one job's page: its object or one of its pods has changed. Thread-safe.

    What a page shows is read from the API server once for all its readers. `reported` has the metrics of its status
    since the watch began, and `use` what its pods used when a reader asked last.
    """

    def __init__(self, user: User, job: WatchedJob, notifier: Notifier, clock: Clock) -> None:
        self.changes = notifier
        self.reported = ReportedMetrics()
        self.use = ShownUse()
        self.namespace = job.namespace
        self._clock = clock
        namespace, kind = job.namespace, job.kind
        named = f"metadata.name={job.name}"
        jobs = kind.resource.with_decoder(_status_decoder(kind))
        informers = [Informer(user.requester, jobs, namespace=namespace, field_selector=named, clock=clock)]
        if labels := job.child_selector:
            informers.append(Informer(user.requester, _PODS, namespace=namespace, label_selector=labels, clock=clock))
        for informer in informers:
            informer.add_handler(self)
        self._informers = informers
        self._group = InformerGroup(informers, clock)
        self._lock = threading.Lock()
        self._read: tuple[int, JobView] | None = None

    def start(self) -> None:
        self._group.start()

    def stop(self) -> None:
        self._group.stop(_STOP_SECONDS)

    @property
    def is_synced(self) -> bool:
        return self._group.is_synced

    @property
    def problems(self) -> Sequence[str]:
        """Why what is shown may be old, in sentences for people."""
        return _problems(self._informers)

    # Called by the threads of the informers.

    def on_add(self, obj: _Watched, is_initial: bool) -> None:
        self._record(obj)

    def on_update(self, old: _Watched, new: _Watched) -> None:
        self._record(new)

    def on_delete(self, obj: _Watched, final: bool) -> None:
        self.changes.notify()

    def _record(self, obj: _Watched) -> None:
        self.reported.record(obj.metrics, self._clock.now().timestamp())
        self.changes.notify()

    def content(self, read: Callable[[], JobView]) -> JobView:
        """The result of `read` for the present version; other readers of the same version wait for it."""
        with self._lock:
            version = self.changes.version
            if self._read is None or self._read[0] != version:
                self._read = (version, read())
            return self._read[1]

    @property
    def last_content(self) -> JobView:
        """The last result of `content`, which may be old; empty before there is one."""
        read = self._read
        return read[1] if read is not None else JobView()


def _problems(informers: Iterable[Informer[Any]]) -> list[str]:
    return [error for informer in informers if (error := informer.last_error)]


class _Watched(msgspec.Struct, frozen=True):
    """What is kept of an object: a job's metrics, and of a pod nothing but that it has changed."""

    metadata: ObjectMeta
    metrics: Mapping[str, float] = {}


_PODS = PODS.with_decoder(kept_decoder(_Watched))


def _status_decoder(kind: ClientKind) -> Callable[[bytes | msgspec.Raw], _Watched]:
    def decode_status(raw: bytes | msgspec.Raw) -> _Watched:
        job = kind.resource.decode(raw)
        return _Watched(identity_of(job.metadata), metrics_of(job))

    return decode_status


class Followed(Protocol):
    """What streams follow: changes, whether all has been read once, and why what they show may be old, for people."""

    @property
    def changes(self) -> Notifier: ...
    @property
    def is_synced(self) -> bool: ...
    @property
    def problems(self) -> Sequence[str]: ...


class Feed(Protocol):
    """What `Feeds` starts and stops, in threads of its own choice."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    @property
    def changes(self) -> Notifier: ...


FeedT = TypeVar("FeedT", bound=Feed)


class _Entry:
    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.readers = 0
        self.unused_since = 0.0
        # Starts and stops one after the other.
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        async with self._lock:
            if not self.feed.changes.is_over:
                await asyncio.to_thread(self.feed.start)

    async def stop(self) -> None:
        self.feed.changes.end()
        async with self._lock:
            await asyncio.to_thread(self.feed.stop)


class Feeds:
    """The feeds that run. For the event loop's thread; informers are started and stopped by other threads."""

    def __init__(
        self,
        clock: Clock,
        each: int = FEEDS_EACH,
        total: int = MAX_FEEDS,
        starts_per_second: float = STARTS_PER_SECOND,
    ) -> None:
        self._clock = clock
        self._entries: dict[Hashable, _Entry] = {}
        self._places: Shares[Hashable] = Shares(each, total)
        self._starts = TokenBuckets(starts_per_second, 2 * each, clock)

    def jobs(self, user: User, namespace: str) -> AbstractAsyncContextManager[JobFeed]:
        """The rows of a namespace, followed at least until the end of the block."""
        key = (user.identity, namespace)
        return self._reading(user, key, lambda notifier: JobFeed(user, namespace, notifier, self._clock))

    def job(self, user: User, job: WatchedJob) -> AbstractAsyncContextManager[JobWatch]:
        """The changes of one job, by its UID, followed at least until the end of the block."""
        return self._reading(user, (user.identity, job), lambda notifier: JobWatch(user, job, notifier, self._clock))

    def running_job(self, user: User, job: WatchedJob) -> JobWatch | None:
        """The feed of a job, if its page is open."""
        entry = self._entries.get((user.identity, job))
        return entry.feed if entry is not None and isinstance(entry.feed, JobWatch) else None

    @asynccontextmanager
    async def _reading(self, user: User, key: Hashable, make: Callable[[Notifier], FeedT]) -> AsyncIterator[FeedT]:
        if key not in self._entries:
            await self._wait_for_start(user)
        entry, is_new = self._entries.get(key), False
        ended = self._unused(except_for=key)
        if entry is None:
            entry, is_new = _Entry(make(Notifier(asyncio.get_running_loop()))), True
            ended += self._places.take(user.person, key)
            self._entries[key] = entry
        else:
            self._places.renew(key)
        entry.readers += 1
        try:
            await self._stop(ended)
            if is_new:
                await entry.start()
            yield cast(FeedT, entry.feed)
        finally:
            entry.readers -= 1
            entry.unused_since = self._clock.monotonic()
            if not entry.readers and self._entries.get(key) is entry:
                self._places.demote(key)

    async def _wait_for_start(self, user: User) -> None:
        """Waits until the person may start another feed. The accounts of a namespace count as one person."""
        bucket = self._starts.of(tenant_of(user.person))
        while not bucket.try_take():
            await asyncio.sleep(_START_POLL_SECONDS)

    async def stop(self) -> None:
        await self._stop(list(self._entries))

    def _unused(self, except_for: Hashable) -> list[Hashable]:
        """The feeds that were kept long enough; they no longer have places."""
        now = self._clock.monotonic()
        unused = [
            key
            for key, entry in self._entries.items()
            if not entry.readers and key != except_for and now - entry.unused_since > KEPT_SECONDS
        ]
        for key in unused:
            self._places.release(key)
        return unused

    async def _stop(self, keys: list[Hashable]) -> None:
        entries = [self._entries.pop(key) for key in keys]
        await asyncio.gather(*(entry.stop() for entry in entries))
