"""coscheduling, a plugin of a kube-scheduler: it counts the pods that a label gives to its PodGroup.

Source: sigs.k8s.io/scheduler-plugins apis/scheduling/v1alpha1/types.go, pkg/coscheduling/README.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tfjob_controller.api.podgroup import PodGroup
from tfjob_controller.kube.meta import Resource
from tfjob_controller.trainer.gangbackends.backend import Body, Wanted, covers, labelled

GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
# Nodes are held for that long while a gang becomes complete. A job may wait for hours, its nodes should not.
MAX_HOLDING_SECONDS = 60
_WAITING_PHASES = ("Pending", "PreScheduling", "Scheduling")


class Coscheduling:
    resource: Final = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
    # As the project's own Helm chart names it.
    scheduler_name: Final = "scheduler-plugins-scheduler"
    queue_label: Final = ""
    is_immutable: Final = False
    gate: Final = None

    def spec(self, wanted: Wanted) -> Body:
        limit = wanted.timeout_seconds
        return {
            "minMember": wanted.min_count,
            "minResources": dict(wanted.min_resources),
            **({"scheduleTimeoutSeconds": min(limit, MAX_HOLDING_SECONDS)} if limit is not None else {}),
        }

    def fits(self, spec: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
        return covers(spec, wanted)

    def join(self, name: str, template: Body) -> None:
        labelled(template, "labels", GROUP_LABEL, name)

    def words(self, group: PodGroup) -> str:
        """It says how many there are, and no more; the pods have the rest."""
        phase = str(group.status.get("phase") or "")
        return f"the PodGroup is {phase}" if phase in _WAITING_PHASES else ""
