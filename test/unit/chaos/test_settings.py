"""What a run of chaos can be told."""

from __future__ import annotations

import pytest

from chaos.__main__ import settings_of


def test_by_default_all_faults_come_to_a_thousand_gangs_with_another_seed_each_time() -> None:
    settings = settings_of({})
    assert (settings.gangs, settings.kinds) == (1000, ())
    assert len({settings_of({}).seed for _ in range(5)}) > 1


def test_a_seed_can_be_played_again() -> None:
    assert settings_of({"CHAOS_SEED": "7"}).seed == 7


def test_faults_can_be_chosen() -> None:
    assert settings_of({"CHAOS_KINDS": "etcd killed, leader killed"}).kinds == ("etcd killed", "leader killed")


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kinds of faults: earthquake"):
        settings_of({"CHAOS_KINDS": "earthquake"})
