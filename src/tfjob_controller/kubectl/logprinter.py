"""Prints what the training programs printed, from one replica or from many side by side.

Several replicas are read in turn or, when they are followed, by a thread each; every line begins with its replica, in
a colour of its own on a terminal.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.job import Job
from tfjob_controller.client.listwatch import closed_after
from tfjob_controller.client.logs import MAX_FOLLOWED, LogOptions, LogReader
from tfjob_controller.client.reader import Reader
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kubectl.output import (
    escape_terminal_controls,
    is_coloured,
    print_notice,
    text_after_carriage_return,
)
from tfjob_controller.kubectl.session import Session

# Of the 16 that every terminal has, those that can be read on black and on white.
_COLOURS = (36, 33, 32, 35, 34, 31, 96, 95)


def print_logs(
    session: Session, job: Job, options: LogOptions, out: IO[str], timeout_seconds: float | None = None
) -> int:
    """The exit code is 0 if any of the replicas had a log. Raises `ClientError`, or `ApiError` for the job itself.

    What is followed ends after `timeout_seconds`, if that is not None.
    """
    reads = Reader(session.requester, session.namespace, job.snapshot.kind)
    reader = LogReader(session.requester, reads, job.name, options, print_notice)
    with closed_after(math.inf if timeout_seconds is None else timeout_seconds, reader.close):
        return _print_chosen(reader, options, out)


def _print_chosen(reader: LogReader, options: LogOptions, out: IO[str]) -> int:
    ids = [view.replica.id for view in reader.chosen()]
    if len(ids) == 1:
        _Printer(reader, options, out, {}).show(ids[0])
        return 0
    printer = _Printer(reader, options, out, line_prefixes(ids, coloured=is_coloured(out)))
    if options.follow:
        return _all_at_once(printer, ids)
    shown = [printer.try_to_show(each) for each in ids]
    return 0 if any(shown) else 1


def follow_chief(session: Session, job: Job, timeout_seconds: float | None = None) -> None:
    """Prints the log of a job that was just created, until its chief's program has ended or the time is over.

    A log that cannot be had is said on standard error, and is no error.
    """
    import sys

    try:
        print_logs(session, job, LogOptions(follow=True, over_restarts=True), sys.stdout, timeout_seconds)
    except (ApiError, ClientError) as error:
        print_notice(error.message if isinstance(error, ApiError) else str(error))


def line_prefixes(ids: Sequence[str], *, coloured: bool) -> Mapping[str, bytes]:
    """What stands before each line of a replica."""
    if not coloured:
        return {each: f"[{each}] ".encode() for each in ids}
    return {each: f"\x1b[{_COLOURS[index % len(_COLOURS)]}m[{each}]\x1b[0m ".encode() for index, each in enumerate(ids)}


def _all_at_once(printer: _Printer, ids: Sequence[str]) -> int:
    if len(ids) > MAX_FOLLOWED:
        raise ClientError(
            f"{len(ids)} replicas are too many to follow (at most {MAX_FOLLOWED}): leave out -f, or choose"
        )
    ends: queue.SimpleQueue[bool | OSError] = queue.SimpleQueue()

    def follow(replica_id: str) -> None:
        try:
            ends.put(printer.try_to_show(replica_id))
        except OSError as error:  # nobody reads any more
            ends.put(error)

    # Daemons, since Ctrl-C must end the program while they read.
    for each in ids:
        threading.Thread(target=follow, args=(each,), name=f"log-{each}", daemon=True).start()
    shown = False
    for _ in ids:
        end = ends.get()
        if isinstance(end, OSError):
            raise end
        shown = shown or end
    return 0 if shown else 1


class _Printer:
    """Thread-safe."""

    def __init__(self, reader: LogReader, options: LogOptions, out: IO[str], prefixed: Mapping[str, bytes]) -> None:
        self._reader = reader
        self._options = options
        self._out = out.buffer  # type: ignore[attr-defined] # lines may hold any bytes; only text streams lack it
        self._is_seen = out.isatty()
        self._prefixes = prefixed
        self._lock = threading.Lock()

    def try_to_show(self, replica_id: str) -> bool:
        """One of many: what is wrong with it is said, and the others go on."""
        try:
            self.show(replica_id)
        except (ApiError, ClientError) as error:
            words = error.message if isinstance(error, ApiError) else str(error)
            print_notice(f"{replica_id}: {words}")
            return False
        return True

    def show(self, replica_id: str) -> None:
        prefix = self._prefixes.get(replica_id, b"")
        for line in self._reader.lines(replica_id):
            shown = self._shown(line, prefix) if self._is_seen else line
            with self._lock:
                self._out.write(prefix + shown + b"\n")
                if self._options.follow:
                    self._out.flush()
        with self._lock:
            self._out.flush()

    @staticmethod
    def _shown(line: bytes, prefix: bytes) -> bytes:
        return escape_terminal_controls(text_after_carriage_return(line) if prefix else line)
