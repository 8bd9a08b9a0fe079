"""What is shown of the use of a job: only columns for which something is known, and a bounded number of rows."""

from __future__ import annotations

from typing import Any

import pytest

from tfjob_controller.client.liveuse.gpus import GpuUse
from tfjob_controller.client.liveuse.jobuse import JobUse, ReplicaUse
from tfjob_controller.dashboard.shownuse import ShownUse, UsageCell, shown_use

MIB, GIB = 2**20, 2**30


def replica(index: int = 0, **values: Any) -> ReplicaUse:
    requested = {"cpu_requested": 0, "memory_requested": 0, "gpus_requested": 0}
    return ReplicaUse(**{"replica": f"worker-{index}", "pod": f"pod-{index}", "created": "", **requested, **values})


def test_without_figures_nothing_is_shown() -> None:
    assert shown_use(JobUse([replica(cpu_requested=1000)])).is_empty
    assert ShownUse().is_empty


def test_a_cell_compares_with_what_is_requested_if_something_is() -> None:
    shown = shown_use(
        JobUse(
            [
                replica(0, cpu_used=250, cpu_requested=1000, memory_used=300 * MIB),
                replica(1, cpu_used=3000, cpu_requested=2000),
            ]
        )
    )
    assert shown.headers == ["CPU", "Memory"]
    assert shown.rows == [
        ("worker-0", [UsageCell("0.25 of 1", 25.0), UsageCell("300Mi")]),
        ("worker-1", [UsageCell("3 of 2", 100.0), UsageCell()]),
    ]


def test_gpus_have_their_mean_and_their_memory() -> None:
    shown = shown_use(JobUse([replica(gpu=GpuUse(2, 33.3, GIB, 4 * GIB)), replica(1, gpu=GpuUse(1, 99.6))]))
    assert shown.headers == ["GPU", "GPU memory"]
    assert [cells for _, cells in shown.rows] == [
        [UsageCell("33 % of 2 GPUs", 33.3), UsageCell("1.0Gi of 4.0Gi", 25.0)],
        [UsageCell("100 %", 99.6), UsageCell()],
    ]


@pytest.mark.parametrize(("count", "words"), [(1, "Its GPU was not used"), (8, "Its 8 GPUs were not used"), (0, "")])
def test_unused_gpus_are_said(count: int, words: str) -> None:
    notice = shown_use(JobUse(unused_gpus=count)).notice
    assert notice == (f"{words} in the last 30 minutes." if words else "")


def test_a_problem_of_prometheus_is_shown_alone() -> None:
    shown = shown_use(JobUse([replica(gpus_requested=1)], gpu_problem="it cannot be reached"))
    assert (shown.rows, shown.hidden, shown.is_empty) == ([], 0, False)
    assert shown.problem == "The use of GPUs is not shown. Prometheus: it cannot be reached."


def test_more_replicas_than_a_page_shows_are_counted() -> None:
    shown = shown_use(JobUse([replica(index, cpu_used=1) for index in range(130)]))
    assert (len(shown.rows), shown.hidden) == (100, 30)
