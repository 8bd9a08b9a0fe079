"""Records jobs that have ended, one after the other, in a thread of its own.

Theory of operation. The reconciler tells of a job up to three times: when it has ended and its pods still exist (its
clean-up waits for the record), when it is cleaned up (its deletion after its time to live waits), and when it is
deleted. The first call records its logs, pods and events; the second adds what came later. A job that was deleted by a
person is recorded in the state that the watch saw last, with the logs of pods that still exist. A call only notes the
job and puts it into a queue, in which namespaces take turns: nothing here delays a sync.

    reconciler ──seconds_to_wait, record_deletion──► queue ──► the thread: read, write, remove what is too much
        ▲                                                        │
        └─────────────── queues the job again ◄──────────────────┘

The wait for one job ends after `WAIT_SECONDS`, whether or not the storage is there. A record that fails is tried again,
less and less often, as long as the job exists; that of a deleted job `_TRIES` times. The number of jobs that are noted
is bounded, and so are the bytes of deleted ones; others are counted as dropped, and continue.

Only the leader syncs jobs, so only the leader writes. Which jobs are recorded is read from the storage, once for each
namespace: a process that starts looks at all jobs that have ended, and records those that the last one did not.

Threads: any for the calls; one thread reads and writes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog
from cachetools import LRUCache
from msgspec.structs import replace

from tfjob_controller.client.history.record import Entry, Record
from tfjob_controller.client.history.store import HistoryStore
from tfjob_controller.controller.handlers import HIGH, LOW, NORMAL
from tfjob_controller.controller.outcome import DONE, Outcome, Retry
from tfjob_controller.jobs.trainingjob import END_PHASES, TrainingStatus, is_finished
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kinds.kindcontroller import Kind
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.flowcontrol import TokenBuckets
from tfjob_controller.kube.meta import Object, namespace_of
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kube.workqueue.metrics import MetricsProvider
from tfjob_controller.kube.workqueue.queue import RateLimiter, RateLimitingQueue
from tfjob_controller.programs.history.contents import client_kind, collect, end_of, last_state, live_job, record_of
from tfjob_controller.programs.history.logs import LogEnds, sources
from tfjob_controller.programs.history.namespaceindex import HistoryLimits, NamespaceIndex
from tfjob_controller.storage.errors import explain
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.timestamps import format_time

log = structlog.get_logger(__name__)

NAME = "history"
# How long the clean-up and the deletion of a job wait for its record, together as long as that fails.
WAIT_SECONDS = 30.0
MAX_NOTED = 20_000
MAX_DELETED_BYTES = 32 * 2**20
_TRIES = 8
_RETRY_BASE_SECONDS, _RETRY_CAP_SECONDS = 1.0, 300.0
_RETRY_RATE, _RETRY_BURST = 2.0, 50
# The records of all namespaces that are known without a listing.
_INDEXED = 50_000
# What another process has recorded so recently may not have its last state.
_RECENT = timedelta(hours=1)

RECORDED, FAILED, DROPPED, REMOVED = "recorded", "failed", "dropped", "removed"


@dataclass(slots=True)
class _Noted:
    """A job that is to be recorded. `ended` is empty for one that was deleted, and `body` is its last state."""

    history: _KindHistory
    namespace: str
    name: str
    uid: str
    ended: str
    is_final: bool
    since: float
    body: bytes | None = None


class Recorder:
    """See the module. `count` counts records by their result. Without `gangs` the cluster has no Gangs."""

    def __init__(
        self,
        requester: Requester,
        store: HistoryStore,
        limits: HistoryLimits,
        clock: Clock,
        *,
        count: Callable[[str], object] = lambda result: None,
        redact: Callable[[str], str] = str,
        metrics: MetricsProvider | None = None,
        gangs: bool = True,
    ) -> None:
        self._requester = requester
        self._store = store
        self._limits = limits
        self._clock = clock
        self._count = count
        self._redact = redact
        self._gangs = gangs
        budgets = TokenBuckets(_RETRY_RATE, _RETRY_BURST, clock)
        limiter = RateLimiter(_RETRY_BASE_SECONDS, _RETRY_CAP_SECONDS, budgets)
        self.queue: RateLimitingQueue[str] = RateLimitingQueue(
            clock, limiter, name=NAME, metrics=metrics, group_of=namespace_of
        )
        self._lock = threading.Lock()  # guards all below
        self._noted: dict[str, _Noted] = {}
        self._deleted_bytes = 0
        self._indexes: LRUCache[str, NamespaceIndex] = LRUCache(
            _INDEXED, getsizeof=lambda index: min(len(index) + 1, _INDEXED)
        )

    def of(self, kind: Kind, enqueue: Callable[[str], object]) -> _KindHistory:
        """The history of the jobs of a kind; `enqueue` queues the job with a key."""
        return _KindHistory(self, kind, client_kind(kind.resource), enqueue)

    def statistics(self) -> Mapping[str, Any]:
        """For the debug page."""
        with self._lock:
            noted, deleted, namespaces = len(self._noted), self._deleted_bytes, len(self._indexes)
        return {"noted": noted, "deleted_bytes": deleted, "namespaces": namespaces, "queue": self.queue.statistics()}

    # What the reconciler calls

    def note(
        self, history: _KindHistory, job: Object, ended: str, *, is_final: bool, body: bytes | None = None
    ) -> float:
        """Has a job recorded. Returns how long to wait for it at most."""
        meta, now = job.metadata, self._clock.monotonic()
        key = f"{meta.namespace}/{history.kind.name}~{meta.uid}"
        with self._lock:
            index = self._indexes.get(meta.namespace)
            if index is not None and _is_done(index, meta.uid, ended, is_final=is_final and body is None):
                return 0.0
            noted = self._noted.get(key)
            if noted is None:
                if len(self._noted) >= MAX_NOTED or not self._has_room(body):
                    self._count(DROPPED)
                    return 0.0
                noted = _Noted(history, meta.namespace, meta.name, meta.uid, ended, is_final, now)
                self._noted[key] = noted
            elif is_final and not noted.is_final:
                # `since` stays: a job whose first record still fails has waited for both.
                noted.is_final = True
            if body is not None and noted.body is None:
                if not self._has_room(body):
                    self._count(DROPPED)
                    return 0.0
                noted.body = body
                self._deleted_bytes += len(body)
            seconds = max(0.0, noted.since + WAIT_SECONDS - now)
        self.queue.add(key, HIGH if body is not None else LOW if is_final else NORMAL)
        return seconds

    def _has_room(self, body: bytes | None) -> bool:
        return self._deleted_bytes + len(body or b"") <= MAX_DELETED_BYTES

    # The thread

    def sync(self, key: str) -> Outcome:
        """Records the job of a key of the queue."""
        with self._lock:
            noted = self._noted.get(key)
            if noted is None:
                return DONE
            is_final, body = noted.is_final, noted.body
        try:
            self._record(noted, body, is_final=is_final)
        except ApiError as error:
            return self._retry(key, noted, f"the history: {error.message}")
        except Exception as error:  # the storage's libraries have many families of errors
            return self._retry(key, noted, self._redact(str(explain(error, "the history"))))
        self._forget(key, noted, body, is_final=is_final)
        return DONE

    def _retry(self, key: str, noted: _Noted, why: str) -> Outcome:
        self._count(FAILED)
        if noted.body is not None and self.queue.num_requeues(key) + 1 >= _TRIES:
            log.warning("job not recorded: it is deleted, and the history cannot be written", error=why)
            self._count(DROPPED)
            self._forget(key, noted, noted.body, is_final=True)
            return DONE
        return Retry(why, is_error=True)

    def _forget(self, key: str, noted: _Noted, body: bytes | None, *, is_final: bool) -> None:
        with self._lock:
            # What was noted meanwhile is due next.
            if noted.is_final == is_final and noted.body is body:
                self._noted.pop(key, None)
                self._deleted_bytes -= len(noted.body or b"")
        noted.history.enqueue(f"{noted.namespace}/{noted.name}")

    def _record(self, noted: _Noted, last: bytes | None, *, is_final: bool) -> None:
        index = self._index_of(noted.namespace)
        if _is_done(index, noted.uid, noted.ended, is_final=is_final and last is None):
            return
        before = self._read(index.entry(noted.uid))
        if before is not None and before.phase in END_PHASES:
            with self._lock:
                index.put(before.entry, 0, is_final=True)
            return
        kind, resource = noted.history.client_kind, noted.history.kind.resource
        body = live_job(self._requester, resource, noted.namespace, noted.name, noted.uid) or last
        if body is None:
            return  # its deletion is noted next, with its last state
        case = collect(self._requester, kind, body, gangs=self._gangs)
        status = kind.work_of(case.seen.job).status
        record, size = record_of(case, before, self._clock.now()), 0
        if before is None:
            record, size = self._write_logs(record, status, case.pods)
        size += self._store.write(record)
        with self._lock:
            index.put(record.entry, size, is_final=is_final)
        self._count(RECORDED)
        log.info("job recorded", kind=record.kind, job=record.name, state=record.state, bytes=size)
        self._remove_surplus(index)

    def _read(self, entry: Entry | None) -> Record | None:
        """The record that was made earlier; None for one that somebody has removed or damaged."""
        try:
            return self._store.read(entry) if entry is not None else None
        except (FileNotFoundError, ValueError):
            return None

    def _write_logs(self, record: Record, status: TrainingStatus, pods: list[dict[str, Any]]) -> tuple[Record, int]:
        ends, files, size = LogEnds(self._requester, record.namespace, self._clock), [], 0
        for entry in ends.read(sources(status, pods)):
            size += self._store.write_log(record.entry, entry.file, entry.content)
            files.append(entry.file)
        return replace(record, logs=files, unread=[*record.unread, *ends.unread]), size

    def _index_of(self, namespace: str) -> NamespaceIndex:
        with self._lock:
            index = self._indexes.get(namespace)
        if index is None:
            recent = self._clock.now() - _RECENT
            self._store.remove_unfinished(namespace, recent)
            # The last leader may still be writing the logs of a job that it records next.
            contents = self._store.contents(namespace, left_before=recent.timestamp())
            index = NamespaceIndex(contents, self._limits, format_time(recent))
            for paths in contents.leftovers.values():
                self._store.remove_files(paths)
            with self._lock:
                self._indexes[namespace] = index
            self._remove_surplus(index)
        return index

    def _remove_surplus(self, index: NamespaceIndex) -> None:
        surplus: list[Entry] = []
        with self._lock:
            surplus.extend(index.surplus())
        for entry in surplus:
            self._store.remove(entry)
            self._count(REMOVED)


def _is_done(index: NamespaceIndex, uid: str, ended: str, *, is_final: bool) -> bool:
    return index.has(uid, is_final=is_final) or (bool(ended) and index.would_remove(ended, uid))


@dataclass(frozen=True, slots=True)
class _KindHistory:
    """`controller.jobhistory.JobHistory` of one kind."""

    recorder: Recorder
    kind: Kind
    client_kind: ClientKind
    enqueue: Callable[[str], object]

    def seconds_to_wait(self, job: Object, status: TrainingStatus) -> float:
        return self.recorder.note(self, job, end_of(status), is_final=is_finished(status))

    def record_deletion(self, job: Object) -> None:
        self.recorder.note(self, job, "", is_final=True, body=last_state(self.kind.resource, job))
