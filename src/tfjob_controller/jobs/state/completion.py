"""Decides whether a job has ended, and how, and which of its steps is due.

A job succeeds when the replicas that must succeed have done so: the chief alone, unless the plan names others. It fails
when a replica fails for good, a write can never succeed, or a deadline or limit is exceeded. A job without steps has
one step, which is its whole plan.

How long initializers and exporters wait for a Secret or ConfigMap, and how often they are retried, is limited here. The
kubelet waits forever for a Secret or ConfigMap that a container lacks, since it may be created later, and a pod that
only transfers data is retried after each retryable error. The containers of nodes have no such limits. The controller
does not read Secrets to find out what is missing, since the kubelet's message names it.

All functions are pure. Times are RFC 3339 strings as kubelets write them; `now` is timezone-aware.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from tfjob_controller.api.common.core import POD_FAILED, ContainerStatus, Pod
from tfjob_controller.jobs import conditions, reasons
from tfjob_controller.jobs.frameworks.environment import JOIN_SECONDS
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.state import replica_state
from tfjob_controller.jobs.state.observed import ObservedState, Obstacle
from tfjob_controller.jobs.state.podreasons import how_it_ended, why_ended_by_kubelet, why_never_started
from tfjob_controller.jobs.state.pods import running_since, training_container
from tfjob_controller.jobs.state.replica_state import FAILED, RUNNING, ReplicaState, has_post_start_hook
from tfjob_controller.jobs.state.restarts import (
    finish_time_of,
    first_failure,
    is_consequence,
    replica_restarts,
    seconds_until_attributed,
)
from tfjob_controller.jobs.trainingjob import TrainingStatus
from tfjob_controller.util.text import shortened
from tfjob_controller.util.timestamps import format_time, seconds_until


@dataclass(frozen=True, slots=True)
class Completion:
    """How the job ended: the reason of its condition (reasons.py), and the text that the field `status.reason` has."""

    succeeded: bool
    reason: str
    message: str


def job_completion(
    plan: Plan,
    states: Sequence[ReplicaState],
    unfinished: Sequence[ReplicaState],
    retried: Sequence[ReplicaState],
    causes: Sequence[ReplicaState],
    restarts: int,
    started: str | None,
    now: datetime,
    last_reason: str = "",
) -> Completion | None:
    """Returns how the job ended; None while it continues. `states` are in the plan's order, the chief's first.

    `unfinished` are the states of steps that are not completed, `retried` those of replicas that have ended and run
    again, `causes` those of replicas that restart the whole set. `restarts` counts against the limit, `started` is
    the start time. `last_reason` is what the status said last: what was in the way when a limit was reached.
    """
    if has_succeeded(plan, states):
        return Completion(True, reasons.CHIEF_SUCCEEDED, _who_succeeded(plan, states))
    return (
        _failed_replica(unfinished, retried, now)
        or _failed_transfer(plan, unfinished, now)
        or (_no_restart_left(plan, causes, restarts) if plan.replicas.restarts_together else None)
        or (
            _too_many_restarts(plan, states, restarts, last_reason)
            if plan.replicas.is_elastic or not plan.replicas.restarts_together
            else None
        )
        or _too_late(plan, unfinished, started, now, last_reason)
    )


def has_succeeded(plan: Plan, states: Sequence[ReplicaState]) -> bool:
    """Reports whether all replicas that must succeed have: the first of `states`, unless the plan names others."""
    if plan.replicas.never_succeeds:
        return False
    if not plan.replicas.needed:
        return states[0].state == replica_state.SUCCEEDED
    names = {replica.name for replica in plan.replicas.needed}
    suffices = any if plan.replicas.needs_one else all
    return suffices(state.state == replica_state.SUCCEEDED for state in states if state.replica.name in names)


def _who_succeeded(plan: Plan, states: Sequence[ReplicaState]) -> str:
    absent = {state.replica.name for state in states if replica_state.never_existed(state)}
    needed = [replica for replica in plan.replicas.needed if replica.name not in absent] or [states[0].replica]
    if len(needed) == 1:
        return f"{needed[0].id} succeeded"
    return f"all {len(needed)} {needed[0].role.name}s succeeded"


def retried_replicas(plan: Plan, unfinished: Sequence[ReplicaState]) -> Sequence[ReplicaState]:
    """Returns the replicas of a set that have ended and will run again; none while the job is suspended."""
    if not plan.replicas.restarts_together or plan.policy.suspend:
        return ()
    return [state for state in unfinished if state.replica.role.restarts_together and _runs_again(state)]


def restart_causes(unfinished: Sequence[ReplicaState], retried: Sequence[ReplicaState]) -> Sequence[ReplicaState]:
    """Returns the replicas among `retried` that restart the whole set."""
    left = (state for state in unfinished if state.replica.role.restarts_together)
    if any(state.state == replica_state.FAILED and not is_consequence(state, retried) for state in left):
        return ()
    return [state for state in retried if not _is_replaced_alone(state)]


def _is_replaced_alone(state: ReplicaState) -> bool:
    """Reports whether the Job controller replaces the pod while its peers wait.

    The first replica cannot be replaced alone, since it hosts the rendezvous. Nor can one whose pod was lost with its
    node, or that ended with 0 because it was deleted: the Job controller waits for the first, and counts the other as a
    success.
    """
    if not state.replica.role.is_elastic or state.replica.index == 0 or state.must_redo:
        return False
    return state.job is not None and state.job.metadata.deletion_timestamp is None


def missing_replicas(unfinished: Sequence[ReplicaState]) -> Sequence[ReplicaState]:
    """Returns the replicas of an elastic role that do not run, if fewer run than it needs."""
    states = [state for state in unfinished if state.replica.role.is_elastic]
    missing = [state for state in states if not state.is_up and state.state != replica_state.SUCCEEDED]
    if not missing:
        return ()
    least = min(missing[0].replica.role.min_replicas, len(states))
    return missing if len(states) - len(missing) < least else ()


def seconds_until_join_timeout(
    plan: Plan, unfinished: Sequence[ReplicaState], status: TrainingStatus, now: datetime
) -> float | None:
    """Returns how much longer the running replicas of an elastic role wait for missing ones; None if none wait.

    The wait begins when the first of them started, or when the condition Running became False, whichever is later.
    """
    waiting = [state for state in unfinished if state.replica.role.is_elastic and state.is_up]
    if plan.policy.suspend or not waiting or not missing_replicas(unfinished):
        return None
    since = min(_start_time(state) for state in waiting)
    running = conditions.find(status.conditions, conditions.RUNNING)
    if running is not None:
        # While it is True, the replicas have only now become too few.
        since = max(since, running.last_transition_time if running.status == conditions.FALSE else format_time(now))
    return seconds_until(since, JOIN_SECONDS, now) if since else None


def _start_time(state: ReplicaState) -> str:
    container = training_container(state.pod, state.replica.role.container) if state.pod is not None else None
    return running_since(container) or (state.pod.status.start_time if state.pod is not None else None) or ""


def unfinished_replicas(plan: Plan, states: Sequence[ReplicaState]) -> Sequence[ReplicaState]:
    """Returns the states without those of completed steps. A node may fail after its launcher has succeeded."""
    done = {name for step in plan.steps if has_succeeded(step, states) for name in step.replicas.by_name}
    return [state for state in states if state.replica.name not in done] if done else states


def _runs_again(state: ReplicaState) -> bool:
    """Reports whether the replica must run again, for another reason than that its Job is or was suspended.

    A suspended Job that is replaced may leave the cache before its pods. For one that a user has deleted, `must_redo`
    is set.
    """
    if not (state.is_restarting or state.must_redo):
        return False
    is_suspended = state.job.spec.suspend if state.job is not None else not state.must_redo
    return not is_suspended or (state.pod is not None and replica_state.has_ended_by_itself(state.pod))


def _failed_replica(
    states: Sequence[ReplicaState], restarting: Sequence[ReplicaState], now: datetime
) -> Completion | None:
    failed = [
        state
        for state in states
        if state.state == replica_state.FAILED and state.replica.decides and not is_consequence(state, restarting)
    ]
    attributed = [state for state in failed if not seconds_until_attributed(state, states, now)]
    if not attributed:
        return None
    # The Job controller deletes pods that it has not seen failing yet. Rather name a replica whose pod, and so whose
    # log, still exists, even if it failed a moment later.
    kept = (
        state for state in (*attributed, *failed) if state.pod is None or state.pod.metadata.deletion_timestamp is None
    )
    return Completion(False, reasons.REPLICA_FAILED, shortened(failure_message(next(kept, attributed[0]))))


def _failed_transfer(plan: Plan, states: Sequence[ReplicaState], now: datetime) -> Completion | None:
    """Fails the job if a container that transfers data cannot start, or has failed too often."""
    if message := config_timeout_message(plan, states, now):
        return Completion(False, reasons.REPLICA_FAILED, shortened(message))
    if message := retry_limit_message(plan, states):
        return Completion(False, reasons.BACKOFF_LIMIT_EXCEEDED, shortened(message))
    return None


def failure_message(state: ReplicaState) -> str:
    """Returns a clause that names the replica that failed or cannot start, and the reason."""
    cause = why_never_started(state.exited) if state.exited is not None else ""
    if not cause:
        return f"{state.replica.id} failed: {_why_failed(state)}"
    who = f"{state.replica.id}: {state.ended_in}" if state.ended_in else state.replica.id
    return f"{who} cannot start: {cause}"


def _why_failed(state: ReplicaState) -> str:
    """Returns the exit code and termination message of the container, or what else the replica failed for."""
    role = state.replica.role
    if role.is_elastic and not (state.is_restarting or state.must_redo or state.state == FAILED):
        return f"it has not run for {JOIN_SECONDS} s, and there are fewer {role.name}s than the minimum"
    if state.is_restarting and (state.job is None or state.job.metadata.deletion_timestamp is not None):
        return "its Job was deleted"
    if state.is_disrupted:
        cause = why_ended_by_kubelet(state.pod) if state.pod is not None else ""
        return cause or "its pod was deleted, evicted or lost"
    return why_ended(state) or "its Job failed"


def why_ended(state: ReplicaState) -> str:
    """Returns the kubelet's reason, or the exit code and termination message; empty if neither tells of an error."""
    if state.pod is not None and (cause := why_ended_by_kubelet(state.pod)):
        return cause
    if state.exited is not None and state.exited.exit_code:
        # A kubelet ends a container whose hook fails, and reports this only by an Event.
        is_doubtful = not state.ended_in and has_post_start_hook(state.replica)
        who = "program or postStart hook" if is_doubtful else state.ended_in
        return ": ".join(part for part in (who, how_it_ended(state.exited)) if part)
    return ""


