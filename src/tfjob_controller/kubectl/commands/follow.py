"""Commands that follow a job: `logs` and `wait`.

Where several replicas are printed, each line begins with its replica, on a terminal in a colour of its own.
"""

from __future__ import annotations

import math
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import IO

from tfjob_controller.client.errors import (
    ClientError,
    JobDeletedError,
    JobEndedError,
    WaitTimeoutError,
)
from tfjob_controller.client.job import Job
from tfjob_controller.client.listwatch import closed_after
from tfjob_controller.client.logs import LogOptions, LogReader
from tfjob_controller.client.logstreams import RawLine, stream_logs
from tfjob_controller.client.reader import Reader
from tfjob_controller.client.text import one_line
from tfjob_controller.client.waitconditions import (
    SUCCEEDED,
    Until,
    argument_of,
    condition_text,
    is_deletion,
    is_reached,
)
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kubectl.command import EXIT_TIMEOUT
from tfjob_controller.kubectl.commands.selection import check_selection, selected_jobs, worst
from tfjob_controller.kubectl.output import (
    command_for,
    escape_terminal_controls,
    is_coloured,
    print_error,
    print_notice,
    text_after_carriage_return,
)
from tfjob_controller.kubectl.session import Session
from tfjob_controller.util.exitcodes import EXIT_FAILED
from tfjob_controller.util.terminal import print_line

# The colours, of the 16 of every terminal, that are readable on black and on white.
_COLOURS = (36, 33, 32, 35, 34, 31, 96, 95)


def logs(session: Session, parsed: Namespace) -> int:
    options = LogOptions(
        parsed.replica,
        parsed.follow,
        parsed.previous,
        parsed.tail,
        over_restarts=True,
        container=parsed.container,
        since_seconds=max(1, math.ceil(parsed.since)) if parsed.since else None,
        timestamps=parsed.timestamps,
    )
    try:
        job = session.job(parsed.job)
    except ClientError as error:
        from tfjob_controller.kubectl.commands.history import ended_job, print_logs

        return print_logs(*ended_job(session, parsed, error), parsed)
    return _print_logs(session, job, options)


def follow_chief(session: Session, job: Job, timeout_seconds: float | None = None) -> None:
    """Prints the log of a job that was just created, until its chief's program has ended or the time is over.

    A log that cannot be read is reported on standard error, and is no failure.
    """
    try:
        _print_logs(session, job, LogOptions(follow=True, over_restarts=True), timeout_seconds)
    except (ApiError, ClientError) as error:
        print_notice(session.aimed(_words(error)))


def _print_logs(session: Session, job: Job, options: LogOptions, timeout_seconds: float | None = None) -> int:
    """The exit code is 0 if any of the replicas has a log. Raises `ClientError`, or `ApiError` for the job itself."""
    reads = Reader(session.requester, session.namespace, job.snapshot.kind)
    reader = LogReader(session.requester, reads, job.name, options, print_notice, print_notice)
    with closed_after(math.inf if timeout_seconds is None else timeout_seconds, reader.close):
        ids = [view.replica.id for view in reader.chosen()]
        prefixes = line_prefixes(ids, coloured=is_coloured(sys.stdout)) if len(ids) > 1 else {}
        return print_replicas(reader, ids, prefixes, sys.stdout, follow=options.follow)


def print_replicas(
    reader: LogReader, ids: Sequence[str], prefixes: Mapping[str, bytes], out: IO[str], *, follow: bool
) -> int:
    """Prints the logs of these replicas and returns the exit code. Raises the error of a single one."""
    has_log = False
    # Lines may hold any bytes, and only text streams have no such buffer.
    raw, is_terminal = out.buffer, out.isatty()  # type: ignore[attr-defined]
    with closing(stream_logs(reader, ids, follow=follow)) as items:
        for item in items:
            if isinstance(item, RawLine):
                prefix = prefixes.get(item.replica, b"")
                raw.write(prefix + (_visible(item.line, prefix) if is_terminal else item.line) + b"\n")
                if follow:
                    raw.flush()
            elif item.error is None:
                has_log = True
            elif len(ids) == 1:
                raise item.error
            else:
                print_notice(f"{item.replica}: {_words(item.error)}")
    raw.flush()
    return 0 if has_log else 1


