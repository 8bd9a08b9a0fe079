"""Reads the status of a pod: how its containers ended, and whether it continues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from tfjob_controller.api.common.core import (
    JOBS,
    POD_FAILED,
    POD_SUCCEEDED,
    Condition,
    ContainerStatus,
    Pod,
    Terminated,
)
from tfjob_controller.api.common.policies import ON_FAILURE
from tfjob_controller.jobs.naming import POD_JOB_NAME
from tfjob_controller.jobs.state.podreasons import start_failure
from tfjob_controller.kube.meta import controller_of
from tfjob_controller.util.timestamps import format_time, parse_time

_SANDBOX_READY = "PodReadyToStartContainers"
# How long a pod may be without its sandbox until it is deleted, so that another one takes its place.
GIVEN_UP_SECONDS = 20.0

# A deletion with a longer grace period counts as requested so long before its end.
_MAX_GRACE_SECONDS = 2**31

EVICTED, _NODE_LOST = "Evicted", "NodeLost"
# The reasons with which a kubelet and a container runtime report containers that they have lost, as after a reboot
# (pkg/kubelet/kubelet_pods.go, containerd's internal/cri/store/container).
_STATUS_UNKNOWN = "ContainerStatusUnknown"
_LOST_REASONS = frozenset((_STATUS_UNKNOWN, "Unknown"))
# The node controller's word for a node that does not report.
_NODE_NOT_READY = "NodeNotReady"
# What the message of a pod begins with that its kubelet does not admit (pkg/kubelet/kubelet.go:rejectPod).
_REJECTED = "Pod was rejected: "


def child_job_of(pod: Pod) -> str:
    """Returns the name of the pod's child Job; empty if no Job controls the pod, since any user can set the label."""
    owner, name = controller_of(pod), pod.metadata.labels.get(POD_JOB_NAME, "")
    return name if owner is not None and (owner.kind, owner.name) == (JOBS.kind, name) else ""


def newest(pods: Sequence[Pod]) -> Pod | None:
    """Returns the pod that started last; a pod that has not started counts from its creation.

    Of two that started at the same time, the unfinished one is returned.
    """
    if len(pods) <= 1:
        return pods[0] if pods else None
    return max(pods, key=_age_key)


def _age_key(pod: Pod) -> tuple[str, str, bool]:
    created = pod.metadata.creation_timestamp or ""
    return pod.status.start_time or created, created, not is_finished(pod)


def is_finished(pod: Pod) -> bool:
    return pod.status.phase in (POD_SUCCEEDED, POD_FAILED)


def training_container(pod: Pod, name: str) -> ContainerStatus | None:
    """Returns the status of the container whose exit code counts."""
    for status in pod.status.container_statuses:
        if status.name == name:
            return status
    return None


def failed_before_training(pod: Pod, name: str) -> tuple[str, Terminated] | None:
    """Returns the name of the container because of which training can never start, and how it ended; else None.

    This is an init container that failed in a pod that has failed, or an init container or the training container
    itself that can never start. A native sidecar that ended with the pod is not the cause.
    """
    status = pod.status
    if status.phase != POD_FAILED:
        training = (container for container in status.container_statuses if container.name == name)
        waiting = [
            container
            for container in (*status.init_container_statuses, *training)
            if container.state.waiting is not None
        ]
        return start_failure(waiting) if waiting else None
    sidecars = native_sidecars(pod)
    for container in status.init_container_statuses:
        ended = container.state.terminated
        if ended is not None and ended.exit_code != 0 and container.name not in sidecars:
            return container.name, ended
    return None


def failing_init_container(pod: Pod, ignored: str) -> tuple[str, Terminated] | None:
    """Returns the name of an init container that failed and is started again, and how it ended; else None.

    The one of the name `ignored` may fail.
    """
    left_out = native_sidecars(pod) | {ignored}
    for status in pod.status.init_container_statuses:
        ended = last_exit(status)
        if status.name not in left_out and ended is not None and ended.exit_code != 0:
            return status.name, ended
    return None


def restarts_in_place(pod: Pod, container: str, ignored: str) -> int:
    """Returns how often the kubelet has restarted the training container, and init containers but `ignored`."""
    training = training_container(pod, container)
    count = _restarts_of(training) if training is not None else 0
    if pod.status.init_container_statuses:
        left_out = native_sidecars(pod) | {ignored}
        count += sum(
            _restarts_of(status) for status in pod.status.init_container_statuses if status.name not in left_out
        )
    return count


