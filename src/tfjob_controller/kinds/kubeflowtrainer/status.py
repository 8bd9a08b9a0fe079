"""Converts between `TrainingStatus`, on which decisions are made, and what a TrainJob of Kubeflow Trainer stores.

Upstream's status has conditions of three types and counts of child Jobs, and the API server drops every other field.
Clients rely on that: the SDK takes any condition as a sign that a job does not run. Decisions need more, such as the
number of restarts. So the status is recorded in an annotation of the job, which is written first, and upstream's status
is computed from it. The record has the names of a TFJob's status, without what these jobs do not have: scaling, steps
and checkpoints. It names the UID of its job, so it is ignored in a copied manifest. A job without a record that
upstream's own controller has finished stays finished.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import msgspec
from cachetools import LRUCache, cached
from msgspec.structs import replace

from tfjob_controller.api.common.record import MAX_RECORD, RecordedCount
from tfjob_controller.api.common.status import JobCondition
from tfjob_controller.api.kubeflowtrainer.types import (
    COMPLETE,
    FAILED,
    SUSPENDED,
    KubeflowCondition,
    KubeflowTrainJob,
    KubeflowTrainJobStatus,
    ReplicatedJobStatus,
)
from tfjob_controller.api.kubeflowtrainer.validation import unsupported_runtime
from tfjob_controller.jobs import conditions, reasons
from tfjob_controller.jobs.state import replica_state
from tfjob_controller.jobs.status.summary import last_phase
from tfjob_controller.jobs.trainingjob import (
    PHASE_CREATING,
    RoleStatus,
    TrainingStatus,
    ready_by_role,
)
from tfjob_controller.kinds.reasons import ALL_JOBS_COMPLETED, JOBS_BUILD_FAILED
from tfjob_controller.kinds.wirestatus import ready_count, role_state, shared_fields
from tfjob_controller.util.timestamps import parse_time

# Upstream's reasons and messages (kubeflow/trainer pkg/constants, kubernetes-sigs/jobset pkg/constants).
RUNTIME_NOT_SUPPORTED = "TrainingRuntimeNotSupported"
FAILED_JOBS, FAILED_JOBS_MESSAGE = "FailedJobs", "jobset failed due to one or more job failures"
COMPLETED_MESSAGE = "jobset completed successfully"
SUSPENDED_MESSAGE, RESUMED_MESSAGE = "TrainJob is suspended", "TrainJob is resumed"
DEADLINE_MESSAGE = "TrainJob exceeded its active deadline"

_JOB_FAILURES = (reasons.REPLICA_FAILED, reasons.BACKOFF_LIMIT_EXCEEDED)


class _RecordedRole(msgspec.Struct, frozen=True, omit_defaults=True):
    role: str = msgspec.field(name="tf_replica_type", default="")
    state: str = ""
    states: dict[str, RecordedCount] = msgspec.field(name="ReplicasStates", default_factory=dict)


class _RecordedStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    phase: str = ""
    state: str = ""
    reason: str = ""
    replica_statuses: tuple[_RecordedRole, ...] = ()
    conditions: tuple[JobCondition, ...] = ()
    observed_generation: int = 0
    start_time: str | None = None
    completion_time: str | None = None
    restarts: RecordedCount = 0
    disruptions: RecordedCount = 0
    restart_counts: dict[str, RecordedCount] = {}
    succeeded_indexes: tuple[str, ...] = ()
    # Text such as 3/4, by role.
    ready: dict[str, str] = {}
    summary: str = ""


class _Record(msgspec.Struct, frozen=True):
    """What the annotation has, as JSON."""

    uid: str
    status: _RecordedStatus


_decode = msgspec.json.Decoder(_Record).decode


def record_of(job: KubeflowTrainJob, status: TrainingStatus) -> str:
    """Returns the value of the annotation."""
    recorded = _RecordedStatus(
        **shared_fields(status),
        state=status.state,
        replica_statuses=tuple(_RecordedRole(role.role, role_state(role.states), role.states) for role in status.roles),
        conditions=status.conditions,
        ready=ready_by_role(status),
    )
    return msgspec.json.encode(_Record(job.metadata.uid, recorded)).decode()


def _status_in(record: _RecordedStatus) -> TrainingStatus:
    """Returns the status from which `record_of` made this record."""
    return TrainingStatus(
        **shared_fields(record),
        state=record.state,
        roles=tuple(
            RoleStatus(role.role, role.states, ready_count(record.ready.get(role.role, "")))
            for role in record.replica_statuses
        ),
        conditions=record.conditions,
    )


def recorded_status(job: KubeflowTrainJob) -> TrainingStatus:
    """Returns the recorded status; an empty one if there is no record and the job has not ended."""
    text = job.metadata.annotations.record
    record = _decoded(text) if text and len(text) <= MAX_RECORD else None
    if record is not None and record.status is not None and record.uid == job.metadata.uid:
        return record.status
    return _ended_elsewhere(job.status)


@dataclass(frozen=True, slots=True)
class _Decoded:
    """The status in a record and the UID of its job, and the bytes that they may take with the text."""

    uid: str
    status: TrainingStatus | None
    size: int


# Users can write the annotation as well, so the bound is one on bytes.
_CACHED_BYTES = 8 * 1024 * 1024
_cached: LRUCache[str, _Decoded] = LRUCache(_CACHED_BYTES, getsizeof=lambda entry: entry.size)
# Of a short text the entry itself, and of a long one the many small values that it may have.
_ENTRY_BYTES, _BYTES_OF_CHARACTER = 2048, 16


# A sync reads the record of its job several times.
@cached(_cached, lock=threading.Lock())
def _decoded(text: str) -> _Decoded:
    record, size = _read_record(text), _ENTRY_BYTES + len(text) * _BYTES_OF_CHARACTER
    return _Decoded("", None, size) if record is None else _Decoded(record.uid, _status_in(record.status), size)


def _read_record(text: str) -> _Record | None:
    """Returns a record whose times are times."""
    try:
        record = _decode(text)
        status = record.status
        for time in (
            status.start_time,
            status.completion_time,
            *(one.last_transition_time for one in status.conditions),
        ):
            if time is not None:
                parse_time(time)
    except (msgspec.DecodeError, ValueError):
        return None
    return record


def _ended_elsewhere(status: KubeflowTrainJobStatus) -> TrainingStatus:
    ends = {condition.type: condition for condition in status.conditions if condition.status == conditions.TRUE}
    end = ends.get(COMPLETE) or ends.get(FAILED)
    if end is None:
        return TrainingStatus()
    succeeded = end.type == COMPLETE
    return TrainingStatus(
        phase=last_phase(succeeded),
        state=replica_state.SUCCEEDED if succeeded else replica_state.FAILED,
        completion_time=end.last_transition_time or None,
    )


def upstream_status(job: KubeflowTrainJob, status: TrainingStatus) -> KubeflowTrainJobStatus:
    """Returns the status as upstream writes it. The job supplies what others report (`trainerStatus`)."""
    if not status.conditions:
        # Of a job that another controller has finished.
        return job.status
    return replace(
        job.status,
        conditions=tuple(_upstream_conditions(job, status)),
        jobs_status=tuple(_job_status(role, status) for role in status.roles),
    )


def _upstream_conditions(job: KubeflowTrainJob, status: TrainingStatus) -> list[KubeflowCondition]:
    """Returns upstream's conditions; the one that ends the job comes last, where kubectl shows it."""
    wire = []
    suspended = conditions.find(status.conditions, conditions.SUSPENDED)
    if suspended is not None:
        is_suspended = suspended.status == conditions.TRUE
        reason = reasons.SUSPENDED if is_suspended else reasons.RESUMED
        message = SUSPENDED_MESSAGE if is_suspended else RESUMED_MESSAGE
        wire.append(_condition(SUSPENDED, suspended, reason, message))
    for own, type_ in ((conditions.SUCCEEDED, COMPLETE), (conditions.FAILED, FAILED)):
        ended = conditions.find(status.conditions, own)
        if ended is not None and ended.status == conditions.TRUE:
            wire.append(_condition(type_, ended, *_why_ended(job, ended)))
    return wire


