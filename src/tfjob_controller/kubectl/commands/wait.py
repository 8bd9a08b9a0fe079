"""`kubectl tfjob wait`."""

from __future__ import annotations

import argparse
import re
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from tfjob_controller.client.oneline import one_line
from tfjob_controller.client.waiting import ENDED, FAILED, NAMES, RUNNING, SUCCEEDED, ConditionHasStatus, name_of
from tfjob_controller.kubectl.arguments import add_cluster, add_job, add_timeout, command_for, refuse

if TYPE_CHECKING:
    from tfjob_controller.client.job import Job
    from tfjob_controller.client.waiting import Until
    from tfjob_controller.kubectl.session import Session

EXAMPLES = """
kubectl tfjob wait train
kubectl tfjob wait train --for Running --timeout 10m
kubectl tfjob wait trainjob/finetune --for condition=Suspended
kubectl tfjob wait train --for ended && echo "it has ended"
"""

# As timeout(1) ends.
EXIT_TIMEOUT = 124

# What shells complete; the names of `client.waiting` are accepted in any case.
WORDS = tuple(name.lower() for name in NAMES)
_MOST_USED = ", ".join(name.lower() for name in (SUCCEEDED, RUNNING, ENDED, FAILED))
_CONDITION = re.compile(r"condition=([A-Za-z]{1,60})(?:=(True|False|Unknown))?", re.IGNORECASE)


def add_arguments(parser: ArgumentParser) -> None:
    parser.description = (
        "Waits until a job runs, ends or has a condition. Exit codes: 0 it came; 1 it cannot come any more, as the job "
        "ended otherwise or was deleted; 124 the time is over."
    )
    add_job(parser)
    parser.add_argument(
        "--for",
        dest="until",
        type=_until,
        default=SUCCEEDED,
        metavar="WHAT",
        help=f"{_MOST_USED}, a condition, or condition=NAME[=STATUS], in any case; default: {SUCCEEDED.lower()}",
    )
    add_timeout(parser)
    add_cluster(parser)


def _until(text: str) -> Until:
    if (name := name_of(text)) is not None:
        return name
    if (match := _CONDITION.fullmatch(text)) is None:
        known = f"{', '.join(WORDS)} or condition=NAME[=STATUS]"
        raise argparse.ArgumentTypeError(f"must be {known}, not {text[:80]!r}")
    return ConditionHasStatus(match[1], (match[2] or "True").capitalize())


def run(session: Session, parsed: Namespace) -> int:
    return wait(session.job(parsed.job), parsed.until, parsed.timeout)


def wait(job: Job, until: Until, timeout_seconds: float | None, *, given_seconds: float | None = None) -> int:
    """Returns the exit code. Also what `submit --wait` ends with. Raises `ClientError` for what cannot come any more.

    `given_seconds` is the time that the user gave, where a part of it has passed already.
    """
    from tfjob_controller.client.errors import WaitTimeoutError
    from tfjob_controller.client.waiting import has_come

    # The state that was read a moment ago counts too: a time of 0 allows no other look.
    if not has_come(job.snapshot, until):
        try:
            job.wait(until, timeout_seconds)
        except WaitTimeoutError:
            refuse(_timed_out(job, until, (timeout_seconds if given_seconds is None else given_seconds) or 0.0))
            return EXIT_TIMEOUT
    print(one_line(f"{job.kind}/{job.name}: {job.phase}{f', {job.reason}' if job.reason else ''}"))
    return 0


def _timed_out(job: Job, until: Until, seconds: float) -> str:
    from tfjob_controller.client.waiting import in_words

    now = f"{job.phase or 'not seen by a controller yet'}{f' ({job.reason})' if job.reason else ''}"
    return (
        f"timed out after {seconds:g}s waiting for {in_words(until)}: {job.kind}/{job.name} is {now}. The job stays: "
        f"`{command_for(job, 'wait')}` waits again, `{command_for(job, 'delete')}` deletes it"
    )
