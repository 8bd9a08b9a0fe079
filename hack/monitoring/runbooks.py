"""A page for each alert, and the page that lists them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from generate.markdown import code, page, table
from monitoring.alert import Alert
from monitoring.rules import ALERTS

_SOURCE = "hack/monitoring"


def render_index() -> str:
    rows = ((f"[{each.name}]({each.name}.md)", each.severity, each.lasting, each.means) for each in ALERTS)
    return page(
        "Runbooks",
        _SOURCE,
        "One page for each alert: what it means, how to see more, what to do. How to get them: "
        "[monitoring](../monitoring.md). Critical ones mean that nothing works, or that room is held in vain; warnings "
        "can wait for the morning.",
        table(["Alert", "Severity", "After", "Meaning"], rows),
    )


def render_runbook(alert: Alert) -> str:
    return page(
        alert.name,
        _SOURCE,
        f"Severity {alert.severity}, after {alert.lasting}. {alert.means}"
        if alert.lasting != "0m"
        else f"Severity {alert.severity}, at once. {alert.means}",
        "It fires when:",
        *(_block(each) for each in alert.exprs),
        "## How to see more",
        _list(alert.look),
        *([_queries(alert)] if alert.queries else []),
        "## What to do",
        _list(alert.act),
    )


def pages() -> Mapping[str, str]:
    """Path from the project's root → text."""
    return {"docs/runbooks/README.md": render_index()} | {each.runbook: render_runbook(each) for each in ALERTS}


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _queries(alert: Alert) -> str:
    rows = ((meaning, code(query)) for meaning, query in alert.queries)
    return table(["In Prometheus", "Query"], rows)


def _block(expr: str) -> str:
    return f"```promql\n{expr}\n```"
