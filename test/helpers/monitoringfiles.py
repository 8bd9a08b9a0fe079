"""What manifests/components/monitoring and the runbooks contain: rules of alerts, panels, and queries to look at."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from helpers.docs import DOCS
from helpers.kubectl import MANIFESTS

Object = dict[str, Any]

FILES = MANIFESTS / "components" / "monitoring"
RULES_FILE = FILES / "prometheus" / "rules.yaml"
RULES: list[Object] = [
    rule for group in yaml.safe_load(RULES_FILE.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
DASHBOARDS: dict[str, Object] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted((FILES / "dashboards").glob("*.json"))
}
RUNBOOKS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((DOCS / "runbooks").glob("[!R]*.md"))}
INDEX = (DOCS / "runbooks" / "README.md").read_text(encoding="utf-8")


def rules_of(alert: str) -> list[Object]:
    """Returns the alert's rules: usually one, otherwise each with its own label `kind`."""
    return [rule for rule in RULES if rule["alert"] == alert]


def queries_of(runbook: str) -> dict[str, str]:
    """Returns the queries of a runbook's table by their titles."""
    _, _, table = runbook.partition("| In Prometheus | Query |\n| --- | --- |\n")
    rows = re.findall(r"^\| (.*) \| `(.*)` \|$", table, re.MULTILINE)
    return {title: query.replace("\\|", "|") for title, query in rows}
