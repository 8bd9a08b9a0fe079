"""The diagnosis of a job: two sentences with its current state and what would change that. Pure.

The first rule that applies decides. The order goes from what nothing outweighs (the job is being deleted) to the state
of a job that runs well. `now` says what is, `next` what follows: by itself, or by an action of the reader. The rules
about a job alone also give `describe` its hints. At the end, a sentence that is the report of a program which no longer
runs, or which may not run, is attributed to that program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from tfjob_controller.api.common.core import Pod
from tfjob_controller.api.common.managedby import is_managed_here
from tfjob_controller.api.common.policies import CLEAN_NONE
from tfjob_controller.api.gang import BOUND, REQUESTED, UNSCHEDULABLE, WAITING
from tfjob_controller.client.diagnostics.collection import Diagnostics, Object, event_time
from tfjob_controller.client.diagnostics.replicas import replica_blamed
from tfjob_controller.client.diagnostics.timeline import replica_of
from tfjob_controller.client.jobclass import BAD_CONFIG, BAD_IMAGE, MISSING_OBJECT, NOT_SET_UP
from tfjob_controller.client.kinds import AnyJob, kind_of, status_of
from tfjob_controller.client.statusreports import CONTROLLER, GANG_SCHEDULER, NO_LEASE, STOPPED, UNKNOWN
from tfjob_controller.jobs import conditions
from tfjob_controller.jobs.evaluation.cleanup import ttl_seconds_left
from tfjob_controller.jobs.reasons import FAILED_CREATE
from tfjob_controller.jobs.state.podreasons import CRASH_LOOP, why_never_started
from tfjob_controller.jobs.state.pods import blocking_init_container, is_unheard, last_exit, newest
from tfjob_controller.jobs.status.summary import join_ids
from tfjob_controller.jobs.trainingjob import PHASE_CLEAN_UP, PHASE_RUNNING, TrainingStatus, is_finished, ready_by_role
from tfjob_controller.util.text import shortened
from tfjob_controller.util.timestamps import format_time, parse_time_or_none

# So many pods are named; further ones are counted.
_NAMED = 3
_STARTING = frozenset({"ContainerCreating", "PodInitializing"})
# Of the admission plugins ServiceAccount and Priority. Only names of objects are taken into a command.
_MISSING_ACCOUNT = re.compile(r'serviceaccount "([a-z0-9.-]+)" not found')
_MISSING_PRIORITY = re.compile(r"no PriorityClass with name ([a-z0-9.-]+) was found")
# The kubelet tries again, and people have to correct something.
BLOCKING_REASONS = BAD_IMAGE | BAD_CONFIG | {CRASH_LOOP}


class Diagnosis(msgspec.Struct, frozen=True):
    """Sentences without a full stop.

    `now` is from the status that the program `by` reported; empty: from what the API server itself has, or another
    component of Kubernetes. With `is_unreported`, the program has not reported yet. `is_final`: the
    controller does nothing more.
    """

    now: str
    next: str
    by: str = ""
    is_unreported: bool = False
    is_final: bool = False


def diagnose(case: Diagnostics, now: datetime) -> Diagnosis:
    """The diagnosis as of `now`, the time of the API server, from which ages of reports count."""
    job, status = case.seen.job, status_of(case.seen.job)
    return _attributed(case, now, _first(case, job, status))


def _first(case: Diagnostics, job: AnyJob, status: TrainingStatus) -> Diagnosis:
    """The diagnosis of the first rule that applies."""
    return (
        _in_deleted_namespace(case)
        or _deleted(job)
        or _managed_elsewhere(job)
        or _ended(case, status)
        or _invalid(job)
        or _unobserved(job, status)
        or _hindered(status)
        or _suspended(case)
        or _waiting_for_gang(case)
        or _failing_pods(case, status)
        or _unscheduled_pods(case)
        or _unheard_pods(case)
        or _restarting(job, status)
        or _initializing(case, status)
        or _otherwise(case, status)
    )


def _attributed(case: Diagnostics, now: datetime, diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with whose report it is, unless the program that reported it is known to run."""
    report, controller = case.reports.get(diagnosis.by), case.reports.get(CONTROLLER)
    if report is not None and report.state == STOPPED:
        stop, remedy = report.stop(now), f"{report.remedy}; nothing changes until it runs"
        if diagnosis.is_unreported:
            return Diagnosis(f"{diagnosis.now}: {stop}", remedy)
        return Diagnosis(f"{stop}; its last report: {diagnosis.now}", remedy)
    text, then = diagnosis.now, diagnosis.next
    if report is not None and not diagnosis.is_unreported:
        if report.state == NO_LEASE:
            text = f"{diagnosis.now} ({report.origin(now)}; no Lease and no pod shows that it runs)"
        elif report.state == UNKNOWN:
            text = f"{diagnosis.now} ({report.origin(now)})"
    if controller is not None and controller.state == STOPPED and not diagnosis.is_final:
        then = f"{controller.stop(now)}: {controller.remedy}; then {diagnosis.next}"
    return Diagnosis(text, then)