def _restarts_of(status: ContainerStatus) -> int:
    """Returns how often the container was restarted.

    The kubelet also counts a container that it cannot locate any more, such as that of a pod which is being evicted,
    although it may never start it again (kubelet_pods.go:convertToAPIContainerStatuses, 1.36).
    """
    lost, ended = status.last_state.terminated, status.state.terminated
    runs_again = status.state.running is not None or (ended is not None and ended.reason != _STATUS_UNKNOWN)
    is_only_lost = lost is not None and lost.reason == _STATUS_UNKNOWN and not runs_again
    return max(0, status.restart_count - is_only_lost)


def native_sidecars(pod: Pod) -> frozenset[str]:
    """Returns the names of the init containers that run beside the others (KEP-753)."""
    return frozenset(container.name for container in pod.spec.init_containers if container.restart_policy == "Always")


def blocking_init_container(pod: Pod) -> ContainerStatus | None:
    """Returns the init container for which the pod waits, if it runs. It waits for native sidecars until they start."""
    sidecars = native_sidecars(pod)
    running = (status for status in pod.status.init_container_statuses if status.state.running is not None)
    return next((container for container in running if container.name not in sidecars or not container.started), None)


def blocked_since(pod: Pod) -> str | None:
    """Returns since when an init container runs for which the pod waits; None if there is none."""
    return running_since(blocking_init_container(pod))


def running_since(status: ContainerStatus | None) -> str | None:
    """Returns since when the container runs; None if it does not."""
    running = status.state.running if status is not None else None
    return running.started_at if running is not None else None


