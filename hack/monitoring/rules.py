"""Alerts as Prometheus reads them: a rule file, and the operator's PrometheusRule with the same groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from monitoring.alert import Alert, Group
from monitoring.apialerts import API
from monitoring.controlleralerts import RUNNING, WORK
from monitoring.gangalerts import GANGS
from monitoring.text import LABELS, to_yaml

GROUPS = (RUNNING, WORK, API, GANGS)
ALERTS = tuple(alert for group in GROUPS for alert in group.alerts)
_SOURCE = "hack/monitoring"


def render_rules() -> str:
    """For `rule_files`."""
    return to_yaml(_SOURCE, {"groups": [_group(each) for each in GROUPS]})


def render_prometheus_rule() -> str:
    metadata = {"name": "tfjob-controller", "labels": LABELS}
    spec = {"groups": [_group(each) for each in GROUPS]}
    return to_yaml(
        _SOURCE,
        {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": metadata, "spec": spec},
    )


def _group(group: Group) -> dict[str, Any]:
    return {"name": group.name, "rules": [rule for alert in group.alerts for rule in _rules(alert)]}


def _rules(alert: Alert) -> Iterator[dict[str, Any]]:
    for expr, kind in itertools.zip_longest(alert.exprs, alert.kinds):
        yield {
            "alert": alert.name,
            "expr": expr,
            "for": alert.lasting,
            "labels": {"severity": alert.severity} | ({"kind": kind} if kind else {}),
            "annotations": {
                "summary": alert.summary,
                "description": alert.means,
                "runbook_url": alert.runbook,
            },
        }
