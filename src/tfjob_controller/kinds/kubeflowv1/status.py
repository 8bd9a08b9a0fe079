"""Converts between `TrainingStatus`, on which decisions are made, and the status of a job of `kubeflow.org/v1`.

Upstream's clients read the last condition of the list, so its order matters: a condition that changes moves to the end,
Running and Restarting replace each other, and an end makes Running False. Only a job that runs as a gang has the
condition Scheduled, which upstream does not know: it is the first one, so that it is never the state of the job. What
the status has no field for (restarts, and replicas that have succeeded while the job continues) is recorded in an
annotation, which most jobs never get.

Source: kubeflow/trainer release-1.9 pkg/util/status.go, pkg/core/status.go and UpdateJobStatus of each controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from tfjob_controller.api.common.policies import EXIT_CODE
from tfjob_controller.api.common.record import MAX_RECORD, RecordedCount
from tfjob_controller.api.common.status import JobCondition
from tfjob_controller.api.kubeflowv1.types import (
    CREATED,
    FAILED,
    JAX_JOB,
    LAUNCHER,
    MASTER,
    MPI_JOB,
    RESTARTING,
    RUNNING,
    SUCCEEDED,
    SUSPENDED,
    TF_JOB,
    V1_KINDS,
    XGBOOST_JOB,
    V1Condition,
    V1Job,
    V1ReplicaStatus,
    V1Status,
)
from tfjob_controller.jobs import conditions, reasons
from tfjob_controller.jobs.conditions import NORMAL, WARNING, StatusEvent
from tfjob_controller.jobs.naming import selector_string
from tfjob_controller.jobs.state import replica_state
from tfjob_controller.jobs.status.summary import PENDING, SCHEDULING_EVENTS, as_finished
from tfjob_controller.jobs.trainingjob import (
    PHASE_CLEAN_UP,
    PHASE_CREATING,
    PHASE_RUNNING,
    RoleStatus,
    TrainingStatus,
)
from tfjob_controller.kinds.kubeflowv1.plan import deciding_type, type_labels
from tfjob_controller.util.timestamps import parse_time_or_none

_TRUE, _FALSE = conditions.TRUE, conditions.FALSE
_RESUMED = "Resumed"
# Between these, seconds can be added to a time and taken from it.
_YEARS = (1900, 9000)


class _Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the status has no field for. The record of another job, in a copied manifest, does not count."""

    uid: str
    restarts: RecordedCount = 0
    disruptions: RecordedCount = 0
    restart_counts: dict[str, RecordedCount] = {}
    succeeded_indexes: tuple[str, ...] = ()


_decode = msgspec.json.Decoder(_Record).decode


def recorded_status(job: V1Job) -> TrainingStatus:
    """Returns the status of a job as its own status and its record tell it.

    A job that has ended is in the phase CleanUp: its status does not tell whether pods are left to delete.
    """
    record, wire = _record_of(job), {condition.type: condition for condition in job.status.conditions}
    is_true = {name: condition.status == _TRUE for name, condition in wire.items()}
    ended = _end_of(job.status)
    phase, summary = _phase_of(ended, is_true)
    return TrainingStatus(
        phase=phase,
        state={SUCCEEDED: replica_state.SUCCEEDED, FAILED: replica_state.FAILED}.get(ended, replica_state.UNKNOWN),
        reason=wire[ended].message if ended else _why_waiting(wire),
        roles=tuple(_role_of(name, counts) for name, counts in job.status.replica_statuses.items()),
        conditions=tuple(_condition_of(condition) for condition in job.status.conditions),
        start_time=None if is_true.get(SUSPENDED) else _time(job.status.start_time),
        completion_time=_time(job.status.completion_time),
        restarts=record.restarts,
        disruptions=record.disruptions,
        restart_counts=record.restart_counts,
        succeeded_indexes=record.succeeded_indexes,
        summary=summary,
    )


def _why_waiting(wire: Mapping[str, V1Condition]) -> str:
    scheduled = wire.get(conditions.SCHEDULED)
    return f"waits for capacity: {scheduled.message}" if scheduled is not None and scheduled.status == _FALSE else ""


