"""The ends of containers: exit codes, and the container runtime's message about a container that cannot start.

0 is success, 1 to 127 a permanent error, 128 to 255 (killed by a signal) a retryable one. Two errors are
permanent although their exit codes are not: a container that ran out of memory, and one that can never start, because
its program is not in the image or may not be run. The container runtime reports that in a message, whose place depends
on the runtime:

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
from collections.abc import Iterable

from tfjob_controller.api.common.core import ContainerStatus, Terminated

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


def is_retryable_exit_code(exit_code: int) -> bool:
    return exit_code >= FIRST_RETRYABLE


def is_retryable_termination_state(terminated: Terminated) -> bool:
    """Reports whether the container may end differently if it runs again."""
    if terminated.reason == OOM_KILLED or why_never_started(terminated):
        return False
    return is_retryable_exit_code(terminated.exit_code)


def is_permanent_error(terminated: Terminated) -> bool:
    return terminated.exit_code != 0 and not is_retryable_termination_state(terminated)


def in_words(terminated: Terminated) -> str:
    """Returns text such as `exit code 137 (OOMKilled)`, without the reasons `Error` and `Completed`."""
    word = "" if terminated.reason in ("", "Error", "Completed") else f" ({terminated.reason})"
    return f"exit code {terminated.exit_code}{word}"


def how_it_ended(exited: Terminated) -> str:
    """Returns the exit code and the error of the termination message. Of a long error the end is kept."""
    error = error_of(exited.message)
    last_words = error if len(error) <= _MAX_LAST_WORDS else "…" + error[1 - _MAX_LAST_WORDS :]
    return f"{in_words(exited)}: {last_words}" if last_words else in_words(exited)


def error_of(message: str) -> str:
    """Returns a termination message on one line, without the stack frames of Python tracebacks.

    All other lines stay: which of several exceptions is the cause cannot be known. The message is the end of a log, in
    which the first lines of a traceback may be missing.
    """
    kept, is_in_frames = [], False
    for line in message.splitlines():
        is_in_frames = bool(_FRAME.match(line)) or (is_in_frames and bool(_INDENTED.match(line)))
        if not is_in_frames and not _HEADER.fullmatch(line):
            kept.append(line)
    return " ".join(" ".join(kept or [message]).split())


def why_never_started(ended: Terminated) -> str:
    """Returns the runtime's message if the container can never start; empty if it has started or may start later."""
    return _permanent_words(ended.message) if ended.reason in _TERMINATED_REASONS else ""


def start_failure(statuses: Iterable[ContainerStatus]) -> tuple[str, Terminated] | None:
    """Returns the name of the first waiting container that can never start, and how it ended; None if all can."""
    for status in statuses:
        waiting, last = status.state.waiting, status.last_state.terminated
        if waiting is None:
            continue
        if waiting.reason in _WAITING_REASONS and _permanent_words(waiting.message):
            return status.name, Terminated(START_FAILED_EXIT_CODE, "StartError", waiting.message)
        if last is not None and why_never_started(last):
            return status.name, last
    return None


def _permanent_words(message: str) -> str:
    found = _PERMANENT.search(message[:_MAX_READ])
    return found.group() if found is not None else ""
