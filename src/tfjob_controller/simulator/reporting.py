"""What was found, as a table for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

from tfjob_controller.simulator.experiment import Findings, Result
from tfjob_controller.simulator.intervals import Interval, interval, paired, paired_change
from tfjob_controller.simulator.jobs import SECOND
from tfjob_controller.simulator.measures import TIMES
from tfjob_controller.simulator.policy import BASELINE

_PLUS_MINUS = "\u00b1"


def heading_of(findings: Findings) -> str:
    """What stands above its table."""
    runs = len(next(iter(findings.by_policy.values())))
    return (
        f"{findings.cell.name}: {findings.cell.shape.gpus} GPUs, {runs} run{'s' if runs > 1 else ''} of each; seconds"
    )


def table_of(findings: Findings) -> Table:
    """One cell: means over seeds, with 95 % confidence intervals, of each run's mean, median and so on."""
    table = Table()
    table.add_column("policy", no_wrap=True)
    for name in TIMES:
        table.add_column(f"{name}: mean, median, P95", justify="right", no_wrap=True)
    for name in ("makespan", "allocated", "useful", "resizes", "restarts", "deadlock", "completion vs default"):
        table.add_column(name, justify="right")
    for policy in findings.by_policy:
        table.add_row(policy, *_row(findings, policy))
    return table


def _row(findings: Findings, policy: str) -> Iterable[str]:
    def of(measure: str) -> Interval:
        return interval(findings.values(policy, measure))

    for name in TIMES:
        yield f"{_number(of(f'{name}_mean'))}, {of(f'{name}_median').mean:.0f}, {of(f'{name}_p95').mean:.0f}"
    yield _number(of("makespan"))
    yield from (_percent(of(name)) for name in ("allocated", "useful"))
    yield from (f"{of(name).mean:.0f}" for name in ("resizes", "restarts", "deadlock"))
    yield _change(_change_of(findings, policy, "completion_mean"))


def summary_of(many: Sequence[Findings], measure: str) -> Table:
    """Of several cells: how much a measure differs from that of the baseline, in percent."""
    table = Table()
    table.add_column("cluster, arrivals", no_wrap=True)
    policies = [name for name in many[0].by_policy if name != BASELINE]
    for policy in policies:
        table.add_column(policy, justify="right")
    for findings in many:
        changes = (_change(_change_of(findings, policy, measure)) for policy in policies)
        table.add_row(findings.cell.name, *changes)
    return table


def _change_of(findings: Findings, policy: str, measure: str) -> Interval | None:
    if policy == BASELINE or BASELINE not in findings.by_policy:
        return None
    return paired_change(findings.values(policy, measure), findings.values(BASELINE, measure))


def _number(found: Interval) -> str:
    return f"{found.mean:.0f}" + ("" if found.half is None else f" {_PLUS_MINUS}{found.half:.0f}")


def _percent(found: Interval) -> str:
    return f"{found.mean:.1%}"


def _change(found: Interval | None) -> str:
    if found is None:
        return ""
    return f"{found.mean:+.1%}" + ("" if found.half is None else f" {_PLUS_MINUS}{found.half * 100:.1f}")


def as_json(many: Sequence[Findings], *, with_decisions: bool) -> list[dict[str, Any]]:
    """One object for each cell; numbers as they are. Decisions are those of the first seed."""
    return [_cell(findings, with_decisions=with_decisions) for findings in many]


def _cell(findings: Findings, *, with_decisions: bool) -> dict[str, Any]:
    shape = findings.cell.shape
    return {
        "name": findings.cell.name,
        "nodes": shape.nodes,
        "gpusPerNode": shape.gpus_per_node,
        "policies": {
            policy: _policy(findings, policy, results[0] if with_decisions else None)
            for policy, results in findings.by_policy.items()
        },
    }


def _policy(findings: Findings, policy: str, first: Result | None) -> dict[str, Any]:
    names = list(findings.by_policy[policy][0].measures)
    said: dict[str, Any] = {name: _interval(interval(findings.values(policy, name))) for name in names}
    if policy != BASELINE and BASELINE in findings.by_policy:
        differences = {
            name: _interval(paired(findings.values(policy, name), findings.values(BASELINE, name))) for name in names
        }
        changes = {name: _change_of(findings, policy, name) for name in names}
        said["differenceFromDefault"] = differences
        # A share of the default; nothing where that is zero.
        said["changeFromDefault"] = {name: _interval(each) for name, each in changes.items() if each is not None}
    if first is not None and first.picture is not None:
        said["decisions"] = [
            {
                "seconds": entry.moment_ms / SECOND,
                "what": entry.what,
                "job": entry.job,
                "workers": entry.workers,
                "nodes": list(entry.nodes),
                "reason": entry.reason,
            }
            for entry in first.picture.entries
        ]
    return said


def _interval(found: Interval) -> Mapping[str, float | None]:
    return {"mean": found.mean, "ci95": found.half}
