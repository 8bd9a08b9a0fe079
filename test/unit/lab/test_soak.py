"""Tests of lab.soak: the jobs of a run."""

from __future__ import annotations

import pytest

from lab.soak import SoakSettings, rest_seconds, soak_plan


@pytest.mark.parametrize(("at", "rest"), [(0.0, 1.0), (719.0, 1.0), (720.0, 4.0), (3599.0, 4.0)])
def test_jobs_are_created_four_times_as_often_in_the_first_fifth(at: float, rest: float) -> None:
    """This fills bounded memories before they are measured."""
    assert rest_seconds(at, SoakSettings.of({"SOAK_EVERY": "4"})) == rest


def test_every_job_is_deleted_soon_after_its_end() -> None:
    settings = SoakSettings.of({"SOAK_SEED": "4", "SOAK_TTL": "7"})
    assert {soak_plan(number, settings).spec["ttlSecondsAfterFinished"] for number in range(100)} == {7}
