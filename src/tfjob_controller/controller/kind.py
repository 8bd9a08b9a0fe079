"""The adapter of a kind of job: what the reconciler must know where kinds differ."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol, TypeVar

from tfjob_controller.api.common.status import TrainingStatus
from tfjob_controller.kube.meta import Object, Resource
from tfjob_controller.trainer.plan.model import Plan
from tfjob_controller.trainer.state.observed import ObservedState, TrainingJob

_JobT = TypeVar("_JobT", bound=Object, contravariant=True)


class KindAdapter(Protocol[_JobT]):
    """One kind of job. No method does I/O."""

    @property
    def resource(self) -> Resource: ...

    @property
    def status_debounce_seconds(self) -> float:
        """How long a status write that changes only counts is delayed at first."""

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
        """Follows the logs that the job reports metrics in, and adds to `observed` whether one is still unread."""

    def status_change(self, job: _JobT, status: TrainingStatus) -> Mapping[str, Any] | None:
        """The merge patch for /status; None if nothing differs."""

    def status_written(self, before: TrainingJob, status: TrainingStatus, now: datetime) -> None:
        """Reports the transitions of a written status to metrics."""

    def forget(self, key: str) -> None:
        """Releases what is kept for a job that is finished or does not exist any more."""
