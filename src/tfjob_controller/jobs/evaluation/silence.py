"""Finds pods and child Jobs that do not start although their status gives no reason.

A kubelet reports only by Events that it cannot mount a volume (the Secret does not exist), attach one, or create the
sandbox: the containers wait with ContainerCreating, like those of any pod whose image is being pulled. In the same way,
only the Events of a Job say why its pod cannot be created (quota, Pod Security, a missing ServiceAccount).
`controller.podevents` reads the newest warning of such objects, and the evaluation takes it from
`ObservedState.warnings`. A warning counts until the pod has got further: an Event that follows in the normal course of
things makes it obsolete.

Source: Kubernetes pkg/kubelet/kubelet.go (SyncPod), pkg/controller/job/job_controller.go (manageJob).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from tfjob_controller.api.common.core import POD_PENDING, Pod
from tfjob_controller.jobs.evaluation.jobstate import JobState
from tfjob_controller.jobs.state.podreasons import why_pending
from tfjob_controller.jobs.state.pods import (
    blocked_since,
    blocking_init_container,
    last_exit,
    native_sidecars,
)
from tfjob_controller.jobs.state.replica_state import ReplicaState
from tfjob_controller.jobs.trainingjob import PHASE_CLEAN_UP
from tfjob_controller.util.text import shortened
from tfjob_controller.util.timestamps import seconds_until

# Most pods have started a container by then, unless their image is large.
SILENT_SECONDS = 20
# How often a job with such a pod is synced, so that its reason follows the events.
PERIOD_SECONDS = 15.0
# Of pods behind the first one with a reason.
NOT_STARTED = "no container has started"

# The kubelet and other components report them when the pod or Job has got further.
_PROGRESS = frozenset(("Scheduled", "Pulling", "Pulled", "SuccessfulCreate"))
# The kubelet reports each failed volume, and after two minutes that the volumes of the pod are not mounted.
_LESS_SPECIFIC = "Unable to attach or mount volumes"
# The prefix that client-go adds to the message of an event that stands for several.
AGGREGATED = "(combined from similar events): "


class Reported(Protocol):
    """An Event of either API. `time` is when it happened last, in whole seconds."""

    @property
    def type(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def note(self) -> str: ...
    @property
    def time(self) -> str: ...


def newest_warning(events: Iterable[Reported]) -> str:
    """Returns `reason: note` of the newest warning; empty if there is none, or the object has got further since."""
    events = list(events)
    progress = max((event.time for event in events if event.type == "Normal" and event.reason in _PROGRESS), default="")
    warnings = [event for event in events if event.type == "Warning" and event.time > progress]
    specific = [event for event in warnings if not event.note.startswith(_LESS_SPECIFIC)]
    newest = max(specific or warnings, key=lambda event: event.time, default=None)
    return "" if newest is None else shortened(f"{newest.reason}: {newest.note.removeprefix(AGGREGATED)}")


def unexplained(state: JobState) -> list[str]:
    """Returns the UIDs of pods, and of Jobs without a pod, whose status does not say why they do not start.

    They are in the plan's order.
    """
    if state.status.phase == PHASE_CLEAN_UP:
        return []
    return list(dict.fromkeys(_unexplained(state.step.replica_states, state.now)))


def explained(uids: Sequence[str], warnings: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the warnings, with words for each of the `uids` after the first one that has a warning.

    Only the first objects of a job are asked about, and all that wait are counted.
    """
    known = [index for index, uid in enumerate(uids) if uid in warnings]
    return {**dict.fromkeys(uids[known[0] :], NOT_STARTED), **warnings} if known else {}


def seconds_until_unexplained(state: JobState) -> float | None:
    """Returns when to ask about the next pod, or to ask again; None if all that wait say why."""
    times = (_seconds_until_unexplained(replica_state, state.now) for replica_state in state.step.replica_states)
    return min((seconds for seconds in times if seconds is not None), default=None)


def _unexplained(states: Sequence[ReplicaState], now: datetime) -> Iterator[str]:
    for state in states:
        if state.pod is not None:
            since = silent_since(state.pod)
            if since is not None and seconds_until(since, SILENT_SECONDS, now) <= 0:
                yield state.pod.metadata.uid
        elif state.job is not None and state.pending:
            yield state.job.metadata.uid


def _seconds_until_unexplained(state: ReplicaState, now: datetime) -> float | None:
    if state.pod is None:
        return PERIOD_SECONDS if state.job is not None and state.pending else None
    since = silent_since(state.pod)
    if since is None:
        return None
    left = seconds_until(since, SILENT_SECONDS, now)
    return left if left > 0 else PERIOD_SECONDS


def silent_since(pod: Pod) -> str | None:
    """Returns since when a pod has a node and does not start, while its status gives no reason; else None.

    It has started no container, or only native sidecars that have not passed their startup probes.
    """
    status = pod.status
    if not pod.spec.node_name or pod.metadata.deletion_timestamp is not None or status.phase not in ("", POD_PENDING):
        return None
    blocking = blocking_init_container(pod)
    if blocking is not None and blocking.name in native_sidecars(pod):
        # Events say why its startup probe fails.
        return blocked_since(pod)
    containers = (*status.init_container_statuses, *status.container_statuses)
    if any(
        container.state.running is not None or last_exit(container) is not None for container in containers
    ) or why_pending(pod):
        return None
    scheduled = (
        condition for condition in status.conditions if condition.type == "PodScheduled" and condition.status == "True"
    )
    times = (
        *(condition.last_transition_time for condition in scheduled),
        status.start_time,
        pod.metadata.creation_timestamp,
    )
    return next((time for time in times if time), None)
