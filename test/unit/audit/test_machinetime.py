"""Tests of audit.machinetime: the time that other programs of a busy machine used."""

from __future__ import annotations

import pytest

from audit.machinetime import LostTime, runnable_threads


@pytest.mark.parametrize(("runnable", "lost"), [(0, 0.0), (2, 0.0), (4, 5.0)])
def test_each_runnable_thread_gets_an_equal_share_of_two_cores(runnable: int, lost: float) -> None:
    time = LostTime(lambda: runnable, cores=2)
    assert time.since_last_sample(100.0) == 0.0
    assert time.since_last_sample(110.0) == pytest.approx(lost)


def test_each_sample_counts_for_the_time_since_the_previous_one() -> None:
    counts = iter((8, 2, 4))
    time = LostTime(lambda: next(counts), cores=2)
    time.since_last_sample(0.0)
    assert [time.since_last_sample(now) for now in (1.0, 3.0, 5.0)] == pytest.approx([0.75, 0.0, 1.0])


def test_the_caller_counts_as_runnable() -> None:
    assert runnable_threads() >= 1