def has_unfinished_sidecar(pod: Pod, name: str) -> bool:
    """Reports whether a container beside the training container, whose name is `name`, has not ended."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return any(status.state.terminated is None for status in statuses if status.name != name)


def why_unheard(pod: Pod, training: ContainerStatus) -> str:
    """Returns which node of a pod whose program runs does not report any more; empty if it does.

    The node controller takes the condition Ready of its pods away, and leaves their containers as they were last seen.
    The pod is evicted minutes later, or never (node_lifecycle_controller.go, nodeutil.MarkPodsNotReady).
    """
    if not training.ready or pod.metadata.deletion_timestamp is not None or not is_unheard(pod):
        return ""
    return f"{_NODE_NOT_READY}: {pod.spec.node_name} does not report"


def is_unheard(pod: Pod) -> bool:
    """Reports whether the node controller has taken the condition Ready of the pod away."""
    # A loop, which is fast: each sync calls this for each pod.
    for condition in pod.status.conditions:
        if condition.type == "Ready":
            return condition.status == "False" and condition.reason in ("", _NODE_NOT_READY)
    return False


def last_exit(status: ContainerStatus) -> Terminated | None:
    """Returns how the container ended last, also while it runs again; None if it has never ended."""
    return status.state.terminated or status.last_state.terminated


def training_exit(pod: Pod, name: str) -> Terminated | None:
    """Returns how the training container ended last; None if it has never ended."""
    container = training_container(pod, name)
    return last_exit(container) if container is not None else None


def is_disrupted(pod: Pod, exited: Terminated | None) -> bool:
    """Reports whether the pod was rejected by its kubelet, evicted, preempted or lost before its program had ended.

    A kubelet rejects a pod if its node has changed since the pod was bound, such as a node whose device plugin has not
    registered again after a reboot. A pod that was evicted for its own limits (`ephemeral-storage`, the `sizeLimit` of
    an emptyDir) has no condition: this is an error of its program.
    """
    if exited is not None and exited.reason in _LOST_REASONS and pod.status.reason != EVICTED:
        return True
    condition = _true_condition(pod, "DisruptionTarget")
    if condition is None:
        is_rejected = pod.status.message.startswith(_REJECTED)
        return (pod.status.reason == _NODE_LOST or is_rejected) and pod.status.phase == POD_FAILED
    finished_at = exited.finished_at if exited is not None else None
    return not finished_at or (condition.last_transition_time or "") <= finished_at


def was_told_to_end(pod: Pod, exited: Terminated) -> bool:
    """Reports whether the container ended after its pod was deleted, or in the same second."""
    requested = deletion_request_time(pod)
    return requested is not None and (exited.finished_at or "") >= requested


def outlasted_its_pod(pod: Pod, exited: Terminated) -> bool:
    """Reports whether the container ended when its pod's own `activeDeadlineSeconds` were over.

    Such a pod fails, whatever its containers exit with (pkg/kubelet/active_deadline.go). The kubelet counts from the
    start time as the status has it, in whole seconds, so a container that it ended never shows an earlier second.
    """
    limit, started = pod.spec.active_deadline_seconds, pod.status.start_time
    if limit is None or started is None:
        return False
    return (exited.finished_at or "") >= format_time(parse_time(started) + timedelta(seconds=limit))


def hides_deletion_request(pod: Pod) -> bool:
    """Reports whether the pod no longer shows when its deletion was requested.

    Once its programs have ended, the kubelet deletes it once more, without a grace period.
    """
    return pod.metadata.deletion_timestamp is not None and not pod.metadata.deletion_grace_period_seconds


def deletion_request_time(pod: Pod) -> str | None:
    """Returns when the deletion of the pod was requested; None if it is not being deleted."""
    deleted = pod.metadata.deletion_timestamp
    if deleted is None:
        return None
    # The API server takes any number of 64 bits.
    grace_seconds = min(pod.metadata.deletion_grace_period_seconds, _MAX_GRACE_SECONDS)
    return format_time(parse_time(deleted) - timedelta(seconds=grace_seconds))


def is_owned_by(pod: Pod, uid: str) -> bool:
    """Reports whether the object of that UID controls the pod."""
    owner = controller_of(pod)
    return owner is not None and owner.uid == uid


def has_succeeded(pod: Pod, name: str) -> bool:
    """Reports whether the training container exited with 0 before its pod was deleted, or had to end."""
    exited = training_exit(pod, name)
    if exited is None or exited.exit_code != 0:
        return False
    return not was_told_to_end(pod, exited) and not outlasted_its_pod(pod, exited)


def given_up_since(pod: Pod) -> str | None:
    """Returns since when the kubelet has given the pod up; None for any other pod.

    A pod that has lost its sandbox and has the restartPolicy Never is not started again once a container has run in it.
    This happens when its node restarts, or when a probe ends its last container. The kubelet reports the phase Pending
    if an init container had ended (kubernetes/kubernetes#118321), and Running if a restart rule of a container matches
    its exit code (kuberuntime_manager.go:computePodActions, kubelet_pods.go:getPhase, 1.36).
    """
    status = pod.status
    # The most frequent case first, since each sync calls this for each pod.
    for sandbox in status.conditions:
        if sandbox.type == _SANDBOX_READY and sandbox.status == "False":
            break
    else:
        return None
    if is_finished(pod) or pod.metadata.deletion_timestamp is not None or pod.spec.restart_policy == ON_FAILURE:
        return None
    containers = (*status.init_container_statuses, *status.container_statuses)
    has_run = any(container.state.terminated is not None for container in containers)
    if not has_run or any(container.state.running is not None for container in containers):
        return None
    return sandbox.last_transition_time


def _true_condition(pod: Pod, condition_type: str) -> Condition | None:
    for condition in pod.status.conditions:
        if condition.type == condition_type:
            return condition if condition.status == "True" else None
    return None


def was_started(pod: Pod, name: str) -> bool:
    """Reports whether the training container has ever run, so that it has a log."""
    container = training_container(pod, name)
    return container is not None and _has_run(container)


def has_unstarted_container(pod: Pod) -> bool:
    """Reports whether the pod has not ended, and one of its containers has never run."""
    statuses = pod.status.container_statuses
    return not is_finished(pod) and not (statuses and all(map(_has_run, statuses)))


def _has_run(status: ContainerStatus) -> bool:
    return status.state.waiting is None or status.last_state.terminated is not None


def all_containers_ended(pod: Pod) -> bool:
    """Reports whether no container of the pod runs now. The Job controller may not have counted it yet."""
    statuses = pod.status.container_statuses
    return is_finished(pod) or (bool(statuses) and all(status.state.terminated for status in statuses))
