"""Jobs that have ended, from the history that the controller keeps: `list --history`, and `describe` and `logs` of jobs
that no longer exist.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.text import ago
from tfjob_controller.kubectl.argumenttypes import JobName
from tfjob_controller.kubectl.command import NAME, TABLE, WIDE
from tfjob_controller.kubectl.output import Screen, escape_terminal_controls, is_for_programs, print_notice, print_value
from tfjob_controller.kubectl.session import Session
from tfjob_controller.util.commandline import UsageError
from tfjob_controller.util.exitcodes import EXIT_FAILED
from tfjob_controller.util.terminal import print_line
from tfjob_controller.util.text import without_log_time
from tfjob_controller.util.timestamps import parse_time_or_none

if TYPE_CHECKING:
    from tfjob_controller.client.history.reading import History
    from tfjob_controller.client.history.record import Entry, LogFile, Record

VARIABLE = "TFJOB_HISTORY"


def history_url(parsed: Namespace) -> str:
    """The place of the history, by the flag or else the variable; empty if neither has one."""
    return str(getattr(parsed, "history", None) or os.environ.get(VARIABLE, ""))


def open_history(url: str) -> History:
    """Raises `ClientError`, and `UsageError` if the packages for storages are not installed."""
    try:
        from tfjob_controller.client.history.reading import History
    except ImportError as error:
        from tfjob_controller.util.commandline import install_hint

        raise UsageError(f"the history needs the package {error.name}; {install_hint('storage')}") from None
    return History.open(url)


def list_history(session: Session, parsed: Namespace) -> int:
    """`list --history`."""
    _check_flags(parsed)
    url = history_url(parsed)
    if not url:
        raise UsageError(f"--history: give the place of the history, as --history=s3://bucket/prefix or in ${VARIABLE}")
    history = open_history(url)
    names: list[JobName] = parsed.names
    entries = [
        entry
        for entry in history.jobs(session.scope, kind=parsed.kind)
        if not names or any(_is_named(entry, name) for name in names)
    ]
    if is_for_programs(parsed.output):
        items = [msgspec.to_builtins(entry) for entry in entries]
        return print_value({"kind": "HistoryList", "items": items}, parsed.output)
    if parsed.output == NAME:
        for entry in entries:
            print_line(f"{entry.word}/{entry.name}")
    elif entries:
        _print_table(session, parsed, entries)
    else:
        print_notice(f"The history {history} has no such jobs in {session.scope_text}.")
    return EXIT_FAILED if names and not entries else 0


def _check_flags(parsed: Namespace) -> None:
    given = {
        "--watch": parsed.watch,
        "--selector": parsed.selector,
        "--field-selector": parsed.field_selector,
        "--show-labels": parsed.show_labels,
        "--sort-by": parsed.sort_by,
    }
    if other := next((flag for flag, value in given.items() if value), None):
        raise UsageError(f"{other} is for jobs that exist: leave it or --history out")
    if not (is_for_programs(parsed.output) or parsed.output in (TABLE, WIDE, NAME)):
        raise UsageError(f"-o {parsed.output} is for jobs that exist: use json or yaml with --history")


def _is_named(entry: Entry, name: JobName) -> bool:
    return entry.is_of(name.name) and name.kind in ("", entry.word)


def _print_table(session: Session, parsed: Namespace, entries: list[Entry]) -> None:
    now, is_wide = datetime.now(UTC), parsed.output == WIDE
    headers = [
        *([] if session.scope else ["Namespace"]),
        "Kind",
        "Name",
        "State",
        "Ended",
        *(["UID"] if is_wide else []),
    ]
    rows = [
        [
            *([] if session.scope else [entry.namespace]),
            entry.kind,
            entry.name,
            entry.state,
            entry.ended if is_wide else ago(entry.ended, now),
            *([entry.uid] if is_wide else []),
        ]
        for entry in entries
    ]
    Screen().table(headers, rows, with_headers=not parsed.no_headers)


def ended_job(session: Session, parsed: Namespace, error: ClientError) -> tuple[History, Record]:
    """A job that no longer exists, from the history; raises `error` without a history, or for another error."""
    url, missing = history_url(parsed), error.api_error
    if not url or missing is None or not missing.is_not_found:
        raise error
    history, wanted = open_history(url), parsed.job
    record = history.job(wanted.name, session.namespace, kind=wanted.kind)
    print_notice(f"from the history: ended {ago(record.ended, datetime.now(UTC))}, at {record.ended}")
    return history, record


def print_logs(history: History, record: Record, parsed: Namespace) -> int:
    """`logs` of a job that no longer exists."""
    if parsed.previous:
        raise UsageError("-p is for jobs that exist: the history has the last run of each container")
    chosen = _chosen(record, parsed)
    for log in chosen:
        _print_log(history.log(record, log), parsed, f"[{log.replica}] " if len(chosen) > 1 else "")
        if log.is_cut:
            print_notice(f"{log.replica}: only the end of its log was kept")
    return 0


def _chosen(record: Record, parsed: Namespace) -> list[LogFile]:
    """The logs to print, for each replica that of its program or of the container that is named."""
    wanted, container = parsed.replica, parsed.container
    by_replica: dict[str, LogFile] = {}
    for log in record.logs:
        if container in ("", log.container):
            by_replica.setdefault(log.replica, log)
    if not wanted:
        found = list(by_replica.values())[:1]
    else:
        found = [log for replica, log in by_replica.items() if wanted in ("all", replica, replica.rpartition("-")[0])]
    if not found:
        kept = ", ".join(f"{log.replica} ({log.container})" for log in record.logs[:8])
        why = "; ".join(record.unread[:2])
        raise ClientError(
            f"the history has no such log of {record.name}: it has {kept or 'none'}" + (f" ({why})" if why else "")
        )
    return found


def _print_log(content: bytes, parsed: Namespace, prefix: str) -> None:
    from tfjob_controller.client.history.record import lines_of

    lines = lines_of(content)
    if parsed.since:
        first = datetime.now(UTC) - timedelta(seconds=parsed.since)
        lines = [line for line in lines if _is_since(line, first)]
    if parsed.tail is not None:
        lines = lines[-parsed.tail :] if parsed.tail else []
    out, is_terminal = sys.stdout.buffer, sys.stdout.isatty()
    for line in lines:
        shown = line if parsed.timestamps else without_log_time(line)
        out.write(prefix.encode() + (escape_terminal_controls(shown) if is_terminal else shown) + b"\n")
    out.flush()


def _is_since(line: bytes, first: datetime) -> bool:
    moment = parse_time_or_none(line.partition(b" ")[0][:40].decode("ascii", "replace"))
    return moment is None or moment >= first