def job_hints(job: AnyJob) -> list[str]:
    """Returns hints that the status of the job does not contain, as whole sentences."""
    status, elsewhere = status_of(job), _managed_elsewhere(job)
    candidates = [_deleted(job), elsewhere]
    if not is_finished(status):
        candidates += [_invalid(job), None if elsewhere is not None else _unobserved(job, status)]
    diagnoses = [candidate for candidate in candidates if candidate is not None]
    return [f"{_capitalized(diagnosis.now)}. {_capitalized(diagnosis.next)}." for diagnosis in diagnoses]


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _deleted(job: AnyJob) -> Diagnosis | None:
    if not job.metadata.deletion_timestamp:
        return None
    return Diagnosis("it is being deleted", "it is removed once its children and finalizers are", is_final=True)


def _in_deleted_namespace(case: Diagnostics) -> Diagnosis | None:
    if not case.namespace_is_deleted:
        return None
    where = case.seen.metadata.namespace
    now = f"its namespace {where} is being deleted, and the job with it: nothing can be created in it any more"
    look = f"kubectl get namespace {where} -o yaml"
    then = f"submit the job in another namespace; to see what the deletion waits for: {look}"
    return Diagnosis(now, then, is_final=True)


def _managed_elsewhere(job: AnyJob) -> Diagnosis | None:
    if is_managed_here(job.spec.managed_by):
        return None
    now = f"another controller runs it: {job.spec.managed_by}"
    return Diagnosis(now, "that controller decides; see its log", is_final=True)


def _ended(case: Diagnostics, status: TrainingStatus) -> Diagnosis | None:
    if not is_finished(status):
        return None
    has_succeeded = status.phase == "Done"
    how = "it has succeeded" if has_succeeded else f"it has failed: {status.reason}"
    log = "" if has_succeeded else _log_of_failure(case, status)
    first, subject = (f"see the log of {log}; ", "the job") if log else ("", "it")
    if gone_at := _deletion_time(case.seen.job, status):
        return Diagnosis(how, f"{first}{subject} is deleted at {gone_at} (ttlSecondsAfterFinished)")
    running = {_name(pod) for pod in _live(case.pods) if pod.get("status", {}).get("phase") == "Running"}
    if running and _keeps_pods(case.seen.job):
        meta, kind = case.seen.metadata, case.seen.kind
        pods = "the pod of {} still runs" if len(running) == 1 else "the pods of {} still run"
        delete = f"kubectl delete {kind.resource.full_name} {meta.name} -n {meta.namespace}"
        then = f"{pods.format(join_ids(sorted(running)))} until the job is deleted: {delete}"
        return Diagnosis(how, f"{first}{then}", is_final=True)
    then = f"{subject} stays until it is deleted; to run it again, delete it and submit it again"
    return Diagnosis(how, f"{first or 'nothing: '}{then}", is_final=True)


