"""Every query that somebody relies on (alerts, runbooks, panels), and what is wrong with it on a Prometheus at work."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from helpers.monitoringfiles import DASHBOARDS, RULES, RUNBOOKS, queries_of
from helpers.poll import until
from helpers.prometheusserver import Prometheus, QueryError

_SELECTOR = re.compile(r"([a-z_]+)\{([^}]*)\}")
_GROUPED = re.compile(r"\bby \(([^)]*)\)")
_LEGEND = re.compile(r"\{\{(\w+)\}\}")
_CODE = re.compile(r',? *code[=!]~?"[^"]*"')


@dataclass(frozen=True, slots=True)
class Query:
    """One that somebody relies on; `where` says who."""

    where: str
    expr: str
    legend: str = ""

    @property
    def asked(self) -> str:
        """With what Grafana puts in."""
        return self.expr.replace("$__rate_interval", "1m").replace("$namespace", ".*")

    @property
    def selectors(self) -> list[tuple[str, str]]:
        """Each series' name, and its selector. No healthy server gives certain codes, so those are not asked for."""
        found = _SELECTOR.findall(self.asked)
        return [(name, f"{name}{{{_CODE.sub('', matchers)}}}") for name, matchers in found]


OF_ALERTS = [Query(rule["alert"], rule["expr"]) for rule in RULES]
OF_RUNBOOKS = [
    Query(f"{alert}: {title}", expr) for alert, text in RUNBOOKS.items() for title, expr in queries_of(text).items()
]
OF_PANELS = [
    Query(f"{board['title']}: {panel['title']}", target["expr"], target["legendFormat"])
    for board in DASHBOARDS.values()
    for panel in board["panels"]
    for target in panel.get("targets", ())
]
ALL = [*OF_ALERTS, *OF_RUNBOOKS, *OF_PANELS]


def await_every_series(prometheus: Prometheus, may_be_empty: Collection[str]) -> None:
    """Waits until every query is valid, and every series that it names exists, but those of `may_be_empty`."""
    _await_none(lambda: [(query.where, fault) for query in ALL for fault in _faults(prometheus, query, may_be_empty)])


def await_every_panel(prometheus: Prometheus, may_be_empty: Collection[str]) -> None:
    """Waits until every panel shows something, with the labels that its legend names."""
    _await_none(
        lambda: [
            (query.where, fault) for query in OF_PANELS for fault in _panel_faults(prometheus, query, may_be_empty)
        ]
    )


def _await_none(faults: Callable[[], Sequence[tuple[str, str]]]) -> None:
    """A program that a busy machine lets answer too late is gone for Prometheus until it is scraped again."""
    until(faults, lambda found: not found, period=1.0)


def _faults(prometheus: Prometheus, query: Query, may_be_empty: Collection[str]) -> Iterator[str]:
    try:
        prometheus.query(query.asked)
    except QueryError as error:
        yield str(error)
        return
    series = [(name, selector, prometheus.series(selector)) for name, selector in query.selectors]
    if not series:
        yield "it names no series"
    yield from (f"nothing is {selector}" for name, selector, found in series if not found and name not in may_be_empty)
    there = {label for _, _, found in series for each in found for label in each} | {"le"}
    if all(found for _, _, found in series):
        yield from (f"nothing has the label {label}" for label in sorted(_grouped_by(query) - there))


def _grouped_by(query: Query) -> set[str]:
    return {label.strip() for labels in _GROUPED.findall(query.asked) for label in labels.split(",")}


def _panel_faults(prometheus: Prometheus, query: Query, may_be_empty: Collection[str]) -> Iterable[str]:
    found = prometheus.query(query.asked)
    if not found and not query.asked.endswith("> 0") and set(may_be_empty).isdisjoint(dict(query.selectors)):
        return [f"no data: {query.asked}"]
    labels = set(_LEGEND.findall(query.legend))
    return [
        f"{sorted(labels)} of the legend: only {each['metric']}"
        for each in found
        if not labels <= each["metric"].keys()
    ]
