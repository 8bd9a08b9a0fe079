"""The demo passes only if the job succeeded, with the right numbers, on all nodes."""

from typing import Any

import pytest

from demo.example import ALL_WORKERS, RIGHT_SUM, check_log
from demo.follow import Followed, Row
from demo.sample import check_job, check_spread


@pytest.mark.parametrize(
    ("status", "holds"),
    [
        pytest.param({"phase": "Done", "state": "Succeeded"}, True, id="done and succeeded"),
        pytest.param({"phase": "Done", "state": "Failed"}, False, id="done is not enough"),
        pytest.param({"phase": "CleanUp", "state": "Succeeded"}, False, id="succeeded is not enough"),
        pytest.param({}, False, id="nobody looked at the job"),
    ],
)
def test_job(status: dict[str, Any], holds: bool) -> None:
    assert check_job({"status": status}, "Succeeded").holds is holds


def test_a_failed_job_is_reported_with_its_reason() -> None:
    assert "exit code 1" in check_job({"status": {"phase": "Failed", "state": "Failed", "reason": "exit code 1"}}).text


@pytest.mark.parametrize(
    ("log", "holds"),
    [
        pytest.param(f"{RIGHT_SUM}\n{ALL_WORKERS}\n", True, id="both lines"),
        pytest.param(f"{RIGHT_SUM}\n", False, id="a worker is missing"),
        pytest.param(f"sum over 4 replicas: 63\n{ALL_WORKERS}\n", False, id="a wrong sum"),
    ],
)
def test_log(log: str, holds: bool) -> None:
    assert check_log(log).holds is holds


@pytest.mark.parametrize(
    ("used", "own_nodes", "holds"),
    [
        pytest.param(["node-1", "node-1"], 2, [False], id="all pods on one node"),
        pytest.param(["node-1", "node-2", "node-1"], 2, [True], id="both nodes"),
        pytest.param(["node-1"], 0, [], id="an existing cluster may have one node"),
    ],
)
def test_pods_spread_over_the_nodes_of_the_demo(used: list[str], own_nodes: int, holds: list[bool]) -> None:
    rows = {f"pod-{number}": Row("r", f"pod-{number}", node, "Running", 0) for number, node in enumerate(used)}
    assert [check.holds for check in check_spread(own_nodes, Followed({}, rows))] == holds
