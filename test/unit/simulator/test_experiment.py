"""The rules of many runs: every result is where it belongs, whoever made it and when."""

from __future__ import annotations

import pytest

from tfjob_controller.simulator.cluster import ClusterShape
from tfjob_controller.simulator.experiment import SimulationTask, run_experiment, run_task, workload_cell
from tfjob_controller.simulator.jobs import RandomWorkload
from tfjob_controller.simulator.policies import POLICIES, SimulationSettings


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
            expected = [
                run_task(SimulationTask(findings.cell, policy, seed, SimulationSettings())).measures for seed in (3, 4)
            ]
            assert [each.measures for each in findings.by_policy[policy.name]] == expected


def test_only_the_first_seed_has_its_details_kept() -> None:
    cell = workload_cell(ClusterShape(2, 4), RandomWorkload(jobs=3))
    (findings,) = run_experiment([cell], [POLICIES["gang"]], [1, 2], SimulationSettings(), processes=1)
    assert [each.details is not None for each in findings.by_policy["gang"]] == [True, False]
