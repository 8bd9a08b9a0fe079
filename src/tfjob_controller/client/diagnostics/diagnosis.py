"""Where a job stands, and what would change that: two sentences. Pure.

The first rule that fits decides, from what nothing else can outweigh (the job is being deleted) to what a job does that
runs well. Each says what is, then who does what next: the cluster by itself, or the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import msgspec

from tfjob_controller.api.gang import UNSCHEDULABLE, WAITING
from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.api.trainjob import TrainJob
from tfjob_controller.api.trainjobdefaults import is_managed_here
from tfjob_controller.client.diagnostics.collection import Diagnostics, Object
from tfjob_controller.client.diagnostics.replicas import status_of
from tfjob_controller.client.diagnostics.timeline import replica_of
from tfjob_controller.client.validation import spec_problem
from tfjob_controller.trainer.phases import is_finished
from tfjob_controller.trainer.pods import shortened

# Pods that are named; the rest is a number.
_NAMED = 3
_BAD_IMAGE = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"})
_BAD_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_CRASHES = "CrashLoopBackOff"


class Diagnosis(msgspec.Struct, frozen=True):
    """Sentences without a full stop."""

    now: str
    next: str


Rule = Callable[[Diagnostics, TrainingStatus], Diagnosis | None]


def diagnose(case: Diagnostics) -> Diagnosis:
    status = status_of(case.seen.job)
    for rule in _RULES:
        found = rule(case, status)
        if found is not None:
            return found
    return _otherwise(case, status)


def _is_deleted(case: Diagnostics, _: TrainingStatus) -> Diagnosis | None:
    if not case.seen.metadata.deletion_timestamp:
        return None
    return Diagnosis("it is being deleted", "it is gone once its children and finalizers are")


def _is_in_deleted_namespace(case: Diagnostics, _: TrainingStatus) -> Diagnosis | None:
    if not case.namespace_is_deleted:
        return None
    where = case.seen.metadata.namespace
    now = f"its namespace {where} is being deleted, and the job with it: nothing can be created in it any more"
    look = f"kubectl get namespace {where} -o yaml"
    return Diagnosis(now, f"submit the job in another namespace; what this one still waits for: {look}")


def _is_anothers(case: Diagnostics, _: TrainingStatus) -> Diagnosis | None:
    job = case.seen.job
    if not isinstance(job, TrainJob) or is_managed_here(job.spec):
        return None
    return Diagnosis(f"another controller runs it: {job.spec.managed_by}", "whatever that one does; look at its log")


def _has_ended(case: Diagnostics, status: TrainingStatus) -> Diagnosis | None:
    if not is_finished(status):
        return None
    how = "it has succeeded" if status.phase == "Done" else f"it has failed: {status.reason}"
    ttl, end = case.seen.job.spec.ttl_seconds_after_finished, status.completion_time
    if ttl is None or not end:
        return Diagnosis(how, "nothing: it stays until it is deleted; to run it again, submit it anew")
    gone_at = (datetime.fromisoformat(end) + timedelta(seconds=ttl)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Diagnosis(how, f"it is deleted at {gone_at} (ttlSecondsAfterFinished)")


def _is_invalid(case: Diagnostics, _: TrainingStatus) -> Diagnosis | None:
    problem = spec_problem(case.seen.job)
    return (
        None if problem is None else Diagnosis(f"its spec cannot be run: {problem}", "mend the spec and submit it anew")
    )


def _is_unseen(case: Diagnostics, status: TrainingStatus) -> Diagnosis | None:
    look = "look whether a controller runs and leads: kubectl get pods -A -l app.kubernetes.io/name=tfjob-controller"
    if not status.phase:
        return Diagnosis("no controller has seen it yet", look)
    if status.observed_generation < case.seen.metadata.generation:
        return Diagnosis(
            "the controller has not seen the last change of its spec yet", f"it does so in moments; else {look}"
        )
    return None


def _is_suspended(case: Diagnostics, _: TrainingStatus) -> Diagnosis | None:
    meta = case.seen.metadata
    if not case.seen.job.spec.suspend:
        return None
    resume = f"kubectl tfjob resume {case.seen.kind.word}/{meta.name} -n {meta.namespace}"
    return Diagnosis("it is suspended: spec.suspend is true", f"it runs once somebody resumes it: {resume}")


def _waits_for_gang(case: Diagnostics, _: TrainingStatus) -> Diagnosis | None:
    for gang in case.gangs:
        spec, status = gang.get("spec", {}), gang.get("status", {})
        phase = status.get("phase", "")
        if not phase:
            look = "look whether one runs: kubectl get pods -A -l app=gang-scheduler"
            return Diagnosis("no gang scheduler has seen its gang yet", look)
        if phase == UNSCHEDULABLE:
            now = f"its gang could not even run on an empty cluster: {_message(status)}"
            return Diagnosis(now, "it can start once there are nodes that suit it, or it asks for less")
        if phase == WAITING:
            return Diagnosis(_place(status), _when(spec, status))
    return None


def _place(status: Object) -> str:
    position = status.get("position", 0)
    place = f" at position {position} of the queue" if position else ""
    return f"it waits for room as a gang{place}: {_message(status)}"


def _when(spec: Object, status: Object) -> str:
    missing = ", ".join(
        f"{each['resource']} {each.get('requested', '?')} (now {each.get('available', '?')})"
        for each in status.get("missing") or ()
    )
    when = f"it starts once there is room for all of it: {missing}" if missing else "it starts once its turn comes"
    if status.get("requeueTime"):
        when += f"; not before {status['requeueTime']}"
    if spec.get("timeoutSeconds") is not None:
        when += f"; after {spec['timeoutSeconds']} s of waiting: {spec.get('onTimeout') or 'Wait'}"
    return f"{when}; `kubectl tfjob queue` shows who is before it"


def _has_bad_pods(case: Diagnostics, status: TrainingStatus) -> Diagnosis | None:
    waiting = dict(_waiting(case.pods))
    for reasons, next_ in (
        (_BAD_IMAGE, "the kubelet tries again, at last every 5 minutes; mend the image, or the right to pull it"),
        (_BAD_CONFIG, "the kubelet tries again; mend what the message names"),
        ({_CRASHES}, f"it is started again, at last after 5 minutes each time; {_limit(case, status)}"),
    ):
        found = {pod: words for pod, (reason, words) in waiting.items() if reason in reasons}
        if found:
            return Diagnosis(_listed(found), next_)
    return None


def _has_unscheduled_pods(case: Diagnostics, _: TrainingStatus) -> Diagnosis | None:
    found = {}
    for pod in _live(case.pods):
        for each in pod.get("status", {}).get("conditions") or ():
            if each["type"] == "PodScheduled" and each["status"] == "False":
                found[_name(pod)] = f"not scheduled: {each.get('message', '')}"
    if not found:
        return None
    return Diagnosis(_listed(found), "kube-scheduler tries again by itself as soon as nodes or pods change")


def _is_restarting(case: Diagnostics, status: TrainingStatus) -> Diagnosis | None:
    for each in status.conditions:
        if each.type in ("Restarting", "Resizing") and each.status == "True":
            word = "restarted" if each.type == "Restarting" else "resized"
            return Diagnosis(
                f"it is being {word}: {each.message}", f"it runs on once its pods are ready; {_limit(case, status)}"
            )
    return None


def _otherwise(case: Diagnostics, status: TrainingStatus) -> Diagnosis:
    ready = ", ".join(f"{role} {count}" for role, count in status.ready.items())
    if status.phase == "Running":
        return Diagnosis(
            f"it runs: {ready or 'replicas are ready'}", f"it ends when its chief does; {_limit(case, status)}"
        )
    if status.phase == "CleanUp":
        return Diagnosis("its program has ended, and its pods are cleaned up", "it is Done or Failed in moments")
    why = f": {status.reason}" if status.reason else ""
    found = "its pods are started" if case.pods else "its children are made"
    return Diagnosis(f"{found}{why}{f' ({ready})' if ready else ''}", "it runs once all of its pods are ready")


def _limit(case: Diagnostics, status: TrainingStatus) -> str:
    """What stands against a job that is restarted for ever."""
    job = case.seen.job
    limit = job.spec.max_restarts if isinstance(job, TrainJob) else job.spec.backoff_limit
    if limit is None:
        return f"restarts so far: {status.restarts}, without a limit"
    return f"restarts so far: {status.restarts}, of {limit}"


def _waiting(pods: list[Object]) -> Iterator[tuple[str, tuple[str, str]]]:
    """By pod, its first container that waits: the reason, and it in words."""
    for pod in _live(pods):
        status = pod.get("status", {})
        for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
            waits = each.get("state", {}).get("waiting")
            if waits and waits.get("reason"):
                reason = waits["reason"]
                yield _name(pod), (reason, f"{reason}: {waits.get('message', '')}".removesuffix(": "))
                break


def _live(pods: list[Object]) -> Iterator[Object]:
    for pod in pods:
        has_ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if not has_ended and not pod["metadata"].get("deletionTimestamp"):
            yield pod


def _name(pod: Object) -> str:
    return replica_of(pod) or str(pod["metadata"]["name"])


def _listed(words: dict[str, str]) -> str:
    """The first in full, others by their names, further ones by their number."""
    (first, says), *others = sorted(words.items())
    text = f"{first} is {says}" if says.startswith("not ") else f"{first} waits: {says}"
    named = ", ".join(name for name, _ in others[: _NAMED - 1])
    more = f" and {len(others) - _NAMED + 1} more" if len(others) >= _NAMED else ""
    return f"{shortened(text)}{f' (also {named}{more})' if named else ''}"


def _message(status: Object) -> str:
    return shortened(str(status.get("message") or "no reason is known"))


_RULES: tuple[Rule, ...] = (
    _is_in_deleted_namespace,
    _is_deleted,
    _is_anothers,
    _has_ended,
    _is_invalid,
    _is_unseen,
    _is_suspended,
    _waits_for_gang,
    _has_bad_pods,
    _has_unscheduled_pods,
    _is_restarting,
)
