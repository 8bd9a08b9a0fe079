"""Tests of attack.__main__: how many objects a run has."""

from __future__ import annotations

from lab.attack.__main__ import AttackSettings
from lab.attack.stage import CPUS


def test_the_default_run_lasts_ten_minutes_at_full_size() -> None:
    found = AttackSettings.of({})
    assert (found.seconds, found.every_seconds, found.start_seconds, found.size) == (600.0, 10.0, 5.0, 1.0)
    assert found.amounts.jobs == 1000


def test_a_small_run_has_one_of_each_and_the_quota_is_half_of_its_nodes() -> None:
    found = AttackSettings.of({"ATTACK_SIZE": "0.01"})
    assert (found.amounts.bombs, found.amounts.gangs) == (1, 1)
    assert found.amounts.cpus == found.nodes * CPUS // 2 > 0
