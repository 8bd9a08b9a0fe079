"""The decoders of the controller's caches of children: what it reads of them, within bounds.

Anybody may create objects with the label by which children are watched. So an object whose controller is no job, or
for a pod no Job, leaves nothing but its identity, and of the others only what is read is kept (`kube.kept`). Lists and
texts that are read have bounds: if the containers of a job exceed them, the reasons of the last ones are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from tfjob_controller.api.common.core import (
    JOBS,
    AutoscalerSpec,
    BatchJob,
    Condition,
    ConfigMap,
    ContainerState,
    ContainerStatus,
    HorizontalPodAutoscaler,
    OwnedObject,
    PersistentVolumeClaim,
    Pod,
    PodGroup,
    Secret,
    Service,
)
from tfjob_controller.api.gang import (
    ATTEMPT_LABEL,
    COMPLETION_INDEX_LABEL,
    GANG_LABEL,
    MAX_KINDS,
    MEMBER_KIND_LABEL,
    MEMBER_LABEL,
    Gang,
    gang_decoder,
)
from tfjob_controller.jobs.actions.children import autoscaler_digest, content_digest
from tfjob_controller.jobs.gang.assignment import NODE_LABEL
from tfjob_controller.jobs.gang.podgroup import GROUP_LABEL
from tfjob_controller.jobs.naming import (
    JOB_TYPE,
    KUBEFLOW,
    OPERATOR_NAME_LABEL,
    POD_JOB_NAME,
    REPLICA_RESTARTS,
    RESTART_ATTEMPT,
    RUNTIME_ID,
    TASK_INDEX,
    TF_JOB_NAME,
    TRAIN_JOB_NAME,
)
from tfjob_controller.kube.kept import controlled_below, controlled_by, kept_decoder, within_name
from tfjob_controller.kube.meta import ObjectMeta

ObjectT = TypeVar("ObjectT", BatchJob, Pod)

# All that the controller reads.
LABELS = (
    ATTEMPT_LABEL,
    COMPLETION_INDEX_LABEL,
    GANG_LABEL,
    GROUP_LABEL,
    JOB_TYPE,
    KUBEFLOW,
    MEMBER_KIND_LABEL,
    MEMBER_LABEL,
    NODE_LABEL,
    OPERATOR_NAME_LABEL,
    POD_JOB_NAME,
    REPLICA_RESTARTS,
    RESTART_ATTEMPT,
    RUNTIME_ID,
    TASK_INDEX,
    TF_JOB_NAME,
    TRAIN_JOB_NAME,
)
MAX_CONTAINERS = 32
MAX_CONDITIONS = 32
# What the kubelet leaves of a termination message.
MAX_MESSAGE = 4096
# `status.completedIndexes`, or `failedIndexes`, of 10,000 pods of which each second one has ended so has 49 KB.
MAX_INDEXES = 64 * 1024
# Smaller objects are within the bounds.
_SMALL_BYTES = 16 * 1024
# Of an object that represents a gang: Kueue's Workloads have about ten types of conditions. Messages are bounded
# together.
_GROUP_CONDITIONS, _GROUP_MESSAGES = 12, 2048
_GROUP_RESOURCES, _GROUP_RESOURCES_BYTES = 64, 4096
# The longest name in the API, and that of a pod set or the type of a condition.
_GROUP_TEXT, _ENTRY_TEXT = 253, 63

# The kinds of jobs are not known here. Anybody may name one of them as a controller, so this bounds as much.
_JOBS_CHILDREN = controlled_below("kubeflow.org")

decode_service = kept_decoder(Service, LABELS, owns=_JOBS_CHILDREN)
decode_config_map = kept_decoder(ConfigMap, LABELS, owns=_JOBS_CHILDREN)
decode_secret = kept_decoder(Secret, LABELS, owns=_JOBS_CHILDREN)
decode_claim = kept_decoder(PersistentVolumeClaim, LABELS, owns=_JOBS_CHILDREN)
decode_owned_object = kept_decoder(OwnedObject, LABELS, owns=_JOBS_CHILDREN)
decode_job_gang: Callable[[bytes | msgspec.Raw], Gang] = gang_decoder(LABELS, owns=_JOBS_CHILDREN)

_decode_job = kept_decoder(BatchJob, LABELS, owns=_JOBS_CHILDREN)
# A pod that its Job has released is still the job's.
_decode_pod = kept_decoder(Pod, LABELS, owns=controlled_by((JOBS,), or_by_none=True))
_BARE_POD_LABELS = (ATTEMPT_LABEL, GANG_LABEL, GROUP_LABEL, MEMBER_LABEL, NODE_LABEL, OPERATOR_NAME_LABEL)
_decode_bare_pod = kept_decoder(Pod, _BARE_POD_LABELS, owns=_JOBS_CHILDREN)


def decode_job(raw: bytes | msgspec.Raw) -> BatchJob:
    """Decodes a child Job. Raises msgspec.DecodeError."""
    data = bytes(raw)
    job = _decode_job(data)
    if len(data) <= _SMALL_BYTES:
        return job
    status = replace(
        job.status,
        conditions=_conditions(job.status.conditions),
        completed_indexes=_within(job.status.completed_indexes, MAX_INDEXES),
        failed_indexes=_within(job.status.failed_indexes, MAX_INDEXES),
    )
    return replace(job, status=status)


def decode_pod(raw: bytes | msgspec.Raw) -> Pod:
    """Decodes a pod of a job. Raises msgspec.DecodeError."""
    data = bytes(raw)
    return _bounded_pod(_decode_pod(data), len(data))


def decode_bare_pod(raw: bytes | msgspec.Raw) -> Pod:
    """Decodes a pod that a job owns without a Job between. Raises msgspec.DecodeError."""
    data = bytes(raw)
    return _bounded_pod(_decode_bare_pod(data), len(data))


def _bounded_pod(pod: Pod, size: int) -> Pod:
    if size <= _SMALL_BYTES:
        return pod
    spec = replace(
        pod.spec, node_name=within_name(pod.spec.node_name), init_containers=pod.spec.init_containers[:MAX_CONTAINERS]
    )
    status = replace(
        pod.status,
        phase=within_name(pod.status.phase),
        reason=pod.status.reason[:MAX_MESSAGE],
        message=pod.status.message[:MAX_MESSAGE],
        conditions=_conditions(pod.status.conditions),
        init_container_statuses=_statuses(pod.status.init_container_statuses),
        container_statuses=_statuses(pod.status.container_statuses),
    )
    return replace(pod, spec=spec, status=status)


def _conditions(conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    return tuple(
        replace(condition, message=condition.message[:MAX_MESSAGE]) for condition in conditions[:MAX_CONDITIONS]
    )


def _statuses(statuses: tuple[ContainerStatus, ...]) -> tuple[ContainerStatus, ...]:
    return tuple(
        replace(status, state=_state(status.state), last_state=_state(status.last_state))
        for status in statuses[:MAX_CONTAINERS]
    )


def _state(state: ContainerState) -> ContainerState:
    waiting, terminated = state.waiting, state.terminated
    return replace(
        state,
        waiting=waiting and replace(waiting, message=waiting.message[:MAX_MESSAGE]),
        terminated=terminated and replace(terminated, message=terminated.message[:MAX_MESSAGE]),
    )


def _within(indexes: str, limit: int) -> str:
    """The indexes up to the last one that is complete."""
    return indexes if len(indexes) <= limit else indexes[:limit].rpartition(",")[0]


_NULL = msgspec.Raw(b"null")


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of what is read of objects that represent gangs. What is absent stays absent."""


