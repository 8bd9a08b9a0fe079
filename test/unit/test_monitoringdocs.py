"""Alerts and their runbooks agree, and what operators read names only series and flags that exist."""

from __future__ import annotations

import re

import pytest
import structlog
import yaml

from generate.reference import render_flags, render_metrics
from helpers.docs import DOCS
from helpers.monitoringfiles import FILES, INDEX, RULES, RUNBOOKS, queries_of, rules_of
from helpers.prometheuspod import PROMETHEUS, PROMETHEUS_NAMESPACE
from tfjob_controller.telemetry import logging

OPERATING = ("monitoring", "sizing", "upgrade", "high-availability", "troubleshooting")
PAGES = [
    *(DOCS / f"{name}.md" for name in OPERATING),
    *sorted((DOCS / "runbooks").glob("*.md")),
    *sorted(FILES.rglob("*.json")),
    *sorted((FILES / "prometheus").glob("*.yaml")),
]
METRICS = set(re.findall(r"^\| `([^`]+)` \|", render_metrics(), re.MULTILINE))
FLAGS = set(re.findall(r"^\| `(--[^`]+)` \|", render_flags(), re.MULTILINE))
# Of others: kubectl and its plugin, kube-controller-manager, etcd.
FOREIGN_FLAGS = {"--as", "--cascade", "--controller-logs", "--etcd-compaction-interval", "--field-selector", "--force",
                 "--ignore-errors", "--list", "--prefix", "--previous", "--prune",
                 "--raw", "--replica", "--server-side", "--sort-by", "--tail",
                 "--timeout", "--type", "--kube-api-qps", "--kube-api-burst", "--concurrent-job-syncs"}  # fmt: skip
FOREIGN_METRICS = {"apiserver_request_duration_seconds", "etcd_request_duration_seconds"}
ALERTS = list(dict.fromkeys(rule["alert"] for rule in RULES))

_SERIES = re.compile(
    r"\b(?:tfjob|trainjob|gang|workqueue|controller_runtime|rest_client|leader_election|informer|reflector|process|"
    r"apiserver|etcd)_[a-z_]+\b(?![_*])"
)
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def test_pages_rules_and_panels_name_only_series_and_flags_that_exist() -> None:
    unknown = {page.stem: _unknown_names(page.read_text()) for page in PAGES}
    assert {page: names for page, names in unknown.items() if names} == {}


def _unknown_names(text: str) -> set[str]:
    series = {re.sub("_(bucket|count|sum)$", "", name) for name in _SERIES.findall(text)}
    return (series - METRICS - FOREIGN_METRICS - {"tfjob_system"}) | (set(_FLAG.findall(text)) - FLAGS - FOREIGN_FLAGS)


def test_each_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    assert sorted(ALERTS) == sorted(RUNBOOKS)
    assert {path.name for path in (DOCS / "runbooks").iterdir()} == {"README.md", *(f"{name}.md" for name in ALERTS)}


def test_a_runbook_begins_with_its_alert_s_severity_delay_and_meaning() -> None:
    assert [alert for alert in ALERTS if not RUNBOOKS[alert].startswith(_head(alert))] == []


def _head(alert: str) -> str:
    rules = rules_of(alert)
    (severity,) = {rule["labels"]["severity"] for rule in rules}
    (lasting,) = {rule["for"] for rule in rules}
    (meaning,) = {rule["annotations"]["description"] for rule in rules}
    delay = "at once" if lasting == "0m" else f"after {lasting}"
    return f"# {alert}\n\nSeverity {severity}, {delay}. {meaning}\n\nIt fires when:\n\n"


def test_a_runbook_has_the_expressions_of_its_alert_queries_and_remedies() -> None:
    for alert in ALERTS:
        rules, runbook = rules_of(alert), RUNBOOKS[alert]
        head, _, rest = runbook.partition("\n## Diagnosis\n")
        expressions = [" ".join(expr.split()) for expr in re.findall(r"```promql\n(.*?)```", head, re.DOTALL)]
        assert expressions == [rule["expr"] for rule in rules], alert
        assert "\n## Remedies\n" in rest, alert
        assert len(queries_of(runbook)) == rest.count("\n| ") - 2 * rest.count("| In Prometheus |"), alert
        assert {rule["annotations"]["runbook_url"] for rule in rules} == {f"docs/runbooks/{alert}.md"}


def test_the_list_of_runbooks_has_each_alert_in_the_order_of_the_rules() -> None:
    rows = [
        f"| [{name}]({name}.md) | {rule['labels']['severity']} | {rule['for']} | {rule['annotations']['description']} |"
        for name in ALERTS
        for rule in rules_of(name)[:1]
    ]
    assert re.findall(r"^\| \[.*$", INDEX, re.MULTILINE) == rows
    assert {rule["labels"]["severity"] for rule in RULES} == {"critical", "warning"}


def test_the_page_s_pattern_finds_the_lines_of_one_job_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    (pattern,) = re.findall("grep '([^']*example-job[^']*)'", (DOCS / "monitoring.md").read_text())
    logging.configure("json", "info")
    try:
        structlog.get_logger("any").info("synced", key="default/example-job")
        structlog.get_logger("any").info("synced", key="default/example-job-2")
    finally:
        structlog.reset_defaults()
    found = [line for line in capsys.readouterr().err.splitlines() if re.search(pattern, line)]
    assert len(found) == 1


def test_the_shipped_rights_are_those_of_the_account_of_prometheus_s_pod() -> None:
    folder = FILES / "prometheus"
    role, binding = yaml.safe_load_all((folder / "rbac.yaml").read_text())
    assert [(subject["name"], subject["namespace"]) for subject in binding["subjects"]] == [
        (PROMETHEUS, PROMETHEUS_NAMESPACE)
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (discovery,) = yaml.safe_load((folder / "prometheus.yaml").read_text())["scrape_configs"][0][
        "kubernetes_sd_configs"
    ]
    assert discovery["namespaces"]["names"] == [role["metadata"]["namespace"]]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
