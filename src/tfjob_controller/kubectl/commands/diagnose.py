"""Commands that explain why a job does not run: `describe` and `explain`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from tfjob_controller.client.diagnostics.collection import collect_diagnostics, read_controller_logs
from tfjob_controller.client.diagnostics.description import Description, reported_text, sections_of, summary
from tfjob_controller.client.diagnostics.diagnosis import Diagnosis, diagnose
from tfjob_controller.client.diagnostics.timeline import (
    TimelineEntry,
    fold_entries,
    is_routine,
    log_entry,
    sort_entries,
    timeline,
)
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.text import ago
from tfjob_controller.kube.requester import server_now
from tfjob_controller.kubectl.output import Screen, is_for_programs, print_notice, print_value
from tfjob_controller.kubectl.session import Session

if TYPE_CHECKING:
    from tfjob_controller.client.history.record import Record


def describe(session: Session, parsed: Namespace) -> int:
    try:
        description = session.job(parsed.job).describe()
    except ClientError as error:
        from tfjob_controller.kubectl.commands.history import ended_job

        _, record = ended_job(session, parsed, error)
        if record.description is None:
            raise
        description = record.description
    if is_for_programs(parsed.output):
        return print_value(description, parsed.output)
    _print_description(Screen(), description, server_now(session.requester), session.aimed)
    return 0


def _print_description(screen: Screen, description: Description, now: datetime, aimed: Callable[[str], str]) -> None:
    limit = "" if description.backoff_limit is None else f" (at most {description.backoff_limit})"
    screen.fields(
        {
            "Name": description.name,
            "Namespace": description.namespace,
            **{name: aimed(text) for name, text in summary(description).items()},
            "Restarts": f"{description.restarts}{limit}",
            "Runtime-Id": description.runtime_id,
            "Created": ago(description.created, now),
            "Started": ago(description.started, now),
            "Completed": ago(description.completed, now),
            "Reported": reported_text(description, now),
        }
    )
    for hint in description.hints:
        screen.line(aimed(hint))
    for title, headers, rows in sections_of(description, now):
        screen.heading(title)
        screen.table(headers, [[aimed(cell) for cell in row] for row in rows])
    if not description.events:
        screen.heading("Events")
        screen.line("none (the server keeps them for an hour)")


def explain(session: Session, parsed: Namespace) -> int:
    try:
        snapshot = session.job(parsed.job).snapshot
    except ClientError as error:
        from tfjob_controller.kubectl.commands.history import ended_job

        return _explain_ended(ended_job(session, parsed, error)[1], parsed)
    case = collect_diagnostics(session.requester, snapshot, parsed.controller_namespace)
    entries, diagnosis = timeline(case), diagnose(case, server_now(session.requester))
    if parsed.controller_logs:
        logs = read_controller_logs(session.requester, case, parsed.controller_namespace)
        entries = sort_entries([*entries, *(log_entry(pod, line) for pod, line in logs)])
    if is_for_programs(parsed.output):
        meta = case.seen.metadata
        value = {
            "kind": case.seen.kind.resource.kind,
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
            "timeline": entries,
            "now": diagnosis.now,
            "next": diagnosis.next,
            "unread": case.unread,
        }
        return print_value(value, parsed.output)
    if not session.verbosity:
        entries = [entry for entry in entries if not is_routine(entry)]
    _print_timeline(Screen(), entries, Diagnosis(session.aimed(diagnosis.now), session.aimed(diagnosis.next)))
    for line in case.unread:
        print_notice(f"not read: {line}")
    return 0


def _explain_ended(record: Record, parsed: Namespace) -> int:
    now, then = f"it has ended: {record.reason or record.state}", "nothing: the job no longer exists"
    if is_for_programs(parsed.output):
        value = {
            "kind": record.kind,
            "namespace": record.namespace,
            "name": record.name,
            "uid": record.uid,
            "timeline": record.timeline,
            "now": now,
            "next": then,
            "unread": record.unread,
        }
        return print_value(value, parsed.output)
    _print_timeline(Screen(), record.timeline, Diagnosis(now, then))
    for line in record.unread:
        print_notice(f"not recorded: {line}")
    return 0


def _print_timeline(screen: Screen, entries: Sequence[TimelineEntry], diagnosis: Diagnosis) -> None:
    with_ids = any(entry.reconcile_id and entry.kind == "log" for entry in entries)
    headers = ["Time", "Replica", "Source", *(["Reconcile-id"] if with_ids else []), "What"]
    rows = [
        [entry.time[:19] + "Z", entry.replica, entry.source, *([entry.reconcile_id] if with_ids else []), _what(entry)]
        for entry in fold_entries(entries, keep_reconciles_apart=with_ids)
    ]
    screen.table(headers, rows)
    screen.heading(f"now: {diagnosis.now}")
    screen.line(f"next: {diagnosis.next}")


def _what(entry: TimelineEntry) -> str:
    warning = "! " if entry.is_warning else ""
    repeats = f" ({entry.count}x until {entry.last_time[:19]}Z)" if entry.count > 1 else ""
    return f"{warning}{entry.text}{repeats}"
