"""Why a pod does not run its program, and how its containers ended, as kubelet and container runtime report it.

An exit code of 0 is success, 1 to 127 a permanent error, 128 to 255 (killed by a signal) a retryable one. Two errors
are permanent although their exit codes are not: a container that ran out of memory, and one that can never start,
because its program is not in the image or may not be run. The container runtime reports that in a message, whose place
depends on the runtime:

- containerd creates the container, and the start fails. The container has terminated with the reason StartError and
  exit code 128 (internal/cri/server/container_start.go), or waits with RunContainerError until it is tried again
  (pkg/kubelet/container/sync_result.go).
- CRI-O looks for the program when it creates the container, which then waits with CreateContainerError
  (pkg/kubelet/kuberuntime/kuberuntime_container.go).

The reason alone does not identify the cause: a busy runtime or a node without memory has the same reason, and a retry
helps there. So only messages count that depend on the image and the command alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tfjob_controller.api.common.core import POD_FAILED, POD_PENDING, Condition, ContainerStatus, Pod, Terminated
from tfjob_controller.util.text import shortened

FIRST_RETRYABLE = 128
LAST_EXIT_CODE = 255
OOM_KILLED = "OOMKilled"
RETRYABLE_EXIT_CODES = tuple(range(FIRST_RETRYABLE, LAST_EXIT_CODE + 1))
# A termination message may have 4 KiB. Events and conditions have this much of it, and also name the replica, its exit
# code and the number of restarts.
_MAX_LAST_WORDS = 800
# The first line of a Python traceback, its frames, and the lines that belong to them. PyTorch prepends the rank.
_RANK = r"(?:\[rank\d+\]: )?"
_HEADER = re.compile(rf"{_RANK}Traceback \(most recent call last\):\s*")
_FRAME = re.compile(rf'{_RANK}\s+File "[^"]*", line \d')
_INDENTED = re.compile(rf"{_RANK}(?:\s|$)")
# torchrun's summary of the processes that have failed, between two double lines. A line before it has the exit code.
# Source: torch/distributed/elastic/multiprocessing/errors/__init__.py.
_SUMMARY = re.compile(rf"{_RANK}torch\.distributed\.elastic\.multiprocessing\.errors\.ChildFailedError:\s*")
_DOUBLE_LINE = re.compile(r"={20,}\s*")
# containerd's exit code of a container that did not start.
START_FAILED_EXIT_CODE = 128
# cri-dockerd reports `ContainerCannotRun`.
_TERMINATED_REASONS = frozenset(("StartError", "ContainerCannotRun"))
_WAITING_REASONS = frozenset(("RunContainerError", "CreateContainerError"))
# The kubelet cuts the messages of terminated containers at 4 KiB, but not those of waiting containers.
_MAX_READ = 4096
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_PERMANENT = re.compile(
    "|".join(
        (
            # Go's os/exec, with which runc looks for the program (libcontainer/standard_init_linux.go).
            rf"exec: {_QUOTED}: (?:executable file not found in \$PATH|is a directory|permission denied)",
            rf"exec: {_QUOTED}: (?:stat [^:]*: )?no such file or directory",
            # crun (src/libcrun/utils.c, in older releases container.c).
            r"executable file ['`][^'`]*['`] not found(?: in \$PATH)?",
            r"open executable: (?:Permission denied|No such file or directory)",
            # runc, of spec.workingDir (libcontainer/init_linux.go).
            rf"chdir to cwd \({_QUOTED}\) set in config\.json failed: (?:permission denied|not a directory)",
            # The user of the image or of the security context (moby/sys/user).
            r"unable to find (?:user|group) [^:]*: no matching entries in (?:passwd|group) file",
            # containerd, of an image without an entry point (internal/cri/opts/spec_opts.go).
            r"no command specified",
        )
    )
)
# The reasons for which each container waits before it starts.
_ORDINARY_WAITING = frozenset(("", "ContainerCreating", "PodInitializing"))
CRASH_LOOP = "CrashLoopBackOff"
# A container that the kubelet starts again in its pod; the end of a sentence.
RESTARTED_IN_PLACE = "restarted with back-off"
# In the place of a code: a container whose program is not in the image, or may not be run.
CANNOT_START = "cannot start"
# The kubelet alternates between these two while an image cannot be pulled. Reporting one of them saves status writes.
_PULL_FAILED = frozenset(("ErrImagePull", "ImagePullBackOff"))
_PULL_WORD = "ImagePullBackOff"
_PULL_DETAIL = ": ErrImagePull: "


def is_retryable_exit_code(exit_code: int) -> bool:
    return exit_code >= FIRST_RETRYABLE


def is_retryable_termination_state(terminated: Terminated) -> bool:
    """Reports whether the container may end differently if it runs again."""
    if terminated.reason == OOM_KILLED or why_never_started(terminated):
        return False
    return is_retryable_exit_code(terminated.exit_code)


def is_permanent_error(terminated: Terminated) -> bool:
    return terminated.exit_code != 0 and not is_retryable_termination_state(terminated)


def exit_text(terminated: Terminated) -> str:
    """Returns text such as `exit code 137 (OOMKilled)`, without the reasons `Error` and `Completed`."""
    word = "" if terminated.reason in ("", "Error", "Completed") else f" ({terminated.reason})"
    return f"exit code {terminated.exit_code}{word}"


def how_it_ended(exited: Terminated) -> str:
    """Returns the exit code and the error of the termination message. Of a long error the end is kept."""
    error = error_of(exited.message)
    last_words = error if len(error) <= _MAX_LAST_WORDS else "…" + error[1 - _MAX_LAST_WORDS :]
    return f"{exit_text(exited)}: {last_words}" if last_words else exit_text(exited)


def error_of(message: str) -> str:
    """Returns a termination message on one line, without the stack frames of Python tracebacks and torchrun's summary.

    All other lines stay: which of several exceptions is the cause cannot be known. The message is the end of a log, in
    which the first lines of a traceback may be missing.
    """
    kept, is_in_frames = [], False
    for line in _without_summary(message.splitlines()):
        is_in_frames = bool(_FRAME.match(line)) or (is_in_frames and bool(_INDENTED.match(line)))
        if not is_in_frames and not _HEADER.fullmatch(line):
            kept.append(line)
    return " ".join(" ".join(kept or [message]).split())


def _without_summary(lines: Iterable[str]) -> Iterator[str]:
    double_lines = 0
    for line in lines:
        if _SUMMARY.fullmatch(line):
            double_lines = 2
        elif not double_lines:
            yield line
        elif _DOUBLE_LINE.fullmatch(line):
            double_lines -= 1


def why_never_started(ended: Terminated) -> str:
    """Returns the runtime's message if the container can never start; empty if it has started or may start later."""
    return _permanent_cause(ended.message) if ended.reason in _TERMINATED_REASONS else ""


