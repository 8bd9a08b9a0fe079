"""A job in full, for people."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tfjob_controller.client.describe import REPLICA_HEADERS, Description, replica_cells, summary
from tfjob_controller.kubectl.output import ago


def print_description(screen: Any, description: Description, now: datetime) -> None:
    """`screen` is a `Screen`; it is not imported here, so that JSON costs no rich."""
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
    _print_replicas(screen, description)
    _print_conditions(screen, description, now)
    _print_events(screen, description, now)


def _print_replicas(screen: Any, description: Description) -> None:
    if not description.replicas:
        return
    screen.heading("Replicas")
    screen.table(REPLICA_HEADERS, [replica_cells(each) for each in description.replicas])


def _print_conditions(screen: Any, description: Description, now: datetime) -> None:
    if not description.conditions:
        return
    screen.heading("Conditions")
    rows = [
        [each.type, each.status, ago(each.last_transition_time, now), each.reason, each.message]
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
            ago(row.last_seen, now),
            row.type,
            row.reason,
            f"{row.count}x" if row.count > 1 else "",
            f"{row.about}: {row.note}" if row.about else row.note,
        ]
        for row in description.events
    ]
    screen.table(["Last seen", "Type", "Reason", "Times", "Note"], rows)
