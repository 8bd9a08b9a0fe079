"""The lines that show the state of a job and of its pods."""

from typing import Any

import pytest

from demo.follow import Row, facts, rows_of, state_of, with_gone


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


def test_pods_that_were_removed_stay_in_sight() -> None:
    first = with_gone({}, rows_of([pod(index=1, phase="Running"), pod(phase="Running")]))
    assert [row.state for row in first.values()] == ["Running", "Running"]
    later = with_gone(first, rows_of([pod(index=1, phase="Running")]))
    assert later == {
        "j-worker-0-x": Row("worker-0", "j-worker-0-x", "node-1", "removed", 0),
        "j-worker-1-x": Row("worker-1", "j-worker-1-x", "node-1", "Running", 0),
    }
    assert list(with_gone(later, [])) == ["j-worker-0-x", "j-worker-1-x"]


def test_facts_are_about_the_job_its_reason_and_each_replica() -> None:
    job = {"metadata": {"name": "j"}, "status": {"phase": "Running", "state": "Running", "reason": "worker-0: waits"}}
    pods = [pod(phase="Running", containerStatuses=[{"restartCount": 2}]), {**pod(index=1), "spec": {}}]
    assert facts(job, rows_of(pods)) == {
        "j": "phase Running, state Running",
        "reason": "worker-0: waits",
        "worker-0": "Running on node-1, restarts: 2",
        "worker-1": "Pending",
    }
