"""Small simulations with round numbers: two workers work twice as fast, a spread job half as fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfjob_controller.simulator.cluster import ClusterShape
from tfjob_controller.simulator.model import POLICIES, SimJob, SimulationSettings, SpeedModel, ms
from tfjob_controller.simulator.simulation import SimulationRun, simulate

ROUND = SpeedModel(doubling=1.0, spread=0.5, restart_seconds=30.0)
AT_ONCE = SimulationSettings(speed=ROUND, pod_seconds=0.0)


def a_job(
    name: str,
    arrival: float,
    workers: int,
    work: float,
    *,
    servers: int = 0,
    least: int | None = None,
    most: int | None = None,
    gpus: int = 1,
    indexed: bool = False,
) -> SimJob:
    return SimJob(
        name, ms(arrival), servers, workers, workers if least is None else least, workers if most is None else most,
        work, gpus, indexed,
    )  # fmt: skip


def simulated(
    jobs: Sequence[SimJob], nodes: int, gpus: int, policy: str, settings: SimulationSettings = AT_ONCE
) -> SimulationRun:
    return simulate(jobs, ClusterShape(nodes, gpus), POLICIES[policy], settings, detailed=True)


def times(run: SimulationRun) -> Mapping[str, tuple[float, float]]:
    """Returns when each job started and ended, in seconds."""
    return {each.job.name: (each.started_ms / 1000, each.ended_ms / 1000) for each in run.outcomes}


def decisions(run: SimulationRun, *what: str) -> list[tuple[Any, ...]]:
    """Returns time, kind, job and workers of each decision of the given kinds."""
    return [(each.moment_ms / 1000, each.what, each.job, each.workers) for each in run.ledger.entries
            if each.what in what]  # fmt: skip