def _time(text: str | None) -> str | None:
    """Returns a time of the status; None for what is none, which only a user with rights on statuses can write."""
    time = parse_time_or_none(text) if text else None
    return text if time is not None and _YEARS[0] < time.year < _YEARS[1] else None


def _end_of(status: V1Status) -> str:
    """Returns the type of the condition with which the job has ended; empty if it has not."""
    true = {condition.type for condition in status.conditions if condition.status == _TRUE}
    return next((name for name in (SUCCEEDED, FAILED) if name in true), "")


def finished_status(job: V1Job) -> TrainingStatus:
    """Returns the recorded status of a job, in which one that has ended is finished."""
    status = recorded_status(job)
    return as_finished(status) if status.phase == PHASE_CLEAN_UP else status


def _phase_of(ended: str, is_true: Mapping[str, bool]) -> tuple[str, str]:
    if ended:
        return PHASE_CLEAN_UP, ended
    if is_true.get(SUSPENDED):
        return PHASE_CREATING, conditions.SUSPENDED
    if is_true.get(RUNNING) or is_true.get(RESTARTING):
        return PHASE_RUNNING, PHASE_RUNNING if is_true.get(RUNNING) else PENDING
    return (PHASE_CREATING, PENDING) if is_true else ("", "")


def _role_of(name: str, counts: V1ReplicaStatus) -> RoleStatus:
    states = {
        replica_state.RUNNING: counts.active,
        replica_state.SUCCEEDED: counts.succeeded,
        replica_state.FAILED: counts.failed,
    }
    return RoleStatus(name.lower(), {state: count for state, count in states.items() if count}, active=counts.active)


def _condition_of(wire: V1Condition) -> JobCondition:
    return JobCondition(wire.type, wire.status, wire.reason, wire.message, wire.last_transition_time or "")


def _record_of(job: V1Job) -> _Record:
    text = job.metadata.annotations.record
    if text and len(text) <= MAX_RECORD:
        try:
            record = _decode(text)
        except msgspec.DecodeError:
            return _Record("")
        if record.uid == job.metadata.uid:
            return record
    return _Record("")


def record_of(job: V1Job, status: TrainingStatus) -> str | None:
    """Returns the record, if it differs from the one that the job has; that of a job that has ended stays."""
    if status.phase not in ("", PHASE_CREATING, PHASE_RUNNING):
        return None
    record = _Record(
        job.metadata.uid, status.restarts, status.disruptions, status.restart_counts, status.succeeded_indexes
    )
    before = _record_of(job)
    return None if replace(record, uid=before.uid) == before else msgspec.json.encode(record).decode()


def wire_status(job: V1Job, status: TrainingStatus, now_text: str) -> V1Status:
    """Returns the status of a job (with its defaults) that follows from `status`. Once it has ended it stays."""
    before = job.status
    if _end_of(before):
        return before
    succeeded = conditions.has_true(status.conditions, conditions.SUCCEEDED)
    return replace(
        before,
        conditions=_Conditions(job, status, now_text).all(),
        replica_statuses=_replica_statuses(job, status, succeeded=succeeded),
        # It stays while the job is suspended.
        start_time=status.start_time or before.start_time,
        completion_time=status.completion_time,
    )


def _replica_statuses(job: V1Job, status: TrainingStatus, *, succeeded: bool) -> Mapping[str, V1ReplicaStatus]:
    kind = V1_KINDS[job.kind]
    by_name = {role.role: role for role in status.roles}
    names: Iterable[str] = job.spec.replica_specs
    if conditions.has_true(status.conditions, conditions.SUSPENDED):
        # A job that is created suspended has no entries yet.
        names = [name for name in names if name in job.status.replica_statuses]
    # Upstream looks at the workers of an MPIJob no more once its launcher has ended.
    has_left_workers = job.kind == MPI_JOB and _has_ended(by_name.get(LAUNCHER.lower()))
    return {
        name: V1ReplicaStatus()
        if has_left_workers and name != LAUNCHER
        else _counts(
            by_name[name.lower()], succeeded=succeeded, selector=_selector(job, name) if kind.has_scale else ""
        )
        for name in names
        if name.lower() in by_name
    }


