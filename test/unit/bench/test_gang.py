"""Tests of `make bench-gang`: the computation of its figures."""

from __future__ import annotations

import pytest

from bench.gang import means
from bench.gangdriver import Round, round_of
from bench.watcher import Printer


def test_a_round_is_measured_by_the_times_of_its_pods() -> None:
    bound = {"a": {"a-0": 13.0, "a-1": 12.0}, "b": {"b-0": 15.0, "b-1": 15.5}}
    measured = round_of(10.0, {"a": 11.0, "b": 11.0}, bound, {"etcd": 1.0})
    assert measured == Round(total=5.5, latency=3.25, spreads=[1.0, 0.5], cpu={"etcd": 1.0})


def test_the_highest_of_twenty_spreads_is_not_their_p95() -> None:
    assert Round(0.0, 0.0, [float(number) for number in range(20, 0, -1)], {}).spread_p95 == 19.0


def test_the_geometric_mean_over_shapes_is_computed_per_round() -> None:
    def rounds(*totals: float) -> list[Round]:
        return [Round(total, 0.0, [], {}) for total in totals]

    assert means([rounds(1.0, 2.0), rounds(4.0, 8.0)]) == pytest.approx([2.0, 4.0])


def test_each_object_is_reported_once_with_its_label(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer("gang")
    for name in ("g-0", "g-1", "g-0"):
        printer.take({"metadata": {"name": name, "labels": {"gang": "g"}}})
    assert [line.split()[1:] for line in capsys.readouterr().out.splitlines()] == [["g", "g-0"], ["g", "g-1"]]
