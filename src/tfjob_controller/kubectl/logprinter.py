"""Prints what the training programs printed, from one replica or from several side by side.

With several replicas each line begins with its replica, on a terminal in a colour of its own.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import IO

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.job import Job
from tfjob_controller.client.listwatch import closed_after
from tfjob_controller.client.logs import LogOptions, LogReader, RawLine, stream_logs
from tfjob_controller.client.reader import Reader
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kubectl.output import (
    escape_terminal_controls,
    is_coloured,
    print_notice,
    text_after_carriage_return,
)
from tfjob_controller.kubectl.session import Session

# Those of the 16 colours of every terminal that are readable on black and on white.
_COLOURS = (36, 33, 32, 35, 34, 31, 96, 95)


def print_logs(
    session: Session, job: Job, options: LogOptions, out: IO[str], timeout_seconds: float | None = None
) -> int:
    """The exit code is 0 if any of the replicas has a log. Raises `ClientError`, or `ApiError` for the job itself.

    Following ends after `timeout_seconds`, unless that is None.
    """
    reads = Reader(session.requester, session.namespace, job.snapshot.kind)
    reader = LogReader(session.requester, reads, job.name, options, print_notice)
    with closed_after(math.inf if timeout_seconds is None else timeout_seconds, reader.close):
        ids = [view.replica.id for view in reader.chosen()]
        prefixes = line_prefixes(ids, coloured=is_coloured(out)) if len(ids) > 1 else {}
        return print_replicas(reader, ids, prefixes, out, follow=options.follow)


def print_replicas(
    reader: LogReader, ids: Sequence[str], prefixes: Mapping[str, bytes], out: IO[str], *, follow: bool
) -> int:
    """Prints the logs of these replicas and returns the exit code. Raises what is wrong with the only one."""
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


def follow_chief(session: Session, job: Job, timeout_seconds: float | None = None) -> None:
    """Prints the log of a job that was just created, until its chief's program has ended or the time is over.

    A log that cannot be read is reported on standard error, and is no failure.
    """
    try:
        print_logs(session, job, LogOptions(follow=True, over_restarts=True), sys.stdout, timeout_seconds)
    except (ApiError, ClientError) as error:
        print_notice(_words(error))


def line_prefixes(ids: Sequence[str], *, coloured: bool) -> Mapping[str, bytes]:
    """The prefix of each line of a replica."""
    if not coloured:
        return {each: f"[{each}] ".encode() for each in ids}
    return {each: f"\x1b[{_COLOURS[index % len(_COLOURS)]}m[{each}]\x1b[0m ".encode() for index, each in enumerate(ids)}