def _keeps_pods(job: AnyJob) -> bool:
    """Reports whether the controller leaves the pods of a job that has ended."""
    kind = kind_of(job)
    plan = kind.plan_of(job) if kind.problem_of(job) is None else None
    return plan is not None and plan.policy.clean_pod_policy == CLEAN_NONE


def _deletion_time(job: AnyJob, status: TrainingStatus) -> str:
    """When the controller deletes a job that has ended; empty if it keeps it."""
    ttl, end = kind_of(job).work_of(job).ttl_seconds_after_finished, status.completion_time
    # A time that was edited by hand may be none.
    moment = parse_time_or_none(end)
    if ttl is None or moment is None or ttl_seconds_left(ttl, end, moment) is None:
        return ""
    return format_time(moment + timedelta(seconds=ttl))


def _log_of_failure(case: Diagnostics, status: TrainingStatus) -> str:
    """The replica because of which the job has failed, and the command that prints its log; empty if it has none.

    Without -p, since the kubelet keeps the log of the last run alone, unless the container runs again.
    """
    replica = replica_blamed(status.reason, {replica_of(pod) for pod in case.pods})
    if not replica and case.seen.kind.owns_pods:  # whose reasons name no replica
        replica = min((replica_of(pod) for pod in case.pods if pod["status"].get("phase") == "Failed"), default="")
    pod = newest([msgspec.convert(pod, Pod) for pod in case.pods if replica_of(pod) == replica])
    if pod is None or not replica:
        return ""
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        exited = last_exit(container)
        if exited is not None and exited.exit_code != 0 and not why_never_started(exited):
            previous = " -p" if container.state.running is not None else ""
            return f"{replica}: {_logs_command(case, replica)}{previous}"
    return ""


def _logs_command(case: Diagnostics, replica: str) -> str:
    meta, word = case.seen.metadata, case.seen.kind.word
    return f"kubectl tfjob logs {word}/{meta.name} -n {meta.namespace} --replica {replica}"


def _invalid(job: AnyJob) -> Diagnosis | None:
    if (problem := kind_of(job).problem_of(job)) is None:
        return None
    return Diagnosis(f"its spec cannot be run: {problem}", "correct the spec and submit the job again")


def _unobserved(job: AnyJob, status: TrainingStatus) -> Diagnosis | None:
    check = "check that a controller runs and leads: kubectl get pods -A -l app.kubernetes.io/name=tfjob-controller"
    if not status.phase:
        return Diagnosis("no controller has processed the job yet", check, CONTROLLER, is_unreported=True)
    if status.observed_generation < job.metadata.generation:
        return Diagnosis(
            "the controller has not processed the last change of its spec yet",
            f"this takes a moment; otherwise {check}",
            CONTROLLER,
            is_unreported=True,
        )
    return None


def _hindered(status: TrainingStatus) -> Diagnosis | None:
    condition = conditions.find(status.conditions, conditions.CHANGES_REVERTED)
    if condition is None or condition.status != conditions.TRUE:
        return None
    what, _, remedy = condition.message.rpartition(". ")
    return Diagnosis(what or condition.message, f"it continues once the changes are kept. {remedy}", CONTROLLER)


def _suspended(case: Diagnostics) -> Diagnosis | None:
    meta = case.seen.metadata
    if not case.seen.job.spec.suspend:
        return None
    resume = f"kubectl tfjob resume {case.seen.kind.word}/{meta.name} -n {meta.namespace}"
    field = ".".join(("spec", *case.seen.kind.suspend_field))
    return Diagnosis(f"it is suspended: {field} is true", f"it runs once it is resumed: {resume}")


