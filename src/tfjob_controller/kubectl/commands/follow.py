"""Commands that follow a job: `logs` and `wait`."""

from __future__ import annotations

import argparse
import re
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from tfjob_controller.client.text import one_line
from tfjob_controller.client.waitconditions import ENDED, FAILED, NAMES, RUNNING, SUCCEEDED, ConditionHasStatus, name_of
from tfjob_controller.kubectl.arguments import (
    CommandHandler,
    add_cluster,
    add_job,
    add_timeout,
    command_for,
    count_argument,
    print_refusal,
)

if TYPE_CHECKING:
    from tfjob_controller.client.job import Job
    from tfjob_controller.client.waitconditions import Until
    from tfjob_controller.kubectl.session import Session

_LOGS_EXAMPLES = """
kubectl tfjob logs train
kubectl tfjob logs train --replica worker-1 --tail 20
kubectl tfjob logs trainjob/finetune --replica all -f
"""


def _add_logs_arguments(parser: ArgumentParser) -> None:
    add_job(parser)
    parser.add_argument(
        "-f", "--follow", action="store_true", help="wait for it to start, and show it as it comes, over restarts too"
    )
    parser.add_argument(
        "--replica",
        default="",
        metavar="REPLICA",
        help="worker-1, or all workers by `worker`, or `all`. Default: the chief",
    )
    parser.add_argument("--tail", type=count_argument, metavar="N", help="the last N lines only")
    parser.add_argument("-p", "--previous", action="store_true", help="of the run before the last restart")
    add_cluster(parser)


def _run_logs(session: Session, parsed: Namespace) -> int:
    import sys

    from tfjob_controller.client.logs import LogOptions
    from tfjob_controller.kubectl.logprinter import print_logs

    options = LogOptions(parsed.replica, parsed.follow, parsed.previous, parsed.tail, over_restarts=True)
    return print_logs(session, session.job(parsed.job), options, sys.stdout)


_WAIT_EXAMPLES = """
kubectl tfjob wait train
kubectl tfjob wait train --for Running --timeout 10m
kubectl tfjob wait trainjob/finetune --for condition=Suspended
kubectl tfjob wait train --for ended && echo "it has ended"
"""

# As timeout(1) ends.
EXIT_TIMEOUT = 124

# For completion; names of `client.waitconditions` are accepted in any case.
WORDS = tuple(name.lower() for name in NAMES)
_MOST_USED = ", ".join(name.lower() for name in (SUCCEEDED, RUNNING, ENDED, FAILED))
_CONDITION = re.compile(r"condition=([A-Za-z]{1,60})(?:=(True|False|Unknown))?", re.IGNORECASE)


def _add_wait_arguments(parser: ArgumentParser) -> None:
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


def _run_wait(session: Session, parsed: Namespace) -> int:
    return wait(session.job(parsed.job), parsed.until, parsed.timeout)


def wait(job: Job, until: Until, timeout_seconds: float | None, *, given_seconds: float | None = None) -> int:
    """Returns the exit code. Also what `submit --wait` ends with. Raises `ClientError` for what cannot come any more.

    `given_seconds` is the time that the user gave, where a part of it has passed already.
    """
    from tfjob_controller.client.errors import WaitTimeoutError
    from tfjob_controller.client.waitconditions import is_reached

    # The state that was read a moment ago counts too: a time of 0 allows no other look.
    if not is_reached(job.snapshot, until):
        try:
            job.wait(until, timeout_seconds)
        except WaitTimeoutError:
            print_refusal(_timed_out(job, until, (timeout_seconds if given_seconds is None else given_seconds) or 0.0))
            return EXIT_TIMEOUT
    print(one_line(f"{job.kind}/{job.name}: {job.phase}{f', {job.reason}' if job.reason else ''}"))
    return 0


def _timed_out(job: Job, until: Until, seconds: float) -> str:
    from tfjob_controller.client.waitconditions import condition_text

    now = f"{job.phase or 'not seen by a controller yet'}{f' ({job.reason})' if job.reason else ''}"
    return (
        f"timed out after {seconds:g}s waiting for {condition_text(until)}: {job.kind}/{job.name} is {now}. "
        "The job stays: "
        f"`{command_for(job, 'wait')}` waits again, `{command_for(job, 'delete')}` deletes it"
    )


HANDLERS = {
    "logs": CommandHandler(_LOGS_EXAMPLES, _add_logs_arguments, _run_logs),
    "wait": CommandHandler(_WAIT_EXAMPLES, _add_wait_arguments, _run_wait),
}
