"""Commands that say why a job does not run: `describe` and `explain`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from tfjob_controller.kubectl.arguments import (
    JSON,
    TABLE,
    YAML,
    CommandHandler,
    add_cluster,
    add_job,
    add_output,
    name_argument,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tfjob_controller.client.diagnostics.collection import Diagnostics
    from tfjob_controller.client.diagnostics.description import Description
    from tfjob_controller.client.diagnostics.diagnosis import Diagnosis
    from tfjob_controller.client.diagnostics.timeline import TimelineEntry
    from tfjob_controller.kubectl.output import Screen
    from tfjob_controller.kubectl.session import Session

_DESCRIBE_EXAMPLES = """
kubectl tfjob describe train
kubectl tfjob describe trainjob/finetune
kubectl tfjob describe train -o json
"""


def _add_describe_arguments(parser: ArgumentParser) -> None:
    add_job(parser)
    add_output(parser, TABLE, JSON, YAML)
    add_cluster(parser)


def _run_describe(session: Session, parsed: Namespace) -> int:
    from datetime import UTC, datetime

    from tfjob_controller.kubectl.output import Screen, is_for_programs, print_value

    description = session.job(parsed.job).describe()
    if is_for_programs(parsed.output):
        return print_value(description, parsed.output)
    _print_description(Screen(), description, datetime.now(UTC))
    return 0


def _print_description(screen: Screen, description: Description, now: datetime) -> None:
    from tfjob_controller.client.diagnostics.description import sections_of, summary
    from tfjob_controller.client.text import ago

    limit = "" if description.backoff_limit is None else f" (at most {description.backoff_limit})"
    screen.fields(
        {
            "Name": description.name,
            "Namespace": description.namespace,
            **summary(description),
            "Restarts": f"{description.restarts}{limit}",
            "Runtime-Id": description.runtime_id,
            "Created": ago(description.created, now),
            "Started": ago(description.started, now),
            "Completed": ago(description.completed, now),
        }
    )
    for hint in description.hints:
        screen.line(hint)
    for section in sections_of(description, now):
        screen.heading(section.title)
        screen.table(section.headers, section.rows)
    if not description.events:
        screen.heading("Events")
        screen.line("none (the server keeps them for an hour)")


_EXPLAIN_EXAMPLES = """
kubectl tfjob explain train
kubectl tfjob explain trainjob/finetune --controller-logs
kubectl tfjob explain train -o json
"""


def _add_explain_arguments(parser: ArgumentParser) -> None:
    add_job(parser)
    parser.add_argument(
        "--controller-logs",
        action="store_true",
        help="also the controller's log lines about the job, with their reconcile ids",
    )
    parser.add_argument(
        "--controller-namespace",
        type=lambda text: name_argument(text, "a namespace"),
        default="tfjob-system",
        metavar="NAME",
        help="where the controller runs; default: tfjob-system",
    )
    add_output(parser, TABLE, JSON, YAML)
    add_cluster(parser)


def _run_explain(session: Session, parsed: Namespace) -> int:
    from tfjob_controller.client.diagnostics.collection import collect_diagnostics
    from tfjob_controller.client.diagnostics.diagnosis import diagnose
    from tfjob_controller.client.diagnostics.timeline import log_entry, sort_entries, timeline
    from tfjob_controller.kubectl.output import Screen, is_for_programs, print_notice, print_value

    case = collect_diagnostics(session.requester, session.job(parsed.job).snapshot)
    entries, found = timeline(case), diagnose(case)
    if parsed.controller_logs:
        from tfjob_controller.client.diagnostics.collection import read_controller_logs

        logs = read_controller_logs(session.requester, case, parsed.controller_namespace)
        entries = sort_entries([*entries, *map(log_entry, logs)])
    if is_for_programs(parsed.output):
        return print_value(_value(case, entries, found), parsed.output)
    _print(Screen(), entries, found)
    for line in case.unread:
        print_notice(f"not read: {line}")
    return 0


def _value(case: Diagnostics, entries: Sequence[TimelineEntry], found: Diagnosis) -> dict[str, Any]:
    meta = case.seen.metadata
    return {
        "kind": case.seen.kind.resource.kind,
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "timeline": entries,
        "now": found.now,
        "next": found.next,
        "unread": case.unread,
    }


def _print(screen: Screen, entries: Sequence[TimelineEntry], found: Diagnosis) -> None:
    from tfjob_controller.client.diagnostics.timeline import fold_entries

    with_ids = any(entry.reconcile_id and entry.kind == "log" for entry in entries)
    headers = ["Time", "Replica", "Source", *(["Reconcile-id"] if with_ids else []), "What"]
    rows = [
        [entry.time[:19] + "Z", entry.replica, entry.source, *([entry.reconcile_id] if with_ids else []), _what(entry)]
        for entry in fold_entries(entries, keep_reconciles_apart=with_ids)
    ]
    screen.table(headers, rows)
    screen.heading(f"now: {found.now}")
    screen.line(f"next: {found.next}")


def _what(entry: TimelineEntry) -> str:
    warning = "! " if entry.is_warning else ""
    repeats = f" ({entry.count}x until {entry.last_time[:19]}Z)" if entry.count > 1 else ""
    return f"{warning}{entry.text}{repeats}"


HANDLERS = {
    "describe": CommandHandler(_DESCRIBE_EXAMPLES, _add_describe_arguments, _run_describe),
    "explain": CommandHandler(_EXPLAIN_EXAMPLES, _add_explain_arguments, _run_explain),
}