def _condition(type_: str, own: JobCondition, reason: str, message: str) -> KubeflowCondition:
    return KubeflowCondition(type_, own.status, reason, message, own.last_transition_time)


def _why_ended(job: KubeflowTrainJob, ended: JobCondition) -> tuple[str, str]:
    if ended.type == conditions.SUCCEEDED:
        return ALL_JOBS_COMPLETED, COMPLETED_MESSAGE
    if ended.reason == reasons.DEADLINE_EXCEEDED:
        return reasons.DEADLINE_EXCEEDED, DEADLINE_MESSAGE
    if ended.reason == reasons.INVALID_SPEC:
        unsupported = unsupported_runtime(job)
        return (RUNTIME_NOT_SUPPORTED, unsupported) if unsupported else (JOBS_BUILD_FAILED, ended.message)
    if ended.reason in _JOB_FAILURES:
        return FAILED_JOBS, f"{FAILED_JOBS_MESSAGE}: {ended.message}"
    return ended.reason, ended.message


def _has_failed_job(role: RoleStatus, status: TrainingStatus) -> bool:
    """Reports whether the job failed because of a replica of this role that could have been retried once more."""
    failed = conditions.find(status.conditions, conditions.FAILED)
    if failed is None or failed.status != conditions.TRUE or failed.reason not in _JOB_FAILURES:
        return False
    # Such a message begins with the id of the replica.
    return failed.message.partition(" ")[0].rstrip(":").rpartition("-")[0] == role.role


def _job_status(role: RoleStatus, status: TrainingStatus) -> ReplicatedJobStatus:
    """Returns the state of a role's Job. It is ready if all its pods are ready or have succeeded."""
    states = role.states
    total, succeeded = role.replicas, states.get(replica_state.SUCCEEDED, 0)
    is_complete = 0 < total == succeeded
    is_failed = bool(states.get(replica_state.FAILED)) or _has_failed_job(role, status)
    has_ended = any(conditions.has_true(status.conditions, end) for end in (conditions.SUCCEEDED, conditions.FAILED))
    runs = not (is_complete or is_failed or has_ended)
    is_suspended = conditions.has_true(status.conditions, conditions.SUSPENDED)
    return ReplicatedJobStatus(
        role.role,
        ready=int(runs and not is_suspended and 0 < total <= role.ready),
        succeeded=int(is_complete),
        failed=int(is_failed),
        active=int(runs and not is_suspended and replica_state.RUNNING in states),
        suspended=int(runs and is_suspended and status.phase == PHASE_CREATING),
    )
