"""Tests of audit.machinetime: the time that other programs of a busy machine used."""

from __future__ import annotations

import pytest

from audit.machinetime import LostTime, runnable_threads


def test_each_runnable_thread_gets_an_equal_share_of_two_cores_since_the_previous_sample() -> None:
    counts = iter((8, 2, 4, 0))
    time = LostTime(lambda: next(counts), cores=2)
    lost = [time.since_last_sample(now) for now in (0.0, 1.0, 3.0, 5.0, 6.0)]
    assert lost == pytest.approx([0.0, 0.75, 0.0, 1.0, 0.0])


def test_the_caller_counts_as_runnable() -> None:
    assert runnable_threads() >= 1
