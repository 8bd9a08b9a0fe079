"""`make bench-simulate`: the time of the simulator for many jobs, in one process, with the default jobs.

- `simulate_1000_on_64`: 1,000 jobs, 64 nodes of 4 GPUs, gangs with locality and autoscaling; the arrival rate slightly
  exceeds the capacity of the cluster, so that a queue forms and jobs are resized.
- `simulate_10000_on_1000`: 10,000 jobs on 1,000 nodes, the same.
- `simulate_default_1000_on_64`: the first one with kube-scheduler alone, reported.
"""

from __future__ import annotations

import os
import sys
import time

from bench.report import ROUNDS, Reach, progress, report, size
from tfjob_controller.simulator.cluster import ClusterShape
from tfjob_controller.simulator.model import POLICIES, RandomWorkload, SimulationSettings
from tfjob_controller.simulator.simulation import simulate

GPUS = 4
# GPU seconds of a mean job of the default workload, including the cost of sharing; measured in a run.
_GPU_SECONDS = 800.0
# Requested capacity in relation to the available one.
_LOAD = 1.1


def measure(policy: str, jobs: int, nodes: int, seed: int) -> float:
    """Returns the seconds of one run."""
    workload = RandomWorkload(jobs=jobs, mean_arrival_seconds=_GPU_SECONDS / (_LOAD * nodes * GPUS))
    generated = workload.generate(seed)
    begin = time.perf_counter()
    run = simulate(generated, ClusterShape(nodes, GPUS), POLICIES[policy], SimulationSettings())
    seconds = time.perf_counter() - begin
    progress(f"{policy}, {jobs} jobs on {nodes} nodes: {seconds:.1f} s, {run.resizes} resizes")
    return seconds


def main() -> int:
    """Prints all figures. Returns 1 if one missed its target."""
    parts = os.environ.get("BENCH_PARTS", "small,large").split(",")
    ok = True
    if "small" in parts:
        ok &= _report("simulate_1000_on_64", "gang+locality+autoscaling", size(1000, 20), size(64, 4), ROUNDS, 20.0)
        ok &= _report("simulate_default_1000_on_64", "default", size(1000, 20), size(64, 4), ROUNDS, None)
    if "large" in parts:
        ok &= _report("simulate_10000_on_1000", "gang+locality+autoscaling", size(10_000, 30), size(1000, 8), 1, 600.0)
    return 0 if ok else 1


def _report(name: str, policy: str, jobs: int, nodes: int, rounds: int, most: float | None) -> bool:
    seconds = [measure(policy, jobs, nodes, seed) for seed in range(1, rounds + 1)]
    reach = None if most is None else Reach(max_value=most)
    return report(name, "s", seconds, reach=reach, jobs=jobs, nodes=nodes, policy=policy)


if __name__ == "__main__":
    sys.exit(main())
