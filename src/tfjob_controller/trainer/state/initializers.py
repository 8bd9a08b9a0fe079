"""What brings dataset and model, and takes the model away, may neither wait nor try for ever.

Two things go on until somebody looks: a container for which a Secret or ConfigMap is missing (the kubelet waits for it,
so that it may come late), and an initializer or exporter in a pod of its own that ends again and again with an error
that may pass. The nodes' own containers are not judged here: what they wait for is their user's affair.

No Secret is read for that; the kubelet's words name what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from tfjob_controller.api.common.core import ContainerStatus, Pod
from tfjob_controller.trainer.plan.model import Plan
from tfjob_controller.trainer.state.pods import how_it_ended, is_finished, training_container
from tfjob_controller.trainer.state.replica_state import RUNNING, ReplicaState
from tfjob_controller.util.timestamps import seconds_until

# Long enough for a Secret that is applied together with its job, or that another controller makes.
CONFIG_WAIT_SECONDS = 300
# Each goes on where the last one ended, has tried for a minute or so by itself, and comes after the kubelet's back-off
# of up to 5 minutes: half an hour in all of a source that does not answer once.
MAX_ATTEMPTS = 10

# The kubelet's word for a Secret, ConfigMap or key that is not there (pkg/kubelet/kuberuntime).
_NO_CONFIG = "CreateContainerConfigError"


def config_timeout_message(plan: Plan, states: Sequence[ReplicaState], now: datetime) -> str:
    """In words who has waited too long for what; empty if none has."""
    for state, container, left in _without_config(plan, states, now):
        waiting = container.state.waiting
        if left <= 0 and waiting is not None:
            inside = "" if container.name == state.replica.role.container else f"{container.name}: "
            what = f"{inside}{waiting.reason}: {waiting.message}"
            return f"{state.replica.id} failed: {what} (waited for {CONFIG_WAIT_SECONDS} s)"
    return ""


def seconds_until_config_timeout(plan: Plan, states: Sequence[ReplicaState], now: datetime) -> float | None:
    """Until the first one that waits has done so too long; None if none waits."""
    return min((left for _, _, left in _without_config(plan, states, now) if left > 0), default=None)


def _without_config(
    plan: Plan, states: Sequence[ReplicaState], now: datetime
) -> Iterator[tuple[ReplicaState, ContainerStatus, float]]:
    """With the seconds that are left to it."""
    for state in states if plan.mounts.data_containers else ():
        if state.pod is None or state.state != RUNNING or state.pod.metadata.deletion_timestamp is not None:
            continue
        for container in (*state.pod.status.init_container_statuses, *state.pod.status.container_statuses):
            waiting = container.state.waiting
            if container.name in plan.mounts.data_containers and waiting is not None and waiting.reason == _NO_CONFIG:
                since = _since(state.pod, container)
                yield state, container, seconds_until(since, CONFIG_WAIT_SECONDS, now) if since else CONFIG_WAIT_SECONDS


def _since(pod: Pod, container: ContainerStatus) -> str:
    """The kubelet does not say since when a container waits: since its pod has begun, or the last end of any in it."""
    ended = (
        each.finished_at or ""
        for status in (*pod.status.init_container_statuses, container)
        for each in (status.state.terminated, status.last_state.terminated)
        if each is not None
    )
    return max((pod.status.start_time or pod.metadata.creation_timestamp or "", *ended))


def retry_limit_message(plan: Plan, states: Sequence[ReplicaState]) -> str:
    """In words who, and how it ended last; empty if none has."""
    for state in states:
        exited = state.exited
        if state.replica.role.container in plan.mounts.data_containers and exited is not None and exited.exit_code:
            attempts = _attempts(state)
            if state.is_restarting and attempts >= MAX_ATTEMPTS:
                return f"{state.replica.id} failed: {how_it_ended(exited)}; tried {attempts} times"
    return ""


def _attempts(state: ReplicaState) -> int:
    """That have failed. An eviction is none, and the count begins anew with the pod after it."""
    pod = state.pod
    failed = state.job.status.failed if state.job is not None else 0
    if pod is None or is_finished(pod):
        return failed
    container = training_container(pod, state.replica.role.container)
    return failed + (container.restart_count + 1 if container is not None else 0)
