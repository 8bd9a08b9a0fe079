"""Restarts: how many there were, which failure causes one, and how long the next one waits.

Counts. The status has the number of restarts of each replica by its id. A child Job starts one pod, and carries how
often its replica was restarted before it (label `REPLICA_RESTARTS`). The count is that number, plus the restarts of the
training container in place, plus one if the pod has ended, or is being deleted, and another one is needed. So one end
counts once, however often and by whatever object it is observed. Pods of elastic roles, which the Job controller
replaces, are counted by replica and UID, and added up by replica once they are gone and have a successor. Many entries
of what does not exist any more are added up under one empty key. Restarts that the program did not cause are
disruptions, which no limit applies to.

Attribution. In synchronous training a replica that loses a peer usually fails as well, often within a second and with
an ordinary error. Only the first failure is the cause. If the first replica to end was killed, evicted or lost with its
node, a permanent error of another replica is a consequence, and the whole set restarts. If a permanent error came
first, it is the program's own and ends the job. Kubelets report terminations with a delay, each on its own schedule, so
a permanent error is attributed only after `GRACE_SECONDS`. Termination times have a resolution of one second; a tie is
decided in favor of the retryable failure, because `maxRestarts` bounds restarts, whereas a failed job cannot be undone.

Back-off. The first restart of all replicas is immediate, since most failures are a lost node or an eviction. Each
further restart waits twice as long as the one before, up to a cap. The wait starts at the failure: when the condition
Restarting became True, or was set again because replicas failed before all of them ran.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from tfjob_controller.api.common.core import POD_FAILED, POD_RUNNING, Pod
from tfjob_controller.api.common.policies import NEVER
from tfjob_controller.jobs import conditions
from tfjob_controller.jobs.naming import REPLICA_RESTARTS, replica_id_of
from tfjob_controller.jobs.plan.model import Plan, Role
from tfjob_controller.jobs.podtemplate.checkpoint import RESTORER
from tfjob_controller.jobs.state.observed import JOB_COMPLETE, ObservedState, job_end_time, job_outcome
from tfjob_controller.jobs.state.podreasons import is_permanent_error
from tfjob_controller.jobs.state.pods import (
    deletion_request_time,
    failed_before_training,
    is_disrupted,
    is_owned_by,
    newest,
    restarts_in_place,
    training_exit,
    was_told_to_end,
)
from tfjob_controller.jobs.state.replica_state import FAILED, ReplicaState
from tfjob_controller.jobs.trainingjob import TrainingStatus
from tfjob_controller.util.timestamps import seconds_until

GONE = ""
# An entry takes about 50 bytes of the status, which should not grow with the age of the job.
MAX_GONE = 32
# How many ended pods of replaced nodes are kept with their logs.
KEPT_FAILED_PODS = 3
_NONE: Mapping[str, int] = MappingProxyType({})


def next_restart_counts(
    states: Sequence[ReplicaState], counts: Mapping[str, int], replaced: Mapping[str, int] = _NONE
) -> dict[str, int]:
    """Returns the recorded counts, raised to those of the replicas and of `replaced` (`replaced_counts`)."""
    raised = dict(counts)
    current = ((state.replica.id, replica_restarts(state)) for state in states)
    for key, count in (*current, *replaced.items()):
        if count > raised.get(key, 0):
            raised[key] = count
    if len(raised) <= MAX_GONE:
        return raised
    return fold_counts(raised, {state.replica.id for state in states} | replaced.keys())


def with_gone_pods_added(states: Sequence[ReplicaState], counts: Mapping[str, int]) -> Mapping[str, int]:
    """Returns the counts, with those of pods that are gone and have a successor added up by replica (elastic roles)."""
    summed = dict(counts)
    by_pod = [key for key in counts if "/" in key]
    present = {state.replica.id: {pod_key(pod) for pod in state.pods} for state in states if by_pod and state.pods}
    for key in by_pod:
        replica_id, _, _ = key.partition("/")
        if key not in present.get(replica_id, (key,)):
            summed[replica_id] = summed.get(replica_id, 0) + summed.pop(key)
    return summed


def restarts_of(replica_id: str, counts: Mapping[str, int]) -> int:
    """Returns the recorded restarts of a replica, whether they are counted by its id or by the UID of its pods."""
    return sum(count for key, count in counts.items() if key.partition("/")[0] == replica_id)


def replica_restarts(state: ReplicaState) -> int:
    """Returns how often the replica was restarted, as far as its Job and its pods show it."""
    job = state.job
    if job is None:
        return 0
    before = job.metadata.labels.get(REPLICA_RESTARTS, "")
    in_place = max((restarts_in_place(pod, state.replica.role.container, RESTORER) for pod in state.pods), default=0)
    # Pods of a Job that is suspended or deleted end for this reason.
    is_stopped = job.spec.suspend or job.metadata.deletion_timestamp is not None
    return int(before if before.isdecimal() else 0) + in_place + (state.is_replaced and not is_stopped)


def restarts_for_limit(plan: Plan, states: Sequence[ReplicaState], restarts: int) -> int:
    """Returns how many of the job's restarts count for `backoffLimit`; `restarts` are those that programs caused.

    Training-operator counts those of all containers of the pods that run, and with a limit of 0 also pods that fail.
    """
    if not plan.policy.is_strict:
        return restarts
    present = sum(
        status.restart_count
        for state in states
        for pod in state.pods
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        if pod.status.phase == POD_RUNNING and state.replica.role.restart_policy != NEVER
    )
    return present if plan.policy.backoff_limit else max(present, restarts)


def new_disruptions(states: Sequence[ReplicaState], counts: Mapping[str, int]) -> int:
    """Returns how many replicas have lost their pod since `counts` were recorded and did not cause that."""
    return sum(
        state.is_replaced and state.is_disrupted and replica_restarts(state) > counts.get(state.replica.id, 0)
        for state in states
    )


def seconds_until_replica_restart(state: ReplicaState, now: datetime) -> float:
    """Returns how long the ended pod of a replica is kept before another one is started; 0 if it may start now.

    The delay doubles with each restart of the replica. It starts at the exit of the training container if that is
    known, and otherwise at the end of the child Job, at the deletion of the pod or at its start.
    """
    ended = _end_time(state)
    if not ended:
        return 0.0
    return max(0.0, seconds_until(ended, backoff_seconds(replica_restarts(state)), now))


def _end_time(state: ReplicaState) -> str | None:
    pod, of_job = state.pod, job_end_time(state.job) if state.job is not None else None
    if pod is None:
        return of_job
    exited_at = state.exited.finished_at if state.exited is not None else None
    if exited_at and of_job:
        # The clock of the node may be ahead of that of the control plane.
        return min(exited_at, of_job)
    return exited_at or of_job or deletion_request_time(pod) or pod.status.start_time


def joint_restarts(plan: Plan, status: TrainingStatus) -> int:
    """Returns how often all replicas were restarted together, which is the recorded attempt."""
    if not plan.replicas.is_elastic:
        return status.restarts
    return status.scaling.attempt if status.scaling is not None else 0


def replaced_counts(
    plan: Plan, observed: ObservedState, status: TrainingStatus
) -> tuple[dict[str, int], dict[str, int]]:
    """Returns the pods of elastic roles that the Job controller has replaced, or is about to: 1 for each `pod_key`.

    The first ones failed by themselves; the second ones were evicted, or deleted while their programs ran. The first
    replica is not counted here, since its end restarts all. Pods whose deletion was requested before the last resize
    was complete are not counted: they may have been removed by it.
    """
    failures: dict[str, int] = {}
    disruptions: dict[str, int] = {}
    for role in plan.replicas.roles:
        job = observed.jobs.get(f"{role.job_name}-0") if role.is_elastic else None
        if job is None:
            continue
        is_stopped = job.spec.suspend or job.metadata.deletion_timestamp is not None
        for index in range(1, max(job.spec.parallelism, role.replicas)):
            pods = observed.pods.get(f"{role.job_name}-{index}", ())
            own = [pod for pod in pods if is_owned_by(pod, job.metadata.uid)]
            last = newest(own)
            for pod in own:
                requested = deletion_request_time(pod)
                if requested is not None and (is_stopped or _is_resized_since(status, requested)):
                    continue
                cause = _why_replaced(role, pod, is_newest=pod is last)
                if cause is _Cause.DISRUPTION:
                    disruptions[pod_key(pod)] = 1
                elif cause is _Cause.FAILURE:
                    failures[pod_key(pod)] = 1
    return failures, disruptions


class _Cause(enum.Enum):
    DISRUPTION = enum.auto()
    FAILURE = enum.auto()


def _why_replaced(role: Role, pod: Pod, *, is_newest: bool) -> _Cause | None:
    """Returns why the pod of an elastic role is replaced; None if it is not.

    A permanent error ends the job. If it follows from the end of another node, another pod takes the place of this one.
    """
    exited, requested = training_exit(pod, role.container), deletion_request_time(pod)
    if requested is None and pod.status.phase != POD_FAILED:
        return None
    is_cut_short = requested is not None and (exited is None or was_told_to_end(pod, exited))
    if is_cut_short or is_disrupted(pod, exited):
        return _Cause.DISRUPTION
    before = failed_before_training(pod, role.container) if exited is None else None
    ended = before[1] if before is not None else exited
    if is_newest and ended is not None and is_permanent_error(ended):
        return None
    return _Cause.FAILURE if requested is None or (ended is not None and ended.exit_code != 0) else None


def pod_key(pod: Pod) -> str:
    """Returns the key of an elastic role's pod in the counts, which begins with the id of its replica."""
    return f"{replica_id_of(pod.metadata.labels)}/{pod.metadata.uid}"


