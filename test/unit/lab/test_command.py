"""Tests of lab.command: the settings of all commands, and how make runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.attack.__main__ import AttackSettings
from lab.chaos import ChaosSettings
from lab.checkpoints.plan import CheckpointSettings
from lab.command import Interval, Patience, Settings
from lab.gangs import GangSettings
from lab.nodes import NodeSettings
from lab.soak import SoakSettings

ROOT = Path(__file__).resolve().parents[3]
SEEDED = (ChaosSettings, GangSettings, NodeSettings, CheckpointSettings, SoakSettings)


def test_the_seed_is_random_unless_it_is_set() -> None:
    for settings in SEEDED:
        assert len({settings.of({}).seed for _ in range(5)}) > 1
        assert settings.of({"CHAOS_SEED": "7", "SOAK_SEED": "7"}).seed == 7


def test_a_run_without_variables_is_a_large_one() -> None:
    chaos, gangs, soak = ChaosSettings.of({}), GangSettings.of({}), SoakSettings.of({})
    assert (chaos.faults, chaos.kinds, gangs.faults, gangs.kinds) == (1000, (), 400, ())
    assert (soak.seconds, soak.samples) == (3600.0, "build/soak/samples.jsonl")
    assert (AttackSettings.of({}).seconds, AttackSettings.of({}).size) == (600.0, 1.0)


def test_kinds_of_faults_can_be_selected_and_an_unknown_one_is_rejected() -> None:
    assert GangSettings.of({"CHAOS_KINDS": "etcd killed, node deleted"}).kinds == ("etcd killed", "node deleted")
    with pytest.raises(ValueError, match="unknown kinds of faults: earthquake; known are bindings 409, "):
        GangSettings.of({"CHAOS_KINDS": "earthquake"})
    with pytest.raises(ValueError, match="unknown kinds of kills: earthquake"):
        CheckpointSettings.of({"CHAOS_KINDS": "earthquake"})


@pytest.mark.parametrize(
    ("settings", "name", "text"),
    [
        *((AttackSettings, "ATTACK_SIZE", text) for text in ("soon", "-1", "0", "nan", "inf")),
        (SoakSettings, "SOAK_EVERY", "-1"),
        (CheckpointSettings, "CHAOS_JOBS", "0"),
        (CheckpointSettings, "CHAOS_KILLS", "1.5"),
    ],
)
def test_an_invalid_number_is_rejected_with_the_name_of_its_variable(
    settings: type[Settings], name: str, text: str
) -> None:
    with pytest.raises(ValueError, match=f"{name}={text}: must be a number"):
        settings.of({name: text})


def test_a_run_names_the_variables_that_repeat_it() -> None:
    environ = {"CHAOS_SEED": "7", "CHAOS_FAULTS": "20", "CHAOS_MEAN": "0.5", "CHAOS_KINDS": "disk full, lease stolen"}
    variables = 'CHAOS_SEED=7 CHAOS_FAULTS=20 CHAOS_KINDS="disk full,lease stolen"'
    assert ChaosSettings.of(environ).variables == variables


def test_the_makefile_runs_the_commands() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    modules = ("lab.$(if $(CHAOS_NODES),nodes,chaos)", "lab.gangs", "lab.checkpoints", "lab.soak", "lab.attack")
    assert {f"\t@$(PY) -m {module}" for module in modules} <= set(lines)


def test_patience_ends_only_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    patience, interval = Patience(10.0), Interval(10.0)
    assert (interval.is_due(), interval.is_due(), patience.is_over(1)) == (True, False, False)
    now = 9.0
    assert (interval.is_due(), patience.is_over(2)) == (False, False)
    now = 19.5
    assert (interval.is_due(), patience.is_over(2), patience.is_over(3)) == (True, True, False)
