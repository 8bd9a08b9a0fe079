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
        "Each alert has a page with its meaning, diagnosis and remedies. [Monitoring](../monitoring.md) says how to "
        "install the alerts. A critical alert means that nothing works, or that capacity is wasted; "
        "a warning is not urgent.",
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
        "## Diagnosis",
        _list(alert.look),
        *([_queries(alert)] if alert.queries else []),
        "## Remedies",
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
