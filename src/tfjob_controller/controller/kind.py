"""What the controller must know where kinds of jobs differ. A kind implements it in its folder of `kinds`.

Threads: any; workers share one adapter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from tfjob_controller.api.common.status import TrainingStatus
from tfjob_controller.controller.handlers import TriggerLog
from tfjob_controller.kube.cache.informer import Informer
from tfjob_controller.kube.meta import Object, Resource
from tfjob_controller.kube.workqueue.queue import RateLimitingQueue
from tfjob_controller.trainer.plan.model import Plan
from tfjob_controller.trainer.state.observed import ObservedState, TrainingJob

# The delay of a status whose metrics change all the time.
METRICS_DEBOUNCE_SECONDS = 5.0
# How long after its creation a job waits for its runtime.
RUNTIME_TIMEOUT_SECONDS = 15.0

_JobT = TypeVar("_JobT", bound=Object, contravariant=True)


class KindAdapter(Protocol[_JobT]):
    """One kind of job. No method does I/O."""

    @property
    def resource(self) -> Resource: ...

    @property
    def status_debounce_seconds(self) -> float:
        """How long a status write that changes only counts is delayed at first."""

    @property
    def is_deleted_when_expired(self) -> bool:
        """Reports whether a job is deleted once its time to live is over. Otherwise only its child Jobs are."""

    def is_managed(self, job: _JobT) -> bool:
        """Reports whether this controller runs the job. Other jobs are never touched."""

    def work_of(self, job: _JobT) -> TrainingJob: ...

    def problem(self, job: _JobT, before: _JobT | None, *, has_children: bool = False) -> str | None:
        """Why the job is invalid, if it is. `before` is the last valid state that was seen, if any.

        `has_children`: children were created, which the status may not show yet.
        """

    def identity_patch(self, job: _JobT) -> Mapping[str, Any] | None:
        """The patch that gives the job its identity before its first child is created; None once it has one."""

    def plan(self, job: _JobT) -> Plan:
        """Raises UnplannableError."""

    def follow_logs(self, job: _JobT, plan: Plan, observed: ObservedState) -> ObservedState:
        """Follows the logs with metrics and checkpoints, and adds to `observed` what is read, or that one is unread."""

    def record_change(self, job: _JobT, status: TrainingStatus) -> Mapping[str, Any] | None:
        """The merge patch that records what the kind's own status has no field for; None if nothing differs.

        It is written before the status, which follows from it.
        """

    def status_change(self, job: _JobT, status: TrainingStatus) -> Mapping[str, Any] | None:
        """The merge patch for /status; None if nothing differs."""

    def status_written(self, before: TrainingJob, status: TrainingStatus, now: datetime) -> None:
        """Reports the transitions of a written status to metrics."""

    def forget(self, key: str) -> None:
        """Releases what is kept for a job that is finished or does not exist any more."""


class KindCaches(Protocol):
    """The informers of one kind of job, and of what its jobs refer to."""

    @property
    def jobs(self) -> Informer[Any]: ...

    @property
    def all(self) -> Sequence[Informer[Any]]: ...

    def feed(self, queue: RateLimitingQueue[str], triggers: TriggerLog) -> None:
        """Makes every relevant change of these objects queue the keys of jobs."""