def _waiting_for_gang(case: Diagnostics) -> Diagnosis | None:
    for gang in case.gangs:
        spec, status = gang.get("spec", {}), gang.get("status", {})
        phase = status.get("phase", "")
        if not phase:
            look = "check that one runs: kubectl get pods -A -l app=gang-scheduler"
            return Diagnosis("no gang scheduler has processed its gang yet", look, GANG_SCHEDULER, is_unreported=True)
        if phase == UNSCHEDULABLE:
            now = f"its gang does not fit even on an empty cluster: {_message(status)}"
            then = "it can start once suitable nodes are added, or it requests less"
            return Diagnosis(now, then, GANG_SCHEDULER)
        preemption = status.get("preemption") or {}
        if phase == BOUND and preemption.get("state") == REQUESTED:
            now = f"it is preempted: {preemption.get('by', '')} gets the capacity, and all of its pods are deleted"
            then = "it waits for capacity again, and continues from its last checkpoint if it has one"
            return Diagnosis(now, then, GANG_SCHEDULER)
        if phase == WAITING:
            position = status.get("position", 0)
            place = f" at position {position} of the queue" if position else ""
            was = f"it was preempted by {preemption['by']}, and " if preemption.get("by") else "it "
            now = f"{was}waits for capacity as a gang{place}: {_message(status)}"
            return Diagnosis(now, _when(spec, status), GANG_SCHEDULER)
    return None


def _when(spec: Object, status: Object) -> str:
    missing = ", ".join(
        f"{resource['resource']} {resource.get('requested', '?')} (now {resource.get('available', '?')})"
        for resource in status.get("missing") or ()
    )
    when = f"it starts once there is capacity for all of it: {missing}" if missing else "it starts once its turn comes"
    if status.get("requeueTime"):
        when += f"; not before {status['requeueTime']}"
    if spec.get("timeoutSeconds") is not None:
        when += f"; after {spec['timeoutSeconds']} s of waiting: {spec.get('onTimeout') or 'Wait'}"
    return f"{when}; `kubectl tfjob queue` shows the gangs before it"


def _failing_pods(case: Diagnostics, status: TrainingStatus) -> Diagnosis | None:
    waiting = dict(waiting_containers(case.pods))
    image = "the kubelet tries again, at most every 5 minutes; correct the image name, or add an imagePullSecret"
    config = "the kubelet tries again; correct the cause in the message"
    crash = f"it is restarted with a backoff of up to 5 minutes; {_limit(case.seen.job, status)}"
    for reasons, next_ in ((BAD_IMAGE, image), (BAD_CONFIG, config), ({CRASH_LOOP}, crash)):
        pods = {pod: state for pod, (reason, state) in waiting.items() if reason in reasons}
        if pods:
            return Diagnosis(_listed(pods), next_)
    if unmounted := dict(_unmounted(case, waiting)):
        remedy = _remedy("; ".join(unmounted.values()), case.seen.metadata.namespace)
        return Diagnosis(_listed(unmounted), f"{remedy}the kubelet tries again")
    return None


