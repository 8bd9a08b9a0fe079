"""What the controller reports to metrics: every sync, and the transitions of each status that was written."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from tfjob_controller.api.common.status import TrainingStatus
from tfjob_controller.trainer import conditions
from tfjob_controller.trainer.state import observed
from tfjob_controller.trainer.state.observed import TrainingJob
from tfjob_controller.util.timestamps import parse_time


class JobObserver(Protocol):
    """Counts the transitions of jobs."""

    def job_created(self) -> None: ...

    def job_running(self, seconds_since_creation: float) -> None: ...

    def job_restarted(self, restarts: int) -> None: ...

    def job_resized(self, direction: str, reason: str) -> None: ...

    def job_finished(self, state: str, seconds_since_start: float | None) -> None: ...


def observe_status(observer: JobObserver, job: TrainingJob, new: TrainingStatus, now: datetime) -> None:
    """Reports the transitions from the status of `job` to `new`, which was just written."""
    old = job.status
    if not old.phase:
        observer.job_created()
    if new.restarts > old.restarts:
        observer.job_restarted(new.restarts - old.restarts)
    if old.scaling is not None and new.scaling is not None and new.scaling.workers != old.scaling.workers:
        direction = "down" if new.scaling.workers < old.scaling.workers else "up"
        observer.job_resized(direction, "autoscaler" if new.scaling.reason else "spec")
    if new.phase == observed.PHASE_RUNNING and not _has_run(old):
        observer.job_running(_seconds_between(job.metadata.creation_timestamp, now) or 0.0)
    if observed.is_finished(new) and not observed.is_finished(old):
        ended = parse_time(new.completion_time) if new.completion_time else now
        observer.job_finished(new.state, _seconds_between(new.start_time, ended))


def _has_run(status: TrainingStatus) -> bool:
    return any(condition.type == conditions.RUNNING for condition in status.conditions)


def _seconds_between(begin: str | None, end: datetime) -> float | None:
    return max(0.0, (end - parse_time(begin)).total_seconds()) if begin else None


class SyncObserver(Protocol):
    """Is called for every sync, in the worker's thread.

    `result` is success, requeue_after, requeue, error, terminal (a retry cannot help) or panic (a bug).
    """

    def workers_started(self, controller: str, count: int) -> None: ...

    def sync_started(self, controller: str) -> None: ...

    def sync_finished(self, controller: str, result: str, seconds: float) -> None: ...
