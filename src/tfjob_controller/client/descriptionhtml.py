"""A description as a notebook shows it."""

from __future__ import annotations

from datetime import UTC, datetime

from tfjob_controller.client import html
from tfjob_controller.client.ages import age
from tfjob_controller.client.describe import REPLICA_HEADERS, Description, replica_cells, summary


def render(description: Description, now: datetime | None = None) -> str:
    now = now or datetime.now(UTC)
    parts = [html.fields(_fields(description, now)), *map(html.paragraph, description.hints)]
    if description.replicas:
        parts += [html.heading("Replicas"), html.table(REPLICA_HEADERS, map(replica_cells, description.replicas))]
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


def _fields(description: Description, now: datetime) -> dict[str, str]:
    return {
        "Name": f"{description.namespace}/{description.name}",
        **summary(description),
        "Restarts": str(description.restarts),
        "Age": age(description.created, now),
    }
