"""The schedulers that can run a job's pods as a gang, by the name that `--gang-backend` uses. Pure.

Theory of operation. The controller writes one object that represents the gang (`spec`), marks each pod as its member
(`join`), and leaves the rest to the backend's scheduler. Pods are created at once and held by that scheduler; a backend
with an `admission` check admits the gang before any pod may exist. Objects are patched as the job changes. If
`is_immutable`, an object that does not match any more is deleted and recreated once it is deleted.

Volcano counts the pods that an annotation assigns to a PodGroup of its own kind.
Source: volcano.sh/apis pkg/apis/scheduling/v1beta1 (types.go, labels.go).

coscheduling is a plugin of kube-scheduler that counts the pods which a label assigns to its PodGroup.
Source: sigs.k8s.io/scheduler-plugins apis/scheduling/v1alpha1/types.go, pkg/coscheduling/README.md.

Kubernetes: kube-scheduler schedules the pods of a PodGroup as a whole if feature gates enable that. Alpha in 1.36: a
PodGroup without a Workload, and pods that name it in spec.schedulingGroup; the API of 1.35, v1alpha1, has neither. The
spec is immutable, and a deleted group stays until its pods have ended. So a gang that grows keeps its group: pods
beyond the minimum are scheduled one by one.
Source: k8s.io/api scheduling/v1alpha2/types.go, core/v1/types.go (PodSchedulingGroup).

Kueue: a Workload represents the job in its queue; no pods exist before it is admitted, and none after it is evicted.
Kueue schedules nothing: it admits by quota, and any scheduler places the pods. The Workload states what all pods
request. It belongs to this controller, which therefore does what Kueue's own integrations do: it deletes the pods of an
evicted Workload and then the Workload itself, which puts the job back into the queue, and deletes it at the job's end.
Source: sigs.k8s.io/kueue apis/kueue/v1beta1/workload_types.go, pkg/controller/jobframework/reconciler.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from tfjob_controller.api.common.core import PodGroup
from tfjob_controller.api.gang import Member
from tfjob_controller.kube.meta import Resource

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodGroupRequest:
    """What the object of a gang should request now.

    `members` are all members by role, and `start_count` is how many must start together. `min_count` and
    `min_resources` leave out the members that have succeeded, which need no node any more. Empty strings and None are
    not requested.
    """

    members: Sequence[Member]
    start_count: int
    min_count: int
    min_resources: Mapping[str, str]
    queue: str = ""
    priority: int = 0
    priority_class_name: str = ""
    timeout_seconds: int | None = None


class AdmissionCheck(Protocol):
    """The admission of a backend that allows no pods, not even those of initializers, before it admits the gang."""

    def holds(self, group: PodGroup | None) -> bool:
        """Reports whether no pod may run now."""

    def is_evicted(self, group: PodGroup) -> bool:
        """Reports whether the gang lost its admission. Its object is deleted after its pods, and queues again."""


class Backend(Protocol):
    """One scheduler that runs gangs."""

    @property
    def resource(self) -> Resource[Any]: ...

    @property
    def scheduler_name(self) -> str:
        """The default scheduler name of pods; empty leaves their own."""

    @property
    def queue_label(self) -> str:
        """The label of a job that names its queue; empty if the scheduler has none."""

    @property
    def is_immutable(self) -> bool:
        """Reports whether the spec can never change."""

    @property
    def admission(self) -> AdmissionCheck | None:
        """None if pods are created at once."""

    def spec(self, request: PodGroupRequest) -> Body: ...

    def is_satisfied(self, spec: Mapping[str, Any], desired: Mapping[str, Any]) -> bool:
        """Reports whether the object's spec requests what is desired. The server and others may have added to it."""

    def join(self, name: str, template: Body) -> None:
        """Changes a pod template in place, so that its pods belong to the group of that name."""

    def pending_message(self, group: PodGroup) -> str:
        """Why the pods wait, as the scheduler reports it; empty if it reports nothing."""


def contains(actual: Any, desired: Any) -> bool:
    """Reports whether all fields of `desired` are in `actual`."""
    if isinstance(desired, Mapping):
        return isinstance(actual, Mapping) and all(contains(actual.get(name), value) for name, value in desired.items())
    return bool(actual == desired)


