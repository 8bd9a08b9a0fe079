"""The chart of replicas over time, from what pods say of themselves."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tfjob_controller.dashboard.gantt import FAILED, MAX_REPLICAS, PREPARING, RUNNING, WAITING, gantt

NOW = datetime(2026, 1, 1, 0, 1, 40, tzinfo=UTC)


def at(second: int) -> str:
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"


def pod(index: int, *, scheduled: int | None = None, **container: Any) -> dict[str, Any]:
    conditions = (
        [] if scheduled is None else [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(scheduled)}]
    )
    return {
        "metadata": {
            "name": f"p-{index}",
            "creationTimestamp": at(0),
            "labels": {"job_type": "worker", "task_index": str(index)},
        },
        "spec": {"nodeName": "n"},
        "status": {"conditions": conditions, "containerStatuses": [container] if container else []},
    }


def phases(*pods: dict[str, Any]) -> list[tuple[str, list[tuple[str, float, float]]]]:
    rows = gantt(pods, NOW).rows
    return [(each.replica, [(bar.phase, bar.start, bar.end) for bar in each.bars]) for each in rows]


def test_a_pod_that_waits_has_one_bar_until_now() -> None:
    assert phases(pod(0)) == [("worker-0", [(WAITING, 0.0, 100.0)])]


def test_a_pod_is_prepared_and_then_runs() -> None:
    running = {"state": {"running": {"startedAt": at(50)}}}
    assert phases(pod(0, scheduled=10, **running)) == [
        ("worker-0", [(WAITING, 0.0, 10.0), (PREPARING, 10.0, 50.0), (RUNNING, 50.0, 100.0)])
    ]


def test_the_last_run_before_a_restart_is_shown_as_failed() -> None:
    ended = {"terminated": {"startedAt": at(20), "finishedAt": at(40), "exitCode": 1}}
    container = {"lastState": ended, "state": {"running": {"startedAt": at(60)}}}
    ((_, bars),) = phases(pod(0, scheduled=10, **container))
    assert bars[1:] == [(PREPARING, 10.0, 20.0), (FAILED, 20.0, 40.0), (RUNNING, 60.0, 100.0)]


def test_replicas_beyond_the_limit_are_counted() -> None:
    chart = gantt([pod(index) for index in range(MAX_REPLICAS + 3)], NOW)
    assert (len(chart.rows), chart.hidden, chart.rows[10].replica) == (MAX_REPLICAS, 3, "worker-10")


def test_broken_times_and_pods_of_no_replica_are_left_out() -> None:
    broken = pod(0)
    broken["metadata"]["creationTimestamp"] = "yesterday"
    stranger = pod(1)
    stranger["metadata"]["labels"] = {}
    assert gantt([broken, stranger], NOW).rows == ()
