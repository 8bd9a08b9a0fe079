"""What the controller must know where kinds of jobs differ. A kind implements it in its folder of `kinds`.

Threads: any; workers share one adapter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from tfjob_controller.api.common.core import Pod
from tfjob_controller.controller.handlers import TriggerLog
from tfjob_controller.jobs.conditions import PodEvent, StatusEvent
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.state.observed import ObservedState
from tfjob_controller.jobs.trainingjob import TrainingJob, TrainingStatus
from tfjob_controller.kube.cache.informer import Informer
from tfjob_controller.kube.meta import Object, Resource
from tfjob_controller.kube.workqueue.queue import RateLimitingQueue

# The delay of a status whose metrics change all the time.
METRICS_DEBOUNCE_SECONDS = 5.0
# How long after its creation a job waits for its runtime.
RUNTIME_TIMEOUT_SECONDS = 15.0

_JobT = TypeVar("_JobT", bound=Object, contravariant=True)


class KindAdapter(Protocol[_JobT]):
    """One kind of job: the part that each kind has. The other protocols here are optional. No method does I/O."""

    @property
    def resource(self) -> Resource[Object]: ...

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

    def plan(self, job: _JobT) -> Plan:
        """Raises UnplannableError."""

    def status_change(self, job: _JobT, status: TrainingStatus) -> Mapping[str, Any] | None:
        """The merge patch for /status; None if nothing differs."""


@runtime_checkable
class WithIdentity(Protocol[_JobT]):
    """A kind whose jobs get an identity before their first child is created."""

    def has_identity(self, job: _JobT) -> bool: ...

    def identity_patch(self, job: _JobT) -> Mapping[str, Any]:
        """Returns the patch that gives an identity to a job without one."""


@runtime_checkable
class WithLogs(Protocol[_JobT]):
    """A kind that reads metrics or checkpoints from the logs of its jobs."""

    def follow_logs(self, job: _JobT, plan: Plan, observed: ObservedState) -> ObservedState:
        """Follows the logs, and adds to `observed` what is read, or that one is unread."""

    def forget_logs(self, key: str) -> None:
        """Releases what is kept for a job that is finished or does not exist any more."""


@runtime_checkable
class WithRecord(Protocol[_JobT]):
    """A kind whose own status has not all fields of `TrainingStatus`: the others are recorded in the job."""

    def record_change(self, job: _JobT, status: TrainingStatus) -> Mapping[str, Any] | None:
        """The merge patch of the record; None if nothing differs.

        It is written before the status, which follows from it.
        """


@runtime_checkable
class WithEvents(Protocol[_JobT]):
    """A kind whose clients expect other events than those of `jobs`, and one for each kind of children."""

    def events(self, job: _JobT, status: TrainingStatus, events: Sequence[StatusEvent]) -> Sequence[StatusEvent]:
        """Returns the events of a status that was written, instead of `events`. `job` has the status before it."""

    def pod_events(self, job: _JobT, pods: Iterable[Pod]) -> Iterable[PodEvent]:
        """Returns what can be told of the pods of a running job; the caller omits what it has told before."""

    def deletion_event(self, job: _JobT) -> StatusEvent:
        """Returns the event of a job that was deleted because its time to live is over."""


class KindCaches(Protocol):
    """The informers of one kind of job, and of what its jobs refer to."""

    @property
    def jobs(self) -> Informer[Any]: ...

    @property
    def all(self) -> Sequence[Informer[Any]]: ...

    def feed(self, queue: RateLimitingQueue[str], triggers: TriggerLog) -> None:
        """Makes every relevant change of these objects queue the keys of jobs."""
