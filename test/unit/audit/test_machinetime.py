"""Time that a busy machine gave to others."""

from __future__ import annotations

import pytest

from audit.machinetime import LostTime, runnable_threads


@pytest.mark.parametrize(("wanting", "lost"), [(0, 0.0), (1, 0.0), (2, 0.0), (4, 5.0), (10, 8.0)])
def test_of_two_cores_each_program_gets_its_share(wanting: int, lost: float) -> None:
    time = LostTime(lambda: wanting, cores=2)
    assert time.since_last_sample(100.0) == 0.0
    assert time.since_last_sample(110.0) == pytest.approx(lost)


def test_each_look_stands_for_the_time_since_the_one_before() -> None:
    counts = iter((8, 2, 4))
    time = LostTime(lambda: next(counts), cores=2)
    time.since_last_sample(0.0)
    assert [time.since_last_sample(now) for now in (1.0, 3.0, 5.0)] == pytest.approx([0.75, 0.0, 1.0])


def test_this_machine_says_that_at_least_we_want_to_run() -> None:
    assert runnable_threads() >= 1
