"""The demo passes only if the job succeeded, with the right numbers, on all nodes."""

from typing import Any

import pytest

from demo.checks import ALL_WORKERS, RIGHT_SUM, check_job, check_log, check_spread


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
    assert check_job({"status": status}).holds is holds


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


def test_all_pods_on_one_node_is_no_spread() -> None:
    assert not check_spread(["node-1", "node-1"], 2).holds
    assert check_spread(["node-1", "node-2", "node-1"], 2).holds
