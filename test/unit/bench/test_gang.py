"""Tests of `make bench-gang`: the selection of its parts and the computation of its figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.auditlog import entries_of
from bench.gang import chosen
from bench.gangdriver import Round, round_of
from bench.gangshapes import means
from bench.gangworkload import Measured
from bench.gangwrites import writes_of
from bench.watcher import Printer

KNOWN = ("shapes", "writes", "churn")


def entry(verb: str, resource: str, subresource: str = "", namespace: str = "bench") -> dict[str, Any]:
    reference = {"resource": resource, "namespace": namespace, "name": "x"}
    return {"verb": verb, "objectRef": {**reference, **({"subresource": subresource} if subresource else {})}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("", ["shapes", "writes", "churn"], id="all by default"),
        pytest.param("writes", ["writes"], id="one"),
        pytest.param("churn,shapes", ["shapes", "churn"], id="in the default order"),
        pytest.param(" churn  writes ", ["writes", "churn"], id="separated by spaces"),
    ],
)
def test_parts_are_selected_by_a_variable(value: str, expected: list[str]) -> None:
    assert chosen("BENCH_PARTS", KNOWN, {"BENCH_PARTS": value}) == expected


def test_an_unknown_part_is_rejected_with_a_list_of_known_parts() -> None:
    with pytest.raises(SystemExit, match=r"BENCH_PARTS: chrun: there are shapes, writes, churn"):
        chosen("BENCH_PARTS", KNOWN, {"BENCH_PARTS": "writes,chrun"})


def test_a_round_is_measured_by_the_times_of_its_pods() -> None:
    bound = {"a": {"a-0": 13.0, "a-1": 12.0}, "b": {"b-0": 15.0, "b-1": 15.5}}
    found = round_of(10.0, {"a": 11.0, "b": 11.0}, bound)
    assert found == Round(total=5.5, latency=3.25, spreads=[1.0, 0.5])
    assert found.partly_bound == 1.5


def test_the_highest_of_twenty_spreads_is_not_their_p95() -> None:
    assert Round(0.0, 0.0, [float(number) for number in range(20, 0, -1)]).spread_p95 == 19.0


def test_the_geometric_mean_over_shapes_is_computed_per_round() -> None:
    def rounds(*totals: float) -> list[Measured]:
        return [Measured(Round(total, 0.0, []), {}) for total in totals]

    assert means([rounds(1.0, 2.0), rounds(4.0, 8.0)]) == pytest.approx([2.0, 4.0])


def test_only_writes_to_gangs_and_their_pods_are_counted() -> None:
    entries = [
        entry("create", "gangs"),
        entry("get", "gangs"),
        entry("patch", "gangs", "status"),
        entry("list", "pods"),
        entry("create", "pods"),
        entry("create", "pods", "binding"),
        entry("create", "pods", "binding"),
        entry("create", "configmaps"),
    ]
    assert writes_of(entries) == {
        "create gangs": 1,
        "patch gangs/status": 1,
        "create pods": 1,
        "create pods/binding": 2,
    }


def test_each_object_is_reported_once_with_its_label(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer("gang")
    for name in ("g-0", "g-1", "g-0"):
        printer.take({"metadata": {"name": name, "labels": {"gang": "g"}}})
    assert [line.split()[1:] for line in capsys.readouterr().out.splitlines()] == [["g", "g-0"], ["g", "g-1"]]


def test_the_audit_log_is_read_for_one_namespace_without_events_and_watches(tmp_path: Path) -> None:
    wanted = entry("create", "pods")
    others = [entry("watch", "pods"), entry("create", "events"), entry("create", "pods", namespace="other")]
    log = tmp_path / "audit.log"
    log.write_text("".join(json.dumps(item) + "\n" for item in [*others, {"verb": "get"}, wanted]))
    assert list(entries_of(log, "bench")) == [wanted]
