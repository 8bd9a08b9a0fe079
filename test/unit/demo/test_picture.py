"""What the live table says of a pod."""

from typing import Any

import pytest

from demo.picture import Row, rows_of, state_of


def pod(*, job_type: str = "WORKER", index: int = 0, **status: Any) -> dict[str, Any]:
    labels = {"job_type": job_type, "task_index": str(index)}
    return {
        "metadata": {"name": f"j-{job_type.lower()}-{index}-x", "labels": labels},
        "spec": {"nodeName": "node-1"},
        "status": status,
    }


@pytest.mark.parametrize(
    ("status", "state"),
    [
        pytest.param({}, "Pending", id="a pod that nobody has seen yet is pending"),
        pytest.param({"phase": "Running"}, "Running", id="without containers the phase counts"),
        pytest.param(
            {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
            "ImagePullBackOff",
            id="why a container waits says more than the phase",
        ),
        pytest.param(
            {"phase": "Running", "containerStatuses": [{"state": {"terminated": {"exitCode": 0}}}]},
            "Succeeded",
            id="exit code 0 is success",
        ),
        pytest.param(
            {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 137}}}]},
            "exit code 137",
            id="any other exit code is shown",
        ),
    ],
)
def test_state(status: dict[str, Any], state: str) -> None:
    assert state_of(pod(**status)) == state


def test_a_pod_that_goes_away_is_terminating_whatever_its_phase() -> None:
    going = pod(phase="Running")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert state_of(going) == "Terminating"


def test_rows_are_ordered_by_replica_and_count_restarts_of_all_containers() -> None:
    pods = [
        pod(index=1, phase="Running", containerStatuses=[{"restartCount": 1}, {"restartCount": 2}]),
        pod(job_type="MASTER", phase="Running"),
    ]
    assert rows_of(pods) == [
        Row("master-0", "j-master-0-x", "node-1", "Running", 0),
        Row("worker-1", "j-worker-1-x", "node-1", "Running", 3),
    ]