def is_end_counted(state: ReplicaState, counts: Mapping[str, int]) -> bool:
    """Reports whether the end of an elastic role's pod is counted.

    A pod that has completed its index and is gone is the one that is counted for this replica by its UID: those before
    it are added up (`with_gone_pods_added`).
    """
    if not state.replica.role.is_elastic:
        return False
    if state.pod is not None:
        return pod_key(state.pod) in counts
    is_complete = state.job is not None and job_outcome(state.job) == JOB_COMPLETE
    return is_complete and any(key.startswith(f"{state.replica.id}/") for key in counts)


def surplus_failed_pods(plan: Plan, observed: ObservedState, counts: Mapping[str, int]) -> Iterator[Pod]:
    """Yields the failed pods of elastic roles that are deleted once they are counted, so that they do not pile up.

    Each replica keeps its newest pod, and each role the `KEPT_FAILED_PODS` newest of the others.
    """
    for role in plan.replicas.roles:
        if not role.is_elastic:
            continue
        pods = (observed.pods.get(f"{role.job_name}-{index}", ()) for index in range(role.replicas))
        older = [
            pod
            for of_index in pods
            for pod in of_index
            if pod is not newest(of_index) and pod.status.phase == POD_FAILED
        ]
        older.sort(key=lambda pod: pod.metadata.creation_timestamp or "")
        for pod in older[:-KEPT_FAILED_PODS]:
            if pod.metadata.deletion_timestamp is None and pod_key(pod) in counts:
                yield pod


