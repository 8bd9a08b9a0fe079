"""What makes a pod a member of a gang that another scheduler runs."""

from __future__ import annotations

from typing import Any

from tfjob_controller.trainer.gangbackends.backend import labelled
from tfjob_controller.trainer.gangterms import GroupTerms

# On child Jobs and pods: the object that stands for their gang.
GROUP_LABEL = "scheduling.kubeflow.org/pod-group"


def group_label(group: GroupTerms) -> dict[str, str]:
    return {GROUP_LABEL: group.terms.name}


def join_group(template: dict[str, Any], group: GroupTerms) -> None:
    """Change a pod template that is the caller's own."""
    labelled(template, "labels", GROUP_LABEL, group.terms.name)
    if group.terms.scheduler_name:
        template["spec"] = {**template["spec"], "schedulerName": group.terms.scheduler_name}
    group.backend.join(group.terms.name, template)
