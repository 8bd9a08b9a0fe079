"""The shipped dashboards as pictures: every panel is drawn from its own queries."""

from __future__ import annotations

from typing import Any

import pytest

from demo.pictures import BYTES, PER_SECOND, SECONDS, SHARE, Line, draw, formatted, lines_of
from helpers.monitoringfiles import DASHBOARDS

Object = dict[str, Any]


def two_series(_: str) -> list[Object]:
    return [
        {"metric": {"pod": "a", "namespace": "ns"}, "values": [[100, "1"], [102, "2.5"]]},
        {"metric": {}, "values": [[100, "0"]]},
    ]


@pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS.keys())
def test_every_panel_is_drawn_and_without_series_says_so(dashboard: Object) -> None:
    titles = [panel["title"] for panel in dashboard["panels"]]
    nothing: list[Object] = [{"metric": {}, "values": [[100, "NaN"]]}]
    for ask, words in ((two_series, set()), (lambda _: [], {"no data"}), (lambda _: nothing, {"no data"})):
        figure = draw(dashboard, ask, (0, 200))
        drawn = [axes.get_title(loc="left") or axes.texts[0].get_text() for axes in figure.axes]
        assert drawn == titles
        texts = {text.get_text() for axes in figure.axes for text in axes.texts if axes.get_title(loc="left")}
        assert texts == words


def test_grafana_s_variables_are_replaced_and_legends_filled_in() -> None:
    asked: list[str] = []

    def ask(expr: str) -> list[Object]:
        asked.append(expr)
        return two_series(expr)

    target = {"expr": 'rate(a{namespace=~"$namespace"}[$__rate_interval])', "legendFormat": "{{pod}} of {{namespace}}"}
    lines = list(lines_of({"targets": [target]}, ask))
    assert asked == ['rate(a{namespace=~".*"}[60s])']
    assert lines == [Line("a of ns", (100.0, 102.0), (1.0, 2.5)), Line("of", (100.0,), (0.0,))]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.25, SHARE, "25 %"),
        (0.005, SECONDS, "5 ms"),
        (0, SECONDS, "0 s"),
        (12, SECONDS, "12 s"),
        (3 << 20, BYTES, "3 MiB"),
        (1500, "short", "1.5 K"),
        (0.5, PER_SECOND, "0.5/s"),
    ],
)
def test_values_have_their_unit(value: float, unit: str, text: str) -> None:
    assert formatted(value, unit) == text
