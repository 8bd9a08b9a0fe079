"""Gangs that are created and deleted on a small cluster (a part of `make bench-gang`).

12 gangs of 8 on 4 nodes of 4 CPUs, which fit two at a time, created in shuffled order. Each runs for a second after its
last pod is bound, and is then deleted with its pods.

- `churn_placed`: how many were bound in the worst round; all must be. The number of native is reported beside it.
- `churn_makespan`: seconds from the first create until the last one has run; baseline native. The limit of 120 s if not
  all were placed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.gangdriver import Driver
from bench.gangplane import Plane, Planes, gang_scheduler
from bench.gangworkload import NATIVE, OURS, Contender, Order, Shape, clean, new_namespace, remove
from bench.report import ROUNDS, Reach, progress, report, size

SHAPE = Shape(size(12, tiny=3), size(8, tiny=2))
NODE: Mapping[str, str] = {"cpu": "4", "memory": "16Gi", "pods": "110"}
NODES = size(4, tiny=1)
RUN_SECONDS = 1.0
LIMIT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Found:
    """One round of one contender."""

    placed: int
    seconds: float


def report_churn(planes: Planes) -> bool:
    """Prints both figures. Returns False if one missed its target."""
    for contender in (OURS, NATIVE):
        planes.get(contender.plane).set_nodes(NODES, NODE)
    ours, native = [], []
    with gang_scheduler(planes.get(OURS.plane)):
        for number in range(1, ROUNDS + 1):
            progress(f"churn, round {number} of {ROUNDS}")
            native.append(measure(NATIVE, planes.get(NATIVE.plane), number))
            ours.append(measure(OURS, planes.get(OURS.plane), number))
    every = Reach(min_value=SHAPE.gangs)
    extra: dict[str, Any] = {"gangs": SHAPE.gangs, "members": SHAPE.members, "nodes": NODES}
    least = min(each.placed for each in native)
    worst = [min(each.placed for each in ours)]
    ok = report("churn_placed", "gangs", worst, reach=every, native=least, rounds=ROUNDS, **extra)
    values, others = ([each.seconds for each in found] for found in (ours, native))
    return ok & report("churn_makespan", "s", values, baselines=others, reach=Reach(max_ratio=1.0), **extra)


def measure(contender: Contender, plane: Plane, seed: int) -> Found:
    """Runs one round."""
    namespace = new_namespace(plane)

    def run(gang: str) -> None:
        driver.submit_later(RUN_SECONDS, lambda: remove(contender, driver, gang))

    with Driver(plane, namespace, members=SHAPE.members, when_whole=run) as driver:
        contender.start(driver, SHAPE, Order(seed))
        try:
            driver.wait_bound(SHAPE.pods, LIMIT_SECONDS)
            seconds = driver.round(SHAPE.pods).total + RUN_SECONDS
        except TimeoutError:
            seconds = LIMIT_SECONDS
        placed = sum(count == SHAPE.members for count in driver.bound().values())
    clean(contender, plane, namespace)
    progress(f"{contender.plane}: {placed} gangs placed, {seconds:.2f} s")
    return Found(placed, seconds)
