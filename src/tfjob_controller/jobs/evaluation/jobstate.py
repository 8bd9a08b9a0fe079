"""Evaluates a job: the one place where what is observed turns into what every decision of a sync reads.

    state = evaluate(job, plan, observed, now)
    actions = plan_actions(state)               # the writes
    result = next_status(state, obstacles)      # the status, its events, and when to look again

Both functions are pure and read only the state, so they cannot disagree about a replica, a gang or the end of a job.
The reconciler evaluates a job again after writes, or the newest warnings about its children, have changed what is
observed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from tfjob_controller.api.common.policies import BY_RESTART
from tfjob_controller.jobs import conditions
from tfjob_controller.jobs.gang.admission import GangAdmission, gang_admission, without_deleted
from tfjob_controller.jobs.gang.waiting import GangWait, gang_wait
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.scaling.effective_plan import effective_plan
from tfjob_controller.jobs.state.attempts import (
    StaleChildren,
    attempt_members,
    of_current_attempt,
    stale_children,
    without_lost_pods,
)
from tfjob_controller.jobs.state.barepods import by_pod
from tfjob_controller.jobs.state.completion import (
    Completion,
    Step,
    current_step,
    job_completion,
    missing_replicas,
    restart_causes,
    retried_replicas,
    seconds_until_join_timeout,
    unfinished_replicas,
)
from tfjob_controller.jobs.state.observed import ObservedState, by_replica
from tfjob_controller.jobs.state.pods import hides_deletion_request
from tfjob_controller.jobs.state.replica_state import (
    FAILED,
    RUNNING,
    SUCCEEDED,
    UNKNOWN,
    ReplicaState,
    as_restarting,
    classify_replicas,
)
from tfjob_controller.jobs.state.restarts import (
    is_end_counted,
    new_disruptions,
    next_restart_counts,
    replaced_counts,
    replica_restarts,
    restarts_for_limit,
    with_gone_pods_added,
)
from tfjob_controller.jobs.trainingjob import TrainingJob, TrainingStatus


@dataclass(frozen=True, slots=True)
class JobState:
    """A job at one moment. All fields follow from `job`, its compiled plan, `observed` and `now`."""

    job: TrainingJob
    # The effective plan: with the workers, the restart attempt and the suspension that hold now.
    plan: Plan
    observed: ObservedState
    # `observed` without the pods of earlier Jobs that were lost with their node.
    reachable: ObservedState
    now: datetime
    # One for each replica of the plan, the chief's first.
    replica_states: Sequence[ReplicaState]
    # The states of replicas of steps that are not completed.
    unfinished: Sequence[ReplicaState]
    # Replicas whose failure restarts the whole set.
    restart_causes: Sequence[ReplicaState]
    # The restarts by replica, or by pod (`restarts.py`); their total; and the disruptions among them.
    restart_counts: Mapping[str, int]
    restarts: int
    disruptions: int
    step: Step
    # None for a job that this project's gang scheduler does not run as a gang.
    admission: GangAdmission | None
    # Children of earlier attempts in the due step.
    stale: StaleChildren
    # With resize Restart: how many workers TF_CONFIG should list; 0 otherwise.
    attempt_members: int
    # None for a job that no scheduler runs as a gang.
    wait: GangWait | None
    # How the job ends; None while it continues. The refusal of a write may end it as well: see `next_status`.
    completion: Completion | None

    @property
    def status(self) -> TrainingStatus:
        """The status on record, or the one that waits to be written."""
        return self.job.status

    @property
    def must_restart_all(self) -> bool:
        return bool(self.restart_causes)

    @property
    def has_started(self) -> bool:
        """Reports whether the job's time counts: its gang is admitted, or needs no admission."""
        if not self.step.is_first:
            return True
        if self.admission is not None:
            return self.admission.is_admitted
        return self.wait is None or self.wait.scheduled or self.step.plan.scheduling.is_gang_refused

    @property
    def is_held_back(self) -> bool:
        """Reports whether a gang's scheduler lets no replica run now."""
        return self.plan.policy.is_held or (self.admission is not None and not self.admission.is_admitted)


