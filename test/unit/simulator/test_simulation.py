"""The rules of measures and intervals: what a run comes to, and what several say together."""

from __future__ import annotations

import pytest

from helpers.simulations import a_job, simulated
from tfjob_controller.simulator.cluster import ClusterShape
from tfjob_controller.simulator.model import POLICIES, RandomWorkload, SimulationSettings
from tfjob_controller.simulator.simulation import (
    interval,
    measures,
    nearest_rank,
    paired,
    paired_change,
    run_experiment,
    simulate,
    workload_cell,
)


def test_a_run_in_numbers() -> None:
    """One node of four GPUs: a has three for 100 s, b one in vain from 1 to 100 s, then two for 50 s."""
    found = measures(simulated([a_job("a", 0, 3, 300), a_job("b", 1, 2, 100)], 1, 4, "default"))
    assert found == {
        "waiting_mean": 49.5,
        "waiting_median": 49.5,
        "waiting_p95": 99.0,
        "elapsed_mean": 75.0,
        "elapsed_median": 75.0,
        "elapsed_p95": 100.0,
        "completion_mean": 124.5,
        "completion_median": 124.5,
        "completion_p95": 149.0,
        "makespan": 150.0,
        "allocated": pytest.approx((300 + 99 + 100) / 600),
        "working": pytest.approx(400 / 600),
        "useful": pytest.approx(400 / 600),
        "resizes": 0.0,
        "restarts": 0.0,
        "deadlock": 0.0,
        "evictions": 0.0,
        "preemptions": 0.0,
        "wasted": 0.0,
    }


def test_the_makespan_begins_with_the_first_arrival() -> None:
    assert measures(simulated([a_job("a", 50, 1, 100)], 1, 1, "gang"))["makespan"] == 100.0


def test_what_is_useful_is_less_than_what_works_where_a_job_is_spread() -> None:
    found = measures(simulated([a_job("a", 0, 2, 100)], 2, 1, "gang+locality"))
    assert (found["working"], found["useful"]) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([5.0], 5.0, id="one"),
        pytest.param([float(value) for value in range(1, 101)], 95.0, id="a hundred"),
        pytest.param([1.0, 2.0, 3.0], 3.0, id="few"),
    ],
)
def test_p95_is_a_value_that_there_was(values: list[float], expected: float) -> None:
    assert nearest_rank(values, 0.95) == expected


def test_an_interval_is_student_s() -> None:
    """Of 1, 2, 3, 4: deviation 1.2910, t of three degrees of freedom 3.182."""
    found = interval([1.0, 2.0, 3.0, 4.0])
    assert found.mean == 2.5
    assert found.half == pytest.approx(3.182 * 1.2909944 / 2, rel=1e-6)


def test_one_run_says_nothing_of_others() -> None:
    found = interval([3.0])
    assert (found.mean, found.half) == (3.0, None)


def test_pairs_are_compared_seed_by_seed() -> None:
    """Seeds differ by far more than policies do."""
    values, baseline = [90.0, 900.0, 9.0], [100.0, 1000.0, 10.0]
    change = paired_change(values, baseline)
    assert change is not None
    assert change.mean == pytest.approx(-0.1)
    assert change.half == pytest.approx(0.0, abs=1e-12)
    assert paired(values, baseline).mean == pytest.approx(-37.0)


def test_nothing_is_a_share_of_zero() -> None:
    assert paired_change([1.0, 2.0], [0.0, 1.0]) is None


@pytest.mark.parametrize("processes", [1, 2])
def test_results_stand_by_cell_policy_and_seed(processes: int) -> None:
    cells = [workload_cell(ClusterShape(nodes, 4), RandomWorkload(jobs=4)) for nodes in (2, 4)]
    policies = [POLICIES["default"], POLICIES["gang+locality"]]
    done: list[None] = []
    found = run_experiment(
        cells, policies, [3, 4], SimulationSettings(), processes=processes, on_run=lambda: done.append(None)
    )
    assert [each.cell for each in found] == cells
    assert len(done) == 8
    for findings in found:
        for policy in policies:
            cell = findings.cell
            runs = [simulate(cell.jobs(seed), cell.shape, policy, SimulationSettings()) for seed in (3, 4)]
            assert [each.measures for each in findings.by_policy[policy.name]] == [measures(run) for run in runs]


def test_only_the_first_seed_has_its_ledger_kept() -> None:
    cell = workload_cell(ClusterShape(2, 4), RandomWorkload(jobs=3))
    (findings,) = run_experiment([cell], [POLICIES["gang"]], [1, 2], SimulationSettings(), processes=1)
    assert [each.ledger is not None for each in findings.by_policy["gang"]] == [True, False]
