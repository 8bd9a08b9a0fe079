"""`kubectl tfjob wait`."""

from __future__ import annotations

import argparse
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tfjob_controller.client.oneline import one_line
from tfjob_controller.kubectl.arguments import add_cluster, add_job, add_timeout, refuse

if TYPE_CHECKING:
    from tfjob_controller.client.job import Job
    from tfjob_controller.client.snapshot import Snapshot
    from tfjob_controller.kubectl.session import Session

EXAMPLES = """
kubectl tfjob wait train
kubectl tfjob wait train --for running --timeout 10m
kubectl tfjob wait trainjob/finetune --for condition=Suspended
kubectl tfjob wait train --for ended && echo "it has ended"
"""

# As timeout(1) ends.
EXIT_TIMEOUT = 124

WORDS = SUCCEEDED, RUNNING, ENDED, FAILED = ("succeeded", "running", "ended", "failed")
_CONDITION = re.compile(r"condition=([A-Za-z]{1,60})(?:=(True|False|Unknown))?", re.IGNORECASE)

# What the client is asked to wait for.
Until: TypeAlias = "str | Callable[[Snapshot], bool]"


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
        help=f"{', '.join(WORDS)}, or condition=NAME[=STATUS]; default: {SUCCEEDED}",
    )
    add_timeout(parser)
    add_cluster(parser)


def _until(text: str) -> str:
    if text not in WORDS and not _CONDITION.fullmatch(text):
        words = f"{', '.join(WORDS)} or condition=NAME[=STATUS]"
        raise argparse.ArgumentTypeError(f"must be {words}, not {text[:80]!r}")
    return text


def run(session: Session, parsed: Namespace) -> int:
    return wait(session.job(parsed.job), parsed.until, parsed.timeout)


def wait(job: Job, until: str, timeout_seconds: float | None) -> int:
    """Also what `submit --wait` ends with. Raises `ClientError` for what cannot come any more."""
    from tfjob_controller.client.errors import WaitTimeoutError
    from tfjob_controller.client.waiting import has_come

    # What was read a moment ago counts too: it is the one look that a time of 0 allows.
    if not has_come(job.snapshot, _asked(until)):
        try:
            job.wait(_asked(until), timeout_seconds)
        except WaitTimeoutError:
            refuse(f"{job.kind}/{job.name} was not {until} in time: {job.reason or 'it says no reason'}")
            return EXIT_TIMEOUT
    print(one_line(f"{job.kind}/{job.name}: {job.phase}{f', {job.reason}' if job.reason else ''}"))
    return 0


def _asked(until: str) -> Until:
    if until == ENDED:
        return lambda seen: seen.has_ended
    if (match := _CONDITION.fullmatch(until)) is None:
        return until.capitalize()
    name, status = match[1], (match[2] or "True").capitalize()
    return lambda seen: _has(seen, name, status)


def _has(seen: Snapshot, name: str, status: str) -> bool:
    """Conditions are named as their kind names them; case does not matter, as for kubectl."""
    return any(each.type.lower() == name.lower() and each.status == status for each in seen.conditions)