def evaluate(job: TrainingJob, plan: Plan, observed: ObservedState, now: datetime) -> JobState:
    """Returns the state of a job. `plan` is what the job was compiled into."""
    status = job.status
    observed = by_pod(plan, by_replica(plan, observed), status)
    plan = effective_plan(plan, observed, status)
    is_replaced = plan.scheduling.gang is not None or plan.scaling.resize == BY_RESTART
    current = of_current_attempt(plan, without_deleted(plan, observed) if is_replaced else observed)
    states = replica_states(plan, current, status, now)
    unfinished = unfinished_replicas(plan, states)
    retried = retried_replicas(plan, unfinished)
    causes = restart_causes(unfinished, retried) or _missing_for_long(plan, unfinished, status, now)
    failures, taken = replaced_counts(plan, current, status)
    replaced = failures | taken
    alone = [state for state in states if not state.replica.role.restarts_together] if not plan.policy.suspend else []
    recorded = with_gone_pods_added(states, status.restart_counts)
    counts = next_restart_counts(alone, recorded, replaced)
    counted = replaced if plan.replicas.restarts_together else counts
    restarts = status.restarts + sum(max(0, counts.get(key, 0) - recorded.get(key, 0)) for key in counted)
    is_set = plan.replicas.restarts_together
    disruptions = status.disruptions + (
        sum(uid not in recorded for uid in taken) if is_set else new_disruptions(alone, recorded)
    )
    reachable = without_lost_pods(plan, observed, now)
    step = current_step(plan, states, reachable)
    terms = step.plan.scheduling.gang
    admission = None if terms is None else gang_admission(terms, step.plan, step.observed, step.replica_states)
    wait = gang_wait(plan, step, admission, status, now) if plan.scheduling.requests_gang else None
    counted_restarts = restarts_for_limit(plan, states, restarts - disruptions)
    completion = job_completion(
        plan, states, unfinished, retried, causes, counted_restarts, status.start_time, now, status.reason
    )
    if plan.carrier is not None and plan.policy.suspend:
        # Pods that end because the job is suspended decide nothing, and neither do their peers that miss them.
        completion = None
    if completion is None and wait is not None and not plan.policy.is_suspended_by_user:
        completion = wait.verdict
    return JobState(
        job=job,
        plan=plan,
        observed=observed,
        reachable=reachable,
        now=now,
        replica_states=states,
        unfinished=unfinished,
        restart_causes=causes,
        restart_counts=counts,
        restarts=restarts,
        disruptions=disruptions,
        step=step,
        admission=admission,
        stale=_stale_children(step, admission),
        attempt_members=_attempt_members(plan, states, admission),
        wait=wait,
        completion=completion,
    )


def _missing_for_long(
    plan: Plan, unfinished: Sequence[ReplicaState], status: TrainingStatus, now: datetime
) -> Sequence[ReplicaState]:
    seconds_left = seconds_until_join_timeout(plan, unfinished, status, now)
    return missing_replicas(unfinished) if seconds_left is not None and seconds_left <= 0 else ()


def _stale_children(step: Step, admission: GangAdmission | None) -> StaleChildren:
    if admission is not None:
        return admission.stale
    return stale_children(step.plan, step.observed, step.replica_states)


def _attempt_members(plan: Plan, states: Sequence[ReplicaState], admission: GangAdmission | None) -> int:
    if plan.scaling.resize != BY_RESTART:
        return 0
    is_admitted = admission is not None and admission.is_admitted
    return attempt_members(plan, states, admission.assignments if admission is not None and is_admitted else None)


def replica_states(
    plan: Plan, observed: ObservedState, status: TrainingStatus, now: datetime
) -> tuple[ReplicaState, ...]:
    """Returns the state of each replica of an effective plan. `observed` has no children of earlier attempts."""
    since = max(status.start_time or "", _last_resize_time(plan, status))
    seen_now = classify_replicas(plan, observed, status.succeeded_indexes, now, since)
    states = tuple(_as_known(state, status) for state in seen_now)
    if not plan.replicas.restarts_together:
        return states
    had = plan.scheduling.gang is None and had_all_jobs(plan, status)
    done, resumed = frozenset(status.succeeded_indexes), conditions.find(status.conditions, conditions.SUSPENDED)
    since = resumed.last_transition_time if resumed is not None else ""
    return tuple(
        as_restarting(replace(state, is_disrupted=True)) if _has_lost_its_job(plan, state, had, since, done) else state
        for state in states
    )


