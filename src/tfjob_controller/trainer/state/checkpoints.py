"""Where a job's checkpoints are saved: the replica whose pod has the container for it. Pure; for all kinds of jobs."""

from __future__ import annotations

from tfjob_controller.api.common.core import ContainerStatus, Pod
from tfjob_controller.trainer.plan.model import Plan, Replica, Role
from tfjob_controller.trainer.podtemplate.checkpoint import SAVER


def saving_replica(plan: Plan) -> Replica | None:
    """Returns the replica whose checkpoints the status shows: the first one that saves any; None if none does."""
    return next((replica for replica in plan.replicas.all if saves_checkpoints(replica.role)), None)


def saves_checkpoints(role: Role) -> bool:
    containers = (role.template.get("spec") or {}).get("initContainers") or ()
    return any(each.get("name") == SAVER and each.get("restartPolicy") == "Always" for each in containers)


def saver_container(pod: Pod) -> ContainerStatus | None:
    """Returns the status of the container that saves the pod's checkpoints."""
    return next((each for each in pod.status.init_container_statuses if each.name == SAVER), None)
