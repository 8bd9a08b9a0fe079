"""Tests of soak.plan: the random jobs of a run."""

from __future__ import annotations

import random

import msgspec
import pytest

from soak.plan import (
    COMES_SUSPENDED,
    DELETED,
    ENDS,
    FAILED,
    FAILS,
    GONE,
    RESIZED,
    RESTARTS,
    SCENARIOS,
    SUCCEEDED,
    SUSPENDED,
    TFJOBS,
    TRAINJOBS,
    JobPlan,
    body_of,
    job_plan,
    outcome_of,
)
from tfjob_controller.api.decode import decode_tfjob, decode_trainjob
from tfjob_controller.api.tfjob.validation import validate as validate_tfjob
from tfjob_controller.api.trainjob.validation import validate as validate_trainjob

EXPECTED = {
    ENDS: SUCCEEDED,
    RESTARTS: SUCCEEDED,
    SUSPENDED: SUCCEEDED,
    COMES_SUSPENDED: SUCCEEDED,
    RESIZED: SUCCEEDED,
    FAILS: FAILED,
    DELETED: GONE,
}


def plans(seed: int, count: int = 200) -> list[JobPlan]:
    rng = random.Random(seed)
    return [job_plan(number, rng, 20.0) for number in range(count)]


def test_a_seed_determines_the_jobs() -> None:
    assert plans(1) == plans(1)
    assert plans(1) != plans(2)


def test_all_scenarios_and_both_kinds_occur_with_and_without_gangs() -> None:
    found = plans(3)
    assert {plan.scenario for plan in found} == set(SCENARIOS)
    assert {(plan.path, plan.is_gang) for plan in found} == {(p, g) for p in (TFJOBS, TRAINJOBS) for g in (True, False)}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_expected_result_of_a_job_follows_from_its_scenario(scenario: str) -> None:
    assert {plan.expected for plan in plans(3) if plan.scenario == scenario} == {EXPECTED[scenario]}


def test_every_manifest_is_valid() -> None:
    for plan in plans(4):
        body = body_of(plan, ttl_seconds=20)
        text = msgspec.json.encode(body)
        if plan.path == TFJOBS:
            assert validate_tfjob(decode_tfjob(text)) is None, body
        else:
            assert validate_trainjob(decode_trainjob(text)) is None, body


def test_a_job_that_restarts_has_one_pod_that_fails_once() -> None:
    plan = next(plan for plan in plans(3) if plan.scenario == RESTARTS)
    assert outcome_of(plan, "WORKER", has_failed=False).exit_code == 130
    assert outcome_of(plan, "WORKER", has_failed=True).exit_code == 0


def test_servers_run_until_they_are_stopped() -> None:
    plan = next(plan for plan in plans(3) if plan.path == TRAINJOBS and plan.framework == "mpi")
    assert outcome_of(plan, "node", has_failed=True).after_seconds is None
    assert outcome_of(plan, "PS", has_failed=True).after_seconds is None
    assert outcome_of(plan, "launcher", has_failed=True).after_seconds == plan.run_seconds