def _as_known(state: ReplicaState, status: TrainingStatus) -> ReplicaState:
    """Returns the state with what only the status still knows of its end."""
    if _was_to_run_again(state, status):
        return as_restarting(replace(state, is_disrupted=True, is_replaced=True))
    if _has_replaced_first(state, status):
        return as_restarting(replace(state, is_disrupted=True))
    return state


def _was_to_run_again(state: ReplicaState, status: TrainingStatus) -> bool:
    """Reports whether the status records that the replica must run again, although its program seems to have ended.

    A program may end because its pod is deleted. A moment later only the Job is left, or a pod that no longer shows
    when its deletion was requested: the kubelet deletes it once more, without a grace period. Its Job may be gone by
    then, since the controller deletes it to start another one. The count of restarts in the status was written when the
    deletion began; of elastic nodes it is by pod.
    """
    pod = state.pod
    is_judged = state.state == SUCCEEDED or (state.state == FAILED and state.replica.decides)
    is_deleted = pod is None or hides_deletion_request(pod)
    if not is_judged or not is_deleted or state.replica.id in status.succeeded_indexes:
        return False
    if state.replica.role.job_name:
        return is_end_counted(state, status.restart_counts)
    return status.restart_counts.get(state.replica.id, 0) > replica_restarts(state)


def _has_replaced_first(state: ReplicaState, status: TrainingStatus) -> bool:
    """Reports whether the Job controller replaced the first pod of an elastic role, which hosts the rendezvous.

    If its end was not observed, the status records that it has run since before its pod was created.
    """
    if not state.replica.role.is_elastic or state.replica.index > 0 or state.pod is None:
        return False
    running = conditions.find(status.conditions, conditions.RUNNING)
    created = state.pod.metadata.creation_timestamp or ""
    return running is not None and running.status == conditions.TRUE and running.last_transition_time < created


def _last_resize_time(plan: Plan, status: TrainingStatus) -> str:
    """Returns when replicas of an Indexed Job were last added or removed; empty if they never were."""
    resizing = conditions.find(status.conditions, conditions.RESIZING) if plan.replicas.is_elastic else None
    return resizing.last_transition_time if resizing is not None else ""


def _has_lost_its_job(
    plan: Plan, state: ReplicaState, had_all: bool, resumed_at: str, succeeded: Collection[str]
) -> bool:
    """Reports whether a user deleted the replica's Job. All replicas restart then.

    Recreated alone, the replica would join peers that have started without it. Jobs of a gang are not considered, since
    the controller deletes them as well, when the gang returns to the queue or its placement changes, unless replicas
    had succeeded: a new Indexed Job runs these once more.
    """
    if not state.replica.role.restarts_together or state.state != RUNNING:
        return False
    job = state.job
    if job is not None:
        return plan.scheduling.gang is None and job.metadata.deletion_timestamp is not None and not job.spec.suspend
    # The pods of a suspended Job that is replaced were deleted before it, although the cache may still show them.
    has_pods = any(
        pod.metadata.deletion_timestamp is None and (pod.metadata.creation_timestamp or "") > resumed_at
        for pod in state.pods
    )
    return has_pods or had_all or state.replica.id in succeeded


def had_all_jobs(plan: Plan, status: TrainingStatus) -> bool:
    """Reports whether all replicas of this attempt had Jobs when the status was written. See `counts`."""
    if conditions.has_true(status.conditions, conditions.RESTARTING):
        return False
    together = {role.name for role in plan.replicas.roles if role.restarts_together}
    recorded = [role_status.states for role_status in status.roles if role_status.role in together]
    return bool(recorded) and all(UNKNOWN not in states for states in recorded)
