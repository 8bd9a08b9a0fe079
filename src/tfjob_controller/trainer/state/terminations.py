"""What an exit code means: 0 success, 1-127 a permanent error, 128-255 (killed by a signal) one worth a retry.

Two errors are permanent although their exit codes are not: a container that ran out of memory, and one that could not
be started and never can (`startfailures`).

Containers that can never start, whatever is tried: their program is not in the image, or may not be run.

The container runtime says why in a message, and where that message stands depends on the runtime:

- containerd creates the container, and the start fails. The container has terminated with the reason StartError and
  exit code 128 (internal/cri/server/container_start.go), or waits with RunContainerError until it is tried again
  (pkg/kubelet/container/sync_result.go).
- CRI-O looks for the program when it creates the container, which then waits with CreateContainerError
  (pkg/kubelet/kuberuntime/kuberuntime_container.go).

The reason alone says nothing about the cause: a runtime that is busy, or a node without memory, has the same one, and
trying again helps there. So only messages count that follow from the image and the command alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tfjob_controller.api.common.core import ContainerStatus, Terminated

FIRST_RETRYABLE = 128
LAST_EXIT_CODE = 255
OOM_KILLED = "OOMKilled"

PERMANENT_EXIT_CODES = tuple(range(1, FIRST_RETRYABLE))
RETRYABLE_EXIT_CODES = tuple(range(FIRST_RETRYABLE, LAST_EXIT_CODE + 1))


def is_retryable_exit_code(exit_code: int) -> bool:
    return exit_code >= FIRST_RETRYABLE


def is_retryable_termination_state(terminated: Terminated) -> bool:
    """May it end otherwise next time?"""
    if terminated.reason == OOM_KILLED or why_never_started(terminated):
        return False
    return is_retryable_exit_code(terminated.exit_code)


def is_permanent_error(terminated: Terminated) -> bool:
    return terminated.exit_code != 0 and not is_retryable_termination_state(terminated)


def in_words(terminated: Terminated) -> str:
    """`exit code 137 (OOMKilled)`; the kubelet's word for an ordinary error says nothing and is left out."""
    word = "" if terminated.reason in ("", "Error", "Completed") else f" ({terminated.reason})"
    return f"exit code {terminated.exit_code}{word}"


# containerd's exit code of a container that did not start.
START_FAILED_EXIT_CODE = 128
# `ContainerCannotRun`: of Docker, by cri-dockerd.
_TERMINATED_REASONS = frozenset(("StartError", "ContainerCannotRun"))
_WAITING_REASONS = frozenset(("RunContainerError", "CreateContainerError"))
# The kubelet cuts messages of terminated containers at 4 KiB; nobody cuts those of waiting ones.
_MAX_READ = 4096
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_PERMANENT = re.compile(
    "|".join(
        (
            # Go's os/exec, by which runc looks for the program (libcontainer/standard_init_linux.go).
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


def why_never_started(ended: Terminated) -> str:
    """The runtime's words for what keeps a container from ever starting; empty if it started, or may start later."""
    return _permanent_words(ended.message) if ended.reason in _TERMINATED_REASONS else ""


def start_failure(statuses: Iterable[ContainerStatus]) -> tuple[str, Terminated] | None:
    """The name of the first container that waits and can never start, and how it would have ended; None if all can."""
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
