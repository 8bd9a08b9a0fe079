"""Kueue: a Workload stands for the job in its queue; there are no pods before it is admitted, and none once it is not.

Kueue schedules nothing: it says who may start, by quota, and any scheduler does the rest. The Workload says what all
pods request. It is ours and not Kueue's, so what Kueue's own integrations do is done here: pods go when it is evicted,
and it is deleted with them, which puts the job back into its queue; at the job's end it is deleted too.

Source: sigs.k8s.io/kueue apis/kueue/v1beta1/workload_types.go, pkg/controller/jobframework/reconciler.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tfjob_controller.api.gang import Member
from tfjob_controller.api.podgroup import PodGroup
from tfjob_controller.kube.meta import Resource
from tfjob_controller.trainer.gangbackends.backend import Body, Wanted, latest_message

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_ADMITTED, _EVICTED, _QUOTA_RESERVED = "Admitted", "Evicted", "QuotaReserved"
_NO_QUEUE = f"the job has no label {QUEUE_LABEL}: add one that names a LocalQueue"
_STOPPED = "somebody has set spec.active of its Workload to false"


class _Admission:
    """See `Gate`: by the conditions of the Workload."""

    def holds(self, group: PodGroup | None) -> bool:
        if group is None or group.metadata.deletion_timestamp is not None:
            return True
        return not _is(group, _ADMITTED) or _is(group, _EVICTED)

    def has_returned(self, group: PodGroup) -> bool:
        """One that somebody has stopped would queue again if it were made anew."""
        return _is(group, _EVICTED) and group.spec.get("active") is not False


class Kueue:
    resource: Final = Resource("kueue.x-k8s.io", "v1beta1", "workloads", "Workload")
    scheduler_name: Final = ""
    queue_label: Final = QUEUE_LABEL
    # What was admitted can be changed no more.
    is_immutable: Final = True
    gate: Final = _Admission()

    def spec(self, wanted: Wanted) -> Body:
        return {
            "podSets": [_pod_set(member) for member in wanted.members],
            **({"queueName": wanted.queue} if wanted.queue else {}),
            **({"priority": wanted.priority} if wanted.priority else {}),
        }

    def fits(self, spec: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
        """By what an admission is for. Kueue itself completes the templates."""
        return _asked(spec) == _asked(wanted)

    def join(self, name: str, template: Body) -> None:
        """Its pods are found by nobody: they are there only when they may be."""

    def words(self, group: PodGroup) -> str:
        if group.spec.get("active") is False:
            return _STOPPED
        if not group.spec.get("queueName"):
            return _NO_QUEUE
        conditions = group.status.get("conditions") or ()
        return latest_message(conditions, _QUOTA_RESERVED, "False") or latest_message(conditions, _EVICTED, "True")


def _asked(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    sets = spec.get("podSets") or ()
    return spec.get("queueName") or "", *((each.get("name"), each.get("count")) for each in sets)


def _is(group: PodGroup, type_: str) -> bool:
    conditions: list[dict[str, Any]] = group.status.get("conditions") or []
    return any(each.get("type") == type_ and each.get("status") == "True" for each in conditions)


def _pod_set(member: Member) -> Body:
    """One container that requests what the pod does: all that is asked is what it takes, and where."""
    spec: Body = {
        "containers": [{"name": member.name, "resources": {"requests": dict(member.resources)}}],
        "restartPolicy": "Never",
    }
    if member.node_selector:
        spec["nodeSelector"] = dict(member.node_selector)
    if member.tolerations:
        spec["tolerations"] = [dict(each) for each in member.tolerations]
    if member.node_affinity is not None:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": msgspec.to_builtins(member.node_affinity)}
        spec["affinity"] = {"nodeAffinity": required}
    if member.priority_class_name:
        spec["priorityClassName"] = member.priority_class_name
    return {"name": member.name, "count": member.count, "template": {"spec": spec}}
