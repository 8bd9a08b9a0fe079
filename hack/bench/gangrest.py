"""The cost of waiting gangs (a part of `make bench-gang`): 20 gangs of 8 where 2 fit, created in shuffled order.

First the control plane is idle, without gangs and without the gang scheduler. Then the gangs are created on the same
one, and once nothing was written for a second, CPU is measured for 20 s. Native is measured on its own control plane.

- `rest_gangs_bound`, `rest_gangs_partial`: gangs of which all pods are bound at the end of that time, and some but not
  all, in the worst round; the numbers of native are reported beside them.
- `rest_cpu_programs`: CPU of the gang scheduler and its kube-scheduler, in % of one core; reported.
- `rest_cpu_all`: the same of all programs: those two, and API server, etcd, controller manager and scheduler; baseline
  native; beside it the control plane without gangs (`idle`). Reported.
- `rest_cpu_added`: `rest_cpu_all` minus `idle`: what gang scheduling adds.

`--starvation-timeout` is 2 s, so that its status changes are written before the measurement.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.gangdriver import PODS, Driver
from bench.gangplane import Plane, Planes, cpu_seconds, gang_scheduler
from bench.gangworkload import GANGS, NATIVE, OURS, Contender, Order, Shape, clean, new_namespace
from bench.report import ROUNDS, Reach, progress, report, size
from bench.stage import rest, wait

SHAPE = Shape(size(20, tiny=4), size(8, tiny=3))
FIT = 2
NODE: Mapping[str, str] = {"cpu": "4", "memory": "16Gi", "pods": "110"}
NODES = -(-FIT * SHAPE.members // 4)
WINDOW_SECONDS = float(size(20, tiny=1))
STARVATION_SECONDS = 2.0
# A scheduler that never becomes idle has found a solution by then, or will not find one.
_SETTLE_SECONDS = float(size(5, tiny=3))
LIMIT_SECONDS = 60.0
_OF_OURS = ("extender", "gang-scheduler")

Object = dict[str, Any]
# CPU by program, in per cent of one core.
Shares = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Found:
    """One round of one contender."""

    bound: int
    partial: int
    shares: Shares

    @property
    def all(self) -> float:
        return sum(self.shares.values())

    @property
    def programs(self) -> float:
        return sum(share for name, share in self.shares.items() if name in _OF_OURS)


def report_rest(planes: Planes) -> bool:
    """Prints all figures. Returns False if one missed its target."""
    for contender in (OURS, NATIVE):
        planes.get(contender.plane).set_nodes(NODES, NODE)
    idle, ours, native = [], [], []
    for number in range(1, ROUNDS + 1):
        progress(f"waiting gangs, round {number} of {ROUNDS}")
        idle.append(measure_idle(planes.get(OURS.plane)))
        ours.append(measure_ours(planes.get(OURS.plane), number))
        native.append(measure(NATIVE, planes.get(NATIVE.plane), number, planes.get(NATIVE.plane).pids))
    return _report(idle, ours, native)


def _report(idle: list[float], ours: list[Found], native: list[Found]) -> bool:
    extra: Object = {"rounds": ROUNDS, "gangs": SHAPE.gangs, "members": SHAPE.members, "nodes": NODES}
    bound, exactly = [each.bound for each in ours], Reach(min_value=FIT, max_value=FIT)
    # Every round must reach it, not only the median.
    odd = [each for each in bound if each != FIT] or [FIT]
    ok = report("rest_gangs_bound", "gangs", odd, reach=exactly, native=[each.bound for each in native], **extra)
    partial, none = max(each.partial for each in ours), Reach(max_value=0)
    others = [each.partial for each in native]
    ok &= report("rest_gangs_partial", "gangs", [partial], reach=none, native=others, rounds=ROUNDS)
    by_program = {name: _median([each.shares[name] for each in ours]) for name in ours[0].shares}
    ok &= report("rest_cpu_programs", "% of a core", [each.programs for each in ours])
    everything: Object = {"idle": _median(idle), "by_program": by_program}
    busy = [each.all for each in native]
    ok &= report("rest_cpu_all", "% of a core", [each.all for each in ours], baselines=busy, **everything)
    added = [max(0.0, each.all - before) for each, before in zip(ours, idle, strict=True)]
    return ok & report("rest_cpu_added", "% of a core", added, reach=Reach(max_value=2.0), idle=_median(idle))


def measure_idle(plane: Plane) -> float:
    """Returns the CPU of the control plane without gangs and gang scheduler, in per cent of one core."""
    time.sleep(_SETTLE_SECONDS)
    rest(plane.api)
    found = sum(shares_of(plane.pids()).values())
    progress(f"idle: {found:.2f} % of a core")
    return found


def measure_ours(plane: Plane, seed: int) -> Found:
    with gang_scheduler(plane, f"--starvation-timeout={STARVATION_SECONDS:g}s") as programs:
        return measure(OURS, plane, seed, lambda: {**plane.pids(), **programs.pids()})


def measure(contender: Contender, plane: Plane, seed: int, pids: Callable[[], Mapping[str, int]]) -> Found:
    """Runs one round."""
    namespace = new_namespace(plane)
    with Driver(plane, namespace) as driver:
        contender.start(driver, SHAPE, Order(seed))
        try:
            driver.wait_bound(FIT * SHAPE.members, LIMIT_SECONDS)
        except TimeoutError as error:
            progress(f"{contender.plane}: {error}")
        _settle(contender, plane, namespace)
        shares = shares_of(pids())
        counts = bound_of(plane, namespace)
    clean(contender, plane, namespace)
    found = Found(counts.count(SHAPE.members), sum(0 < each < SHAPE.members for each in counts), shares)
    usage = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
    progress(f"{contender.plane}: {found.bound} gangs bound, {found.partial} partly bound; % of a core: {usage}")
    return found


def _settle(contender: Contender, plane: Plane, namespace: str) -> None:
    """Waits until the programs write nothing more; for a limited time for schedulers that never become idle."""
    time.sleep(_SETTLE_SECONDS)
    if contender is OURS:
        wait(lambda: _have_phases(plane, namespace), f"not all Gangs of {namespace} have a phase")
        rest(plane.api)


def _have_phases(plane: Plane, namespace: str) -> bool:
    return all((gang.get("status") or {}).get("phase") for gang in plane.api.list(GANGS.format(namespace)))


def bound_of(plane: Plane, namespace: str) -> list[int]:
    """Returns how many pods of each gang are bound now."""
    counts = dict.fromkeys(SHAPE.names, 0)
    for pod in plane.api.list(PODS.format(namespace)):
        counts[pod["metadata"]["labels"]["gang"]] += bool(pod["spec"].get("nodeName"))
    return list(counts.values())


def shares_of(pids: Mapping[str, int]) -> Shares:
    """Returns the CPU of each process during the window, in per cent of one core."""
    before, begin = cpu_seconds(pids), time.monotonic()
    time.sleep(WINDOW_SECONDS)
    after, seconds = cpu_seconds(pids), time.monotonic() - begin
    return {name: 100.0 * (after[name] - before[name]) / seconds for name in pids}


def _median(values: list[float]) -> float:
    return round(statistics.median(values), 2)