def _no_restart_left(plan: Plan, causes: Sequence[ReplicaState], restarts: int) -> Completion | None:
    limit = plan.policy.backoff_limit
    own = [state for state in causes if not state.is_disrupted]
    if not own or limit is None or restarts < limit:
        return None
    message = failure_message(first_failure(own))
    if not limit:
        return Completion(False, reasons.REPLICA_FAILED, shortened(f"{message}; maxRestarts is 0"))
    return Completion(
        False,
        reasons.BACKOFF_LIMIT_EXCEEDED,
        shortened(f"{message}; restarted {restarts} times, the limit of maxRestarts"),
    )


def refusal(obstacles: Sequence[Obstacle]) -> Completion | None:
    """Returns the end of the job if one of its writes can never succeed; else None."""
    message = next((obstacle.message for obstacle in obstacles if obstacle.permanent), None)
    return None if message is None else Completion(False, reasons.CREATE_REFUSED, shortened(message))


def _too_many_restarts(
    plan: Plan, states: Sequence[ReplicaState], restarts: int, last_reason: str
) -> Completion | None:
    limit = plan.policy.backoff_limit
    if limit is None or restarts < (max(1, limit) if plan.policy.fails_at_limit else limit + 1):
        return None
    name = "maxRestarts" if plan.replicas.is_elastic else "backoffLimit"
    message = f"{reasons.BACKOFF_LIMIT_EXCEEDED}: {restarts} restarts of replicas, {name} is {limit}"
    failed = [state for state in states if state.exited is not None and state.exited.exit_code]
    # A program that was restarted in place runs again.
    last = max(failed, key=lambda state: (state.is_restarting, finish_time_of(state)), default=None)
    why = failure_message(last) if last is not None else failed_sidecar(states) or last_reason
    return Completion(False, reasons.BACKOFF_LIMIT_EXCEEDED, shortened(f"{message}; {why}" if why else message))


