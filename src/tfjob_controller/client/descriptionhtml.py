"""A description as a notebook shows it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tfjob_controller.client import html
from tfjob_controller.client.ages import age

if TYPE_CHECKING:
    from tfjob_controller.client.describe import Description, ReplicaRow


def render(description: Description, now: datetime | None = None) -> str:
    now = now or datetime.now(UTC)
    parts = [html.fields(_fields(description, now)), *map(html.paragraph, description.hints)]
    if description.replicas:
        rows = [_replica(each) for each in description.replicas]
        headers = ("Replica", "State", "Ready", "Restarts", "Last exit", "Node", "Pod", "Message")
        parts += [html.heading("Replicas"), html.table(headers, rows)]
    if description.conditions:
        rows = [
            [each.type, each.status, age(each.last_transition_time, now), each.reason, each.message]
            for each in description.conditions
        ]
        parts += [html.heading("Conditions"), html.table(("Type", "Status", "For", "Reason", "Message"), rows)]
    if description.events:
        rows = [
            [age(each.last_seen, now), each.type, each.reason, str(each.count), each.about, each.note]
            for each in description.events
        ]
        headers_of_events = ("Age", "Type", "Reason", "Times", "About", "Note")
        parts += [html.heading("Events"), html.table(headers_of_events, rows)]
    return "".join(parts)


def _replica(row: ReplicaRow) -> list[str]:
    ready = "yes" if row.ready else "no"
    return [row.replica, row.state, ready, str(row.restarts), row.last_exit, row.node, row.pod, row.message]


def _fields(description: Description, now: datetime) -> dict[str, str]:
    return {
        "Name": f"{description.namespace}/{description.name}",
        "Kind": description.kind,
        "Phase": description.phase or "(none yet)",
        "State": description.state,
        "Reason": description.reason,
        "Ready": ", ".join(f"{role} {ready}" for role, ready in description.ready.items()),
        "Workers": description.workers,
        "Progress": description.progress,
        "Restarts": str(description.restarts),
        "Age": age(description.created, now),
    }
