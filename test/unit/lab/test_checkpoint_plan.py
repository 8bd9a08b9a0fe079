"""Tests of lab.checkpoints.plan: the jobs and kills of a run."""

from __future__ import annotations

from collections import Counter

import pytest

from lab.checkpoints.plan import KILLS, STORAGE, CheckpointSettings, job_plans


def test_by_default_fifty_jobs_have_two_hundred_kills_of_all_kinds() -> None:
    plans = job_plans(CheckpointSettings.of({"CHAOS_SEED": "1"}))
    kinds = Counter(kill.kind for plan in plans for kill in plan.kills)
    assert len(plans) == 50
    assert sum(kinds.values()) == 200
    assert kinds.keys() == KILLS.keys()


def test_a_seed_repeats_jobs_and_kills() -> None:
    one, same, other = (job_plans(CheckpointSettings.of({"CHAOS_SEED": seed})) for seed in ("7", "7", "8"))
    assert one == same != other


@pytest.mark.parametrize("seed", range(5))
def test_the_storage_of_a_job_can_show_its_kills(seed: int) -> None:
    plans = job_plans(CheckpointSettings.of({"CHAOS_SEED": str(seed)}))
    assert all(plan.is_bucket for plan in plans if STORAGE in {kill.kind for kill in plan.kills})


def test_kinds_of_kills_can_be_selected() -> None:
    plans = job_plans(CheckpointSettings.of({"CHAOS_SEED": "1", "CHAOS_KINDS": "node killed, pod deleted"}))
    assert {kill.kind for plan in plans for kill in plan.kills} == {"node killed", "pod deleted"}
