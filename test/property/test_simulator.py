"""Any jobs on any small cluster, under every policy: no capacity is used twice, and no job or work is lost."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.examples import examples
from helpers.simulations import a_job, simulated
from tfjob_controller.simulator.execution import PARTIAL, PAUSED, WORKING, Segment
from tfjob_controller.simulator.model import IN_PLACE, POLICIES, RESTART, SimJob, SimulationSettings, SpeedModel
from tfjob_controller.simulator.simulation import SimulationRun, measures

NODES, GPUS = 3, 4
SPEED = SpeedModel()
# Of a second: an end is at a whole millisecond.
TICK = 0.001


@st.composite
def job_lists(draw: st.DrawFn) -> list[SimJob]:
    def job(number: int) -> SimJob:
        gpus = draw(st.sampled_from((1, 1, 1, 2)))
        workers = draw(st.integers(1, NODES * GPUS // gpus // 2))
        return a_job(
            f"job-{number:02}",
            draw(st.integers(0, 400)) / draw(st.sampled_from((1, 3))),
            workers,
            draw(st.integers(1, 2000)),
            servers=draw(st.integers(0, 2)),
            least=draw(st.integers(1, workers)),
            most=draw(st.integers(workers, 2 * workers)),
            gpus=gpus,
        )

    return [job(number) for number in range(draw(st.integers(1, 10)))]


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(25), deadline=None)
@given(job_lists(), st.sampled_from((IN_PLACE, RESTART)))
def test_a_simulation_adds_up(policy: str, jobs: list[SimJob], resize: str) -> None:
    run = simulated(jobs, NODES, GPUS, policy, SimulationSettings(SPEED, resize))
    check_everybody_ends(run, jobs)
    check_no_node_is_overcommitted(run.ledger.segments)
    check_work_is_conserved(run, jobs)
    check_sums(run)
    if POLICIES[policy].gang:
        assert not run.deadlock_ms
        assert not [each for each in run.ledger.segments if each.state == PARTIAL]
    if not POLICIES[policy].autoscaling:
        assert run.resizes == 0
    check_sizes(run, jobs, elastic=POLICIES[policy].autoscaling)
    again = simulated(jobs, NODES, GPUS, policy, SimulationSettings(SPEED, resize))
    assert again.ledger.entries == run.ledger.entries, "the same jobs, the same story"


def check_everybody_ends(run: SimulationRun, jobs: list[SimJob]) -> None:
    assert [each.job for each in run.outcomes] == jobs
    assert all(each.job.arrival_ms <= each.started_ms < each.ended_ms for each in run.outcomes)
    counts = Counter((each.what, each.job) for each in run.ledger.entries)
    assert all(counts["start", job.name] == counts["end", job.name] == 1 for job in jobs)


def check_no_node_is_overcommitted(segments: list[Segment]) -> None:
    changes: dict[str, Counter[int]] = {}
    for each in segments:
        at = changes.setdefault(each.node, Counter())
        at[each.start_ms] += each.gpus
        at[each.end_ms] -= each.gpus
    for at in changes.values():
        held = 0
        for moment in sorted(at):
            held += at[moment]
            assert 0 <= held <= GPUS


def check_work_is_conserved(run: SimulationRun, jobs: list[SimJob]) -> None:
    """What the segments of a job come to is its work; of the last tick a part may be left over."""
    entries = [each for each in run.ledger.entries if each.what in ("start", "resize")]
    for job in jobs:
        sizes = [(each.moment_ms, each.workers, len(each.nodes)) for each in entries if each.job == job.name]
        end = next(each.ended_ms for each in run.outcomes if each.job == job)
        done = 0.0
        for (start, workers, nodes), (stop, *_) in pairwise([*sizes, (end, 0, 0)]):
            rate = SPEED.speed(workers, nodes)
            done += rate * working_ms(run, job, start, stop) / 1000
        most = max(SPEED.speed(workers, nodes) for _, workers, nodes in sizes)
        assert done == pytest.approx(job.work, rel=1e-9, abs=1.01 * TICK * most)


def working_ms(run: SimulationRun, job: SimJob, start: int, stop: int) -> int:
    """Of this time, when the job made progress."""
    spans = {(each.start_ms, each.end_ms) for each in run.ledger.segments if each.job == job.name
             and each.state == WORKING}  # fmt: skip
    return sum(max(0, min(stop, until) - max(start, since)) for since, until in spans)


def check_sums(run: SimulationRun) -> None:
    found = measures(run)
    assert found["waiting_mean"] + found["elapsed_mean"] == pytest.approx(found["completion_mean"])
    assert 0 <= found["useful"] <= found["working"] + 1e-9
    assert found["working"] <= found["allocated"] + 1e-9
    assert found["allocated"] <= 1 + 1e-9
    by_state = dict.fromkeys((PARTIAL, PAUSED, WORKING), 0.0)
    for each in run.ledger.segments:
        by_state[each.state] += each.gpus * (each.end_ms - each.start_ms) / 1000
    assert by_state == pytest.approx(run.ledger.seconds)
    work = sum(job.work * job.gpus for job in (each.job for each in run.outcomes))
    assert run.ledger.useful_seconds == pytest.approx(
        work, rel=1e-6, abs=1.01 * TICK * NODES * GPUS * len(run.outcomes)
    )


def check_sizes(run: SimulationRun, jobs: list[SimJob], *, elastic: bool) -> None:
    limits = {job.name: (job.min_workers, job.max_workers) if elastic else (job.workers, job.workers) for job in jobs}
    for each in run.ledger.entries:
        if each.what in ("start", "resize"):
            least, most = limits[each.job]
            assert least <= each.workers <= most
