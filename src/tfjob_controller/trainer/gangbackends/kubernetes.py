"""Kubernetes' own: kube-scheduler schedules the pods of a PodGroup as a whole, where feature gates turn that on.

Alpha in 1.36: a PodGroup that stands for itself, without a Workload, and pods that name it in spec.schedulingGroup. Its
spec never changes, and once deleted it stays until its pods have ended. So a gang that grows goes on with the group
that it has: beyond the least, pods are scheduled one by one.

Source: k8s.io/api scheduling/v1alpha2/types.go, core/v1/types.go (PodSchedulingGroup).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tfjob_controller.api.podgroup import PodGroup
from tfjob_controller.kube.meta import Resource
from tfjob_controller.trainer.gangbackends.backend import Body, Wanted, latest_message

_SCHEDULED = "PodGroupScheduled"


class Kubernetes:
    resource: Final = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
    scheduler_name: Final = ""
    queue_label: Final = ""
    is_immutable: Final = True
    gate: Final = None

    def spec(self, wanted: Wanted) -> Body:
        return {"schedulingPolicy": {"gang": {"minCount": wanted.start_count}}}

    def fits(self, spec: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
        return _min_count(spec) <= _min_count(wanted)

    def join(self, name: str, template: Body) -> None:
        template["spec"] = {**template["spec"], "schedulingGroup": {"podGroupName": name}}

    def words(self, group: PodGroup) -> str:
        return latest_message(group.status.get("conditions") or (), _SCHEDULED, "False")


def _min_count(spec: Mapping[str, Any]) -> int:
    gang: Mapping[str, Any] = (spec.get("schedulingPolicy") or {}).get("gang") or {}
    return int(gang.get("minCount") or 0)