def _has_ended(role: RoleStatus | None) -> bool:
    """Reports whether a replica of the role has ended for good."""
    return role is not None and any(role.states.get(state) for state in (replica_state.SUCCEEDED, replica_state.FAILED))


def _selector(job: V1Job, type_: str) -> str:
    """Returns the selector of the pods of one type, for the scale subresource."""
    return selector_string(type_labels(job, V1_KINDS[job.kind], type_))


def _counts(role: RoleStatus, *, succeeded: bool, selector: str) -> V1ReplicaStatus:
    """Returns the numbers of pods. Those that still run when the job succeeds count as succeeded."""
    active = 0 if succeeded else role.active
    return V1ReplicaStatus(
        active=active,
        succeeded=role.states.get(replica_state.SUCCEEDED, 0) + role.active - active,
        failed=role.states.get(replica_state.FAILED, 0) + role.ended,
        selector=selector,
    )


def events_of(
    job: V1Job, wire: V1Status, status: TrainingStatus, events: Iterable[StatusEvent]
) -> Iterator[StatusEvent]:
    """Yields upstream's events, which are those of conditions, and why replicas ended, which upstream does not tell."""
    before = {condition.type: (condition.status, condition.reason) for condition in job.status.conditions}
    yield from (event for event in events if event.reason == reasons.RESTARTED or event.reason in SCHEDULING_EVENTS)
    for condition in wire.conditions:
        is_new = before.get(condition.type) != (condition.status, condition.reason)
        if not is_new or condition.type in (CREATED, RUNNING, conditions.SCHEDULED):
            continue
        if condition.type == FAILED and status.reason and status.reason != condition.message:
            yield StatusEvent(WARNING, reasons.REPLICA_FAILED, status.reason)
        reason = f"{job.kind}{FAILED}" if condition.type == FAILED else condition.reason
        yield StatusEvent(WARNING if condition.type == RESTARTING else NORMAL, reason, condition.message)