def latest_message(conditions: Sequence[Mapping[str, Any]], type_: str, status: str) -> str:
    """The message of the condition with that type and status that changed last."""
    matching = [
        condition for condition in conditions if condition.get("type") == type_ and condition.get("status") == status
    ]
    newest = max(matching, key=lambda condition: condition.get("lastTransitionTime") or "", default=None)
    return str(newest.get("message") or newest.get("reason") or "") if newest is not None else ""


def add_metadata(template: Body, field: str, name: str, value: str) -> None:
    """Adds a label or annotation; `field` is `labels` or `annotations`."""
    metadata = template["metadata"]
    template["metadata"] = {**metadata, field: {**(metadata.get(field) or {}), name: value}}


# Not of Volcano's own group, for historical reasons.
GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
_UNSCHEDULABLE = "Unschedulable"
_PENDING = "Pending"


class Volcano:
    resource: Final[Resource[Any]] = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
    scheduler_name: Final = "volcano"
    queue_label: Final = "scheduling.volcano.sh/queue-name"
    is_immutable: Final = False
    admission: Final = None

    def spec(self, request: PodGroupRequest) -> Body:
        return {
            "minMember": request.min_count,
            "minResources": dict(request.min_resources),
            **({"queue": request.queue} if request.queue else {}),
            **({"priorityClassName": request.priority_class_name} if request.priority_class_name else {}),
        }

    def is_satisfied(self, spec: Mapping[str, Any], desired: Mapping[str, Any]) -> bool:
        return contains(spec, desired)

    def join(self, name: str, template: Body) -> None:
        add_metadata(template, "annotations", GROUP_ANNOTATION, name)

    def pending_message(self, group: PodGroup) -> str:
        """A PodGroup that its queue has not admitted has no condition yet."""
        status = group.status
        message = latest_message(status.get("conditions") or (), _UNSCHEDULABLE, "True")
        if not message and status.get("phase") == _PENDING:
            return "the queue has not admitted it yet"
        return message


GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
# How long nodes are reserved until a gang is complete. A job may wait for hours, reserved nodes should not.
MAX_RESERVATION_SECONDS = 60
_WAITING_PHASES = ("Pending", "PreScheduling", "Scheduling")


class Coscheduling:
    resource: Final[Resource[Any]] = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
    # As the project's own Helm chart names it.
    scheduler_name: Final = "scheduler-plugins-scheduler"
    queue_label: Final = ""
    is_immutable: Final = False
    admission: Final = None

    def spec(self, request: PodGroupRequest) -> Body:
        limit = request.timeout_seconds
        return {
            "minMember": request.min_count,
            "minResources": dict(request.min_resources),
            **({"scheduleTimeoutSeconds": min(limit, MAX_RESERVATION_SECONDS)} if limit is not None else {}),
        }

    def is_satisfied(self, spec: Mapping[str, Any], desired: Mapping[str, Any]) -> bool:
        return contains(spec, desired)

    def join(self, name: str, template: Body) -> None:
        add_metadata(template, "labels", GROUP_LABEL, name)

    def pending_message(self, group: PodGroup) -> str:
        """The PodGroup reports counts and a phase; the pods have the reasons."""
        phase = str(group.status.get("phase") or "")
        return f"the PodGroup is {phase}" if phase in _WAITING_PHASES else ""


_SCHEDULED = "PodGroupScheduled"


class Kubernetes:
    resource: Final[Resource[Any]] = Resource(
        "scheduling.k8s.io",
        "v1alpha2",
        "podgroups",
        "PodGroup",
        requirement="Kubernetes 1.36 with the feature gates GenericWorkload and GangScheduling, and the flag of "
        "kube-apiserver --runtime-config=scheduling.k8s.io/v1alpha2=true",
    )
    scheduler_name: Final = ""
    queue_label: Final = ""
    is_immutable: Final = True
    admission: Final = None

    def spec(self, request: PodGroupRequest) -> Body:
        return {"schedulingPolicy": {"gang": {"minCount": request.start_count}}}

    def is_satisfied(self, spec: Mapping[str, Any], desired: Mapping[str, Any]) -> bool:
        return _min_count(spec) <= _min_count(desired)

    def join(self, name: str, template: Body) -> None:
        template["spec"] = {**template["spec"], "schedulingGroup": {"podGroupName": name}}

    def pending_message(self, group: PodGroup) -> str:
        return latest_message(group.status.get("conditions") or (), _SCHEDULED, "False")


