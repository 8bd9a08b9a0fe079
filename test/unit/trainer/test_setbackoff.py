"""The rules of trainer/setbackoff.py: how long a set waits before it is started again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import START, plan_of
from helpers.trainworld import train_plan
from tfjob_controller.api.trainingstatus import JobCondition, TrainingStatus
from tfjob_controller.trainer.setbackoff import BASE_SECONDS, CAP_SECONDS, delay_seconds, seconds_to_start
from tfjob_controller.util.timestamps import format_time


def restarting(restarts: int, status: str = "True") -> TrainingStatus:
    said = JobCondition("Restarting", status, "ReplicasRestarting", "", format_time(START), 1)
    return TrainingStatus(phase="Running", restarts=restarts, conditions=(said,))


@pytest.mark.parametrize(
    ("restarts", "seconds"),
    [(0, 0), (1, 0), (2, BASE_SECONDS), (3, 2 * BASE_SECONDS), (6, 160), (7, CAP_SECONDS), (10**9, CAP_SECONDS)],
)
def test_each_restart_but_the_first_waits_twice_as_long_up_to_a_cap(restarts: int, seconds: int) -> None:
    assert delay_seconds(restarts) == seconds


@pytest.mark.parametrize(("passed", "left"), [(0, 20), (15, 5), (20, 0), (100, 0)])
def test_the_time_counts_from_the_failure(passed: int, left: int) -> None:
    assert seconds_to_start(train_plan(), restarting(3), START + timedelta(seconds=passed)) == left


def test_a_job_that_is_not_being_restarted_waits_for_nothing() -> None:
    assert seconds_to_start(train_plan(), restarting(3, "False"), START) == 0
    assert seconds_to_start(train_plan(), replace(restarting(3), conditions=()), START) == 0


def test_replicas_that_are_restarted_one_by_one_are_the_kubelets_affair() -> None:
    assert seconds_to_start(plan_of(), restarting(3), START) == 0
