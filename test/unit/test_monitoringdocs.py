"""The pages on operating and the runbooks name series and flags that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import structlog

from generate.reference import render_flags, render_metrics
from helpers.docs import DOCS
from monitoring import runbooks
from monitoring.rules import ALERTS
from tfjob_controller.telemetry import logging

OPERATING = ("monitoring", "sizing", "upgrade", "high-availability", "troubleshooting")
PAGES = [*(DOCS / f"{name}.md" for name in OPERATING), *sorted((DOCS / "runbooks").glob("*.md"))]
METRICS = set(re.findall(r"^\| `([^`]+)` \|", render_metrics(), re.MULTILINE))
FLAGS = set(re.findall(r"^\| `(--[^`]+)` \|", render_flags(), re.MULTILINE))
# Of others: kubectl and its plugin, kube-controller-manager, etcd.
FOREIGN_FLAGS = {"--as", "--cascade", "--controller-logs", "--etcd-compaction-interval", "--field-selector", "--force",
                 "--ignore-errors", "--list", "--prefix", "--previous", "--prune",
                 "--raw", "--replica", "--server-side", "--sort-by", "--tail",
                 "--timeout", "--type", "--kube-api-qps", "--kube-api-burst", "--concurrent-job-syncs"}  # fmt: skip
FOREIGN_METRICS = {"apiserver_request_duration_seconds", "etcd_request_duration_seconds"}

_SERIES = re.compile(
    r"\b(?:tfjob|trainjob|gang|workqueue|controller_runtime|rest_client|leader_election|informer|reflector|process|"
    r"apiserver|etcd)_[a-z_]+\b(?![_*])"
)
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_only_series_and_flags_that_exist(page: Path) -> None:
    text = page.read_text()
    names = {re.sub("_(bucket|count|sum)$", "", name) for name in _SERIES.findall(text)}
    assert names - METRICS - FOREIGN_METRICS - {"tfjob_system"} == set()
    assert set(_FLAG.findall(text)) - FLAGS - FOREIGN_FLAGS == set()


def test_there_is_a_page_for_each_alert_and_none_for_others() -> None:
    there = {str(path.relative_to(DOCS.parent)) for path in (DOCS / "runbooks").iterdir()}
    assert there == runbooks.pages().keys()


def test_each_severity_is_one_that_alertmanagers_know() -> None:
    assert {each.severity for each in ALERTS} == {"critical", "warning"}


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
