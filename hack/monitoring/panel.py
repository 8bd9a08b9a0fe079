"""A dashboard as data, and as Grafana's JSON."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

# Grafana's grid is 24 columns wide.
_COLUMNS, _WIDTH, _HEIGHT = 24, 8, 8
_SCHEMA_VERSION = 39
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# What Grafana puts in by itself, and what tests put there: `$namespace` is every namespace.
RATE_INTERVAL, NAMESPACE = "$__rate_interval", "$namespace"
# Grafana's names of units.
SECONDS, PER_SECOND, SHARE, BYTES, COUNT = "s", "ops", "percentunit", "bytes", "short"


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries` are pairs of a query and the legend of its series; `kind` is Grafana's: timeseries or stat."""

    title: str
    description: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """`uid` is for links; `of_namespaces` is a query that has all namespaces to choose from."""

    uid: str
    title: str
    rows: tuple[Row, ...]
    of_namespaces: str = ""


def render_dashboard(dashboard: Dashboard) -> str:
    return json.dumps(_dashboard(dashboard), indent=2, ensure_ascii=False) + "\n"


def _dashboard(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": "Generated from hack/monitoring/dashboards.py by `make generate`.",
        "tags": ["tfjob-controller"],
        "timezone": "browser",
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [*_variables(dashboard)]},
        "annotations": {"list": []},
        "links": [],
        "panels": [*_laid_out(dashboard.rows)],
    }


def _variables(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    if dashboard.of_namespaces:
        yield {
            "name": "namespace",
            "label": "Namespace",
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": dashboard.of_namespaces, "refId": "namespaces"},
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def _laid_out(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    numbers, top = itertools.count(1), 0
    for row in rows:
        place = {"x": 0, "y": top, "w": _COLUMNS, "h": 1}
        yield {
            "id": next(numbers),
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        top += 1
        for index, panel in enumerate(row.panels):
            line, column = divmod(index, _COLUMNS // _WIDTH)
            place = {"x": column * _WIDTH, "y": top + line * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            yield _panel(panel, next(numbers), place)
        top += -(-len(row.panels) // (_COLUMNS // _WIDTH)) * _HEIGHT


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"showLegend": True, "displayMode": "list", "placement": "bottom"}}
        if panel.kind == "timeseries"
        else {"reduceOptions": {"calcs": ["lastNotNull"]}},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
            for index, (expr, legend) in enumerate(panel.queries)
        ],
    }
