"""What an exit code means: 0 success, 1-127 a permanent error, 128-255 (killed by a signal) one worth a retry.

Two errors are permanent although their exit codes are not: a container that ran out of memory, and one that could not
be started and never can (`startfailures`).
"""

from __future__ import annotations

from tfjob_controller.api.core import Terminated
from tfjob_controller.trainer.startfailures import why_never_started

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
