"""Tests of chaos.checkpoints.settings: the jobs and kills of a run."""

from __future__ import annotations

from collections import Counter

import pytest

from chaos.checkpoints.settings import CLOCK, KILLS, STORAGE, job_plans, settings_of


def test_by_default_fifty_jobs_have_two_hundred_kills_of_all_kinds() -> None:
    plans, outside = job_plans(settings_of({"CHAOS_SEED": "1"}))
    kinds = Counter(kill.kind for plan in plans for kill in plan.kills) + Counter(kill.kind for kill in outside)
    assert len(plans) == 50
    assert sum(kinds.values()) == 200
    assert kinds.keys() == KILLS.keys()


def test_a_seed_repeats_jobs_and_kills() -> None:
    assert job_plans(settings_of({"CHAOS_SEED": "7"})) == job_plans(settings_of({"CHAOS_SEED": "7"}))
    assert job_plans(settings_of({"CHAOS_SEED": "7"})) != job_plans(settings_of({"CHAOS_SEED": "8"}))


@pytest.mark.parametrize("seed", range(5))
def test_the_storage_of_a_job_can_show_its_kills(seed: int) -> None:
    plans, outside = job_plans(settings_of({"CHAOS_SEED": str(seed)}))
    assert all(plan.is_bucket for plan in plans if STORAGE in {kill.kind for kill in plan.kills})
    assert {kill.kind for kill in outside} <= {CLOCK}
    assert CLOCK not in {kill.kind for plan in plans for kill in plan.kills}


def test_kinds_of_kills_can_be_selected() -> None:
    plans, outside = job_plans(settings_of({"CHAOS_SEED": "1", "CHAOS_KINDS": "node killed, pod deleted"}))
    assert {kill.kind for plan in plans for kill in plan.kills} == {"node killed", "pod deleted"}
    assert outside == []


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"CHAOS_KINDS": "earthquake"}, "unknown kinds of kills: earthquake"),
        ({"CHAOS_JOBS": "0"}, "at least one job"),
        ({"CHAOS_KILLS": "-1"}, "no negative number"),
    ],
)
def test_what_cannot_be_run_is_rejected(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings_of(environ)


def test_the_settings_name_the_variables_that_repeat_a_run() -> None:
    settings = settings_of({"CHAOS_SEED": "5", "CHAOS_KINDS": "pod deleted"})
    assert settings.variables == (
        'CHAOS_SEED=5 CHAOS_JOBS=50 CHAOS_KILLS=200 CHAOS_PARALLEL=8 CHAOS_KINDS="pod deleted"'
    )
