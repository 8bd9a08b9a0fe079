"""What one pod tells of its replica: the last exit of the training container, whether it runs, why it does not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from tfjob_controller.api.common.core import JOBS, Condition, ContainerStatus, Pod, Terminated
from tfjob_controller.api.tfjob.types import CONTAINER_NAME
from tfjob_controller.kube.meta import controller_of
from tfjob_controller.trainer.naming import POD_JOB_NAME
from tfjob_controller.trainer.state.terminations import in_words, start_failure, why_never_started
from tfjob_controller.util.timestamps import format_time, parse_time

SUCCEEDED = "Succeeded"
FAILED = "Failed"

# What a container waits for in the ordinary course of things.
_ORDINARY_WAITING = frozenset(("", "ContainerCreating", "PodInitializing"))
_CRASH_LOOP = "CrashLoopBackOff"
# The kubelet alternates between these two while an image cannot be pulled; one word keeps the reason still.
_PULL_FAILED = frozenset(("ErrImagePull", "ImagePullBackOff"))
_PULL_WORD = "ImagePullBackOff"
_PULL_DETAIL = ": ErrImagePull: "
# Reasons of pods whose node or kubelet gave them up; those that servers before 1.26 wrote without a condition.
_DISRUPTED_REASONS = frozenset(("Evicted", "NodeLost", "Preempting", "NodeShutdown", "Terminated"))
# A termination message may have 4 KiB, a scheduler's a line per node: a reason is read in one look.
MAX_WORDS = 1000
# A reason also names the replica, its exit code and the number of restarts.
_MAX_LAST_WORDS = 800


def child_job_of(pod: Pod) -> str:
    """The name of the child Job that made it; empty for what no Job controls, since anybody can set a label."""
    owner, name = controller_of(pod), pod.metadata.labels.get(POD_JOB_NAME, "")
    return name if owner is not None and (owner.kind, owner.name) == (JOBS.kind, name) else ""


def newest(pods: Sequence[Pod]) -> Pod | None:
    """The pod that started last. One that has not started yet is as new as its creation; of two, the unfinished one."""
    if len(pods) <= 1:
        return pods[0] if pods else None
    return max(pods, key=_age_key)


def _age_key(pod: Pod) -> tuple[str, str, bool]:
    created = pod.metadata.creation_timestamp or ""
    return pod.status.start_time or created, created, not is_finished(pod)


def is_finished(pod: Pod) -> bool:
    return pod.status.phase in (SUCCEEDED, FAILED)


def training_container(pod: Pod, name: str = CONTAINER_NAME) -> ContainerStatus | None:
    """The status of the container whose exit code counts, found by its name."""
    for status in pod.status.container_statuses:
        if status.name == name:
            return status
    return None


def failed_before_training(pod: Pod, name: str) -> tuple[str, Terminated] | None:
    """Which container kept the training container of that name from ever running, and how it ended; None if none did.

    That is an init container that ended with an error in a pod that is over, or one of them, or the training container
    itself, that can never start.
    """
    status = pod.status
    if status.phase != FAILED:
        training = (each for each in status.container_statuses if each.name == name)
        return start_failure((*status.init_container_statuses, *training))
    for each in status.init_container_statuses:
        ended = each.state.terminated
        if ended is not None and ended.exit_code != 0:
            return each.name, ended
    return None


def last_exit(status: ContainerStatus) -> Terminated | None:
    """How the container ended last: a past end counts until it has ended again, even while it runs."""
    return status.state.terminated or status.last_state.terminated


def is_disrupted(pod: Pod, exited: Terminated | None) -> bool:
    """Was the pod taken from its program: evicted, preempted, lost with its node? Not if it had ended before that."""
    if pod.status.reason in _DISRUPTED_REASONS and pod.status.phase == FAILED:
        return True
    condition = _true_condition(pod, "DisruptionTarget")
    if condition is None:
        return False
    finished_at = exited.finished_at if exited is not None else None
    return not finished_at or (condition.last_transition_time or "") <= finished_at


def was_told_to_end(pod: Pod, exited: Terminated) -> bool:
    """Did the container end because somebody deleted its pod, or in the same second?"""
    deleted = pod.metadata.deletion_timestamp
    if deleted is None:
        return False
    requested = parse_time(deleted) - timedelta(seconds=pod.metadata.deletion_grace_period_seconds)
    return (exited.finished_at or "") >= format_time(requested)


def has_succeeded(pod: Pod, name: str) -> bool:
    """Has the training container ended with 0 before anybody requested it to end?"""
    container = training_container(pod, name)
    exited = last_exit(container) if container is not None else None
    return exited is not None and exited.exit_code == 0 and not was_told_to_end(pod, exited)


def _true_condition(pod: Pod, condition_type: str) -> Condition | None:
    for condition in pod.status.conditions:
        if condition.type == condition_type:
            return condition if condition.status == "True" else None
    return None


def was_started(pod: Pod, name: str = CONTAINER_NAME) -> bool:
    """Has the training container run? There is no log before that."""
    container = training_container(pod, name)
    if container is None:
        return False
    return container.state.waiting is None or container.last_state.terminated is not None


def all_containers_ended(pod: Pod) -> bool:
    """Nothing in the pod runs or will: it only waits to be counted."""
    statuses = pod.status.container_statuses
    return is_finished(pod) or (bool(statuses) and all(each.state.terminated for each in statuses))


def why_pending(pod: Pod) -> str:
    """Why the pod does not run its program, in words; empty in the ordinary course of things."""
    status = pod.status
    if status.phase == FAILED and status.reason:
        return _words(status.reason, status.message)
    if status.phase == FAILED:
        return _why_not_started(status.container_statuses)
    return (
        _why_waiting(status.init_container_statuses)
        or _why_waiting(status.container_statuses)
        or ("" if status.container_statuses else _why_unscheduled(status.conditions))
    )


def _why_not_started(statuses: Iterable[ContainerStatus]) -> str:
    """Of a pod that is over, and will have another one after it."""
    ended = (each.state.terminated for each in statuses)
    words = (why_never_started(each) for each in ended if each is not None)
    return next((_words("cannot start", each) for each in words if each), "")


def _why_waiting(statuses: Iterable[ContainerStatus]) -> str:
    for status in statuses:
        waiting = status.state.waiting
        if waiting is None or waiting.reason in _ORDINARY_WAITING:
            continue
        exited = status.last_state.terminated
        if exited is not None and (words := why_never_started(exited)):
            return _words("cannot start", words)
        if waiting.reason == _CRASH_LOOP:
            # Its own message tells of a back-off that changes each time.
            ended = f" after {in_words(exited)}" if exited else ""
            return f"{_CRASH_LOOP}: container {status.name} is restarted with back-off{ended}"
        if waiting.reason in _PULL_FAILED:
            return _words(_PULL_WORD, waiting.message.partition(_PULL_DETAIL)[2] or waiting.message)
        return _words(waiting.reason, waiting.message)
    return ""


def _why_unscheduled(conditions: Iterable[Condition]) -> str:
    for condition in conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return _words(condition.reason, condition.message)
    return ""


def _words(reason: str, message: str) -> str:
    return shortened(f"{reason}: {message}" if message else reason)


def shortened(text: str) -> str:
    """On one line, and not longer than a reason should be."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_WORDS else line[: MAX_WORDS - 1] + "…"


def how_it_ended(exited: Terminated) -> str:
    """The exit code, and what the program said last, on one line.

    Of more than fits into a reason the end is kept: the error is there.
    """
    line = " ".join(exited.message.split())
    last_words = line if len(line) <= _MAX_LAST_WORDS else "…" + line[1 - _MAX_LAST_WORDS :]
    return f"{in_words(exited)}: {last_words}" if last_words else in_words(exited)
