"""Why a pod does not run its program, in the words of its kubelet and its container runtime."""

from __future__ import annotations

from collections.abc import Iterable

from tfjob_controller.api.common.core import Condition, ContainerStatus, Pod
from tfjob_controller.jobs.state.pods import FAILED, PENDING
from tfjob_controller.jobs.state.terminations import how_it_ended, in_words, why_never_started
from tfjob_controller.util.text import shortened

# The reasons for which each container waits before it starts.
_ORDINARY_WAITING = frozenset(("", "ContainerCreating", "PodInitializing"))
_CRASH_LOOP = "CrashLoopBackOff"
# The kubelet alternates between these two while an image cannot be pulled. Reporting one of them saves status writes.
_PULL_FAILED = frozenset(("ErrImagePull", "ImagePullBackOff"))
_PULL_WORD = "ImagePullBackOff"
_PULL_DETAIL = ": ErrImagePull: "
# The node controller's word for a node that does not report.
_NODE_NOT_READY = "NodeNotReady"
# The reason of a job should be readable at a glance: `kubectl get -o wide` shows it in a column.
MAX_REASON = 400
# A reason begins with the replica and how it ended, and ends with the last words of its program.
_REASON_HEAD = 200


def why_pending(pod: Pod) -> str:
    """Returns why the pod does not run its program; empty if it runs, or is starting without a problem."""
    status = pod.status
    if status.phase == FAILED and status.reason:
        return why_ended_by_kubelet(pod)
    if status.phase == FAILED:
        return _why_not_started(status.container_statuses)
    return (
        _why_waiting(status.init_container_statuses)
        or _why_waiting(status.container_statuses)
        or ("" if status.container_statuses else _why_unscheduled(status.conditions))
    )


def why_unheard(pod: Pod, training: ContainerStatus) -> str:
    """Returns which node of a pod whose program runs does not report any more; empty if it does.

    The node controller takes the condition Ready of its pods away, and leaves their containers as they were last seen.
    The pod is evicted minutes later, or never (node_lifecycle_controller.go, nodeutil.MarkPodsNotReady).
    """
    if not training.ready or pod.metadata.deletion_timestamp is not None:
        return ""
    # A loop, which is fast: each sync calls this for each pod.
    for condition in pod.status.conditions:
        if condition.type == "Ready":
            is_unheard = condition.status == "False" and condition.reason in ("", _NODE_NOT_READY)
            return f"{_NODE_NOT_READY}: {pod.spec.node_name} does not report" if is_unheard else ""
    return ""


def why_repeated(pod: Pod) -> str:
    """Returns which init container of a waiting pod has failed and is started again, and how it ended; empty if none.

    Its kubelet shows that for most of the back-off, and CrashLoopBackOff only at the end of it.
    """
    for status in pod.status.init_container_statuses if pod.status.phase == PENDING else ():
        ended = status.state.terminated
        if ended is not None and ended.exit_code:
            return f"{status.name}: {how_it_ended(ended)}; restarted with back-off"
    return ""


def why_ended_by_kubelet(pod: Pod) -> str:
    """Returns the kubelet's words about a pod that it has ended or refused, such as `Evicted: …`; empty for others."""
    return _words(pod.status.reason, pod.status.message) if pod.status.reason else ""


def _why_not_started(statuses: Iterable[ContainerStatus]) -> str:
    """Returns why a container of a failed pod could not start; empty if all could."""
    ended = (status.state.terminated for status in statuses)
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
            # The kubelet's message names a back-off that changes each time.
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


def as_reason(text: str) -> str:
    """Returns the text on one line of at most `MAX_REASON` characters, without words from its middle if need be."""
    line = " ".join(text.split())
    if len(line) <= MAX_REASON:
        return line
    head, tail = line[:_REASON_HEAD], line[_REASON_HEAD + 3 - MAX_REASON :]
    return f"{head.rpartition(' ')[0] or head} … {tail.partition(' ')[2] or tail}"
