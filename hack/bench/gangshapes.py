"""How fast gangs start (a part of `make bench-gang`): four shapes, all of which fit, on nodes of 8 CPUs.

For each shape, the rounds of native, stock and ours alternate, each on its own control plane.

- `gangs_bound_100x10`, `gangs_bound_20x50`, `gangs_bound_1x1000` (on 200 nodes), `gangs_bound_1x1000_on_1000`: seconds
  from the first create of anything to the last pod bound; baseline native. `gangs_bound_stock_…`: the same against
  stock, reported.
- `gangs_bound_mean`, `gangs_bound_stock_mean`: the geometric mean over the shapes; omitted if `SHAPES` selects some.
- `gang_latency_…`, for shapes with several gangs: median over gangs of the time from the first create of one of its
  pods until all are bound; baseline native.
- `gang_spread_p95_…`: P95 over gangs of the time from its first pod bound to its last; native.
- `gangs_partly_bound_…`: the sum of that, gang-seconds; native.
- `gangs_cpu_…`: CPU seconds of all programs, without those that create, until the last pod is bound; baseline native,
  with stock beside it. It is more reliable than wall time on a shared machine. Reported.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.gangplane import Plane, gang_scheduler, planes
from bench.gangworkload import NATIVE, OURS, STOCK, Measured, Shape, check_native, one_round
from bench.report import ROUNDS, Reach, progress, report, size

Rounds = Mapping[str, list[Measured]]
Object = dict[str, Any]

# By name: the shape, and the number of nodes.
SHAPES: Mapping[str, tuple[Shape, int]] = {
    "100x10": (Shape(size(100, tiny=3), size(10, tiny=2)), size(200, tiny=3)),
    "20x50": (Shape(size(20, tiny=2), size(50, tiny=3)), size(200, tiny=3)),
    "1x1000": (Shape(1, size(1000, tiny=4)), size(200, tiny=3)),
    "1x1000_on_1000": (Shape(1, size(1000, tiny=4)), size(1000, tiny=5)),
}
_CONTENDERS = (NATIVE, STOCK, OURS)


def report_shapes(names: Sequence[str]) -> bool:
    """Prints all figures. Returns False if one missed its target."""
    by_shape: dict[str, Rounds] = {}
    ok = True
    with planes(*(contender.plane for contender in _CONTENDERS)) as running:
        check_native(running[NATIVE.plane])
        with gang_scheduler(running[OURS.plane]) as added:
            for name in names:
                by_shape[name] = measure(running, name, added)
                ok &= _report_shape(name, by_shape[name])
    return ok & _report_means(by_shape) if len(by_shape) == len(SHAPES) else ok


def measure(running: Mapping[str, Plane], name: str, added: Mapping[str, int]) -> Rounds:
    """Runs the rounds of the contenders in turn; `added` are the process IDs of the gang scheduler."""
    shape, nodes = SHAPES[name]
    for plane in running.values():
        plane.set_nodes(nodes)
    pids = {who: plane.pids() for who, plane in running.items()}
    pids[OURS.plane] |= added
    rounds: dict[str, list[Measured]] = {who: [] for who in running}
    for number in range(1, ROUNDS + 1):
        progress(f"{name} on {nodes} nodes, round {number} of {ROUNDS}")
        for contender in _CONTENDERS:
            who = contender.plane
            rounds[who].append(one_round(contender, running[who], shape, pids[who]))
    return rounds


def _report_shape(name: str, rounds: Rounds) -> bool:
    shape, nodes = SHAPES[name]
    extra: Object = {"gangs": shape.gangs, "members": shape.members, "nodes": nodes}

    def report_figure(
        figure: str, value: Callable[[Measured], float], baseline: str, reach: Reach | None, **more: Any
    ) -> bool:
        values, others = ([value(measured) for measured in rounds[who]] for who in (OURS.plane, baseline))
        return report(f"{figure}_{name}", "s", values, baselines=others, reach=reach, **extra, **more)

    ok = report_figure("gangs_bound", _total, "native", Reach(max_ratio=1 / 0.9))
    ok &= report_figure("gangs_bound_stock", _total, "stock", None)
    if shape.gangs > 1:
        ok &= report_figure("gang_latency", lambda measured: measured.round.latency, "native", Reach(max_ratio=0.3))
        as_native = Reach(max_ratio=1.0)
        ok &= report_figure("gang_spread_p95", lambda measured: measured.round.spread_p95, "native", as_native)
        ok &= report_figure("gangs_partly_bound", lambda measured: measured.round.partly_bound, "native", as_native)
    stock = round(statistics.median(map(_cpu, rounds["stock"])), 2)
    by_program = {who: _by_program(of_one) for who, of_one in rounds.items()}
    ok &= report_figure("gangs_cpu", _cpu, "native", None, stock=stock, by_program=by_program)
    return ok


def _by_program(rounds: Sequence[Measured]) -> Mapping[str, float]:
    """Returns the median CPU of each program."""
    return {name: round(statistics.median(measured.cpu[name] for measured in rounds), 2) for name in rounds[0].cpu}


def _cpu(measured: Measured) -> float:
    return sum(measured.cpu.values())


def _report_means(by_shape: Mapping[str, Rounds]) -> bool:
    ours, native, stock = (means([rounds[who] for rounds in by_shape.values()]) for who in ("ours", "native", "stock"))
    names = list(by_shape)
    ok = report("gangs_bound_mean", "s", ours, baselines=native, reach=Reach(max_ratio=0.75), shapes=names)
    reach = Reach(max_ratio=1 / 0.7)
    return ok & report("gangs_bound_stock_mean", "s", ours, baselines=stock, reach=reach, shapes=names)


def means(rounds: Sequence[Sequence[Measured]]) -> list[float]:
    """Returns, for each n, the geometric mean of the seconds of the n-th rounds of all shapes."""
    return [statistics.geometric_mean(map(_total, of_all)) for of_all in zip(*rounds, strict=True)]


def _total(measured: Measured) -> float:
    return measured.round.total
