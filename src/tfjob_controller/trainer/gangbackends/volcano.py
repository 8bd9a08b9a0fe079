"""Volcano: its scheduler counts the pods that an annotation gives to a PodGroup of its own kind.

Source: volcano.sh/apis pkg/apis/scheduling/v1beta1 (types.go, labels.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tfjob_controller.api.podgroup import PodGroup
from tfjob_controller.kube.meta import Resource
from tfjob_controller.trainer.gangbackends.backend import Body, Wanted, covers, labelled, latest_message

# Not of Volcano's own group, for historical reasons.
GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
_UNSCHEDULABLE = "Unschedulable"
_PENDING = "Pending"


class Volcano:
    resource: Final = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
    scheduler_name: Final = "volcano"
    queue_label: Final = "scheduling.volcano.sh/queue-name"
    is_immutable: Final = False
    gate: Final = None

    def spec(self, wanted: Wanted) -> Body:
        return {
            "minMember": wanted.min_count,
            "minResources": dict(wanted.min_resources),
            **({"queue": wanted.queue} if wanted.queue else {}),
            **({"priorityClassName": wanted.priority_class_name} if wanted.priority_class_name else {}),
        }

    def fits(self, spec: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
        return covers(spec, wanted)

    def join(self, name: str, template: Body) -> None:
        labelled(template, "annotations", GROUP_ANNOTATION, name)

    def words(self, group: PodGroup) -> str:
        """A PodGroup that its queue has not let in has no condition yet."""
        status = group.status
        message = latest_message(status.get("conditions") or (), _UNSCHEDULABLE, "True")
        if not message and status.get("phase") == _PENDING:
            return "the queue has not let it in yet"
        return message
