"""Creates the jobs, performs the actions of their plans, and records how each of them ends.

Threads: one watch for each kind; due actions are performed by the caller of `work`. The workers of the fake kubelet
call `behaviour`. A job is recorded from its creation until its deletion, so the record stays small. A job that ended
and was deleted while a broken watch was being reopened counts as unseen, since its result is unknown.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import urllib3

from localcluster.api import Api, RefusedError, Watch
from localcluster.podstatus import Outcome
from soak.plan import (
    COMES_SUSPENDED,
    DELETED,
    FAILED,
    GONE,
    JOB_LABELS,
    RESIZED,
    RESTARTS,
    SUCCEEDED,
    SUSPENDED,
    JobPlan,
    body_of,
    outcome_of,
)

_RETRY_SECONDS = 0.5
_MOST_PROBLEMS = 20
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
# By the type of the condition; that of a TrainJob is Kubeflow Trainer's.
_ENDS = {"Succeeded": SUCCEEDED, "Complete": SUCCEEDED, "Failed": FAILED}

Object = dict[str, Any]


class _Job:
    """A job that exists or is being created."""

    __slots__ = ("created", "ended", "has_failed", "is_created", "plan")

    def __init__(self, plan: JobPlan, created: float) -> None:
        self.plan = plan
        self.created = created
        self.ended = ""
        self.has_failed = False
        # Whether the server has confirmed the creation.
        self.is_created = False


class Owner:
    """The owner of all jobs (see the module). After `patience_seconds` a job that still exists counts as wrong."""

    def __init__(self, namespace: str, ttl_seconds: int, patience_seconds: float) -> None:
        self.completed: Counter[str] = Counter()
        self.wrong = 0
        self.unseen = 0
        self.problems: list[str] = []
        self._namespace = namespace
        self._ttl_seconds = ttl_seconds
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._stopping = threading.Event()
        self._watches: dict[str, Watch] = {}
        self._threads: list[threading.Thread] = []
        self._api: Api

    def start(self, api: Api) -> None:
        """Starts the watches."""
        self._api = api
        for path in JOB_LABELS:
            thread = threading.Thread(target=self._follow, args=(path,), name="soak-watch", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Ends all threads."""
        self._stopping.set()
        for watch in list(self._watches.values()):
            watch.close()
        for thread in self._threads:
            thread.join(5.0)

    @property
    def existing(self) -> int:
        """The number of jobs that are not deleted yet."""
        with self._lock:
            return len(self._jobs)

    def submit(self, plan: JobPlan) -> None:
        """Creates a job and schedules the actions of its scenario for `work`. Raises RefusedError and HTTPError."""
        job = _Job(plan, time.monotonic())
        with self._lock:
            self._jobs[plan.name] = job
        self._api.create(plan.path.format(self._namespace), body_of(plan, self._ttl_seconds))
        job.is_created = True
        for seconds, action in self._actions(plan):
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), action))

    def work(self) -> None:
        """Performs due actions, retries those that the server did not accept, and gives up jobs that do not end."""
        while self._due and self._due[0][0] <= time.monotonic():
            _, _, action = heapq.heappop(self._due)
            try:
                action()
            except (RefusedError, urllib3.exceptions.HTTPError) as error:
                # The job may have ended or may be deleted.
                if not (isinstance(error, RefusedError) and error.status in (404, 422)):
                    heapq.heappush(self._due, (time.monotonic() + _RETRY_SECONDS, next(self._order), action))
        self._give_up()

    def behaviour(self, pod: Object, _: int) -> Outcome:
        """Returns how a pod of these jobs ends, for the fake kubelet."""
        labels = pod["metadata"].get("labels") or {}
        names = [labels[label] for label in JOB_LABELS.values() if label in labels]
        with self._lock:
            job = self._jobs.get(names[0]) if names else None
            if job is None:
                return Outcome()
            found = outcome_of(job.plan, labels.get("job_type", ""), has_failed=job.has_failed)
            if job.plan.scenario == RESTARTS and found.exit_code:
                job.has_failed = True
            return found

    def _actions(self, plan: JobPlan) -> list[tuple[float, Callable[[], object]]]:
        path = f"{plan.path.format(self._namespace)}/{plan.name}"
        begin, end = plan.after_seconds, plan.after_seconds + plan.pause_seconds
        match plan.scenario:
            case scenario if scenario == DELETED:
                return [(begin, lambda: self._api.delete(path, propagationPolicy="Background"))]
            case scenario if scenario == SUSPENDED:
                return [(begin, lambda: self._set(path, suspend=True)), (end, lambda: self._set(path, suspend=False))]
            case scenario if scenario == COMES_SUSPENDED:
                return [(end, lambda: self._set(path, suspend=False))]
            case scenario if scenario == RESIZED:
                return [(begin, lambda: self._set(path, workerReplicas=plan.replicas + 1))]
        return []

    def _set(self, path: str, **spec: Any) -> None:
        self._api.patch(path, {"spec": spec})

    def _give_up(self) -> None:
        limit = time.monotonic() - self._patience_seconds
        with self._lock:
            late = [job for job in self._jobs.values() if job.created < limit]
        for job in late:
            state = f"is {job.ended} and still exists" if job.ended else "has not ended"
            self._finish(job, f"{state} after {self._patience_seconds:.0f} s")

    def _follow(self, path: str) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(urllib3.exceptions.HTTPError, RefusedError, OSError, ValueError):
                self._watch(path)
            self._stopping.wait(_RETRY_SECONDS)

    def _watch(self, path: str) -> None:
        """Watches until the watch ends. It starts with the existing jobs; others were deleted before."""
        absent = self._names(path)
        watch = self._watches[path] = self._api.watch(path.format(self._namespace))
        for kind, obj in watch:
            if self._stopping.is_set():
                return
            name = obj["metadata"].get("name", "")
            absent.discard(name)
            if kind in ("ADDED", "MODIFIED", "DELETED"):
                self._record_end(obj)
            if kind == "DELETED":
                self._handle_deletion(name)
            if kind == "BOOKMARK" and _INITIAL_EVENTS_END in obj["metadata"].get("annotations", {}):
                for name in absent:
                    self._handle_deletion(name, is_seen=False)

    def _names(self, path: str) -> set[str]:
        """Returns the jobs of the kind that the server has confirmed."""
        with self._lock:
            return {name for name, job in self._jobs.items() if job.plan.path == path and job.is_created}

    def _record_end(self, obj: Object) -> None:
        conditions = (obj.get("status") or {}).get("conditions") or ()
        ends = [_ENDS[each["type"]] for each in conditions if each["status"] == "True" and each["type"] in _ENDS]
        with self._lock:
            job = self._jobs.get(obj["metadata"]["name"])
            if job is not None and ends:
                job.ended = ends[0]

    def _handle_deletion(self, name: str, *, is_seen: bool = True) -> None:
        """Handles a deletion; `is_seen` means that the watch has delivered it, and so all earlier changes."""
        with self._lock:
            job = self._jobs.get(name)
        if job is None:
            return
        is_unknown = not is_seen and not job.ended
        self.unseen += is_unknown and job.plan.expected != GONE
        is_right = is_unknown or job.plan.expected in (job.ended, GONE)
        self._finish(job, "" if is_right else f"ended as {job.ended or 'nothing'} instead of {job.plan.expected}")

    def _finish(self, job: _Job, problem: str) -> None:
        with self._lock:
            if self._jobs.pop(job.plan.name, None) is None:
                return
            self.completed[job.plan.scenario] += 1
            if problem:
                self.wrong += 1
                self.problems += [f"{job.plan.name} ({job.plan}) {problem}"][: _MOST_PROBLEMS - len(self.problems)]
