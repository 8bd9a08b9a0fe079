"""A handle of one job: its last known state, and the calls that read, change and wait for it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from tfjob_controller.api.common.core import decode_scale
from tfjob_controller.api.common.managedby import is_managed_here
from tfjob_controller.api.common.status import JobCondition
from tfjob_controller.client.errors import ClientError, JobDeletedError, JobEndedError, WaitTimeoutError
from tfjob_controller.client.kinds import AnyJob, Snapshot, kind_of
from tfjob_controller.client.reader import Connection, Reader
from tfjob_controller.client.text import Columns, Table, age, html_fields
from tfjob_controller.client.waitconditions import SUCCEEDED, Until, check_name, condition_text, is_deletion, is_reached
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.errors import NOT_FOUND_REASON, ApiError
from tfjob_controller.kube.requester import server_now

if TYPE_CHECKING:
    from tfjob_controller.client.diagnostics.description import Description, EventRow
    from tfjob_controller.client.jobclass import JobClass
    from tfjob_controller.client.logstreams import LogLine

# The controller writes the status in between, which makes the version stale.
_SCALE_TRIES = 10
# Changes of jobs that have not ended.
SCALED, SUSPENDED, RESUMED = "scaled", "suspended", "resumed"


class Job:
    """A handle of one job, by its UID: never of another job that takes its name later.

    Its properties return what was read last, by `refresh`, `wait` or any call that changes the job; they send no
    request. Every call raises `ClientError`. Thread-safe: the last state is one immutable value.
    """

    __slots__ = ("_connection", "_snapshot")

    def __init__(self, connection: Connection, snapshot: Snapshot) -> None:
        self._connection = connection
        self._snapshot = snapshot

    def __repr__(self) -> str:
        return f"<{self.kind} {self.namespace}/{self.name}: {self.phase or 'not processed by a controller yet'}>"

    def _repr_html_(self) -> str:
        phase = self.phase or "not processed by a controller yet"
        shown = {"Job": f"{self.namespace}/{self.name}", "Kind": self.kind, "Phase": phase, "Reason": self.reason}
        return html_fields(shown)

    # The last state

    @property
    def snapshot(self) -> Snapshot:
        """The state that was read last."""
        return self._snapshot

    @property
    def kind(self) -> str:
        """The kind in lower case, such as tfjob or pytorchjob."""
        return self._snapshot.kind.word

    @property
    def name(self) -> str:
        return self._snapshot.metadata.name

    @property
    def namespace(self) -> str:
        return self._snapshot.metadata.namespace

    @property
    def uid(self) -> str:
        return self._snapshot.metadata.uid

    @property
    def phase(self) -> str:
        """Creating, Running, CleanUp, Failed or Done; empty before the controller saw the job."""
        return self._snapshot.phase

    @property
    def state(self) -> str:
        """The state in the spelling of its kind: Running of a TFJob, RUNNING of a TrainJob."""
        return self._snapshot.job.status.state

    @property
    def reason(self) -> str:
        """The reason of the state, in words a user can act on; set while the job waits, too."""
        return self._snapshot.reason

    @property
    def job_class(self) -> JobClass:
        """What has to be done about the job: `Needs you`, Queued, Starting, Running, Suspended, Failed or Done."""
        from tfjob_controller.client.jobclass import class_of

        return class_of(self._snapshot.job)

    @property
    def conditions(self) -> tuple[JobCondition, ...]:
        return self._snapshot.conditions

    @property
    def metrics(self) -> dict[str, float]:
        """The last value of each metric that node 0 of a TrainJob printed; empty for a TFJob."""
        return {name: float(value) for name, value in self._snapshot.kind.metrics_of(self._snapshot.job).items()}

    @property
    def manifest(self) -> dict[str, Any]:
        """A copy of the object as the API server returned it, without managedFields."""
        return self._snapshot.manifest

    def refresh(self) -> Job:
        """Read the job again. Raises `JobDeletedError`."""
        with self._connection.client_errors(), self._deletion_errors():
            return self._update(self._client().get(self.namespace, self.name))

    def wait(self, until: Until = SUCCEEDED, timeout_seconds: float | None = None) -> Job:
        """Return once the job has reached `until`; without a timeout, however long that takes.

        With 0 seconds it checks once. `until` is a condition (Scheduled, Running, Suspended, …) in any case, Succeeded
        (of any kind), Failed, Ended (Succeeded or Failed), Deleted, or a function of a `Snapshot`. A job that has
        succeeded counts as one that ran. Raises `JobFailedError` with the job's reason if it fails, `JobEndedError` if
        it ends otherwise, `JobDeletedError`, and `WaitTimeoutError`. It watches, and survives an API server that is
        unavailable for a while.
        """
        check_name(until)
        if is_deletion(until):
            self._await_deletion(timeout_seconds)
            return self
        if timeout_seconds is not None and timeout_seconds <= 0 and is_reached(self.refresh()._snapshot, until):
            return self
        for snapshot in self._watched(timeout_seconds):
            if snapshot is None:
                raise self._deleted()
            if is_reached(self._update(snapshot)._snapshot, until):
                return self
        failure = f"{self.namespace}/{self.name} did not reach {condition_text(until)} within {timeout_seconds:g} s"
        now = f"it is {self.phase}" if self.phase else "no controller has processed it yet"
        raise WaitTimeoutError(f"{failure}: {self.reason or now}")

    def describe(self) -> Description:
        """Why the job does or does not run: replicas, conditions, events. Reads them now."""
        from tfjob_controller.client.diagnostics.description import describe
        from tfjob_controller.client.diagnostics.replicas import replica_views
        from tfjob_controller.client.statusreports import CONTROLLER, job_reports

        snapshot = self.refresh().snapshot
        requester = self._connection.requester
        now = server_now(requester)
        with self._connection.client_errors():
            reader = self._reader()
            views = replica_views(snapshot.job, reader.children(snapshot.job), now)
            gangs = reader.gangs(snapshot) if snapshot.waits_for_capacity else ()
            reports = job_reports(requester, snapshot, gangs, self._connection.controller_namespace)
            is_ours = not snapshot.has_ended and is_managed_here(snapshot.job.spec.managed_by)
            notices = [report.notice(now) for report in reports.values() if is_ours]
            return describe(snapshot.job, views, reader.events, reports[CONTROLLER].time, notices)

    def events(self) -> Table[EventRow]:
        """The events about the job of the last hour or so, oldest first. Reads them now."""
        from tfjob_controller.client.diagnostics.description import event_rows

        with self._connection.client_errors():
            rows = event_rows(self.name, self._reader().events(self.uid))
        columns: Columns[EventRow] = {
            "Last seen": lambda row: row.last_seen,
            "Type": lambda row: row.type,
            "Reason": lambda row: row.reason,
            "Times": lambda row: str(row.count),
            "Note": lambda row: row.note,
        }
        return Table(rows, columns)

    def logs(
        self,
        replica: str | None = None,
        follow: bool = False,
        tail: int | None = None,
        previous: bool = False,
        max_line_bytes: int = 0,
        container: str = "",
        since_seconds: int | None = None,
        timestamps: bool = False,
    ) -> Iterator[LogLine]:
        """The lines that the training programs printed. `print` shows the replica in front of each line.

        `replica` is one (`worker-1`), a role (`worker`, `node`), or `all`; default: the chief, or the replica because
        of which the job has failed, with a warning about it. `follow` waits for the program to start, and continues
        until it ends; with several replicas their lines come as they are printed.
        `tail` gives the last lines alone, `previous` the run before the last restart. `max_line_bytes` cuts longer
        lines, which otherwise are kept in memory until they end. `container` is another one of the pod, such as an init
        container or a sidecar; `since_seconds` leaves out older lines, and `timestamps` begins each line with its time.
        For one thread; closing the iterator closes its
        connections. If the program has not started because an init container failed, the lines are those of the init
        container, and a warning names it. A replica without a log is a warning where others have one.
        """
        from tfjob_controller.client.logs import LogOptions, LogReader
        from tfjob_controller.client.logstreams import log_lines, stream_logs

        options = LogOptions(
            replica or "",
            follow,
            previous,
            tail,
            max_line_bytes=max_line_bytes,
            container=container,
            since_seconds=since_seconds,
            timestamps=timestamps,
        )
        reader = LogReader(self._connection.requester, self._reader(), self.name, options, note=_warn)
        with self._connection.client_errors():
            chosen = [view.replica.id for view in reader.chosen()]
        items = stream_logs(reader, chosen, follow=follow)
        return log_lines(items, len(chosen), self._connection.client_error)

    # Changes

    def scale(self, n: int, dry_run: bool = False) -> Job:
        """Request `n` workers, or nodes of a TrainJob.

        Where the kind has a scale subresource, as TFJobs of v1alpha1, the right to write it suffices. The nodes of a
        started TrainJob can change only if it has `elasticPolicy`. With `dry_run` the server only checks the change,
        here and in the other changes. Raises `JobEndedError`.
        """
        check_size(self._snapshot, n)
        kind = self._snapshot.kind
        if not kind.has_scale_right:
            snapshot = self.refresh().snapshot
            check_unended(snapshot, SCALED)
            return self._patched(_change(kind.size_field_of(snapshot.job), n), dry_run)
        for _ in range(_SCALE_TRIES):
            if self._scaled(n, dry_run):
                return self.refresh()
        raise ClientError(f"{self.namespace}/{self.name} keeps changing: scale it again in a moment")

    def suspend(self, dry_run: bool = False) -> Job:
        """Delete its pods and keep the job; `resume` runs it again. Raises `JobEndedError`."""
        return self._with_suspend(True, dry_run)

    def resume(self, dry_run: bool = False) -> Job:
        """Let a suspended job run again. Raises `JobEndedError`."""
        return self._with_suspend(False, dry_run)

    def delete(self, wait: bool = False, timeout_seconds: float | None = None, dry_run: bool = False) -> None:
        """Delete that very job and all that belongs to it. With `wait`, return once the job no longer exists."""
        with self._connection.client_errors(), self._deletion_errors():
            self._client().delete(self.namespace, self.name, uid=self.uid, dry_run=dry_run)
        if wait and not dry_run:
            self._await_deletion(timeout_seconds)

    # Internals

    def _await_deletion(self, timeout_seconds: float | None) -> None:
        if timeout_seconds is not None and timeout_seconds <= 0:
            try:
                self.refresh()
            except JobDeletedError:
                return
        for snapshot in self._watched(timeout_seconds):
            if snapshot is None or snapshot.metadata.uid != self.uid:
                return
        raise WaitTimeoutError(f"{self.namespace}/{self.name} was not deleted within {timeout_seconds:g} s")

    def _reader(self) -> Reader:
        return Reader(self._connection.requester, self.namespace, self._snapshot.kind)

    def _watched(self, timeout_seconds: float | None) -> Iterator[Snapshot | None]:
        from tfjob_controller.client.listwatch import watch_job

        seconds = math.inf if timeout_seconds is None else timeout_seconds
        deadline = self._connection.clock.monotonic() + seconds
        with self._connection.client_errors():
            yield from watch_job(self._connection, self._snapshot.kind, self.namespace, self.name, deadline)

    def _client(self) -> ResourceClient[Snapshot]:
        return self._connection.of(self._snapshot.kind)

    def _scaled(self, n: int, dry_run: bool) -> bool:
        """False on a conflicting change. The scale subresource checks the version, but not the UID."""
        snapshot = self.refresh().snapshot
        check_unended(snapshot, SCALED)
        change = {"metadata": {"resourceVersion": snapshot.metadata.resource_version}, "spec": {"replicas": n}}
        scales = ResourceClient(self._connection.requester, self._snapshot.kind.resource.with_decoder(decode_scale))
        with self._connection.client_errors():
            try:
                scales.patch(self.namespace, self.name, change, subresource="scale", dry_run=dry_run)
            except ApiError as error:
                if error.is_conflict:
                    return False
                raise
        return True

    def _with_suspend(self, wanted: bool, dry_run: bool) -> Job:
        snapshot = self.refresh().snapshot
        check_unended(snapshot, SUSPENDED if wanted else RESUMED)
        if snapshot.job.spec.suspend == wanted:
            return self
        return self._patched(_change(snapshot.kind.suspend_field, wanted), dry_run)

    def _patched(self, change: dict[str, Any], dry_run: bool) -> Job:
        with self._connection.client_errors(), self._deletion_errors():
            # The UID makes the server refuse the change if another job has the name.
            change = {"metadata": {"uid": self.uid}, **change}
            patched = self._client().patch(self.namespace, self.name, change, dry_run=dry_run)
            return self if dry_run else self._update(patched)

    @contextmanager
    def _deletion_errors(self) -> Iterator[None]:
        try:
            yield
        except ApiError as error:
            if _is_another(error) or (error.is_not_found and error.reason == NOT_FOUND_REASON):
                raise self._deleted() from None
            raise

    def _update(self, snapshot: Snapshot) -> Job:
        if snapshot.metadata.uid != self.uid:
            raise self._deleted()
        self._snapshot = snapshot
        return self

    def _deleted(self) -> JobDeletedError:
        return JobDeletedError(f"{self.namespace}/{self.name} was deleted")


def _change(field: Sequence[str], value: Any) -> dict[str, Any]:
    """The patch that sets a field of the spec, by its path there."""
    for name in reversed(field):
        value = {name: value}
    return {"spec": value}


def check_size(job: Snapshot, n: int) -> None:
    """Raises `ClientError` for a number of workers or nodes that the job cannot have."""
    if isinstance(n, bool) or not isinstance(n, int):
        raise ClientError(f"scale needs a whole number, not {n!r}")
    if violation := job.kind.size_violation(job.job, n):
        field = ".".join(job.kind.size_field_of(job.job))
        raise ClientError(f"{job.kind.word}/{job.metadata.name}: spec.{field}: {violation}")


def check_unended(snapshot: Snapshot, change: str) -> None:
    """Raises `JobEndedError` for a job that has ended, to which a change, such as `SCALED`, would do nothing."""
    if snapshot.has_ended:
        how = "succeeded" if snapshot.has_succeeded else "failed"
        name = f"{snapshot.metadata.namespace}/{snapshot.metadata.name}"
        raise JobEndedError(f"{name} has {how}: a job that has ended cannot be {change}", snapshot.reason)


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)


def _is_another(error: ApiError) -> bool:
    """Whether a job with another UID has the name. A change without a version has no other conflict."""
    return error.is_conflict or any(field == "metadata.uid" for field, _ in error.causes)


Jobs: TypeAlias = Table[Job]


def job_table(jobs: Iterable[Job], now: datetime) -> Jobs:
    """`now`: when they were read."""
    return Table(
        jobs,
        {
            "Namespace": lambda job: job.namespace,
            "Kind": lambda job: job.kind,
            "Name": lambda job: job.name,
            "Phase": lambda job: job.phase,
            "Ready": lambda job: ready_text(job.snapshot.job),
            "Age": lambda job: age(job.snapshot.metadata.creation_timestamp, now),
            "Reason": lambda job: job.reason,
        },
    )


def ready_text(job: AnyJob) -> str:
    """Replicas of each role that are ready, of those wanted."""
    return ", ".join(f"{role} {count}" for role, count in kind_of(job).ready_of(job).items())
