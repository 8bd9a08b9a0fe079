"""Reads the number of completed steps from workers' logs, for jobs with a pattern of them.

Theory of operation. One thread polls the workers of all such jobs, which the kind of job names. It reads the end of the
log of each worker every `PERIOD_SECONDS`, more often while the worker is being terminated, and one last time after it
has ended; it keeps the match of the last line that matches. A new value queues the job, whose sync takes it from
`readings_of` and never waits for a log itself.

A node that does not respond delays the other pods by a few seconds, so its pods are skipped for a while after that. If
a log cannot be read, the container's termination message and earlier readings count.

Workers are polled rather than followed: there may be hundreds for each job, and only their last lines matter. A
restarted controller needs no state of this reader, since the job's status has the result.
"""

from __future__ import annotations

import heapq
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import structlog

from tfjob_controller.api.common.core import PODS, Pod
from tfjob_controller.jobs.naming import replica_id_of
from tfjob_controller.jobs.plan.model import StepPattern
from tfjob_controller.jobs.state.observed import Reading
from tfjob_controller.jobs.state.pods import all_containers_ended
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import Object, key_of
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.threads import SupervisedThread

log = structlog.get_logger(__name__)

PERIOD_SECONDS = 2.0
# A worker that is being terminated prints its last lines and is deleted shortly after.
TERMINATING_PERIOD_SECONDS = 0.25
# The end of a log, which covers what a program prints between two polls.
TAIL_LINES = 100
LIMIT_BYTES = 256 * 1024
_ANSWER_SECONDS = 5.0
# A node that takes this long counts as one that does not respond.
_SLOW_SECONDS = 2.0
_REST_SECONDS = 30.0
# A request takes some milliseconds, and other namespaces wait for the round.
MAX_POLLS_OF_NAMESPACE = 100
# For an ended pod, whose node may need a moment to respond.
_LAST_TRIES = 3
# How long readings are kept after their pod is deleted, so that a sync can take them.
RETENTION_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class PolledWorker:
    """A worker that has started: its pod, the container with the log, and what to look for in it."""

    job: Object
    pod: Pod
    container: str
    pattern: StepPattern


@dataclass(slots=True)
class _Known:
    """What is known of one pod's log. Times are monotonic."""

    job_uid: str
    reading: Reading
    seen_at: float
    # The next poll of a running worker, and of any worker whose node does not respond.
    not_before: float = 0.0
    rests_until: float = 0.0
    failures: int = 0


class ProgressReader:
    """See the module. `workers` yields the workers to poll. `enqueue` receives the key of a job with a new reading."""

    def __init__(
        self,
        requester: Requester,
        workers: Callable[[], Iterable[PolledWorker]],
        enqueue: Callable[[str], object],
        clock: Clock,
    ) -> None:
        self._requester = requester
        self._workers = workers
        self._enqueue = enqueue
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        # Nodes that did not respond, and until when their pods are skipped.
        self._silent: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = SupervisedThread("logs", self._run, stop=self._stop, clock=clock)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Returns False if a request still runs after `timeout_seconds`."""
        self._stop.set()
        return self._thread.join(timeout_seconds)

    @property
    def restarts(self) -> int:
        return self._thread.restarts

    def readings_of(self, job_uid: str) -> Mapping[str, Reading]:
        """The readings of a job, by UID of the pod. Any thread."""
        with self._lock:
            return {uid: known.reading for uid, known in self._known.items() if known.job_uid == job_uid}

    def run_round(self) -> bool:
        """Polls the workers that are due, of each namespace a bounded number; False if there is no worker to poll."""
        by_namespace: dict[str, list[tuple[_Known, PolledWorker]]] = defaultdict(list)
        for worker in self._workers():
            by_namespace[worker.job.metadata.namespace].append((self._known_of(worker), worker))
        for workers in by_namespace.values():
            # Workers that end, and then those that have waited longest; the others are due in the next round still.
            due = (entry for entry in workers if self._is_due(*entry))
            first = heapq.nsmallest(
                MAX_POLLS_OF_NAMESPACE, due, key=lambda entry: (not _is_ending(entry[1].pod), entry[0].not_before)
            )
            for known, worker in first:
                if self._stop.is_set():
                    return False
                self._poll(known, worker)
        self._forget()
        return bool(by_namespace)

    def _run(self) -> None:
        rest = 0.0
        while not self._clock.sleep(rest, self._stop):
            rest = TERMINATING_PERIOD_SECONDS if self.run_round() else PERIOD_SECONDS

    def _known_of(self, worker: PolledWorker) -> _Known:
        now, meta = self._clock.monotonic(), worker.pod.metadata
        known = self._known.get(meta.uid)
        if known is None:
            known = _Known(worker.job.metadata.uid, Reading(replica_id_of(meta.labels)), now)
            with self._lock:
                self._known[meta.uid] = known
        known.seen_at = now
        return known

    def _is_due(self, known: _Known, worker: PolledWorker) -> bool:
        due_at = known.rests_until if _is_ending(worker.pod) else known.not_before
        return not known.reading.is_last and self._clock.monotonic() >= due_at

    def _poll(self, known: _Known, worker: PolledWorker) -> None:
        now, pod = self._clock.monotonic(), worker.pod
        # The sync waits for ended workers, so these are tried even on a node that did not respond.
        if now < self._silent.get(pod.spec.node_name, 0.0) and not all_containers_ended(pod):
            return
        known.not_before = now + PERIOD_SECONDS
        before, known.reading = known.reading, self._read(worker, known)
        if known.reading != before:
            self._enqueue(key_of(worker.job))

    def _read(self, worker: PolledWorker, known: _Known) -> Reading:
        pod = worker.pod
        has_ended, begin = all_containers_ended(pod), self._clock.monotonic()
        try:
            text = self._tail_of(worker)
        except ApiError as error:
            log.debug("cannot read a log", pod=pod.metadata.name, error=str(error))
            known.failures += 1
            now = self._clock.monotonic()
            if now - begin > _SLOW_SECONDS:
                known.not_before = known.rests_until = now + _REST_SECONDS
                if pod.spec.node_name:
                    self._silent[pod.spec.node_name] = now + _REST_SECONDS
            return replace(known.reading, is_last=has_ended and known.failures >= _LAST_TRIES)
        known.failures = 0
        match = worker.pattern.last_match(text)
        return replace(known.reading, text=known.reading.text if match is None else match, is_last=has_ended)

    def _tail_of(self, worker: PolledWorker) -> str:
        path = PODS.path(worker.pod.metadata.namespace, worker.pod.metadata.name, "log")
        query = {"container": worker.container, "tailLines": str(TAIL_LINES), "limitBytes": str(LIMIT_BYTES)}
        body = self._requester.request(
            "GET", path, query=query, accept="text/plain, */*", timeout_seconds=_ANSWER_SECONDS, retry=False
        )
        return body.decode("utf-8", "replace")

    def _forget(self) -> None:
        """Drops readings of deleted pods and expired entries of nodes."""
        now = self._clock.monotonic()
        too_old = now - RETENTION_SECONDS
        self._silent = {node: until for node, until in self._silent.items() if until > now}
        with self._lock:
            for uid in [uid for uid, known in self._known.items() if known.seen_at < too_old]:
                del self._known[uid]


def _is_ending(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None or all_containers_ended(pod)
