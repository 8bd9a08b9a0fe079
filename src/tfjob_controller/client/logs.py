"""Logs of training programs: which replicas are chosen, and when their logs can be read."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tfjob_controller.api.common.core import PODS, ContainerStatus, Pod, Terminated
from tfjob_controller.client.diagnostics.replicas import NOT_STARTED, failure_of, replica_blamed, replica_views
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.kinds import status_of
from tfjob_controller.client.reader import Reader
from tfjob_controller.jobs.state.podreasons import exit_text, why_never_started
from tfjob_controller.jobs.state.pods import (
    blocking_init_container,
    last_exit,
    native_sidecars,
    training_container,
    was_started,
)
from tfjob_controller.jobs.state.replica_state import FAILED, SUCCEEDED, UNKNOWN, ReplicaState
from tfjob_controller.jobs.state.restarts import next_restart_counts, restarts_of
from tfjob_controller.jobs.trainingjob import is_finished
from tfjob_controller.kube.requester import LineStream, Requester, server_now

ALL_REPLICAS = "all"
# A program may print nothing for hours; TCP keepalive detects a dead connection.
_SILENT_SECONDS = 7 * 86400.0
_ANSWER_SECONDS = 30.0
_LOOK_SECONDS = 1.0
# A kubelet reports as a log that it has removed the container (pkg/kubelet/kuberuntime/kuberuntime_container.go).
_NO_LOG_KEPT = b"unable to retrieve container logs for "


@dataclass(frozen=True, slots=True)
class LogOptions:
    """`replica` is an id, a replica type in lower case, "all", or empty; `tail` None is all lines.

    Empty is the replica because of which the job has failed, if there is one with that reason, and otherwise the chief.
    With `over_restarts` a followed log ends with the replica, and not with one run of it. Lines are cut after
    `max_line_bytes`, unless that is 0. `container` is one of any kind in the replica's pod, by default that of the
    program; `since_seconds` leaves out older lines, and `timestamps` begins each line with its time.
    """

    replica: str = ""
    follow: bool = False
    previous: bool = False
    tail: int | None = None
    over_restarts: bool = False
    max_line_bytes: int = 0
    container: str = ""
    since_seconds: int | None = None
    timestamps: bool = False

    def query(self, container: str) -> dict[str, str]:
        flags = {"follow": self.follow, "previous": self.previous, "timestamps": self.timestamps}
        bounds = {"tailLines": self.tail, "sinceSeconds": self.since_seconds}
        query = {"container": container} | {name: "true" for name, value in flags.items() if value}
        return query | {name: str(value) for name, value in bounds.items() if value is not None}


class LogReader:
    """Reads the logs of one job. Raises `ClientError`, or `ApiError`.

    The log of a replica is that of its training container, unless the options name another one; while that has not
    started because an init container failed, it is the log of the init container. `say` is called with the reason why a
    followed log waits, and `note` with what distinguishes the lines that follow from those of the first run of the
    program. Thread-safe; after `close` all `lines` end.
    """

    def __init__(
        self,
        requester: Requester,
        reader: Reader,
        name: str,
        options: LogOptions,
        say: Callable[[str], None] = lambda reason: None,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._requester = requester
        self._reader = reader
        self._name = name
        self._options = options
        self._say = say
        self._note = note
        self._closed = threading.Event()
        self._look_lock = threading.Lock()
        self._looked_at = -math.inf
        self._seen: tuple[list[ReplicaState], bool] = ([], False)
        self._failure = self._reason = ""
        self._restart_counts: Mapping[str, int] = {}
        self._is_suspended = False
        self._lock = threading.Lock()
        self._streams: set[LineStream] = set()

    def chosen(self) -> list[ReplicaState]:
        """The chosen replicas; none once closed. When following, waits until the job has replicas."""
        views = self._views()
        if not views and self._closed.is_set():
            return []
        if not views:
            command = f"kubectl tfjob describe {self._reader.kind.word}/{self._name} -n {self._reader.namespace}"
            raise ClientError(f"{self._name} has not started: `{command}` shows the reason")
        wanted = self._options.replica
        if not wanted:
            return [self._default(views)]
        if wanted == ALL_REPLICAS:
            return views
        selected = [view for view in views if wanted in (view.replica.id, view.replica.role.name)]
        if not selected:
            ids = ", ".join(view.replica.id for view in views[:8])
            raise ClientError(f"{self._name} has no replica {wanted}: it has {ids}{' …' if len(views) > 8 else ''}")
        return selected

    def _default(self, views: Sequence[ReplicaState]) -> ReplicaState:
        """The replica that the reason of a failed job names first, or else the chief, which comes first."""
        by_id = {view.replica.id: view for view in views}
        cause = by_id.get(replica_blamed(self._failure, by_id))
        if cause is None and self._failure and self._reader.kind.owns_pods:  # whose reasons name no replica
            cause = next((view for view in views if view.state == FAILED), None)
        if cause is None or cause is views[0]:
            return views[0]
        chosen = cause if self._has_log(cause) or not self._has_log(views[0]) else views[0]
        self._note(
            f"{self._name} has failed: {self._failure.removesuffix('.')}; this is the log of {chosen.replica.id}"
        )
        return chosen

    def _has_log(self, view: ReplicaState) -> bool:
        run = _run_of(view, self._options.container)
        return run is not None and run.has_started and (run.restarts > 0 or not self._options.previous)

    def _views(self) -> list[ReplicaState]:
        views, is_over = self._look()
        if self._options.follow and not views and not is_over:
            self._say(f"waiting for {self._name}: it has not started yet")
            while not (views or is_over or self._closed.wait(_LOOK_SECONDS)):
                views, is_over = self._look()
        return views

    def lines(self, replica_id: str) -> Iterator[bytes]:
        """The lines without their ends. Closing the iterator ends the connection.

        If followed over restarts, these are the lines of all runs of the replica, in any pod, until it succeeds or the
        job ends. Otherwise, and for a container that the options name, a followed log ends with its first run.
        """
        last: _Run | None = None
        while (run := self._next_run(replica_id, last)) is not None:
            query = self._options.query(run.container)
            if last is not None:  # the bounds were of the first run; of the same run only new lines are to be read
                query.pop("tailLines", None)
                query.pop("sinceSeconds", None)
                query |= {"tailLines": "0"} if run.is_same(last) else {}
            if run.note and not self._options.previous and not (last is not None and run.is_same(last)):
                self._note(run.note)
            yield from self._read(run, query)
            is_last = run.is_program and not self._options.over_restarts
            if not self._options.follow or self._options.container or is_last:
                return
            last = run

    def _read(self, run: _Run, query: dict[str, str]) -> Iterator[bytes]:
        if self._options.previous and not run.restarts:
            raise ClientError(f"{run.replica} has no previous run: its program was not restarted in the present pod")
        path = PODS.path(self._reader.namespace, run.pod.metadata.name, "log")
        silent = _SILENT_SECONDS if self._options.follow else _ANSWER_SECONDS
        most = self._options.max_line_bytes
        stream = self._requester.stream(path, query=query, read_timeout_seconds=silent, max_line_bytes=most)
        with stream as lines, self._known(lines):
            for number, line in enumerate(lines):
                if self._options.previous and number == 0 and line.startswith(_NO_LOG_KEPT):
                    gone = f"the node no longer has the log of the previous run of {run.replica}"
                    raise ClientError(f"{gone}: without -p, the log of the last run is shown")
                yield line

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            streams = list(self._streams)
        for stream in streams:
            stream.close()

    @contextmanager
    def _known(self, lines: LineStream) -> Iterator[None]:
        """Registers a stream for `close`, which may have been called already."""
        with self._lock:
            self._streams.add(lines)
        try:
            if self._closed.is_set():
                lines.close()
            yield
        finally:
            with self._lock:
                self._streams.discard(lines)

    def _next_run(self, replica_id: str, last: _Run | None) -> _Run | None:
        """The newest run, if followed once its program has started; None if none comes after `last`, or once closed."""
        reported = ""
        if last is not None:
            self._closed.wait(_LOOK_SECONDS)
        while not self._closed.is_set():
            views, is_over = self._look()
            view = next((view for view in views if view.replica.id == replica_id), None)
            run = None if self._never_started(view, is_over) else _run_of(view, self._options.container)
            if run is not None and run.has_started and run.follows(last, is_over=is_over):
                return run
            if last is not None and (is_over or view is None or view.state == SUCCEEDED):
                return None
            has_ended = run is not None and last is not None and run.is_same(last) and not (view and view.pending)
            why = "its program has ended" if has_ended else self._why_no_log(view, is_over)
            if is_over or not self._options.follow:
                raise ClientError(f"{replica_id} has no log: {why}")
            if why != reported:
                self._say(f"waiting for {replica_id}: {why}")
                reported = why
            self._closed.wait(_LOOK_SECONDS)
        return None

    def _never_started(self, view: ReplicaState | None, is_over: bool) -> bool:
        """Whether the job has failed because this program cannot start, even if its pod was then stopped."""
        is_last = not (self._options.previous or self._options.container)
        return is_over and is_last and view is not None and self._failure.startswith(_cannot_start(view))

    def _why_no_log(self, view: ReplicaState | None, is_over: bool) -> str:
        if view is not None and view.exited is not None and (reason := why_never_started(view.exited)):
            what = f"its init container {view.ended_in}" if view.ended_in else "it"
            return f"{what} cannot start: {reason}"
        if is_over and view is not None and self._failure.startswith(_cannot_start(view)):
            return f"it{self._failure.removeprefix(view.replica.id)}"
        if is_over and (view is None or view.pod is None):
            ended = f"the job has failed ({self._failure})" if self._failure else "the job has ended"
            if view is not None and view.state == NOT_STARTED:
                return f"{ended} before it was started"
            setting = self._reader.kind.keeps_pods
            keeps = f" (`{setting}` keeps them)" if setting else ""
            return f"{ended}, and pods that still ran were deleted{keeps}"
        if view is None:
            return "the job no longer has this replica"
        if is_over:
            return view.pending or "its program was never started"
        init = blocking_init_container(view.pod) if view.pod is not None else None
        if init is not None:
            return f"its init container {init.name} runs, and -c {init.name} shows its log"
        if view.state == UNKNOWN:
            return "the job is suspended" if self._is_suspended else "its pods are stopped"
        # The reason of the job may come from events, such as those about a quota.
        told = self._reason.removeprefix(f"{view.replica.id}: ")
        if why := told if told != self._reason else view.pending:
            return why
        has_run = restarts_of(view.replica.id, next_restart_counts([view], self._restart_counts)) > 0
        return "it waits for its next start" if has_run else "it has not started yet"

    def _look(self) -> tuple[list[ReplicaState], bool]:
        """The replicas, and whether the job has ended; one read serves all followed replicas."""
        with self._look_lock:
            if time.monotonic() - self._looked_at >= _LOOK_SECONDS / 2:
                job = self._reader.job(self._name)
                observed = self._reader.children(job)
                status = status_of(job)
                self._seen = list(replica_views(job, observed, server_now(self._requester))), is_finished(status)
                self._failure, self._reason, self._is_suspended = failure_of(status), status.reason, job.spec.suspend
                self._restart_counts = status.restart_counts
                self._looked_at = time.monotonic()
            return self._seen


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of a container of a replica: its pod, and the restarts there before it.

    The container is the training container, or an init container that failed before it. `exited` is how the container
    ended last.
    """

    replica: str
    pod: Pod
    container: str
    is_program: bool
    restarts: int = 0
    has_started: bool = False
    is_running: bool = False
    exited: Terminated | None = None

    def is_same(self, other: _Run) -> bool:
        return self._is_of_container(other) and self.restarts == other.restarts

    def follows(self, last: _Run | None, *, is_over: bool) -> bool:
        """Whether more can be read than was read of `last`: while the job runs, its stream may have been cut off."""
        if last is None or not self._is_of_container(last) or self.restarts > last.restarts:
            return True
        return self.is_running and not is_over

    def _is_of_container(self, other: _Run) -> bool:
        return (self.pod.metadata.uid, self.container) == (other.pod.metadata.uid, other.container)

    @property
    def note(self) -> str:
        """Says that the lines are not those of the program, or that an earlier run failed; empty for a first run."""
        if self.exited is None or (self.is_program and not self.is_running):
            return ""
        ended = exit_text(self.exited)
        if not self.is_program:
            return f"{self.replica} has not started: its init container {self.container} failed ({ended}); its log:"
        moment = f" at {self.exited.finished_at}" if self.exited.finished_at else ""
        return f"{self.replica} was restarted in its pod: the previous run ended{moment} with {ended}"


