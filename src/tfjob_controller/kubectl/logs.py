"""What the training programs printed, from one replica or from many side by side.

Several replicas are read in turn or, when they are followed, by a thread each; every line begins with its replica.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO

from tfjob_controller.api.core import PODS, Pod
from tfjob_controller.api.tfjob import CONTAINER_NAME
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kubectl.arguments import ALL_REPLICAS
from tfjob_controller.kubectl.describe import views_of
from tfjob_controller.kubectl.errors import CommandError
from tfjob_controller.kubectl.reads import Reader
from tfjob_controller.trainer.phases import is_finished
from tfjob_controller.trainer.pods import training_container
from tfjob_controller.trainer.replicas import View

# A program may print nothing for hours; the kernel's probes notice a connection that is dead.
_SILENT_SECONDS = 7 * 86400.0
_ANSWER_SECONDS = 30.0
_LOOK_SECONDS = 1.0
# Each one followed is a connection of its own through the API server to a kubelet.
MAX_FOLLOWED = 32


@dataclass(frozen=True, slots=True)
class LogOptions:
    """`replica` is an id, a replica type in lower case, "all", or empty for the chief; `tail` None is everything."""

    replica: str = ""
    follow: bool = False
    previous: bool = False
    tail: int | None = None

    def query(self) -> dict[str, str]:
        query = {"container": CONTAINER_NAME}
        if self.follow:
            query["follow"] = "true"
        if self.previous:
            query["previous"] = "true"
        if self.tail is not None:
            query["tailLines"] = str(self.tail)
        return query


def print_logs(requester: Requester, namespace: str, name: str, options: LogOptions, out: BinaryIO) -> int:
    """The exit code is 0 if any of the replicas had a log. Raises `CommandError`, or `ApiError` for the job itself."""
    logs = _Logs(requester, namespace, name, options, out)
    views = logs.chosen()
    if len(views) == 1:
        logs.show(views[0].replica.id, b"")
        return 0
    if options.follow:
        return _all_at_once(logs, [view.replica.id for view in views])
    shown = [logs.try_to_show(view.replica.id, b"[%s] " % view.replica.id.encode()) for view in views]
    return 0 if any(shown) else 1


def _all_at_once(logs: _Logs, ids: Sequence[str]) -> int:
    if len(ids) > MAX_FOLLOWED:
        raise CommandError(
            f"{len(ids)} replicas are too many to follow (at most {MAX_FOLLOWED}): leave out -f, or choose"
        )
    ends: queue.SimpleQueue[bool | OSError] = queue.SimpleQueue()

    def follow(replica_id: str) -> None:
        try:
            ends.put(logs.try_to_show(replica_id, b"[%s] " % replica_id.encode()))
        except OSError as error:  # nobody reads any more
            ends.put(error)

    # Daemons, since Ctrl-C must end the program while they read.
    for each in ids:
        threading.Thread(target=follow, args=(each,), name=f"log-{each}", daemon=True).start()
    shown = False
    for _ in ids:
        end = ends.get()
        if isinstance(end, OSError):
            raise end
        shown = shown or end
    return 0 if shown else 1


class _Logs:
    """Reads the logs of one job. Thread-safe."""

    def __init__(self, requester: Requester, namespace: str, name: str, options: LogOptions, out: BinaryIO) -> None:
        self._requester = requester
        self._reader = Reader(requester, namespace)
        self._namespace = namespace
        self._name = name
        self._options = options
        self._out = out
        self._lock = threading.Lock()

    def chosen(self) -> list[View]:
        views, _ = self._look()
        if not views:
            raise CommandError(f"{self._name} has not started: `kubectl tfjob describe {self._name}` says why")
        wanted = self._options.replica
        if wanted == ALL_REPLICAS:
            return views
        if not wanted:
            return views[:1]  # the chief comes first
        found = [view for view in views if wanted in (view.replica.id, view.replica.role.name)]
        if not found:
            ids = ", ".join(view.replica.id for view in views[:8])
            raise CommandError(f"{self._name} has no replica {wanted}: it has {ids}{' …' if len(views) > 8 else ''}")
        return found

    def try_to_show(self, replica_id: str, prefix: bytes) -> bool:
        """One of many: what is wrong with it is said, and the others go on."""
        try:
            self.show(replica_id, prefix)
        except (ApiError, CommandError) as error:
            words = error.message if isinstance(error, ApiError) else str(error)
            print(f"{replica_id}: {words}", file=sys.stderr)
            return False
        return True

    def show(self, replica_id: str, prefix: bytes) -> None:
        pod = self._started_pod(replica_id)
        path = PODS.path(self._namespace, pod.metadata.name, "log")
        silent = _SILENT_SECONDS if self._options.follow else _ANSWER_SECONDS
        with self._requester.stream(path, query=self._options.query(), read_timeout_seconds=silent) as lines:
            for line in lines:
                with self._lock:
                    self._out.write(prefix + line + b"\n")
                    if self._options.follow:
                        self._out.flush()
        with self._lock:
            self._out.flush()

    def _started_pod(self, replica_id: str) -> Pod:
        """The newest pod; if followed, once its program has started. Raises `CommandError` if there is none."""
        said = ""
        while True:
            views, is_over = self._look()
            view = next((view for view in views if view.replica.id == replica_id), None)
            pod = view.pod if view is not None else None
            if pod is not None and (not self._options.follow or is_over or _has_started(pod)):
                return pod
            why = _why_no_log(view, is_over)
            if is_over or not self._options.follow:
                raise CommandError(f"{replica_id} has no pod: {why}")
            if why != said:
                print(f"waiting for {replica_id}: {why}", file=sys.stderr)
                said = why
            time.sleep(_LOOK_SECONDS)

    def _look(self) -> tuple[list[View], bool]:
        job = self._reader.job(self._name)
        observed = self._reader.children(job)
        return list(views_of(job, observed, datetime.now(UTC))), is_finished(job.status)


def _has_started(pod: Pod) -> bool:
    container = training_container(pod)
    return container is not None and (container.state.waiting is None or container.restart_count > 0)


def _why_no_log(view: View | None, is_over: bool) -> str:
    if is_over:
        return "the job has ended and its pods were deleted (`cleanPodPolicy: None` keeps them)"
    if view is None:
        return "it is not wanted any more"
    return view.pending or "it has not started yet"
