"""Tests of attack.__main__: how many objects a run has."""

from __future__ import annotations

from lab.attack.__main__ import AttackSettings
from lab.attack.stage import CPUS


def test_the_default_run_lasts_ten_minutes_at_full_size() -> None:
    settings = AttackSettings.of({})
    assert (settings.seconds, settings.every_seconds, settings.start_seconds, settings.size) == (600.0, 10.0, 5.0, 1.0)
    assert settings.amounts.jobs == 1000


def test_a_small_run_has_one_of_each_and_the_quota_is_half_of_its_nodes() -> None:
    settings = AttackSettings.of({"ATTACK_SIZE": "0.01"})
    assert (settings.amounts.bombs, settings.amounts.gangs) == (1, 1)
    assert settings.amounts.cpus == settings.nodes * CPUS // 2 > 0
