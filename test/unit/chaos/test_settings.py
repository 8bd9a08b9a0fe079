"""Tests of chaos.__main__: the settings of a run."""

from __future__ import annotations

import pytest

from chaos.__main__ import settings_of


def test_by_default_all_faults_affect_a_thousand_gangs_with_a_random_seed() -> None:
    settings = settings_of({})
    assert (settings.gangs, settings.kinds) == (1000, ())
    assert len({settings_of({}).seed for _ in range(5)}) > 1


def test_the_seed_can_be_set() -> None:
    assert settings_of({"CHAOS_SEED": "7"}).seed == 7


def test_kinds_of_faults_can_be_selected() -> None:
    assert settings_of({"CHAOS_KINDS": "etcd killed, leader killed"}).kinds == ("etcd killed", "leader killed")


def test_an_unknown_fault_is_rejected() -> None:
    with pytest.raises(ValueError, match="unknown kinds of faults: earthquake"):
        settings_of({"CHAOS_KINDS": "earthquake"})
