"""Judges each replica of a plan once per sync: whether it runs, has succeeded or failed, or needs another pod.

This is the only place that decides how a replica ended. The Job controller decides nothing: a child Job gives up with
its first pod (`actions.children`), so a replica that must run again needs another Job, which the planner creates.

The training container decides, by its last exit in the newest pod (`pods.py`). An init container that failed before it
decides as well. Other containers never do, whether they run, fail or end early. In this order:

1. A success in the job's status, or an exit with 0: Succeeded, for ever. A replica that serves is restarted instead.
2. A permanent error: Failed. If it ends the job nothing follows; otherwise the replica is restarted as in 3.
3. Any other end: the replica runs again (Running). So does one whose pod was deleted, disrupted or lost before its
   program had ended: such an exit is not evidence about the program, not even 0. Nor is 0 after the pod's own deadline.
4. The end of the child Job decides only if no pod shows more.

A pod that has ended (`is_replaced`) is counted once, by `restarts.py`, and its Job is deleted after that, once the Job
controller has reported the end of the Job (`must_redo`). A set that restarts together is restarted as a whole.

Jobs and pods arrive by different watches, and the end of a Job may be seen before that of its pod. It counts only once
the end of the pod is seen, since only the pod has the exit code, termination message and restart count, and the status
of a finished job is never written again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from tfjob_controller.api.common.cluster import ALWAYS
from tfjob_controller.api.common.core import POD_FAILED, BatchJob, Pod, Terminated
from tfjob_controller.api.common.policies import EXIT_CODE, NEVER, ON_FAILURE
from tfjob_controller.jobs.plan.model import Plan, Replica
from tfjob_controller.jobs.podtemplate.checkpoint import RESTORER
from tfjob_controller.jobs.podtemplate.merge import container_of, spec_of
from tfjob_controller.jobs.state.observed import JOB_COMPLETE, ObservedState, job_ending, job_outcome
from tfjob_controller.jobs.state.podreasons import (
    OOM_KILLED,
    is_permanent_error,
    is_retryable_exit_code,
    why_never_started,
    why_pending,
    why_repeated,
)
from tfjob_controller.jobs.state.pods import (
    GIVEN_UP_SECONDS,
    blocked_since,
    blocking_init_container,
    deletion_request_time,
    failed_before_training,
    failing_init_container,
    given_up_since,
    hides_deletion_request,
    is_disrupted,
    is_finished,
    is_owned_by,
    last_exit,
    native_sidecars,
    newest,
    outlasted_its_pod,
    training_container,
    was_told_to_end,
    why_unheard,
)
from tfjob_controller.jobs.trainingjob import TrainingStatus
from tfjob_controller.util.timestamps import format_time, seconds_until

RUNNING = "Running"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
UNKNOWN = "Unknown"

# The end of a pod on a lost node is never reported. Such a pod counts as lost this long after its grace period. This is
# also how long the end of a Job waits for the end of its pod.
LOST_AFTER_SECONDS = 30
# The Job controller creates pods within moments. If it cannot (quota, admission), only events of the Job say why.
NO_POD_AFTER_SECONDS = 30
# Kubernetes' default of `terminationGracePeriodSeconds`.
DEFAULT_GRACE_SECONDS = 30
# A kubelet reports an end some seconds late.
REPORT_SECONDS = 5
# With ExitCode, a program that ends with this code or a larger one runs again (pkg/util/train of release-1.9).
RETRYABLE_FROM = 128
# Most init containers have ended by then, and finished pods are gone that their Job takes along.
PATIENCE_SECONDS = 30


class ReplicaState(msgspec.Struct, frozen=True):
    """One replica at the moment of the evaluation.

    `exited` is how its container ended last, whether or not this counts; `is_up` reports whether the container runs;
    `is_restarting` that it ended and will run again; `is_replaced` that this takes another pod; `must_redo` that its
    child Job has ended, or is stuck, and must be recreated. `is_disrupted` reports whether its program did not cause
    the end. `pending` is why its pod does not run. `ended_in` names the container that ended if it is not the
    training container.
    """

    replica: Replica
    state: str
    job: BatchJob | None = None
    pod: Pod | None = None
    pods: Sequence[Pod] = ()
    exited: Terminated | None = None
    is_up: bool = False
    is_ready: bool = False
    is_restarting: bool = False
    is_replaced: bool = False
    is_disrupted: bool = False
    must_redo: bool = False
    pending: str = ""
    ended_in: str = ""


@dataclass(frozen=True, slots=True)
class _Times:
    """Moments as RFC 3339 strings, which are formatted once per evaluation."""

    lost_before: str
    no_pod_before: str
    slow_before: str


def classify_replicas(
    plan: Plan, observed: ObservedState, succeeded: Collection[str], now: datetime, started: str | None = None
) -> tuple[ReplicaState, ...]:
    """Returns the state of each replica in the plan's order.

    `succeeded` are the ids of successful replicas in the status, and `started` is its startTime.
    """
    no_pod_before = now - timedelta(seconds=NO_POD_AFTER_SECONDS)
    times = _Times(
        lost_before=lost_before(now),
        no_pod_before="" if (started or "") > format_time(no_pod_before) else format_time(no_pod_before),
        slow_before=format_time(now - timedelta(seconds=PATIENCE_SECONDS)),
    )
    done = _remembered(plan, observed, succeeded)
    return tuple(
        _classify(replica, observed, replica.id in done, plan.policy.suspend, times) for replica in plan.replicas.all
    )


def _remembered(plan: Plan, observed: ObservedState, succeeded: Collection[str]) -> frozenset[str]:
    """Returns the recorded successes, without those of an Indexed Job that must be recreated: it runs all replicas."""
    if plan.policy.is_strict:
        return frozenset()
    done = frozenset(succeeded)
    for role in plan.replicas.roles:
        ids = {replica.id for replica in plan.replicas.all if replica.role is role} if role.job_name else set()
        has_job = any(replica.name in observed.jobs for replica in plan.replicas.all if replica.role is role)
        if ids and not has_job and not ids <= done:
            done -= ids
    return done


def _is_permanent(replica: Replica, exited: Terminated) -> bool:
    """Reports whether the program would end in the same way again."""
    if policy := replica.role.restart_policy:
        return policy == NEVER or (policy == EXIT_CODE and exited.exit_code < RETRYABLE_FROM)
    if replica.role.retries_any_error:
        return exited.reason == OOM_KILLED or bool(why_never_started(exited))
    return is_permanent_error(exited)


def _is_final(replica: Replica, pod: Pod) -> bool:
    """Reports whether no other pod takes the place of this one because of its phase."""
    phase = pod.status.phase
    return phase in replica.role.final_phases and (phase == POD_FAILED or pod.metadata.deletion_timestamp is not None)


def never_existed(state: ReplicaState) -> bool:
    """Reports whether an elastic job requested the replica too late: its Job has ended, or is ending, without it."""
    return state.replica.role.is_elastic and state.job is not None and state.replica.index >= state.job.spec.parallelism


def as_restarting(state: ReplicaState) -> ReplicaState:
    return replace(state, state=RUNNING, is_restarting=True, must_redo=True)


def _is_ahead(job: BatchJob, pod: Pod | None, moment: str) -> bool:
    """Reports whether the cache shows the end of the Job, after `moment` (`lost_before`), but not that of its pod yet.

    The Job controller ends a Job only after its pods have ended or were deleted, so the cache will soon show this too.
    The end of an index of an Indexed Job has no time, and always waits for that.
    """
    if pod is None or is_finished(pod) or pod.metadata.deletion_timestamp is not None:
        return False
    ending = job_ending(job)
    return ending is not None and (ending.last_transition_time is None or ending.last_transition_time >= moment)


def _classify(
    replica: Replica, observed: ObservedState, is_remembered: bool, suspended: bool, times: _Times
) -> ReplicaState:
    job = observed.jobs.get(replica.name)
    pods = _pods_of(job, observed.pods.get(replica.name, ()))
    pod = newest(pods)
    if is_remembered:
        return ReplicaState(replica, SUCCEEDED, job, pod, pods)
    outcome = "" if job is None or _is_ahead(job, pod, times.lost_before) else job_outcome(job)
    if pod is None:
        state = _judge_without_pod(replica, job, outcome, times)
    else:
        state = _judge_by_pod(replica, job, pod, pods, is_over=outcome != "" or is_lost(pod, times.lost_before))
    if pod is not None and state.state == RUNNING and not state.is_up and not state.pending and not state.is_restarting:
        state = replace(state, pending=_why_slow(pod, times.slow_before))
    about = pod or (job if state.pending else None)
    if about is not None and (warning := observed.warnings.get(about.metadata.uid)):
        # Only Events say why this pod does not start, or why this Job creates no pod.
        state = replace(state, pending=warning)
    is_stopped = job is not None and job.spec.suspend and not (pod is not None and has_ended_by_itself(pod))
    # A pod without a Job was told to end. What it did before that has been recorded.
    if is_stopped and replica.role.restart_policy and pod is not None and hides_deletion_request(pod):
        return ReplicaState(replica, UNKNOWN, job, pod, pods)
    # While the job is suspended, programs that still run count. Once it is resumed, other pods replace them.
    if state.state == RUNNING and (is_stopped or suspended) and not (suspended and state.is_up):
        return ReplicaState(replica, UNKNOWN, job, pod, pods)
    return state


def _why_slow(pod: Pod, moment: str) -> str:
    """Returns for which init container the pod has waited since before `moment`; empty if for none."""
    since, container = blocked_since(pod), blocking_init_container(pod)
    if container is None or not since or since >= moment:
        return ""
    if container.name in native_sidecars(pod):
        return f"sidecar {container.name} has not started: its startup probe has not succeeded yet"
    return f"init container {container.name} is still running"


def has_ended_by_itself(pod: Pod) -> bool:
    """Reports whether the pod has ended and was not deleted."""
    return is_finished(pod) and pod.metadata.deletion_timestamp is None


def _pods_of(job: BatchJob | None, pods: Sequence[Pod]) -> Sequence[Pod]:
    """Returns the pods of the Job, without those of an earlier Job of the same name; all pods if the Job is gone."""
    if job is None or not pods:
        return pods
    uid = job.metadata.uid
    if all(is_owned_by(pod, uid) for pod in pods):
        return pods
    return tuple(pod for pod in pods if is_owned_by(pod, uid))


def _judge_without_pod(replica: Replica, job: BatchJob | None, outcome: str, times: _Times) -> ReplicaState:
    if outcome == JOB_COMPLETE and not replica.serves:
        return ReplicaState(replica, SUCCEEDED, job)
    if outcome:
        return as_restarting(ReplicaState(replica, RUNNING, job, is_replaced=True, is_disrupted=True))
    return ReplicaState(replica, RUNNING, job, pending=_why_no_pod(replica, job, times))


def _why_no_pod(replica: Replica, job: BatchJob | None, times: _Times) -> str:
    if job is None or job.spec.suspend or job.status.failed or (job.status.active and not replica.role.job_name):
        return ""
    if replica.role.is_elastic and replica.index >= job.spec.parallelism:
        return ""
    if (job.metadata.creation_timestamp or "") >= times.no_pod_before:
        return ""
    command = f"kubectl describe job {replica.job_name} -n {job.metadata.namespace}"
    return f"no pod after {NO_POD_AFTER_SECONDS} s: `{command}` shows the reason, such as a quota"


def _judge_by_pod(
    replica: Replica, job: BatchJob | None, pod: Pod, pods: Sequence[Pod], *, is_over: bool
) -> ReplicaState:
    """Judges a replica by its newest pod. `is_over` reports whether its Job has ended, or the pod is lost."""
    container = training_container(pod, replica.role.container)
    is_up = container is not None and container.state.running is not None
    exited = last_exit(container) if container is not None else None
    ended_in = ""
    failure = failed_before_training(pod, replica.role.container) if exited is None else None
    if exited is None and failure is None and not is_up and replica.restarts_in_place:
        # A failed restore of a checkpoint is tried again by rules of its own.
        failure = failing_init_container(pod, RESTORER)
    if failure is not None:
        ended_in, exited = failure
    state = ReplicaState(
        replica,
        RUNNING,
        job,
        pod,
        pods,
        exited,
        is_up,
        is_ready=is_up and container is not None and container.ready,
        pending=why_unheard(pod, container) if container is not None and is_up else why_pending(pod),
        ended_in="" if ended_in == replica.role.container else ended_in,
    )
    is_deleted = pod.metadata.deletion_timestamp is not None
    if exited is None and not is_finished(pod) and not is_deleted:
        if not is_over:
            return state if state.pending or is_up else replace(state, pending=why_repeated(pod))
        if job is not None and job_outcome(job) == JOB_COMPLETE and not replica.serves:
            # The cache never showed the end of the pod.
            return replace(state, state=SUCCEEDED, pending="")
    needs_pod = is_finished(pod) or is_deleted or is_over
    return _judge_end(state, pod, is_over=is_over, needs_pod=needs_pod)


def with_pod(state: ReplicaState, pod: Pod) -> ReplicaState:
    """Returns the state of the replica as its pod ended, which may have been replaced since."""
    return _judge_by_pod(state.replica, state.job, pod, (pod,), is_over=True)


def _judge_end(state: ReplicaState, pod: Pod, *, is_over: bool, needs_pod: bool) -> ReplicaState:
    """Judges a replica whose program has ended at least once, or whose pod has ended or is being deleted.

    `needs_pod`: the pod runs nothing any more.
    """
    replica, exited = state.replica, state.exited
    # The last exit is not evidence about a run that has not ended.
    is_cut_short = state.is_up and pod.metadata.deletion_timestamp is not None
    if exited is None or is_cut_short or was_told_to_end(pod, exited) or is_disrupted(pod, exited):
        disrupted = is_disrupted(pod, exited) or deletion_request_time(pod) is not None
        is_stopped = state.job is not None and state.job.spec.suspend
        has_run = state.is_up or exited is not None or is_finished(pod)
        is_final = replica.role.restart_policy == NEVER or _is_final(replica, pod)
        if needs_pod and has_run and is_final and not is_stopped:
            return replace(state, state=FAILED, is_disrupted=disrupted)
        return replace(
            state,
            is_restarting=not state.is_up,
            is_replaced=needs_pod,
            is_disrupted=disrupted,
            must_redo=is_over,
        )
    runs_again = replica.role.restart_policy == ALWAYS and not is_finished(pod)
    if exited.exit_code == 0 and not (replica.serves or runs_again or outlasted_its_pod(pod, exited)):
        return replace(state, state=SUCCEEDED, pending="")
    is_permanent = _is_permanent(replica, exited) and state.ended_in not in replica.role.retried_containers
    # Of a pod that is deleted after the end of its program, such as one with a sidecar that runs on, the end decides.
    is_permanent = is_permanent or (pod.status.phase == POD_FAILED and _is_final(replica, pod))
    # A replica with a policy of its own stays as it ended.
    if is_permanent and (replica.decides or replica.role.restart_policy):
        return replace(state, state=FAILED)
    after = FAILED if is_permanent else state.state
    return replace(state, state=after, is_restarting=not state.is_up, is_replaced=needs_pod, must_redo=is_over)


def is_restarted_in_place(replica: Replica, pod: Pod, exited: Terminated) -> bool:
    """Reports whether the kubelet restarts the training container after this end (container-level restartPolicy).

    A kubelet that does not know these policies ends the pod instead.
    """
    if is_finished(pod) or pod.metadata.deletion_timestamp is not None:
        return False
    if replica.role.restart_policy == ALWAYS:
        return True
    if exited.exit_code == 0 or _training_template(replica).get("restartPolicy") == NEVER:
        return False
    if pod.spec.restart_policy == ON_FAILURE:
        return True
    return replica.restarts_in_place and (not replica.decides or is_retryable_exit_code(exited.exit_code))


def _training_template(replica: Replica) -> Mapping[str, Any]:
    return container_of(spec_of(replica.template), replica.role.container) or {}


def has_post_start_hook(replica: Replica) -> bool:
    return "postStart" in (_training_template(replica).get("lifecycle") or {})


def lost_before(now: datetime) -> str:
    return format_time(now - timedelta(seconds=LOST_AFTER_SECONDS))


def is_lost(pod: Pod, moment: str) -> bool:
    """Reports whether the pod should have ended before `moment` (`lost_before`), and its end was not reported."""
    deleted = pod.metadata.deletion_timestamp
    return deleted is not None and deleted < moment and not is_finished(pod)


def has_run_and_succeeded(state: ReplicaState) -> bool:
    return state.state == SUCCEEDED and not never_existed(state)


def unrecorded_successes(states: Sequence[ReplicaState], status: TrainingStatus) -> Sequence[ReplicaState]:
    """Returns the replicas whose success the status does not have yet."""
    known = frozenset(status.succeeded_indexes)
    return [state for state in states if has_run_and_succeeded(state) and state.replica.id not in known]


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
    # A kubelet gives up no pod whose containers it starts again after any end.
    since = given_up_since(pod) if state.replica.role.restart_policy != ALWAYS else None
    if since is not None:
        return seconds_until(since, GIVEN_UP_SECONDS, now)
    container = training_container(pod, state.replica.role.container)
    ended = container.state.terminated if container is not None else None
    if ended is None and state.state == FAILED and state.ended_in:
        # An init container has failed for good, so training never starts.
        failed = (status for status in pod.status.init_container_statuses if status.name == state.ended_in)
        ended = next((status.state.terminated for status in failed), None)
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
    return bool(ended) and all(terminated is not None and terminated.exit_code == 0 for terminated in ended)


def seconds_until_change(states: Sequence[ReplicaState], started: str | None, now: datetime) -> float | None:
    """Returns when the first of the states will change by the passing of time alone; None if none will."""
    times = (seconds for state in states for seconds in _times_of_change(state, started or "", now))
    return min((seconds for seconds in times if seconds > 0), default=None)


def _times_of_change(state: ReplicaState, started: str, now: datetime) -> Iterator[float]:
    """Yields when the state may change. One second is added, since timestamps have whole seconds."""
    job, pod = state.job, state.pod
    if pod is None:
        if job is None or state.pending or state.state != RUNNING or job.spec.suspend or job.status.failed:
            return
        if since := max(job.metadata.creation_timestamp or "", started):
            yield seconds_until(since, NO_POD_AFTER_SECONDS + 1, now)
        return
    deleted = pod.metadata.deletion_timestamp
    if deleted is not None:
        yield seconds_until(deleted, LOST_AFTER_SECONDS + 1, now)
        return
    ending = job_ending(job) if job is not None and not is_finished(pod) else None
    if ending is not None and ending.last_transition_time:
        # The end of the Job counts then, although the end of its pod was not seen.
        yield seconds_until(ending.last_transition_time, LOST_AFTER_SECONDS + 1, now)
    removal = seconds_until_removal(state, now)
    if removal is not None:
        yield removal + 1
    blocked = None if state.is_up else blocked_since(pod)
    if blocked:
        yield seconds_until(blocked, PATIENCE_SECONDS, now) + 1
