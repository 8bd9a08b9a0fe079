"""Runs the commands of a page, and compares their output with the output on the page."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping

from helpers.docscommands import Command
from helpers.docsshell import Said, Shell
from helpers.docsshown import missing_from
from helpers.poll import eventually

# This limit only ends commands that hang.
PATIENCE_SECONDS = 120.0
# Commands that only read are repeated until the output is as on the page, because pods need a moment.
LOOKS = ("get", "describe", "logs", "events", "wait", "rollout", "top", "tfjob list", "tfjob describe", "tfjob explain",
         "tfjob logs", "tfjob queue", "tfjob top")  # fmt: skip


def follow(shell: Shell, command: Command, replaced: Mapping[str, str], *, has_logs: bool) -> None:
    """Runs the command; repeats a command that only reads until its output is as shown.

    `replaced` has the values for the reader's placeholders. `has_logs`: programs run in the pods, and print.
    """
    problems = [_wrong(command, shell.run(command, replaced), has_logs=has_logs)]

    def is_right() -> bool:
        problems.append(_wrong(command, shell.run(command, replaced), has_logs=has_logs))
        return not problems[-1]

    if problems[-1] and _only_looks(command):
        with contextlib.suppress(AssertionError):  # the last output explains more
            eventually(is_right, PATIENCE_SECONDS, 0.2)
    assert not problems[-1], problems[-1]


def _wrong(command: Command, said: Said, *, has_logs: bool) -> str:
    """Returns the differences from the page; "" if there are none."""
    if said.code:
        return f"{command.place}\nended with {said.code}:\n{said.out}\n{said.error}"
    says_nothing = not has_logs and re.search(r"\blogs\b", command.text)
    missing = [] if says_nothing else missing_from(said.out, command.shown)
    return f"{command.place}\ndid not print {missing}, but:\n{said.out}\n{said.error}" if missing else ""


def _only_looks(command: Command) -> bool:
    words = [word for word in command.text.split() if not word.startswith("-")]
    return words[0] == "kubectl" and any(f"{' '.join(words[1:])} ".startswith(f"{look} ") for look in LOOKS)
