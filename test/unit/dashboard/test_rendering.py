"""Server-sent events whatever the text, and metrics that are read once for all browsers."""

from __future__ import annotations

import asyncio
import threading

import pytest

from helpers.fakeclock import FakeClock
from tfjob_controller.dashboard.metrichistory import MetricHistory
from tfjob_controller.dashboard.pages.rendering import Histories, event


@pytest.mark.parametrize(
    ("body", "data"),
    [
        pytest.param("a", ["a"], id="one line"),
        pytest.param("a\n\nb", ["a", "", "b"], id="an empty line"),
        pytest.param("", [""], id="an empty line alone"),
        pytest.param("a\n", ["a", ""], id="an empty line at the end"),
        pytest.param("a\revent: jobs\r\rdata: b\r\nc", ["a", "event: jobs", "", "data: b", "c"], id="other line ends"),
    ],
)
def test_each_line_of_an_event_is_data(body: str, data: list[str]) -> None:
    head, *lines = event("lines", body).decode().removesuffix("\n\n").split("\n")
    assert head == "event: lines"
    assert lines == [f"data: {each}" for each in data]


def test_metrics_are_read_once_for_all_and_a_log_that_does_not_answer_keeps_no_other_waiting() -> None:
    answers, reads = threading.Event(), list[str]()

    def read(name: str) -> MetricHistory:
        reads.append(name)
        assert name != "slow" or answers.wait(60)
        return MetricHistory(name, (), (), ())

    async def use() -> None:
        histories = Histories(FakeClock())
        slow = [asyncio.create_task(histories.get(("slow",), lambda: read("slow"))) for _ in range(20)]
        quick = [await histories.get(("quick",), lambda: read("quick")) for _ in range(3)]
        assert {each.axis for each in quick} == {"quick"}
        assert not any(each.done() for each in slow)
        answers.set()
        assert {each.axis for each in await asyncio.gather(*slow)} == {"slow"}

    asyncio.run(use())
    assert sorted(reads) == ["quick", "slow"]