class _Conditions:
    """The conditions of a job, to which changes are applied in upstream's order."""

    def __init__(self, job: V1Job, status: TrainingStatus, now_text: str) -> None:
        self._job, self._now = job, now_text
        self._list = list(job.status.conditions)
        kind, name, namespace = job.kind, job.metadata.name, job.metadata.namespace
        # Upstream's controllers name a job without a master by its namespace as well.
        is_named_fully = kind in (TF_JOB, JAX_JOB) or MASTER not in job.spec.replica_specs
        who = (
            f"{kind} {namespace}/{name}" if is_named_fully and kind not in (XGBOOST_JOB, MPI_JOB) else f"{kind} {name}"
        )
        self._show_gang(conditions.find(status.conditions, conditions.SCHEDULED))
        self._set(CREATED, True, "Created", f"{kind} {name} is created.")
        if conditions.has_true(status.conditions, conditions.SUSPENDED):
            self._suspend(f"{kind} {name} is suspended.")
        else:
            if self._is_true(SUSPENDED):
                self._set(SUSPENDED, False, _RESUMED, f"{kind} {name} is resumed.")
            self._follow(status, who)
            self._wait(conditions.find(status.conditions, conditions.SCHEDULED), f"{kind} {name}")
        is_success = conditions.has_true(status.conditions, conditions.SUCCEEDED)
        failed = conditions.find(status.conditions, conditions.FAILED)
        is_failure = failed is not None and failed.status == _TRUE and failed.reason == reasons.REPLICA_FAILED
        if kind == XGBOOST_JOB and (is_success or is_failure):
            # Upstream's controller of this kind shows that a job ran, even if its master did not.
            self._run(who)
        if is_success:
            done = "successfully completed" if "/" in who else "is successfully completed"
            self._end(SUCCEEDED, f"{who} {done}.")
        if failed is not None and failed.status == _TRUE:
            # Upstream adds the kind twice.
            word = f"{kind}{FAILED}" if kind == MPI_JOB and is_failure else FAILED
            self._end(FAILED, self._why_failed(status, failed, who), word)

    def all(self) -> tuple[V1Condition, ...]:
        return tuple(self._list)

    def _show_gang(self, scheduled: JobCondition | None) -> None:
        """Sets the condition Scheduled, with the reason and the message that jobs of other kinds have."""
        if scheduled is None:
            return
        present = next((condition for condition in self._list if condition.type == conditions.SCHEDULED), None)
        since = scheduled.last_transition_time
        shown = V1Condition(scheduled.type, scheduled.status, scheduled.reason, scheduled.message, self._now, since)
        if present is not None and replace(present, last_update_time=self._now) == shown:
            return
        self._list = [shown, *(condition for condition in self._list if condition.type != conditions.SCHEDULED)]

    def _wait(self, scheduled: JobCondition | None, who: str) -> None:
        """Makes the last condition tell of a job whose gang waits that it does not run, and is not suspended."""
        if scheduled is None or scheduled.status != _FALSE:
            return
        if self._is_true(RUNNING):
            self._set(RESTARTING, True, RESTARTING, f"{who} is restarting because its gang waits for capacity.")
            self._list = [condition for condition in self._list if condition.type != RUNNING]
        elif self._list[-1].type == SUSPENDED:
            self._list.sort(key=lambda condition: condition.type == CREATED)

    def _suspend(self, message: str) -> None:
        if self._is_true(RUNNING):
            self._set(RUNNING, False, SUSPENDED, message)
        self._set(SUSPENDED, True, SUSPENDED, message)

    def _follow(self, status: TrainingStatus, who: str) -> None:
        """Sets Running and Restarting. While a pod waits to be replaced, the job is restarting."""
        deciding = deciding_type(self._job).lower()
        ended = next((role for role in status.roles if role.ended), None)
        if ended is not None:
            type_ = next(name for name in self._job.spec.replica_specs if name.lower() == ended.role)
            name = self._job.metadata.name
            message = f"job {name} is restarting because {type_} replica(s) failed."
            if self._job.kind == MPI_JOB:
                message = f"{who} is restarting because {ended.ended} {type_} replica(s) failed."
            self._set(RESTARTING, True, RESTARTING, message)
            self._list = [condition for condition in self._list if condition.type != RUNNING]
        elif any(role.active for role in status.roles if role.role == deciding):
            self._run(who)

    def _run(self, who: str) -> None:
        self._set(RUNNING, True, RUNNING, f"{who} is running.")
        self._list = [condition for condition in self._list if condition.type != RESTARTING]

    def _why_failed(self, status: TrainingStatus, failed: JobCondition, who: str) -> str:
        name = self._job.metadata.name
        if failed.reason == reasons.DEADLINE_EXCEEDED:
            return f"Job {name} has failed because it was active longer than specified deadline"
        if failed.reason == reasons.BACKOFF_LIMIT_EXCEEDED:
            return f"Job {name} has failed because it has reached the specified backoff limit"
        if failed.reason != reasons.REPLICA_FAILED:
            return failed.message
        roles = {role.role: role for role in status.roles}
        for type_, spec in self._job.spec.replica_specs.items():
            role = roles.get(type_.lower())
            count = role.states.get(replica_state.FAILED, 0) if role is not None else 0
            if not count:
                continue
            if spec.restart_policy == EXIT_CODE:
                return f'job "{name}" is failing because "{type_}" replica(s) failed.'
            failed_job = f"{who} has failed" if self._job.kind == TF_JOB else f"{self._job.kind} {name} is failed"
            return f"{failed_job} because {count} {type_} replica(s) failed."
        return failed.message

    def _end(self, condition_type: str, message: str, word: str = "") -> None:
        for index, condition in enumerate(self._list):
            if condition.type == RUNNING:
                self._list[index] = replace(condition, status=_FALSE)
        self._set(condition_type, True, word or condition_type, message)

    def _is_true(self, condition_type: str) -> bool:
        return any(condition.type == condition_type and condition.status == _TRUE for condition in self._list)

    def _set(self, condition_type: str, is_true: bool, word: str, message: str) -> None:
        status, reason = (_TRUE if is_true else _FALSE), f"{self._job.kind}{word}"
        present = next((condition for condition in self._list if condition.type == condition_type), None)
        if present is not None and (present.status, present.reason) == (status, reason):
            return
        since = present.last_transition_time if present is not None and present.status == status else self._now
        self._list = [condition for condition in self._list if condition.type != condition_type]
        self._list.append(V1Condition(condition_type, status, reason, message, self._now, since))
