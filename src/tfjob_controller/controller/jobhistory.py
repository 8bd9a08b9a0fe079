"""What the controller asks of a history of ended jobs. A program that keeps one implements it."""

from __future__ import annotations

from typing import Protocol

from tfjob_controller.jobs.trainingjob import TrainingStatus
from tfjob_controller.kube.meta import Object


class JobHistory(Protocol):
    """The history of the jobs of one kind. Any thread; no method does I/O, or waits for it."""

    def seconds_to_wait(self, job: Object, status: TrainingStatus) -> float:
        """Has a job recorded that has ended. Returns how long its clean-up and its deletion wait for that at most.

        0 if it is recorded, or if the time is over. The job is queued when it is recorded.
        """

    def record_deletion(self, job: Object) -> None:
        """Has a job recorded that is being deleted, or that no longer exists, unless it is recorded."""


class _NoHistory:
    def seconds_to_wait(self, job: Object, status: TrainingStatus) -> float:
        return 0.0

    def record_deletion(self, job: Object) -> None:
        pass


NO_HISTORY: JobHistory = _NoHistory()
