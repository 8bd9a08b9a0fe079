"""What each command does: read, judge, show. Returns the exit code."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from tfjob_controller.client.describe import Description, describe
from tfjob_controller.client.views import views_of
from tfjob_controller.client.reads import Reader, Row, Table
from tfjob_controller.kube.transport import Transport
from tfjob_controller.kubectl.arguments import JSON, WIDE

# Below these many seconds an age is said in the unit before.
_UNITS = ((120, 1, "s"), (7200, 60, "m"), (172800, 3600, "h"))


def show_list(transport: Transport, namespace: str, output: str) -> int:
    reader = Reader(transport, namespace)
    if output == JSON:
        listed = {"apiVersion": "kubeflow.org/v1alpha1", "kind": "TFJobList", "items": reader.manifests()}
        return _print_json(msgspec.json.encode(listed))
    tables = list(reader.tables())
    if not any(table.rows for table in tables):
        print(f"No TFJobs in {f'namespace {namespace}' if namespace else 'any namespace'}.", file=sys.stderr)
        return 0
    _screen().table(*columns_and_rows(tables, with_namespace=not namespace, wide=output == WIDE))
    return 0


def columns_and_rows(tables: list[Table], *, with_namespace: bool, wide: bool) -> tuple[list[str], list[list[str]]]:
    """What the server says, without the columns that it marks as less important unless `wide`."""
    columns = tables[0].column_definitions
    shown = [index for index, column in enumerate(columns) if wide or column.priority == 0]
    headers = [columns[index].name for index in shown]

    def cells(row: Row) -> list[str]:
        values = ["" if row.cells[index] is None else str(row.cells[index]) for index in shown]
        return [row.object.metadata.namespace, *values] if with_namespace else values

    rows = [cells(row) for table in tables for row in table.rows or []]
    return (["Namespace", *headers] if with_namespace else headers), rows


def show_job(transport: Transport, namespace: str, name: str, output: str) -> int:
    reader = Reader(transport, namespace)
    job = reader.job(name)
    now = datetime.now(UTC)
    views = views_of(job, reader.children(job), now)
    description = describe(job, views, reader.events)
    if output == JSON:
        return _print_json(msgspec.json.encode(description))
    print_description(_screen(), description, now)
    return 0


def print_description(screen: Any, description: Description, now: datetime) -> None:
    """`screen` is a `Screen`; it is not imported here, so that JSON costs no rich."""
    limit = "" if description.backoff_limit is None else f" (backoffLimit {description.backoff_limit})"
    screen.fields(
        {
            "Name": description.name,
            "Namespace": description.namespace,
            "Phase": description.phase or "(none yet)",
            "State": description.state,
            "Reason": description.reason,
            "Ready": ", ".join(f"{role} {ready}" for role, ready in description.ready.items()),
            "Workers": description.workers,
            "Progress": description.progress,
            "Restarts": f"{description.restarts}{limit}",
            "Runtime-Id": description.runtime_id,
            "Created": _ago(description.created, now),
            "Started": _ago(description.started, now),
            "Completed": _ago(description.completed, now),
        }
    )
    for hint in description.hints:
        screen.line(hint)
    _print_replicas(screen, description)
    _print_conditions(screen, description, now)
    _print_events(screen, description, now)


def _print_replicas(screen: Any, description: Description) -> None:
    if not description.replicas:
        return
    screen.heading("Replicas")
    rows = [
        [
            row.replica,
            row.state,
            "yes" if row.ready else "no",
            str(row.restarts),
            row.last_exit,
            row.node,
            row.pod,
            row.message,
        ]
        for row in description.replicas
    ]
    screen.table(["Replica", "State", "Ready", "Restarts", "Last exit", "Node", "Pod", "Message"], rows)


def _print_conditions(screen: Any, description: Description, now: datetime) -> None:
    if not description.conditions:
        return
    screen.heading("Conditions")
    rows = [
        [each.type, each.status, _ago(each.last_transition_time, now), each.reason, each.message]
        for each in description.conditions
    ]
    screen.table(["Type", "Status", "Since", "Reason", "Message"], rows)


def _print_events(screen: Any, description: Description, now: datetime) -> None:
    screen.heading("Events")
    if not description.events:
        screen.line("none (the server keeps them for an hour)")
        return
    rows = [
        [
            _ago(row.last_seen, now),
            row.type,
            row.reason,
            f"{row.count}x" if row.count > 1 else "",
            f"{row.about}: {row.note}" if row.about else row.note,
        ]
        for row in description.events
    ]
    screen.table(["Last seen", "Type", "Reason", "Times", "Note"], rows)


def _ago(moment: str, now: datetime) -> str:
    if not moment:
        return ""
    seconds = max(0, int((now - datetime.fromisoformat(moment)).total_seconds()))
    for below, unit, letter in _UNITS:
        if seconds < below:
            return f"{seconds // unit}{letter} ago"
    return f"{seconds // 86400}d ago"


def show_logs(transport: Transport, namespace: str, name: str, parsed: Any) -> int:
    from tfjob_controller.client.logs import LogOptions
    from tfjob_controller.kubectl.logs import print_logs

    options = LogOptions(parsed.replica, parsed.follow, parsed.previous, parsed.tail)
    return print_logs(transport, namespace, name, options, sys.stdout.buffer)


def show_queue(transport: Transport, namespace: str, output: str) -> int:
    from tfjob_controller.kubectl.queue import read_queue, rows_of

    queue = read_queue(transport, namespace)
    if output == JSON:
        return _print_json(msgspec.json.encode(queue))
    running = f"{queue.running} gang{'' if queue.running == 1 else 's'} with room"
    if not queue.waiting:
        print(f"No gang waits; {running}.", file=sys.stderr)
        return 0
    _screen().table(*rows_of(queue, datetime.now(UTC), with_namespace=not namespace))
    print(f"{running}; why one waits: kubectl tfjob describe NAME", file=sys.stderr)
    return 0


def _screen() -> Any:
    from tfjob_controller.kubectl.screen import Screen

    return Screen(sys.stdout)


def _print_json(body: bytes) -> int:
    print(msgspec.json.format(body, indent=2).decode())
    return 0