def _words(error: ApiError | ClientError) -> str:
    return error.message if isinstance(error, ApiError) else str(error)


def _visible(line: bytes, prefix: bytes) -> bytes:
    return escape_terminal_controls(text_after_carriage_return(line) if prefix else line)


def line_prefixes(ids: Sequence[str], *, coloured: bool) -> Mapping[str, bytes]:
    """The prefix of each line of a replica."""
    if not coloured:
        return {replica_id: f"[{replica_id}] ".encode() for replica_id in ids}
    return {
        replica_id: f"\x1b[{_COLOURS[index % len(_COLOURS)]}m[{replica_id}]\x1b[0m ".encode()
        for index, replica_id in enumerate(ids)
    }


def wait(session: Session, parsed: Namespace) -> int:
    """Waits for one job after the other, all within the timeout."""
    jobs = _awaited_jobs(session, parsed)
    # As kubectl: a typing error in a selector must not look like success.
    codes, begin = {0 if jobs or is_deletion(parsed.until) else EXIT_FAILED}, time.monotonic()
    for job in jobs:
        left = None if parsed.timeout is None else max(0.0, parsed.timeout - (time.monotonic() - begin))
        try:
            codes.add(wait_for_job(session, job, parsed.until, left, given_seconds=parsed.timeout))
        except (JobEndedError, JobDeletedError) as error:
            print_error(session.aimed(str(error)))
            codes.add(EXIT_FAILED)
    return worst(codes)


def _awaited_jobs(session: Session, parsed: Namespace) -> list[Job]:
    """The jobs to wait for; where their deletion is awaited, without those that do not exist.

    Source: kubectl pkg/cmd/wait/wait.go (RunWaitContext), which ignores that an object is not found.
    """
    if not (parsed.jobs and is_deletion(parsed.until)):
        return selected_jobs(session, parsed)
    check_selection(parsed)
    jobs: list[Job] = []
    for name in parsed.jobs:
        try:
            jobs.append(session.job(name))
        except ClientError as error:
            if error.api_error is None or not error.api_error.is_not_found or error.api_error.is_unknown_kind:
                raise
            print_notice(f"there is no job {name} in {session.scope_text}")
    return jobs


def wait_for_job(
    session: Session, job: Job, until: Until, timeout_seconds: float | None, *, given_seconds: float | None = None
) -> int:
    """Returns the exit code, also for `submit --wait`. Raises `ClientError` for what can no longer be reached.

    `given_seconds` is the timeout that the user gave, if a part of it has already passed.
    """
    # The state that was read a moment ago counts too: a time of 0 allows no other look.
    if not is_reached(job.snapshot, until):
        try:
            job.wait(until, timeout_seconds)
        except WaitTimeoutError:
            seconds = (timeout_seconds if given_seconds is None else given_seconds) or 0.0
            print_error(session.aimed(_timed_out(job, until, seconds)))
            return EXIT_TIMEOUT
    if is_deletion(until):
        print_line(f"{job.kind}/{job.name} deleted")
        return 0
    print_line(one_line(f"{job.kind}/{job.name}: {job.phase}{f', {job.reason}' if job.reason else ''}"))
    return 0


def _timed_out(job: Job, until: Until, seconds: float) -> str:
    # The phase Running stays while replicas are restarted.
    seen = job.state if job.phase == condition_text(until) and job.state else job.phase
    now = f"{seen or 'not processed by a controller yet'}{f' ({job.reason})' if job.reason else ''}"
    what = "" if until == SUCCEEDED else f" --for={argument_of(until)}"
    return (
        f"timed out after {seconds:g}s waiting for {condition_text(until)}: {job.kind}/{job.name} is {now}. "
        "The job stays: "
        f"`{command_for(job, 'wait')}{what}` waits again, `{command_for(job, 'delete')}` deletes it"
    )
