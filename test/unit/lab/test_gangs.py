"""Tests of lab.gangs: the random gangs and faults of a run."""

from __future__ import annotations

from lab import chaos
from lab.gangs import FAULTS, gang_plan
from lab.jobs import URGENT, manifest
from lab.requests import GANG_FAULTS
from lab.stage import NAMESPACE, TENANT

PLANS = [gang_plan(number, seed=7) for number in range(300)]


def test_the_same_seed_produces_the_same_gangs() -> None:
    assert [gang_plan(number, seed=7) for number in range(300)] == PLANS
    assert gang_plan(0, seed=8) != PLANS[0]


def test_all_jobs_are_gangs_of_two_tenants_and_of_all_sizes() -> None:
    sizes = [sum(part.count for part in plan.parts) for plan in PLANS]
    assert (min(sizes), max(sizes)) == (1, 25)
    assert all(plan.is_gang for plan in PLANS)
    assert [plan.namespace for plan in PLANS].count(TENANT) * 2 == [plan.namespace for plan in PLANS].count(NAMESPACE)


def test_an_urgent_gang_has_a_priority_and_the_class_that_permits_it() -> None:
    urgent = [plan for plan in PLANS if plan.is_urgent]
    assert 0 < len(urgent) < len(PLANS) // 4
    spec = manifest(urgent[0])["spec"]
    classes = {replica["template"]["spec"]["priorityClassName"] for replica in spec["replicaSpecs"]}
    assert (spec["gang"], classes) == ({"enabled": True, "priority": 10}, {URGENT})


def test_every_fault_of_gang_requests_is_in_the_plan_and_every_kind_is_known() -> None:
    assert GANG_FAULTS.keys() <= FAULTS.keys() <= chaos.FAULTS.keys()
