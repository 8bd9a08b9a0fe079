"""The pages on sizing, limits and concepts tell what the manifests and the code have."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from helpers.docs import DOCS
from helpers.kubectl import MANIFESTS
from tfjob_controller.api.gang import TOO_MANY_MEMBERS
from tfjob_controller.api.trainjob import types
from tfjob_controller.controller.logs.follower import MAX_FOLLOWED
from tfjob_controller.jobs import conditions
from tfjob_controller.jobs.state import observed
from tfjob_controller.kinds.trainjob import status as trainjobstatus
from tfjob_controller.options import ExtenderOptions, RunOptions

SIZING, LIMITS, CONCEPTS = (
    " ".join((DOCS / f"{name}.md").read_text("utf-8").split()) for name in ("sizing", "limits", "concepts")
)
RUN, EXTENDER = RunOptions(), ExtenderOptions()


def containers(folder: str) -> dict[str, dict[str, Any]]:
    (deployment,) = yaml.safe_load_all((MANIFESTS / "base" / folder / "deployment.yaml").read_text("utf-8"))
    return {each["name"]: each["resources"] for each in deployment["spec"]["template"]["spec"]["containers"]}


ASKED = containers("manager") | containers("extender")


@pytest.mark.parametrize(
    ("container", "row"),
    [
        ("manager", "controller"),
        ("extender", "extender of the gang scheduler"),
        ("kube-scheduler", "its kube-scheduler"),
    ],
)
def test_the_page_on_sizing_has_the_requests_of_the_deployments(container: str, row: str) -> None:
    asked = ASKED[container]
    amounts = [asked[kind]["memory"].replace("Mi", " MiB").replace("Gi", " GiB") for kind in ("requests", "limits")]
    assert f"| {row} | {', '.join(amounts)} |" in SIZING
    assert asked["requests"]["cpu"] == "100m"
    assert "cpu" not in asked["limits"]


@pytest.mark.parametrize(
    "row",
    [
        f"| `--qps`, `--burst` | {RUN.qps:g}, {RUN.burst} |",
        f"| `--workers` | {RUN.workers} |",
        f"| `--concurrent-writes` | {RUN.concurrent_writes} |",
        f"| `--qps`, `--burst` of the extender | {EXTENDER.qps:g}, {EXTENDER.burst} |",
        f"at most {MAX_FOLLOWED} at a time",
    ],
)
def test_the_page_on_sizing_has_the_programs_defaults(row: str) -> None:
    assert row in SIZING


@pytest.mark.parametrize(
    "words",
    [
        f"{types.MAX_NODES:,} nodes, {types.MAX_PROCS:,} processes a node, {types.MAX_METRICS} metrics",
        f"| logs that are followed | {MAX_FOLLOWED} at a time",
        "| a gang | 10,000 pods |",
    ],
)
def test_the_page_on_limits_has_the_codes_numbers(words: str) -> None:
    assert words in LIMITS
    assert "10000" in TOO_MANY_MEMBERS


@pytest.mark.parametrize(
    "phase",
    [
        observed.PHASE_CREATING,
        observed.PHASE_RUNNING,
        observed.PHASE_CLEAN_UP,
        observed.PHASE_DONE,
        observed.PHASE_FAILED,
    ],
)
def test_the_page_on_concepts_has_every_phase(phase: str) -> None:
    assert f"`{phase}`" in CONCEPTS.partition("## Status")[2].partition("`state` of")[0]


@pytest.mark.parametrize(
    "condition",
    [
        conditions.CREATED,
        conditions.SCHEDULED,
        conditions.RUNNING,
        conditions.RESIZING,
        conditions.RESTARTING,
        conditions.SUSPENDED,
        conditions.SUCCEEDED,
        conditions.FAILED,
        trainjobstatus.COMPLETE,
    ],
)
def test_the_page_on_concepts_has_every_condition(condition: str) -> None:
    assert f"`{condition}`" in CONCEPTS.partition("| condition |")[2].partition("`reason` is")[0]