def failed_sidecar(states: Sequence[ReplicaState]) -> str:
    """Returns a clause about a sidecar for which an elastic node runs again, although its program has succeeded.

    The Job controller goes by the phase of the pod, which such a sidecar makes Failed.
    """
    for state in states:
        pod, role = state.pod, state.replica.role
        if (
            not role.is_elastic
            or pod is None
            or pod.status.phase != POD_FAILED
            or state.state != replica_state.SUCCEEDED
        ):
            continue
        for status in pod.status.container_statuses:
            ended = status.state.terminated
            if ended is not None and ended.exit_code and status.name != role.container:
                return f"{state.replica.id}: sidecar {status.name} failed: {how_it_ended(ended)}"
    return ""


def _too_late(
    plan: Plan, states: Sequence[ReplicaState], started: str | None, now: datetime, last_reason: str
) -> Completion | None:
    left = seconds_until_deadline(plan, started, now)
    if left is None or left > 0:
        return None
    message = f"{reasons.DEADLINE_EXCEEDED}: not done after {plan.policy.active_deadline_seconds} s"
    waiting = next((state for state in states if state.pending), None)
    why = f"{waiting.replica.id} was {waiting.pending}" if waiting is not None else last_reason
    return Completion(False, reasons.DEADLINE_EXCEEDED, shortened(f"{message}; {why}" if why else message))


