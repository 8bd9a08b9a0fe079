"""What the engine asks of a kind of job, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol, TypeVar

from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.kube.meta import Object, Resource
from tfjob_controller.trainer.observed import Observed
from tfjob_controller.trainer.plan import Plan
from tfjob_controller.trainer.work import Work

_JobT = TypeVar("_JobT", bound=Object, contravariant=True)


class KindAdapter(Protocol[_JobT]):
    """What a kind of job is, as far as it differs from the others. All but `told` are pure; none does I/O."""

    @property
    def resource(self) -> Resource: ...

    @property
    def status_debounce_seconds(self) -> float:
        """For how long a change of mere figures rests before it is written."""

    def is_managed(self, job: _JobT) -> bool:
        """False for a job that another controller runs: nothing is ever done about it."""

    def work_of(self, job: _JobT) -> Work: ...

    def problem(self, job: _JobT, before: _JobT | None, *, has_children: bool = False) -> str | None:
        """Why the job cannot be run, if so; `before` is its last valid state that was seen, if any.

        `has_children` says that some were made of it, which its status may not say yet.
        """

    def identity_patch(self, job: _JobT) -> Mapping[str, Any] | None:
        """The change of the spec that gives the job its names, before its first child; None once it has them."""

    def plan(self, job: _JobT) -> Plan:
        """Raises UnplannableError."""

    def follow_logs(self, job: _JobT, plan: Plan, observed: Observed) -> Observed:
        """What the caches hold, and what the kind knows besides."""

    def status_change(self, job: _JobT, status: TrainingStatus) -> Mapping[str, Any] | None:
        """The merge patch for /status, None if nothing differs."""

    def status_written(self, before: Work, status: TrainingStatus, now: datetime) -> None:
        """The status was written: count what it means."""

    def forget(self, key: str) -> None:
        """There is no such job any more."""
