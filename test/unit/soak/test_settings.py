"""Tests of soak.__main__: the settings of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.__main__ import rest_seconds, settings_of, soak_plan

ROOT = Path(__file__).resolve().parents[3]


def test_the_default_duration_is_an_hour() -> None:
    found = settings_of({})
    assert (found.seconds, found.samples) == (3600.0, Path("build/soak/samples.jsonl"))


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_an_invalid_number_is_rejected_with_the_name_of_its_variable(text: str) -> None:
    with pytest.raises(ValueError, match=f"SOAK_EVERY={text}: must be a number"):
        settings_of({"SOAK_EVERY": text})


@pytest.mark.parametrize(("at", "rest"), [(0.0, 1.0), (719.0, 1.0), (720.0, 4.0), (3599.0, 4.0)])
def test_jobs_are_created_four_times_as_often_in_the_first_fifth(at: float, rest: float) -> None:
    """This fills bounded memories before they are measured."""
    assert rest_seconds(at, settings_of({"SOAK_EVERY": "4"})) == rest


def test_every_job_is_deleted_soon_after_its_end() -> None:
    settings = settings_of({"SOAK_SEED": "4", "SOAK_TTL": "7"})
    assert {soak_plan(number, settings).spec["ttlSecondsAfterFinished"] for number in range(100)} == {7}


def test_the_makefile_runs_the_soak() -> None:
    assert "@$(PY) -m soak\n" in (ROOT / "Makefile").read_text()
