"""What pods say about the checkpoints of a job of any kind: where they are saved, and whether the last one still is.

The containers of a pod end before its native sidecars, which get SIGTERM then. Until they have ended, at most the pod's
grace period later, the pod's phase stays Running. The container that saves checkpoints uploads the last one in this
time. So the program of a replica may have succeeded while its pod runs, and its job must not end yet: its clean-up
would delete the pod, and users would look for a checkpoint that is not there.

Source: KEP-753 (sidecar containers), kubelet pkg/kubelet/kubelet_pods.go (getPhase). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tfjob_controller.api.common.core import ContainerStatus, Pod
from tfjob_controller.trainer.plan.model import Plan, Replica, Role
from tfjob_controller.trainer.podtemplate.checkpoint import SAVER
from tfjob_controller.trainer.state.pods import is_finished, last_exit, training_container
from tfjob_controller.trainer.state.replica_state import SUCCEEDED, ReplicaState
from tfjob_controller.util.timestamps import seconds_until

# Kubernetes' default of `terminationGracePeriodSeconds`.
_GRACE_SECONDS = 30
# A kubelet reports an end some seconds late.
_REPORT_SECONDS = 5


def saving_replica(plan: Plan) -> Replica | None:
    """Returns the replica whose checkpoints the status shows: the first one that saves any; None if none does."""
    return next((replica for replica in plan.replicas.all if saves_checkpoints(replica.role)), None)


def saves_checkpoints(role: Role) -> bool:
    containers = (role.template.get("spec") or {}).get("initContainers") or ()
    return any(each.get("name") == SAVER and each.get("restartPolicy") == "Always" for each in containers)


def saver_container(pod: Pod) -> ContainerStatus | None:
    """Returns the status of the container that saves the pod's checkpoints."""
    return next((each for each in pod.status.init_container_statuses if each.name == SAVER), None)


def saving_states(states: Sequence[ReplicaState], now: datetime) -> Sequence[ReplicaState]:
    """Returns the replicas that have succeeded and may still be saving their last checkpoint."""
    return [state for state in states if seconds_until_saved(state, now) > 0]


def seconds_until_saved(state: ReplicaState, now: datetime) -> float:
    """Returns how long the last checkpoint of a replica that has succeeded may still take; 0 if none is being saved."""
    pod = state.pod
    if state.state != SUCCEEDED or pod is None or is_finished(pod) or not saves_checkpoints(state.replica.role):
        return 0.0
    saver, program = saver_container(pod), training_container(pod, state.replica.role.container)
    exited = last_exit(program) if program is not None else None
    if saver is None or saver.state.running is None or exited is None or not exited.finished_at:
        return 0.0
    return max(0.0, seconds_until(exited.finished_at, _grace_seconds(state.replica.role) + _REPORT_SECONDS, now))


def _grace_seconds(role: Role) -> int:
    given = (role.template.get("spec") or {}).get("terminationGracePeriodSeconds")
    return given if isinstance(given, int) else _GRACE_SECONDS
