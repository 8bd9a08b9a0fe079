"""Every benchmark in a tiny size: it runs, and says what it found as docs/benchmarks.md promises. No time is judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]
KEYS = {"name", "value", "unit", "rounds", "spread"}

_OF_SEVERAL_GANGS = ("gangs_bound", "gang_latency", "gang_spread_p95", "gangs_cpu")
_OF_ONE_GANG = ("gangs_bound", "gangs_cpu")

# By bench, its figures and whether they have a baseline.
FIGURES = {
    "watch": {"watch_events_applied": True},
    "filter": {
        "filter_p50": False,
        "filter_p99": False,
        "filter_waiting_p99": False,
        "filter_binding_p99": False,
    },
    "placement": {"placing_1000_on_5000": False, "waiting_2000_one_node_freed": False},
    "gang": {
        **{f"{figure}_{shape}": True for shape in ("100x10", "20x50") for figure in _OF_SEVERAL_GANGS},
        **{f"{figure}_{shape}": True for shape in ("1x1000", "1x1000_on_1000") for figure in _OF_ONE_GANG},
        "gangs_bound_mean": True,
    },
    "cache": {"rss_per_cached_pod": True},
    "sync": {"sync_unchanged": False, "sync_unchanged_requests": False, "first_sync": False},
    "create": {
        "tfjobs_pods_exist": True,
        "tfjobs_cpu": False,
        "tfjobs_rss": False,
        "trainjobs_pods_exist": True,
        "trainjobs_cpu": False,
        "trainjob_1x500_pods_exist": True,
        "trainjobs_rss": False,
        "first_child_p99": False,
    },
    "dashboard": {
        "dashboard_first_paint": False,
        "dashboard_history_paint": False,
        "dashboard_change_seen": False,
        "dashboard_change_seen_100": False,
        "dashboard_rss": False,
    },
    "kubeflowv1": {
        "v1_pods_exist": True,
        "v1_pods_exist_bare": True,
        "v1_create_cpu": True,
        "v1_writes": True,
        "v1_all_writes": True,
        "v1_life_cpu": True,
        "v1_takeover_child_writes": False,
        "v1_takeover_status_writes": False,
        "v1_takeover_seconds": False,
    },
}


def lines_of(name: str, kubeconfig: Path | None) -> list[dict[str, Any]]:
    """Run one as make does, on the cluster that the tests have anyway; all that it wrote to standard output."""
    environment = {**os.environ, "BENCH_TINY": "1", "PYTHONPATH": str(ROOT / "hack")}
    if kubeconfig is not None:
        environment["KUBECONFIG"] = str(kubeconfig)
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{name}"], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr, "progress goes to standard error"
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(figures: list[dict[str, Any]], expected: dict[str, bool]) -> None:
    """`expected` says for each figure whether it has a baseline."""
    assert [figure["name"] for figure in figures] == list(expected)
    for figure in figures:
        assert figure.keys() >= KEYS
        assert figure["value"] >= 0
        assert figure["rounds"] == 1
        assert figure["tiny"], "nobody should take it for a measurement"
        has_baseline = expected[figure["name"]]
        assert ("baseline" in figure, "ratio" in figure) == (has_baseline, has_baseline)


@pytest.mark.parametrize("name", ["watch", "filter", "placement", "cache"])
def test_a_bench_without_a_cluster_says_its_figures(name: str) -> None:
    check(lines_of(name, None), FIGURES[name])


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.parametrize("name", ["gang", "kubeflowv1"])
def test_a_bench_with_control_planes_of_its_own_says_its_figures(name: str) -> None:
    check(lines_of(name, None), FIGURES[name])


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.parametrize("name", ["sync", "create", "dashboard"])
def test_a_bench_on_a_cluster_says_its_figures(name: str, spare_control_plane: Cluster) -> None:
    """Not on that of all tests: another's controller for all namespaces would make children of these jobs too."""
    check(lines_of(name, spare_control_plane.kubeconfig), FIGURES[name])


def test_every_figure_is_explained_in_the_docs() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    unexplained = {figure for figures in FIGURES.values() for figure in figures if f"`{figure}`" not in text}
    assert not unexplained


def test_make_runs_every_bench() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"-m bench.{name}\n" in makefile for name in FIGURES)