def _min_count(spec: Mapping[str, Any]) -> int:
    gang: Mapping[str, Any] = (spec.get("schedulingPolicy") or {}).get("gang") or {}
    return int(gang.get("minCount") or 0)


QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_ADMITTED, _EVICTED, _QUOTA_RESERVED = "Admitted", "Evicted", "QuotaReserved"
_NO_QUEUE = f"the job has no label {QUEUE_LABEL}: add one that names a LocalQueue"
_STOPPED = "spec.active of its Workload is false"


class _Admission:
    """Reads the conditions of a Workload; see `AdmissionCheck`."""

    def holds(self, group: PodGroup | None) -> bool:
        if group is None or group.metadata.deletion_timestamp is not None:
            return True
        return not _is(group, _ADMITTED) or _is(group, _EVICTED)

    def is_evicted(self, group: PodGroup) -> bool:
        """A Workload that was deactivated is kept, since a new one would queue again."""
        return _is(group, _EVICTED) and group.spec.get("active") is not False


class Kueue:
    resource: Final[Resource[Any]] = Resource("kueue.x-k8s.io", "v1beta1", "workloads", "Workload")
    scheduler_name: Final = ""
    queue_label: Final = QUEUE_LABEL
    # The spec of an admitted Workload cannot change.
    is_immutable: Final = True
    admission: Final = _Admission()

    def spec(self, request: PodGroupRequest) -> Body:
        return {
            "podSets": [_pod_set(member) for member in request.members],
            **({"queueName": request.queue} if request.queue else {}),
            **({"priority": request.priority} if request.priority else {}),
        }

    def is_satisfied(self, spec: Mapping[str, Any], desired: Mapping[str, Any]) -> bool:
        """Compares what an admission covers, since Kueue itself completes the templates."""
        return _admitted_fields(spec) == _admitted_fields(desired)

    def join(self, name: str, template: Body) -> None:
        """Does nothing: pods exist only while the Workload is admitted, so none has to be marked."""

    def pending_message(self, group: PodGroup) -> str:
        if not self.admission.holds(group):
            return ""
        if group.spec.get("active") is False:
            return _STOPPED
        if not group.spec.get("queueName"):
            return _NO_QUEUE
        conditions = group.status.get("conditions") or ()
        return latest_message(conditions, _QUOTA_RESERVED, "False") or latest_message(conditions, _EVICTED, "True")


def _admitted_fields(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    sets = spec.get("podSets") or ()
    return spec.get("queueName") or "", *((pod_set.get("name"), pod_set.get("count")) for pod_set in sets)


def _is(group: PodGroup, type_: str) -> bool:
    conditions: list[dict[str, Any]] = group.status.get("conditions") or []
    return any(condition.get("type") == type_ and condition.get("status") == "True" for condition in conditions)


def _pod_set(member: Member) -> Body:
    """A pod set whose one container requests what the pod does, with the constraints on its nodes."""
    spec: Body = {
        "containers": [{"name": member.name, "resources": {"requests": dict(member.resources)}}],
        "restartPolicy": "Never",
    }
    if member.node_selector:
        spec["nodeSelector"] = dict(member.node_selector)
    if member.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in member.tolerations]
    if member.node_affinity is not None:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": msgspec.to_builtins(member.node_affinity)}
        spec["affinity"] = {"nodeAffinity": required}
    if member.priority_class_name:
        spec["priorityClassName"] = member.priority_class_name
    return {"name": member.name, "count": member.count, "template": {"spec": spec}}


BACKENDS: Mapping[str, Backend] = {
    "volcano": Volcano(),
    "coscheduling": Coscheduling(),
    "kubernetes": Kubernetes(),
    "kueue": Kueue(),
}
