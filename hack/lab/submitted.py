"""The jobs of a run: submits them, records their progress, and performs the actions of users.

A job is completed when it has ended, or was deleted by its user or its time to live. Requests that the server does not
process are repeated until it does. A user who deletes a job with the policy `Orphan` deletes the children after the
job.

Threads: one watch for each kind and one timer; all have ended after `stop`. All methods are thread-safe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from lab.injection import REQUEST_ERRORS
from lab.jobs import TFJOB, TFJOBS, TRAINJOBS, JobPlan, manifest, path_of
from lab.mirror import Mirror, name_of
from localcluster.api import Api, RefusedError
from localcluster.timer import Timer

Object = dict[str, Any]

_RETRY_SECONDS = 0.3
_RESUME_SECONDS = 3.0
_ENDED = ("Done", "Failed")
_STARTED = ("Running", "CleanUp", *_ENDED)
_PERMANENT_REFUSALS = (404, 422)
CHILDREN = (
    "/apis/batch/v1/namespaces/{}/jobs",
    "/api/v1/namespaces/{}/services",
    "/api/v1/namespaces/{}/configmaps",
    "/api/v1/namespaces/{}/secrets",
    "/apis/scheduling.kubeflow.org/v1alpha1/namespaces/{}/gangs",
)


@dataclass(slots=True)
class _JobRecord:
    """One job, and the actions of its user."""

    plan: JobPlan
    status: Object = field(default_factory=dict)
    """That of the last version of the job that the watch has delivered."""
    is_ended: bool = False
    is_deleted: bool = False
    deletion: str = ""
    """The propagation policy with which its user deletes it; empty while the user keeps it."""
    has_orphans: bool = False
    suspend: bool = False
    submitted_at: float = field(default_factory=time.monotonic)
    start_seconds: float | None = None
    """How long after its submission its status said for the first time that it runs; None if it has not."""

    @property
    def is_completed(self) -> bool:
        if self.deletion:
            return self.is_deleted and not self.has_orphans
        return self.is_ended or (self.is_deleted and self.plan.has_ttl)


class SubmittedJobs:
    """All jobs of a run (see the module)."""

    def __init__(self, api: Api, namespace: str, *more: str) -> None:
        """`namespace` is that of jobs whose plan names none; `more` are the others."""
        self.api = api
        self.namespace = namespace
        self._records: dict[str, _JobRecord] = {}
        self._lock = threading.Lock()
        self._timer = Timer("jobs-timer")
        paths = [path.format(name) for path in (TFJOBS, TRAINJOBS) for name in (namespace, *more)]
        self._mirrors = [Mirror(api, path, self._note) for path in paths]

    def start(self) -> None:
        for mirror in self._mirrors:
            mirror.start()
        self._timer.start()

    def stop(self) -> None:
        for mirror in self._mirrors:
            mirror.stop()
        self._timer.stop()

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self._timer.later(seconds, action)

    def submit(self, plan: JobPlan, body: Object | None = None) -> None:
        """Creates a job, unless it exists; `body` is its manifest if the plan does not say all.

        Raises RefusedError, and urllib3's HTTPError.
        """
        with self._lock:
            self._records.setdefault(plan.name, _JobRecord(plan))
        self.api.create_if_missing(path_of(plan, self.namespace_of(plan)), body or manifest(plan))
        if plan.is_suspended_at_first:
            self.later(_RESUME_SECONDS, lambda: self.suspend(plan.name, value=False))

    def plan_of(self, name: str) -> JobPlan | None:
        record = self._records.get(name)
        return record.plan if record else None

    def get(self, name: str) -> Object | None:
        """Returns the job as the watch reports it."""
        return next((job for mirror in self._mirrors if (job := mirror.get(name))), None)

    def namespace_of(self, plan: JobPlan) -> str:
        return plan.namespace or self.namespace

    def active(self) -> list[JobPlan]:
        """Returns the jobs that run or wait."""
        return [record.plan for record in self._all() if not (record.is_completed or record.deletion)]

    def existing(self) -> list[JobPlan]:
        """Returns the jobs that no user deletes, including those that have ended."""
        return [record.plan for record in self._all() if not (record.deletion or record.is_deleted)]

    @property
    def completed(self) -> int:
        return sum(record.is_completed for record in self._all())

    @property
    def unfinished(self) -> dict[str, str]:
        """The status of each job that has not completed, by name."""
        return {record.plan.name: self._status_text(record) for record in self._all() if not record.is_completed}

    @property
    def wrong(self) -> dict[str, str]:
        """The status of each job whose result is not the expected one, by name."""
        wrong = {}
        for record in self._all():
            # The state of a TFJob is Succeeded or Failed, that of a TrainJob SUCCESS or FAILED.
            state = str(record.status.get("state")).upper().replace("SUCCEEDED", "SUCCESS")
            if record.is_ended and state != record.plan.expects:
                wrong[record.plan.name] = f"{state}, not {record.plan.expects}: {record.status.get('reason')}"
        return wrong

    @property
    def start_seconds(self) -> dict[str, float]:
        """The seconds from the submission to the start of each job that has started, by name."""
        return {record.plan.name: record.start_seconds for record in self._all() if record.start_seconds is not None}

    def suspend(self, name: str, *, value: bool) -> None:
        """Suspends or resumes a job, with retries until the server accepts it. The last call counts."""
        self._records[name].suspend = value
        self._send_until_accepted(lambda: self._patch(name, {"suspend": self._records[name].suspend}))

    def scale(self, name: str, size: int) -> None:
        """Sets the number of workers, or of nodes. Raises RefusedError, and urllib3's HTTPError."""
        field = "workerReplicas" if self._records[name].plan.kind == TFJOB else "numNodes"
        self._patch(name, {field: size})

    def delete(self, name: str, propagation: str) -> None:
        """Deletes a job, with retries until the server accepts it."""
        record = self._records[name]
        record.deletion = propagation
        record.has_orphans = propagation == "Orphan"
        path = f"{path_of(record.plan, self.namespace_of(record.plan))}/{name}"
        self._send_until_accepted(lambda: self.api.delete(path, propagationPolicy=propagation))

    def children(self, plan: JobPlan, path: str) -> list[Object]:
        """Returns the children of a job. Raises RefusedError, and urllib3's HTTPError."""
        label = "tf_job_name" if plan.kind == TFJOB else "train_job_name"
        return self.api.list(path.format(self.namespace_of(plan)), f"{label}={plan.name}")

    def _patch(self, name: str, spec: Object) -> None:
        plan = self._records[name].plan
        self.api.patch(f"{path_of(plan, self.namespace_of(plan))}/{name}", {"spec": spec})

    def _send_until_accepted(self, request: Callable[[], object]) -> None:
        """Sends a request, with retries unless the server rejects it permanently."""
        try:
            request()
        except REQUEST_ERRORS as error:
            if not (isinstance(error, RefusedError) and error.status in _PERMANENT_REFUSALS):
                self.later(_RETRY_SECONDS, lambda: self._send_until_accepted(request))

    def _note(self, name: str) -> None:
        """Records that a job has changed or was deleted. Called in the watches' threads."""
        record = self._records.get(name)
        if record is None:
            return
        job = self.get(name)
        record.is_deleted = job is None
        if job is not None:
            record.status = job.get("status") or {}
        phase = record.status.get("phase")
        if record.start_seconds is None and phase in _STARTED:
            record.start_seconds = time.monotonic() - record.submitted_at
        record.is_ended = record.is_ended or phase in _ENDED
        if record.is_deleted and record.has_orphans:
            self.later(0.0, lambda: self._delete_orphans(record))

    def _delete_orphans(self, record: _JobRecord) -> None:
        try:
            paths = [
                f"{path.format(self.namespace_of(record.plan))}/{name_of(child)}"
                for path in CHILDREN
                for child in self.children(record.plan, path)
            ]
            for path in paths:
                self.api.delete(path, propagationPolicy="Background")
            record.has_orphans = bool(paths)
        except REQUEST_ERRORS:
            record.has_orphans = True
        if record.has_orphans:
            self.later(_RETRY_SECONDS, lambda: self._delete_orphans(record))

    def _all(self) -> Iterable[_JobRecord]:
        with self._lock:
            return list(self._records.values())

    def _status_text(self, record: _JobRecord) -> str:
        status = record.status
        parts = [status.get("phase"), status.get("state"), status.get("reason"), record.deletion and "to be deleted"]
        return ", ".join(part for part in parts if part) or "no status"
