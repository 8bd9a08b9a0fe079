"""Tests of attack.__main__: the settings of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from attack.__main__ import settings_of
from attack.stage import CPUS

ROOT = Path(__file__).resolve().parents[3]


def test_the_default_run_lasts_ten_minutes_at_full_size() -> None:
    found = settings_of({})
    assert (found.seconds, found.every_seconds, found.start_seconds, found.size) == (600.0, 10.0, 5.0, 1.0)
    assert found.amounts.jobs == 1000


def test_a_small_run_has_one_of_each_and_the_quota_is_half_of_its_nodes() -> None:
    found = settings_of({"ATTACK_SIZE": "0.01"})
    assert (found.amounts.bombs, found.amounts.gangs) == (1, 1)
    assert found.amounts.cpus == found.nodes * CPUS // 2 > 0


@pytest.mark.parametrize("text", ["soon", "-1", "0", "nan", "inf"])
def test_an_invalid_number_is_rejected_with_the_name_of_its_variable(text: str) -> None:
    with pytest.raises(ValueError, match=f"ATTACK_SIZE={text}: must be a number"):
        settings_of({"ATTACK_SIZE": text})


def test_the_makefile_runs_the_attack() -> None:
    assert "@$(PY) -m attack\n" in (ROOT / "Makefile").read_text()