def _run_of(view: ReplicaState | None, container: str = "") -> _Run | None:
    """Of the container of that name, or else of the program. Raises `ClientError` if the pod has no such container."""
    if view is None or view.pod is None:
        return None
    init: ContainerStatus | None = None
    if container:
        status = _status_of(view, view.pod, container)
    elif not view.is_up and view.exited is not None and why_never_started(view.exited):
        return None
    else:
        container = view.replica.role.container
        init = None if was_started(view.pod, container) else _failed_init(view.pod)
        status = init or training_container(view.pod, container)
    if status is None:
        return _Run(view.replica.id, view.pod, container, is_program=True)
    return _Run(
        view.replica.id,
        view.pod,
        status.name,
        is_program=init is None,
        restarts=status.restart_count,
        has_started=status.state.waiting is None or status.restart_count > 0 or init is not None,
        is_running=status.state.running is not None,
        exited=last_exit(status),
    )


def _status_of(view: ReplicaState, pod: Pod, container: str) -> ContainerStatus | None:
    """Returns None if the kubelet has not reported any container yet."""
    statuses = {status.name: status for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)}
    if statuses and container not in statuses:
        raise ClientError(f"{view.replica.id} has no container {container}: it has {', '.join(statuses)}")
    return statuses.get(container)


def _failed_init(pod: Pod) -> ContainerStatus | None:
    """The init container whose last run failed. A native sidecar that was ended with the pod is not the cause."""
    sidecars = native_sidecars(pod)
    for status in pod.status.init_container_statuses:
        exited = last_exit(status)
        if exited is not None and exited.exit_code != 0 and status.name not in sidecars:
            return status
    return None


def _cannot_start(view: ReplicaState) -> str:
    """How the reason of a job begins that has failed because of that."""
    return f"{view.replica.id} cannot start: "