def seconds_until_deadline(plan: Plan, started: str | None, now: datetime) -> float | None:
    """Returns how much time the job has left; None without a deadline, and while the job is suspended."""
    limit = plan.policy.active_deadline_seconds
    if limit is None or started is None or plan.policy.suspend:
        return None
    return seconds_until(started, limit, now)


@dataclass(frozen=True, slots=True)
class Step:
    """The plan, states and children of the step that is due.

    `completed` has the states of the replicas of earlier steps; `is_first` reports whether there is no earlier step.
    """

    plan: Plan
    replica_states: Sequence[ReplicaState]
    observed: ObservedState
    completed: Sequence[ReplicaState] = ()
    is_first: bool = True


def current_step(plan: Plan, states: Sequence[ReplicaState], observed: ObservedState) -> Step:
    """Returns the first step that is not completed, or the last step if all are."""
    if not plan.steps:
        return Step(plan, states, observed)
    completed: list[ReplicaState] = []
    for step in plan.steps:
        part = [state for state in states if state.replica.name in step.replicas.by_name]
        if step is plan.steps[-1] or not has_succeeded(step, part):
            return Step(step, part, observed.only(step.replicas.by_name), completed, is_first=step is plan.steps[0])
        completed.extend(part)
    raise AssertionError("there is a last step")


# Long enough for a Secret that is applied together with its job, or that another controller makes.
CONFIG_WAIT_SECONDS = 300
# Each attempt retries for about a minute by itself and continues where the one before ended. With the back-off of the
# kubelet, up to 5 minutes, a source that never answers fails the job after about half an hour.
MAX_TRANSFER_ATTEMPTS = 10

# The kubelet's reason for a Secret, ConfigMap or key that is not there (pkg/kubelet/kuberuntime).
_CONFIG_ERROR = "CreateContainerConfigError"


def config_timeout_message(plan: Plan, states: Sequence[ReplicaState], now: datetime) -> str:
    """Returns which replica has waited too long for which Secret or ConfigMap; empty if none has."""
    for state, container, left in _without_config(plan, states, now):
        waiting = container.state.waiting
        if left <= 0 and waiting is not None:
            inside = "" if container.name == state.replica.role.container else f"{container.name}: "
            what = f"{inside}{waiting.reason}: {waiting.message}"
            return f"{state.replica.id} failed: {what} (waited for {CONFIG_WAIT_SECONDS} s)"
    return ""


def seconds_until_config_timeout(plan: Plan, states: Sequence[ReplicaState], now: datetime) -> float | None:
    """Returns when the first wait for a Secret or ConfigMap becomes too long; None if no container waits for one."""
    return min((left for _, _, left in _without_config(plan, states, now) if left > 0), default=None)


def _without_config(
    plan: Plan, states: Sequence[ReplicaState], now: datetime
) -> Iterator[tuple[ReplicaState, ContainerStatus, float]]:
    """Yields the containers that wait for a Secret or ConfigMap, and how many seconds each has left."""
    for state in states if plan.mounts.data_containers else ():
        if state.pod is None or state.state != RUNNING or state.pod.metadata.deletion_timestamp is not None:
            continue
        for container in (*state.pod.status.init_container_statuses, *state.pod.status.container_statuses):
            waiting = container.state.waiting
            if (
                container.name in plan.mounts.data_containers
                and waiting is not None
                and waiting.reason == _CONFIG_ERROR
            ):
                since = _waiting_since(state.pod, container)
                yield state, container, seconds_until(since, CONFIG_WAIT_SECONDS, now) if since else CONFIG_WAIT_SECONDS


def _waiting_since(pod: Pod, container: ContainerStatus) -> str:
    """Returns since when a container waits: since its pod started, or since a container before it last ended.

    The kubelet does not report this time.
    """
    ended = (
        terminated.finished_at or ""
        for status in (*pod.status.init_container_statuses, container)
        for terminated in (status.state.terminated, status.last_state.terminated)
        if terminated is not None
    )
    return max((pod.status.start_time or pod.metadata.creation_timestamp or "", *ended))


def retry_limit_message(plan: Plan, states: Sequence[ReplicaState]) -> str:
    """Returns which container that transfers data has failed too often, and how it ended last; empty if none has."""
    for state in states:
        exited = state.exited
        if state.replica.role.container in plan.mounts.data_containers and exited is not None and exited.exit_code:
            # A restart in place is counted once it has happened, so the present attempt is added.
            attempts = replica_restarts(state) + (not state.is_replaced)
            if state.is_restarting and not state.is_disrupted and attempts >= MAX_TRANSFER_ATTEMPTS:
                return f"{state.replica.id} failed: {why_ended(state)}; tried {attempts} times"
    return ""
