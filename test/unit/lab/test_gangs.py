"""Tests of lab.gangs: the random gangs and faults of a run."""

from __future__ import annotations

import random

from lab.gangs import FAULTS
from lab.injection import random_fault
from lab.owners import gang_plan
from lab.requests import GANG_FAULTS


def test_the_same_seed_produces_the_same_gangs_and_faults() -> None:
    first, second = random.Random(7), random.Random(7)
    assert [gang_plan(n, first) for n in range(50)] == [gang_plan(n, second) for n in range(50)]
    assert [random_fault(first, 1.5, FAULTS) for _ in range(50)] == [
        random_fault(second, 1.5, FAULTS) for _ in range(50)
    ]


def test_gangs_of_all_sizes_and_behaviors_occur() -> None:
    rng = random.Random(1)
    plans = [gang_plan(number, rng) for number in range(1000)]
    sizes = [plan.size for plan in plans]
    assert (min(sizes), max(sizes)) == (2, 50)
    assert any(plan.suspend_after is not None for plan in plans)
    behaviors = ("withheld", "failures", "min_members", "max_members", "priority", "leave_seconds")
    assert all(any(getattr(plan, behavior) for plan in plans) for behavior in behaviors)
    assert any(plan.run_seconds > 5 and plan.max_members and not plan.priority for plan in plans)


def test_no_owner_withholds_a_whole_gang() -> None:
    rng = random.Random(2)
    assert all(plan.withheld < plan.size for plan in (gang_plan(number, rng) for number in range(1000)))


def test_every_kind_of_fault_occurs() -> None:
    rng = random.Random(3)
    assert {random_fault(rng, 1.5, FAULTS).kind for _ in range(500)} == set(FAULTS)


def test_only_the_requested_kinds_are_returned() -> None:
    rng, kinds = random.Random(4), ["etcd killed", "leader killed"]
    assert {random_fault(rng, 1.5, FAULTS, kinds).kind for _ in range(50)} == set(kinds)


def test_every_fault_of_requests_is_in_the_plan() -> None:
    assert GANG_FAULTS.keys() <= FAULTS.keys()
