"""The events of a job of `kubeflow.org/v1` about its pods: exits of programs, and containers that fail or cannot start.

Reasons and texts are upstream's. Pods of an MPIJob have no `ExitedWithCode`, since upstream's controller of this kind
does not look at exit codes. All functions are pure.

Source: kubeflow/trainer release-1.9 pkg/core/job.go (RecordAbnormalPods), pkg/controller.v1/common/pod.go
(ReconcilePods), and DeleteJob of each controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tfjob_controller.api.common.core import POD_FAILED, POD_SUCCEEDED, ContainerStatus, Pod
from tfjob_controller.api.kubeflowv1.types import MPI_JOB, TF_JOB, XGBOOST_JOB, V1Job, V1Kind
from tfjob_controller.jobs import reasons
from tfjob_controller.jobs.conditions import NORMAL, TRUE, WARNING, PodEvent, StatusEvent

EXITED_WITH_CODE = "ExitedWithCode"


def pod_events(kind: V1Kind, pods: Iterable[Pod]) -> Iterator[PodEvent]:
    """Yields what can be told of pods now."""
    for pod in pods:
        if kind.kind != MPI_JOB:
            yield from _exits(pod, kind.container)
        if pod.status.phase not in (POD_SUCCEEDED, POD_FAILED) and pod.metadata.deletion_timestamp is None:
            yield from _problems(pod)


def deletion_event(job: V1Job) -> StatusEvent:
    """Returns the event of a job that is deleted after its time to live; kinds have different reasons upstream."""
    what = "Job" if job.kind in (TF_JOB, XGBOOST_JOB, MPI_JOB) else "Pod"
    return StatusEvent(NORMAL, f"{reasons.SUCCESSFUL_DELETE}{what}", f"Deleted job: {job.metadata.name}")


def _exits(pod: Pod, container: str) -> Iterator[PodEvent]:
    meta = pod.metadata
    for status in pod.status.container_statuses:
        ended = status.state.terminated
        if status.name == container and ended is not None:
            note = f"Pod: {meta.namespace}.{meta.name} exited with code {ended.exit_code}"
            cause = (EXITED_WITH_CODE, str(ended.exit_code))
            yield PodEvent(meta.uid, meta.name, cause, StatusEvent(NORMAL, EXITED_WITH_CODE, note), _time_of(status))


def _problems(pod: Pod) -> Iterator[PodEvent]:
    status = pod.status
    # A pod with containers has no problem with its init containers any more.
    if containers := status.container_statuses or status.init_container_statuses:
        for container in containers:
            yield from _container_problems(pod, container)
    elif status.conditions:
        newest = max(status.conditions, key=lambda condition: condition.last_transition_time or "")
        if newest.status != TRUE:
            yield from _problem(pod, "", newest.reason, f"condition message: {newest.message}")


def _container_problems(pod: Pod, container: ContainerStatus) -> Iterator[PodEvent]:
    ended, waiting = container.state.terminated, container.state.waiting
    which = f"container {container.name} "
    if ended is not None and ended.exit_code != 0:
        text = f"exitCode: {ended.exit_code} terminated message: {ended.message}"
        yield from _problem(pod, which, ended.reason, text, _time_of(container))
    if waiting is not None and waiting.message:
        yield from _problem(pod, which, waiting.reason, f"waiting message: {waiting.message}")


def _problem(pod: Pod, which: str, reason: str, text: str, time: str = "") -> Iterator[PodEvent]:
    # The API server refuses events without a reason.
    if reason:
        name = pod.metadata.name
        event = StatusEvent(WARNING, reason, f"Error pod {name} {which}{text}")
        yield PodEvent(pod.metadata.uid, name, (which, reason, "ended" if time else "waits"), event, time)


def _time_of(container: ContainerStatus) -> str:
    """Tells the ends of a container apart, which its kubelet starts again."""
    return str(container.restart_count)
