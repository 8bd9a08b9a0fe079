"""What became of a job, for the metrics: told once for each status that was really written."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from tfjob_controller.api.tfjob import TFJob, TFJobStatus
from tfjob_controller.trainer import status as phases


class JobObserver(Protocol):
    """Counts. Times are seconds."""

    def job_created(self) -> None: ...

    def job_running(self, seconds_since_creation: float) -> None: ...

    def job_restarted(self, restarts: int) -> None: ...

    def job_finished(self, state: str, seconds_since_start: float | None) -> None: ...


def tell(observer: JobObserver, job: TFJob, new: TFJobStatus, now: datetime) -> None:
    """Compare the status that `job` had with the one just written."""
    old = job.status
    if not old.phase:
        observer.job_created()
    if new.restarts > old.restarts:
        observer.job_restarted(new.restarts - old.restarts)
    if new.phase == phases.RUNNING and not _has_run(old):
        observer.job_running(_seconds_between(job.metadata.creation_timestamp, now) or 0.0)
    if phases.is_finished(new) and not phases.is_finished(old):
        ended = _moment(new.completion_time) or now
        observer.job_finished(new.state, _seconds_between(new.start_time, ended))


def _has_run(status: TFJobStatus) -> bool:
    return any(condition.type == "Running" for condition in status.conditions) or status.phase == phases.RUNNING


def _seconds_between(begin: str | None, end: datetime) -> float | None:
    moment = _moment(begin)
    return None if moment is None else max(0.0, (end - moment).total_seconds())


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
