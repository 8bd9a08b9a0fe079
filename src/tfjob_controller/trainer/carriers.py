"""What brings dataset and model, and takes the model away, may neither wait nor try for ever.

Two things go on until somebody looks: a container for which a Secret or ConfigMap is missing (the kubelet waits for it,
so that it may come late), and an initializer or exporter in a pod of its own that ends again and again with an error
that may pass. The nodes' own containers are not judged here: what they wait for is their user's affair.

No Secret is read for that; the kubelet's words name what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from tfjob_controller.api.core import ContainerStatus, Pod
from tfjob_controller.trainer.plan import Plan
from tfjob_controller.trainer.pods import how_it_ended, is_finished, training_container
from tfjob_controller.trainer.replicas import RUNNING, View
from tfjob_controller.util.timestamps import seconds_until

# Long enough for a Secret that is applied together with its job, or that another controller makes.
CONFIG_WAIT_SECONDS = 300
# Each goes on where the last one ended, has tried for a minute or so by itself, and comes after the kubelet's back-off
# of up to 5 minutes: half an hour in all of a source that does not answer once.
MAX_ATTEMPTS = 10

# The kubelet's word for a Secret, ConfigMap or key that is not there (pkg/kubelet/kuberuntime).
_NO_CONFIG = "CreateContainerConfigError"


def waits_too_long(plan: Plan, views: Sequence[View], now: datetime) -> str:
    """In words who has waited too long for what; empty if none has."""
    for view, container, left in _without_config(plan, views, now):
        waiting = container.state.waiting
        if left <= 0 and waiting is not None:
            inside = "" if container.name == view.replica.role.container else f"{container.name}: "
            what = f"{inside}{waiting.reason}: {waiting.message}"
            return f"{view.replica.id} failed: {what} (waited for {CONFIG_WAIT_SECONDS} s)"
    return ""


def seconds_to_wait(plan: Plan, views: Sequence[View], now: datetime) -> float | None:
    """Until the first one that waits has done so too long; None if none waits."""
    return min((left for _, _, left in _without_config(plan, views, now) if left > 0), default=None)


def _without_config(plan: Plan, views: Sequence[View], now: datetime) -> Iterator[tuple[View, ContainerStatus, float]]:
    """With the seconds that are left to it."""
    for view in views if plan.carriers else ():
        if view.pod is None or view.state != RUNNING or view.pod.metadata.deletion_timestamp is not None:
            continue
        for container in (*view.pod.status.init_container_statuses, *view.pod.status.container_statuses):
            waiting = container.state.waiting
            if container.name in plan.carriers and waiting is not None and waiting.reason == _NO_CONFIG:
                since = _since(view.pod, container)
                yield view, container, seconds_until(since, CONFIG_WAIT_SECONDS, now) if since else CONFIG_WAIT_SECONDS


def _since(pod: Pod, container: ContainerStatus) -> str:
    """The kubelet does not say since when a container waits: since its pod has begun, or the last end of any in it."""
    ended = (
        each.finished_at or ""
        for status in (*pod.status.init_container_statuses, container)
        for each in (status.state.terminated, status.last_state.terminated)
        if each is not None
    )
    return max((pod.status.start_time or pod.metadata.creation_timestamp or "", *ended))


def has_tried_too_often(plan: Plan, views: Sequence[View]) -> str:
    """In words who, and how it ended last; empty if none has."""
    for view in views:
        exited = view.exited
        if view.replica.role.container in plan.carriers and exited is not None and exited.exit_code:
            attempts = _attempts(view)
            if view.is_restarting and attempts >= MAX_ATTEMPTS:
                return f"{view.replica.id} failed: {how_it_ended(exited)}; tried {attempts} times"
    return ""


def _attempts(view: View) -> int:
    """That have failed. An eviction is none, and the count begins anew with the pod after it."""
    pod = view.pod
    failed = view.job.status.failed if view.job is not None else 0
    if pod is None or is_finished(pod):
        return failed
    container = training_container(pod, view.replica.role.container)
    return failed + (container.restart_count + 1 if container is not None else 0)
