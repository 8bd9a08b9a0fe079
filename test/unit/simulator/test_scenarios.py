"""Small cases that were worked out by hand: who starts and ends when, under each policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from helpers.simulations import AT_ONCE, ROUND, a_job, decisions, simulated, times
from tfjob_controller.simulator.model import RESTART, SimulationError, SimulationSettings

TWO_OF_TWO = [a_job("a", 0, 2, 200, servers=1), a_job("b", 1, 2, 200, servers=1)]
LINE = [a_job("a", 0, 3, 300), a_job("b", 1, 2, 100), a_job("c", 2, 1, 50)]


@pytest.mark.parametrize(
    ("policy", "ends"),
    [
        # Its pods come one by one to the emptier of two nodes: each job is on both, and half as fast.
        pytest.param("default", {"a": 200, "b": 201}, id="default"),
        # The fullest node takes what it can: b's server comes to a's node, its workers to the other.
        pytest.param("locality", {"a": 100, "b": 201}, id="locality"),
        pytest.param("gang", {"a": 200, "b": 201}, id="gang"),
        pytest.param("gang+locality", {"a": 100, "b": 101}, id="gang+locality"),
    ],
)
def test_two_jobs_on_two_nodes(policy: str, ends: Mapping[str, float]) -> None:
    assert {name: end for name, (_, end) in times(simulated(TWO_OF_TWO, 2, 2, policy)).items()} == ends


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        # b takes the one GPU that is left, and holds it in vain until a ends: c has to wait for it.
        pytest.param("default", {"a": (0, 100), "b": (100, 150), "c": (100, 150)}, id="default"),
        pytest.param("locality", {"a": (0, 100), "b": (100, 150), "c": (100, 150)}, id="locality"),
        # b holds nothing, so c runs before it.
        pytest.param("gang", {"a": (0, 100), "b": (100, 150), "c": (2, 52)}, id="gang"),
        pytest.param("gang+locality", {"a": (0, 100), "b": (100, 150), "c": (2, 52)}, id="gang+locality"),
    ],
)
def test_a_job_that_lacks_a_pod(policy: str, expected: Mapping[str, tuple[float, float]]) -> None:
    assert times(simulated(LINE, 1, 4, policy)) == expected


def test_what_a_part_of_a_job_holds_is_counted() -> None:
    run = simulated(LINE, 1, 4, "default")
    assert run.ledger.seconds == {"partial": 99.0, "paused": 0.0, "working": 300.0 + 100.0 + 50.0}
    assert run.deadlock_ms == 0, "a works, and will give its room back"


def test_a_gang_that_has_waited_long_is_not_overtaken() -> None:
    """c comes when b has waited for the starvation timeout: its one GPU is held for b."""
    late = [*LINE[:2], a_job("c", 40, 1, 50)]
    assert times(simulated(late, 1, 4, "gang+locality"))["c"] == (100, 150)


def test_a_deadlock_lasts_until_somebody_ends_it() -> None:
    """Pods of both are made in turns: each gets two of four GPUs. The younger is deleted; its pods come last."""
    jobs = [a_job("a", 0, 4, 400), a_job("b", 0, 4, 400)]
    run = simulated(jobs, 1, 4, "default", SimulationSettings(speed=ROUND, deadlock_timeout_seconds=600.0))
    assert times(run) == {"a": (600.3, 700.3), "b": (700.3, 800.3)}
    assert (run.deadlock_ms, run.evictions) == (600_000, 1)
    assert decisions(run, "evict") == [(600.3, "evict", "b", 2)]


def test_a_deadlock_is_ended_though_pods_of_others_are_being_made() -> None:
    jobs = [a_job("a", 0, 4, 400), a_job("b", 0, 4, 400), a_job("c", 600.25, 4, 400)]
    run = simulated(jobs, 1, 4, "default", SimulationSettings(speed=ROUND, deadlock_timeout_seconds=600.0))
    assert times(run)["a"] == (600.3, 700.3)
    assert run.evictions >= 1


def test_the_pods_of_a_gang_take_time_to_be_made() -> None:
    run = simulated(
        [a_job("a", 0, 4, 400, servers=1)], 1, 4, "gang+locality", SimulationSettings(speed=ROUND, pod_seconds=0.1)
    )
    assert times(run) == {"a": (0, 100.5)}
    assert run.ledger.seconds["paused"] == 0.5 * 4


# One node of four GPUs. b waits from 10 s on; at 40 s a gives it two; at 100 s, a minute after that, a grows again.
SHRINKING = [a_job("a", 0, 4, 400, least=2, most=4), a_job("b", 10, 2, 100)]


@pytest.mark.parametrize("policy", ["gang+autoscaling", "gang+locality+autoscaling"])
def test_a_job_shrinks_for_one_that_waits_and_grows_again(policy: str) -> None:
    run = simulated(SHRINKING, 1, 4, policy)
    assert times(run) == {"a": (0, 140), "b": (40, 90)}
    assert decisions(run, "resize") == [(40, "resize", "a", 2), (100, "resize", "a", 3)]
    assert (run.resizes, run.restarts) == (2, 0)


def test_a_restart_costs_its_time_at_each_resize() -> None:
    """a works 0-40 with 4, 70-100 with 2, 130-160 with 3, and from 190 on with 4."""
    run = simulated(SHRINKING, 1, 4, "gang+locality+autoscaling", SimulationSettings(ROUND, RESTART, pod_seconds=0.0))
    assert times(run) == {"a": (0, 212.5), "b": (40, 90)}
    assert (run.resizes, run.restarts) == (3, 3)
    assert run.ledger.seconds["paused"] == 30 * 2 + 30 * 3 + 30 * 4


FILLING = [a_job("a", 0, 3, 300), a_job("b", 1, 2, 199, least=1, most=2)]


def test_an_elastic_job_starts_with_what_there_is_and_is_filled_up() -> None:
    """One node of four: a has three, b starts with one of its two, and gets the second when a has ended."""
    run = simulated(FILLING, 1, 4, "gang+locality+autoscaling")
    assert times(run) == {"a": (0, 100), "b": (1, 150)}
    assert decisions(run, "start", "resize") == [(0, "start", "a", 3), (1, "start", "b", 1), (100, "resize", "b", 2)]


@pytest.mark.parametrize("policy", ["default", "gang", "gang+locality+autoscaling"])
def test_a_job_that_never_fits_is_refused(policy: str) -> None:
    with pytest.raises(SimulationError, match="a does not fit an empty cluster of 2 nodes with 4 GPUs"):
        simulated([a_job("a", 0, 1, 10, gpus=5)], 2, 4, policy)


def test_a_gang_that_does_not_fit_spread_is_where_the_live_placement_put_it() -> None:
    """a has a node's GPUs. Spread, b's servers would take the CPUs that its workers need on the other."""
    jobs = [a_job("a", 0, 1, 100, gpus=2), a_job("b", 1, 2, 100, servers=160)]
    run = simulated(jobs, 2, 2, "gang", AT_ONCE)
    assert times(run)["b"][0] == 1
    assert [each.node for each in run.ledger.segments if each.job == "b"] == ["node-2"]


def test_a_preempted_job_loses_what_it_has_done_since_its_last_checkpoint() -> None:
    """a has four GPUs, and is preempted after 85 s by b, which came at 75 s. It did 60 s before its checkpoint."""
    jobs = [a_job("a", 0, 4, 400), replace(a_job("b", 75, 4, 200), priority=1, namespace="urgent")]
    run = simulated(jobs, 1, 4, "gang+locality+preemption", replace(AT_ONCE, checkpoint_seconds=60.0))
    restart = AT_ONCE.speed.restart_seconds
    assert times(run) == {"a": (0, 135 + restart + 40), "b": (85, 135)}
    assert run.preemptions == 1
    assert run.wasted_seconds == pytest.approx(4 * 25)


def test_a_job_that_has_just_started_is_not_preempted() -> None:
    jobs = [a_job("a", 0, 4, 400), replace(a_job("b", 5, 4, 200), priority=1)]
    run = simulated(jobs, 1, 4, "gang+locality+preemption")
    assert times(run)["b"][0] == 60


def test_in_fair_order_a_flood_does_not_keep_others_out() -> None:
    flood = [replace(a_job(f"f{number}", number, 4, 400), namespace="flood") for number in range(3)]
    team = replace(a_job("t", 50, 4, 400), namespace="team")
    by_age = times(simulated([*flood, team], 1, 4, "gang+locality"))["t"][0]
    fair = times(simulated([*flood, team], 1, 4, "gang+locality+fair"))["t"][0]
    assert (by_age, fair) == (300, 200)
