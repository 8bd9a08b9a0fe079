"""Tables as text and as HTML, of what strangers wrote."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from helpers.clusterinmemory import running_world
from tfjob_controller.client.diagnostics.description import describe
from tfjob_controller.client.diagnostics.replicas import replica_views
from tfjob_controller.client.text import Table, age, ago, fold

NOW = datetime(2026, 1, 2, tzinfo=UTC)
EVIL = "<script>alert('x')</script>"


def table(*items: str) -> Table[str]:
    return Table(items, {"Name": str, "Length": lambda item: str(len(item)) if item else ""})


def test_a_table_is_a_sequence_that_stays_one() -> None:
    rows = table("a", "bb", "ccc")
    assert (len(rows), rows[1], list(rows[1:]), "bb" in rows) == (3, "bb", ["bb", "ccc"], True)
    assert "NAME  LENGTH\nbb    2" in repr(rows[1:2])


def test_as_html_everything_is_escaped() -> None:
    shown = table(EVIL)._repr_html_()
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown


def test_as_text_a_cell_stays_on_its_line_and_rules_no_terminal() -> None:
    assert repr(table("a\nb\x1b[2J", "")).splitlines()[1:] == ["a b\\x1b[2J  7", "-           -"]


def test_an_empty_table_says_so() -> None:
    assert (repr(table()), table()._repr_html_()) == ("(none)", "<p>(none)</p>")


def test_a_description_as_html_is_escaped() -> None:
    cluster = running_world()
    cluster.exits("worker-0", 1, "Error", EVIL)
    views = replica_views(cluster.job, cluster.observed, cluster.now)
    shown = describe(cluster.job, views, lambda uid: [])._repr_html_()
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert "worker-0" in shown


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172800, "2d"), (-5, "0s")]
)
def test_ages_are_said_in_the_unit_that_people_use(seconds: int, words: str) -> None:
    assert age((NOW - timedelta(seconds=seconds)).isoformat(), NOW) == words
    assert age(None, NOW) == ""


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "yesterday"])
def test_a_time_that_is_none_is_called_invalid(text: str) -> None:
    assert (age(text, NOW), ago(text, NOW)) == ("<invalid>", "<invalid>")


@pytest.mark.parametrize("piece", ["\u0301", "\uff21 "], ids=["marks", "wide words"])
def test_a_long_text_is_folded_in_linear_time(piece: str) -> None:
    begin = time.thread_time()
    fold(piece * 200_000, 200)
    assert time.thread_time() - begin < 3.0
