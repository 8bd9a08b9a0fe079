"""Tests of `make bench-gang`: the selection of its parts and the computation of its figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.auditlog import entries_of
from bench.boundpods import Printer
from bench.gang import LIMIT_SECONDS, chosen, run
from bench.gangdriver import Round, round_of
from bench.gangmemory import pod_of
from bench.gangplane import Planes
from bench.gangshapes import means
from bench.gangworkload import Measured, Order
from bench.gangwrites import writes_of
from helpers.fakeclock import FakeClock

KNOWN = ("shapes", "rest", "churn")


def entry(verb: str, resource: str, subresource: str = "", namespace: str = "bench") -> dict[str, Any]:
    reference = {"resource": resource, "namespace": namespace, "name": "x"}
    return {"verb": verb, "objectRef": {**reference, **({"subresource": subresource} if subresource else {})}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("", ["shapes", "rest", "churn"], id="all by default"),
        pytest.param("rest", ["rest"], id="one"),
        pytest.param("churn,shapes", ["shapes", "churn"], id="in the default order"),
        pytest.param(" churn  rest ", ["rest", "churn"], id="separated by spaces"),
    ],
)
def test_parts_are_selected_by_a_variable(value: str, expected: list[str]) -> None:
    assert chosen("BENCH_PARTS", KNOWN, {"BENCH_PARTS": value}) == expected


def test_an_unknown_part_is_rejected_with_a_list_of_known_parts() -> None:
    with pytest.raises(SystemExit, match=r"BENCH_PARTS: chrun: there are shapes, rest, churn"):
        chosen("BENCH_PARTS", KNOWN, {"BENCH_PARTS": "rest,chrun"})


def test_a_part_that_cannot_start_within_the_time_limit_is_skipped_with_a_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock, ran = FakeClock(), []

    def part(name: str, seconds: float) -> tuple[str, Callable[[Planes], bool]]:
        def measure(_: Planes) -> bool:
            ran.append(name)
            clock.advance(seconds)
            return True

        return name, measure

    with Planes() as planes:
        assert run(planes, [part("short", 1.0)], clock.monotonic)
        assert not run(planes, [part("long", LIMIT_SECONDS + 1), part("late", 1.0)], clock.monotonic)
    assert ran == ["short", "long"]
    assert "late: skipped" in capsys.readouterr().err


def test_a_part_that_misses_its_target_does_not_prevent_the_next_one() -> None:
    ran: list[str] = []

    def good(_: Planes) -> bool:
        ran.append("good")
        return True

    with Planes() as planes:
        assert not run(planes, [("bad", lambda _: False), ("good", good)])
    assert ran == ["good"]


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


def test_a_seed_determines_the_order() -> None:
    numbers = list(range(50))
    assert Order().of(numbers) == numbers
    assert Order(1).of(numbers) == Order(1).of(numbers) != Order(2).of(numbers)
    assert sorted(Order(1).of(numbers)) == numbers


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


def test_each_bound_pod_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer()
    for name in ("g-0", "g-1", "g-0"):
        printer.take({"metadata": {"name": name, "labels": {"gang": "g"}}})
    assert [line.split()[1:] for line in capsys.readouterr().out.splitlines()] == [["g", "g-0"], ["g", "g-1"]]


def test_the_audit_log_is_read_for_one_namespace_without_events_and_watches(tmp_path: Path) -> None:
    wanted = entry("create", "pods")
    others = [entry("watch", "pods"), entry("create", "events"), entry("create", "pods", namespace="other")]
    log = tmp_path / "audit.log"
    log.write_text("".join(json.dumps(each) + "\n" for each in [*others, {"verb": "get"}, wanted]))
    assert list(entries_of(log, "bench")) == [wanted]


def test_a_pod_of_the_large_cluster_mounts_only_its_own_volumes() -> None:
    spec = pod_of("gang-0000", "worker-1", "node-1", 1)["spec"]
    (container,) = spec["containers"]
    assert {each["name"] for each in container["volumeMounts"]} <= {each["name"] for each in spec["volumes"]}
    assert not any("persistentVolumeClaim" in each for each in spec["volumes"])
    assert spec["nodeName"] == "node-1"