def _unmounted(case: Diagnostics, waiting: Mapping[str, tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """For each pod whose volumes or network are missing, why, by the newest event: its containers tell no reason.

    `waiting` is the result of `waiting_containers`.
    """
    by_uid: dict[str, list[Object]] = {}
    for event in case.events:
        if event.get("reason") in NOT_SET_UP:
            by_uid.setdefault(_uid_of(event), []).append(event)
    for pod in _live(case.pods):
        reason, _ = waiting.get(_name(pod), ("", ""))
        if reason in _STARTING and (events := by_uid.get(pod["metadata"]["uid"])):
            event = _newest(events)
            yield _name(pod), f"{event['reason']}: {event.get('message', '')}"


def _unscheduled_pods(case: Diagnostics) -> Diagnosis | None:
    states = {}
    for pod in _live(case.pods):
        for condition in pod.get("status", {}).get("conditions") or ():
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                states[_name(pod)] = f"not scheduled: {condition.get('message', '')}"
    if not states:
        return None
    remedy = _remedy("; ".join(states.values()), case.seen.metadata.namespace)
    return Diagnosis(_listed(states), f"{remedy}kube-scheduler tries again by itself as soon as nodes or pods change")


def _unheard_pods(case: Diagnostics) -> Diagnosis | None:
    """Pods of a job of v1 that are being deleted: the next ones have their names, and wait until they are gone."""
    if not case.seen.kind.owns_pods:
        return None
    nodes: dict[str, str] = {}
    for pod in case.pods:
        decoded = msgspec.convert(pod, Pod)
        if pod["metadata"].get("deletionTimestamp") and is_unheard(decoded):
            nodes[_name(pod)] = decoded.spec.node_name
    if not nodes:
        return None
    replica, node = min(nodes.items())
    more = f" (also {len(nodes) - 1} more)" if len(nodes) > 1 else ""
    now = f"the pod of {replica} is being deleted, but its node {node} does not report{more}"
    return Diagnosis(now, f"another pod follows once the node reports again, or is deleted: kubectl delete node {node}")


def _restarting(job: AnyJob, status: TrainingStatus) -> Diagnosis | None:
    for condition in status.conditions:
        if condition.type in ("Restarting", "Resizing") and condition.status == "True":
            word = "restarted" if condition.type == "Restarting" else "resized"
            then = f"it continues once its pods are ready; {_limit(job, status)}"
            why = f"; {status.reason}" if status.reason not in ("", condition.message) else ""
            return Diagnosis(f"it is being {word}: {condition.message}{why}", then, CONTROLLER)
    return None


def _initializing(case: Diagnostics, status: TrainingStatus) -> Diagnosis | None:
    """An init container may run for hours, such as one that fetches a dataset; its log has its progress."""
    is_the_reason = not status.reason or " init container " in status.reason
    if status.phase in (PHASE_RUNNING, PHASE_CLEAN_UP) or not is_the_reason:
        return None
    running = {}
    for pod in _live(case.pods):
        if container := blocking_init_container(msgspec.convert(pod, Pod)):
            running[_name(pod)] = container.name
    if not running:
        return None
    replica, container_name = min(running.items())
    more = f" (also in {len(running) - 1} more)" if len(running) > 1 else ""
    log = f"{_logs_command(case, replica)} -c {container_name}"
    return Diagnosis(f"{replica}: its init container {container_name} runs{more}", f"its program starts then; {log}")


def _refused_pods(case: Diagnostics, status: TrainingStatus) -> str:
    """Why pods of a job of v1 cannot be created, by the newest event: its status has no field for a reason."""
    if not case.seen.kind.owns_pods or len(case.pods) >= sum(role.replicas for role in status.roles):
        return ""
    events = (event for event in case.events if _uid_of(event) == case.seen.metadata.uid)
    refusals = [event for event in events if str(event.get("reason", "")).startswith(FAILED_CREATE)]
    return shortened(str(_newest(refusals).get("message", "")))


def _uid_of(event: Object) -> str:
    """The UID of the object that the event is about."""
    return str(event.get("involvedObject", {}).get("uid", ""))


def _newest(events: Sequence[Object]) -> Object:
    """The event that was seen last; empty without any."""
    return max(events, key=lambda event: event.get("lastTimestamp") or event_time(event), default={})


def _otherwise(case: Diagnostics, status: TrainingStatus) -> Diagnosis:
    reason = status.reason or _refused_pods(case, status)
    ready = ", ".join(f"{role} {count}" for role, count in ready_by_role(status).items())
    if status.phase == "Running":
        kind = case.seen.kind
        ends = "its chief does" if kind.ends_with_chief(case.seen.job) else f"all of its {kind.member}s have ended"
        then = f"it ends when {ends}; {_limit(case.seen.job, status)}"
        why = f"; {reason}" if reason else ""
        return Diagnosis(f"it runs: {ready or 'replicas are ready'}{why}", then, CONTROLLER)
    if status.phase == "CleanUp":
        now = "its program has ended, and its pods are cleaned up"
        return Diagnosis(now, "it will be Done or Failed in a moment", CONTROLLER)
    count = f" ({ready})" if ready else ""
    if reason:
        remedy = _remedy(reason, case.seen.metadata.namespace)
        then = f"{remedy}it runs once this has passed and all of its pods are ready"
        return Diagnosis(f"it waits: {reason}{count}", then, CONTROLLER)
    starting = "its pods are starting" if case.pods else "its children are being created"
    return Diagnosis(f"{starting}{count}", "it runs once all of its pods are ready", CONTROLLER)


def _remedy(reason: str, namespace: str) -> str:
    """What somebody has to do about pods that the API server refuses; empty if nothing is known."""
    if "failed quota" in reason:
        remedy = "submit the job with the requests and limits that the quota demands of each container"
    elif "exceeded quota" in reason:
        look = f"kubectl describe quota -n {namespace}"
        remedy = f"the quota has to be raised, or other pods have to end, or the job has to request less: {look}"
    elif "violates PodSecurity" in reason:
        look = f"kubectl get namespace {namespace} --show-labels"
        remedy = f"submit the job with the securityContext that the message names, or in another namespace: {look}"
    elif account := _MISSING_ACCOUNT.search(reason):
        remedy = f"create its ServiceAccount: kubectl create serviceaccount {account[1]} -n {namespace}"
    elif missing := MISSING_OBJECT.search(reason):
        remedy = f"create the {missing[1]} {missing[2]} in the namespace {namespace}, or submit the job without it"
    elif "node affinity/selector" in reason:
        remedy = "no node has the labels that the job asks for: label one, or submit the job with another nodeSelector"
    elif priority_class := _MISSING_PRIORITY.search(reason):
        remedy = f"there is no PriorityClass {priority_class[1]}: choose one of `kubectl get priorityclasses`"
    else:
        return ""
    return f"{remedy}; "


def _limit(job: AnyJob, status: TrainingStatus) -> str:
    """The limit of restarts, after which the job fails. It does not apply to disruptions."""
    limit = kind_of(job).restart_limit_of(job)
    more = f", and {status.disruptions} disruptions" if status.disruptions else ""
    of = "without a limit" if limit is None else f"of {limit}"
    return f"restarts so far: {status.restarts - status.disruptions}, {of}{more}"


def waiting_containers(pods: list[Object]) -> Iterator[tuple[str, tuple[str, str]]]:
    """For each pod its first waiting container: the reason, and the reason with its message.

    A container that has failed waits as well until the kubelet starts it again.
    """
    for pod in _live(pods):
        status = pod.get("status", {})
        for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
            state = container.get("state", {})
            waits, ended = state.get("waiting"), state.get("terminated")
            if waits and waits.get("reason"):
                reason = waits["reason"]
                yield _name(pod), (reason, f"{reason}: {waits.get('message', '')}".removesuffix(": "))
                break
            if ended and ended.get("exitCode") and pod.get("spec", {}).get("restartPolicy", "Never") != "Never":
                message = f"{container.get('name', '')} ended with exit code {ended['exitCode']}"
                yield _name(pod), (CRASH_LOOP, message)
                break


def _live(pods: list[Object]) -> Iterator[Object]:
    for pod in pods:
        has_ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if not has_ended and not pod["metadata"].get("deletionTimestamp"):
            yield pod


def _name(pod: Object) -> str:
    return replica_of(pod) or str(pod["metadata"]["name"])


def _listed(states: dict[str, str]) -> str:
    """The first one in full, then names of others, then the number of further ones."""
    (first, state), *others = sorted(states.items())
    text = f"{first} is {state}" if state.startswith("not ") else f"{first} waits: {state}"
    named = ", ".join(name for name, _ in others[: _NAMED - 1])
    more = f" and {len(others) - _NAMED + 1} more" if len(others) >= _NAMED else ""
    return f"{shortened(text)}{f' (also {named}{more})' if named else ''}"


def _message(status: Object) -> str:
    return shortened(str(status.get("message") or "no reason is known"))
