"""When the state of a replica changes by the passing of time alone: grace periods, waits, and what takes too long."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tfjob_controller.api.common.core import BatchJob, Pod
from tfjob_controller.jobs.plan.model import Replica
from tfjob_controller.jobs.state.pods import (
    GIVEN_UP_SECONDS,
    blocked_since,
    given_up_since,
    is_finished,
    training_container,
)
from tfjob_controller.jobs.state.replica_state import (
    LOST_AFTER_SECONDS,
    NO_POD_AFTER_SECONDS,
    PATIENCE_SECONDS,
    RUNNING,
    SUCCEEDED,
    ReplicaState,
    is_restarted_in_place,
    job_ending,
)
from tfjob_controller.util.timestamps import seconds_until

# Kubernetes' default of `terminationGracePeriodSeconds`.
DEFAULT_GRACE_SECONDS = 30
# A kubelet reports an end some seconds late.
REPORT_SECONDS = 5


def grace_seconds(replica: Replica) -> int:
    """Returns the time that the template gives containers to end."""
    given = (replica.template.get("spec") or {}).get("terminationGracePeriodSeconds")
    return given if isinstance(given, int) else DEFAULT_GRACE_SECONDS


def seconds_until_removal(state: ReplicaState, now: datetime) -> float | None:
    """Returns when the pod must be deleted because it does nothing any more; None if it need not be.

    The training container has ended for good, and its sidecars have had the grace period to end by themselves; or the
    kubelet has given the pod up. The Job controller would replace an elastic node that has succeeded, unless all of
    its containers have.
    """
    pod = state.pod
    if pod is None or is_finished(pod) or pod.metadata.deletion_timestamp is not None:
        return None
    since = given_up_since(pod)
    if since is not None:
        return seconds_until(since, GIVEN_UP_SECONDS, now)
    container = training_container(pod, state.replica.role.container)
    ended = container.state.terminated if container is not None else None
    if ended is None or not ended.finished_at or is_restarted_in_place(state.replica, pod, ended):
        return None
    if state.state == SUCCEEDED and state.replica.role.is_elastic and not has_ended_well(pod):
        return None
    # A sidecar that waits for its image or its next start has not ended either.
    is_held_up = any(status.state.running is not None for status in pod.status.init_container_statuses) or any(
        status.state.terminated is None for status in pod.status.container_statuses
    )
    grace = grace_seconds(state.replica)
    # A pod whose containers have all ended will be reported as ended, and stays with its log.
    return seconds_until(
        ended.finished_at, (grace if is_held_up else max(grace, DEFAULT_GRACE_SECONDS)) + REPORT_SECONDS, now
    )


def has_ended_well(pod: Pod) -> bool:
    """Reports whether all containers but native sidecars have ended with 0, so that the pod will be Succeeded."""
    ended = [status.state.terminated for status in pod.status.container_statuses]
    return bool(ended) and all(each is not None and each.exit_code == 0 for each in ended)


def seconds_until_change(states: Sequence[ReplicaState], started: str | None, now: datetime) -> float | None:
    """Returns when the first of the states will change by the passing of time alone; None if none will."""
    times = (
        seconds for state in states if (seconds := _seconds_until_next_change(state, started or "", now)) is not None
    )
    return min(times, default=None)


def _seconds_until_next_change(state: ReplicaState, started: str, now: datetime) -> float | None:
    job, pod = state.job, state.pod
    if pod is None:
        if job is None or state.pending or state.state != RUNNING or job.spec.suspend or job.status.failed:
            return None
        since = max(job.metadata.creation_timestamp or "", started)
        # One second is added, since timestamps have whole seconds.
        return _positive(seconds_until(since, NO_POD_AFTER_SECONDS + 1, now)) if since else None
    deleted = pod.metadata.deletion_timestamp
    if deleted is not None:
        return _positive(seconds_until(deleted, LOST_AFTER_SECONDS + 1, now))
    blocked = None if state.is_up else blocked_since(pod)
    times = (
        _end_of_wait(job, pod, now),
        _second_after(seconds_until_removal(state, now)),
        _second_after(seconds_until(blocked, PATIENCE_SECONDS, now) if blocked else None),
    )
    return min((seconds for seconds in times if seconds is not None), default=None)


def _second_after(seconds: float | None) -> float | None:
    """Returns one second more, since timestamps have whole seconds."""
    return _positive(seconds + 1) if seconds is not None else None


def _end_of_wait(job: BatchJob | None, pod: Pod, now: datetime) -> float | None:
    """Returns when the end of the Job will count although the end of its pod was not seen."""
    ending = job_ending(job) if job is not None and not is_finished(pod) else None
    if ending is None or not ending.last_transition_time:
        return None
    return _positive(seconds_until(ending.last_transition_time, LOST_AFTER_SECONDS + 1, now))


def _positive(seconds: float) -> float | None:
    return seconds if seconds > 0 else None