def _is_resized_since(status: TrainingStatus, moment: str) -> bool:
    resizing = conditions.find(status.conditions, conditions.RESIZING)
    return resizing is not None and (resizing.status != conditions.FALSE or resizing.last_transition_time >= moment)


def is_restart_recorded(state: ReplicaState, counts: Mapping[str, int]) -> bool:
    """Reports whether the recorded counts include the last end of the replica."""
    return counts.get(state.replica.id, 0) >= replica_restarts(state)


def restarted_states(states: Sequence[ReplicaState], counts: Mapping[str, int]) -> list[ReplicaState]:
    """Returns the replicas that were restarted since `counts` were recorded, in the plan's order."""
    return [state for state in states if not is_restart_recorded(state, counts)]


def fold_counts(counts: dict[str, int], present: Collection[str]) -> dict[str, int]:
    """Returns the counts with one sum for deleted objects, if there are many of these."""
    deleted = [uid for uid in counts if uid not in present and uid != GONE]
    if len(deleted) <= MAX_GONE:
        return counts
    kept = {uid: count for uid, count in counts.items() if uid in present}
    return {GONE: counts.get(GONE, 0) + sum(counts[uid] for uid in deleted), **kept}


# Those of the kubelet for containers (pkg/kubelet, MaxContainerBackOff).
BASE_SECONDS, CAP_SECONDS = 10, 300
# With more doublings the cap applies.
_DOUBLINGS = 10


def backoff_seconds(restarts: int) -> int:
    """Returns the delay before the restart of that number."""
    if restarts < 2:
        return 0
    return min(BASE_SECONDS << min(restarts - 2, _DOUBLINGS), CAP_SECONDS)


def seconds_until_restart(plan: Plan, status: TrainingStatus, now: datetime) -> float:
    """Returns when replicas may be created; 0 if they may be created now."""
    restarting = conditions.find(status.conditions, conditions.RESTARTING)
    if not plan.replicas.restarts_together or restarting is None or restarting.status != conditions.TRUE:
        return 0.0
    wait = backoff_seconds(joint_restarts(plan, status))
    return max(0.0, seconds_until(restarting.last_transition_time, wait, now))


# The kubelet's sync loop runs every second; a busy node needs three of them to report a termination. One more is added,
# since timestamps have whole seconds.
GRACE_SECONDS = 4.0


def is_consequence(failed: ReplicaState, restarting: Sequence[ReplicaState]) -> bool:
    """Reports whether `failed` ended because one of `restarting`, which may be retried, had ended before it."""
    if not failed.replica.role.restarts_together:
        return False
    finish_time = finish_time_of(failed)
    return any(finish_time_of(peer) <= finish_time for peer in restarting)


def seconds_until_attributed(failed: ReplicaState, states: Sequence[ReplicaState], now: datetime) -> float:
    """Returns how long the cause of this failure stays open, or 0.0 if it is decided."""
    peers = [state for state in states if state.replica.role.restarts_together and state is not failed]
    finish_time = finish_time_of(failed)
    if not failed.replica.role.restarts_together or not peers or not finish_time:
        return 0.0
    return max(0.0, seconds_until(finish_time, GRACE_SECONDS, now))


def next_attribution_seconds(states: Sequence[ReplicaState], now: datetime) -> float | None:
    """Returns when the earliest open permanent error is attributed, or None if none is open."""
    open_seconds = (seconds_until_attributed(state, states, now) for state in states if state.state == FAILED)
    return min((seconds for seconds in open_seconds if seconds > 0), default=None)


def first_failure(failed: Sequence[ReplicaState]) -> ReplicaState:
    """Returns the replica that ended first; of several, the first one in the plan's order."""
    return min(failed, key=finish_time_of)


def finish_time_of(state: ReplicaState) -> str:
    """Returns the termination time; empty, which sorts first, if the replica was deleted or its node was lost."""
    return (state.exited.finished_at or "") if state.exited is not None else ""