def start_failure(statuses: Iterable[ContainerStatus]) -> tuple[str, Terminated] | None:
    """Returns the name of the first waiting container that can never start, and how it ended; None if all can."""
    for status in statuses:
        waiting, last = status.state.waiting, status.last_state.terminated
        if waiting is None:
            continue
        if waiting.reason in _WAITING_REASONS and _permanent_cause(waiting.message):
            return status.name, Terminated(START_FAILED_EXIT_CODE, "StartError", waiting.message)
        if last is not None and why_never_started(last):
            return status.name, last
    return None


def _permanent_cause(message: str) -> str:
    match = _PERMANENT.search(message[:_MAX_READ])
    return match.group() if match is not None else ""


def why_pending(pod: Pod) -> str:
    """Returns why the pod does not run its program; empty if it runs, or is starting without a problem."""
    status = pod.status
    if status.phase == POD_FAILED and status.reason:
        return why_ended_by_kubelet(pod)
    if status.phase == POD_FAILED:
        return _why_not_started(status.container_statuses)
    return (
        _why_waiting(status.init_container_statuses)
        or _why_waiting(status.container_statuses)
        or ("" if status.container_statuses else _why_unscheduled(status.conditions))
    )


def why_repeated(pod: Pod) -> str:
    """Returns which init container of a waiting pod has failed and is started again, and how it ended; empty if none.

    Its kubelet shows that for most of the back-off, and CrashLoopBackOff only at the end of it.
    """
    for status in pod.status.init_container_statuses if pod.status.phase == POD_PENDING else ():
        ended = status.state.terminated
        if ended is not None and ended.exit_code:
            return f"{status.name}: {how_it_ended(ended)}; {RESTARTED_IN_PLACE}"
    return ""


def why_ended_by_kubelet(pod: Pod) -> str:
    """Returns the kubelet's words about a pod that it has ended or refused, such as `Evicted: …`; empty for others."""
    return _with_reason(pod.status.reason, pod.status.message) if pod.status.reason else ""


def _why_not_started(statuses: Iterable[ContainerStatus]) -> str:
    """Returns why a container of a failed pod could not start; empty if all could."""
    ended = (status.state.terminated for status in statuses)
    causes = (why_never_started(terminated) for terminated in ended if terminated is not None)
    return next((_with_reason(CANNOT_START, cause) for cause in causes if cause), "")


def _why_waiting(statuses: Iterable[ContainerStatus]) -> str:
    for status in statuses:
        waiting = status.state.waiting
        if waiting is None or waiting.reason in _ORDINARY_WAITING:
            continue
        exited = status.last_state.terminated
        if exited is not None and (cause := why_never_started(exited)):
            return _with_reason(CANNOT_START, cause)
        if waiting.reason == CRASH_LOOP:
            # The kubelet's message names a back-off that changes each time.
            ended = f" after {exit_text(exited)}" if exited else ""
            return f"{CRASH_LOOP}: container {status.name} is restarted with back-off{ended}"
        if waiting.reason in _PULL_FAILED:
            return _with_reason(_PULL_WORD, waiting.message.partition(_PULL_DETAIL)[2] or waiting.message)
        return _with_reason(waiting.reason, waiting.message)
    return ""


def _why_unscheduled(conditions: Iterable[Condition]) -> str:
    for condition in conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return _with_reason(condition.reason, condition.message)
    return ""


def _with_reason(reason: str, message: str) -> str:
    return shortened(f"{reason}: {message}" if message else reason)