class _GangPolicy(_Value, frozen=True):
    min_count: int | msgspec.UnsetType | None = msgspec.UNSET


class _SchedulingPolicy(_Value, frozen=True):
    gang: _GangPolicy | msgspec.UnsetType | None = msgspec.UNSET


class _PodSet(_Value, frozen=True):
    name: str | msgspec.UnsetType | None = msgspec.UNSET
    count: int | msgspec.UnsetType | None = msgspec.UNSET


class _PodGroupSpec(_Value, frozen=True):
    min_member: int | msgspec.UnsetType | None = msgspec.UNSET
    min_resources: msgspec.Raw = _NULL
    queue: str | msgspec.UnsetType | None = msgspec.UNSET
    priority_class_name: str | msgspec.UnsetType | None = msgspec.UNSET
    schedule_timeout_seconds: int | msgspec.UnsetType | None = msgspec.UNSET
    scheduling_policy: _SchedulingPolicy | msgspec.UnsetType | None = msgspec.UNSET
    pod_sets: tuple[_PodSet, ...] | msgspec.UnsetType | None = msgspec.UNSET
    queue_name: str | msgspec.UnsetType | None = msgspec.UNSET
    active: bool | msgspec.UnsetType | None = msgspec.UNSET


class _PodGroupCondition(_Value, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _PodGroupStatus(_Value, frozen=True):
    phase: str | msgspec.UnsetType | None = msgspec.UNSET
    conditions: tuple[_PodGroupCondition, ...] | msgspec.UnsetType | None = msgspec.UNSET


class _PodGroup(_Value, frozen=True):
    metadata: ObjectMeta
    spec: _PodGroupSpec = _PodGroupSpec()
    status: _PodGroupStatus = _PodGroupStatus()


class _FilledConfigMap(_Value, frozen=True):
    metadata: ObjectMeta
    data: msgspec.Raw = _NULL


class _FilledRole(_Value, frozen=True):
    metadata: ObjectMeta
    rules: msgspec.Raw = _NULL


_decode_filled_config_map = kept_decoder(_FilledConfigMap, LABELS, owns=_JOBS_CHILDREN)
_decode_filled_role = kept_decoder(_FilledRole, LABELS, owns=_JOBS_CHILDREN)
# The controller writes fewer files and rules; rules have few lists.
_MOST_PARTS = 64
# The most that a ConfigMap can have.
_MOST_BYTES = 1024 * 1024


def decode_filled_config_map(raw: bytes | msgspec.Raw) -> OwnedObject:
    """Decodes a ConfigMap whose content the controller changes, of which the digest is kept."""
    config_map = _decode_filled_config_map(raw)
    return OwnedObject(config_map.metadata, _digest("data", config_map.data, b'":'))


def decode_filled_role(raw: bytes | msgspec.Raw) -> OwnedObject:
    """Decodes a Role whose content the controller changes, of which the digest is kept."""
    role = _decode_filled_role(raw)
    return OwnedObject(role.metadata, _digest("rules", role.rules, b"["))


class _FilledAutoscalerSpec(_Value, frozen=True):
    min_replicas: int = 1
    max_replicas: int = 0
    scale_target_ref: msgspec.Raw = _NULL
    metrics: msgspec.Raw = _NULL


class _FilledAutoscaler(_Value, frozen=True):
    metadata: ObjectMeta
    spec: _FilledAutoscalerSpec = _FilledAutoscalerSpec()


_decode_filled_autoscaler = kept_decoder(_FilledAutoscaler, LABELS, owns=_JOBS_CHILDREN)
# More than the metrics of a job have that is run.
_MOST_FIELDS = 20_000


def decode_autoscaler(raw: bytes | msgspec.Raw) -> HorizontalPodAutoscaler:
    """Decodes a HorizontalPodAutoscaler, of whose target and metrics the digest is kept."""
    found = _decode_filled_autoscaler(raw)
    spec = found.spec
    kept = AutoscalerSpec(spec.min_replicas, spec.max_replicas, _autoscaler_digest(spec))
    return HorizontalPodAutoscaler(found.metadata, kept)


def _autoscaler_digest(spec: _FilledAutoscalerSpec) -> str:
    """The digest; empty if there are no metrics, or more than any of the controller's has."""
    target, metrics = bytes(spec.scale_target_ref), bytes(spec.metrics)
    size, fields = len(target) + len(metrics), target.count(b'":') + metrics.count(b'":')
    if metrics == bytes(_NULL) or size > _MOST_BYTES or fields > _MOST_FIELDS:
        return ""
    return autoscaler_digest({"scaleTargetRef": msgspec.json.decode(target), "metrics": msgspec.json.decode(metrics)})


def _digest(name: str, content: msgspec.Raw, mark: bytes) -> str:
    """The digest of a field; empty for one that is larger than any of the controller's, so that others wrote it."""
    data = bytes(content)
    if len(data) > _MOST_BYTES or data.count(mark) > _MOST_PARTS:
        return ""
    return content_digest({name: msgspec.json.decode(data)})


_decode_pod_group = kept_decoder(_PodGroup, LABELS, owns=_JOBS_CHILDREN)


def decode_pod_group(raw: bytes | msgspec.Raw) -> PodGroup:
    """Decodes what the back ends read of a gang's object, of any of their kinds. Raises msgspec.DecodeError."""
    group = _decode_pod_group(raw)
    spec = replace(group.spec, min_resources=_few_resources(group.spec.min_resources))
    if spec.pod_sets:
        spec = replace(spec, pod_sets=spec.pod_sets[:MAX_KINDS])
    status = group.status
    if status.conditions:
        status = replace(status, conditions=_short_conditions(status.conditions[:_GROUP_CONDITIONS]))
    return PodGroup(group.metadata, _bounded(spec), _bounded(status))


def _few_resources(raw: msgspec.Raw) -> msgspec.Raw:
    """The resources; null for those of no gang, which the controller then writes again."""
    data = bytes(raw)
    if len(data) > _GROUP_RESOURCES_BYTES or not data.isascii() or data.count(b":") > _GROUP_RESOURCES:
        return _NULL
    return raw


def _short_conditions(conditions: tuple[_PodGroupCondition, ...]) -> tuple[_PodGroupCondition, ...]:
    """Each message has an equal share of the length of all."""
    share = _GROUP_MESSAGES // len(conditions)
    return tuple(replace(condition, message=_shortened(condition.message, share)) for condition in conditions)


def _bounded(part: msgspec.Struct) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(part))
    return {name: _cut(value) for name, value in fields.items() if value is not None}


def _cut(value: Any) -> Any:
    """The same with texts of a bounded length, which messages have already."""
    if isinstance(value, str):
        return _shortened(value, _GROUP_TEXT)
    if isinstance(value, list):
        return [_cut_entry(entry) for entry in value]
    return value


def _cut_entry(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _shortened(value, _ENTRY_TEXT) if isinstance(value, str) and name != "message" else value
        for name, value in entry.items()
    }


def _shortened(text: str, limit: int) -> str:
    """At most `limit` bytes in memory: another alphabet takes up to four for each character."""
    return text[: limit if text.isascii() else limit // 4]
