"""Dashboards as Grafana takes them: laid out without gaps in meaning, and each panel with what it needs."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from helpers.monitoringfiles import DASHBOARDS

COLUMNS = 24

Object = dict[str, Any]


@pytest.fixture(params=DASHBOARDS)
def dashboard(request: pytest.FixtureRequest) -> Object:
    return DASHBOARDS[request.param]


def test_a_dashboard_s_file_has_the_name_of_its_uid() -> None:
    assert {name: board["uid"] for name, board in DASHBOARDS.items()} == {name: name for name in DASHBOARDS}


def cells(panel: Object) -> set[tuple[int, int]]:
    place = panel["gridPos"]
    columns, lines = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
    return set(itertools.product(columns, lines))


def test_no_panel_covers_another_or_leaves_the_page(dashboard: Object) -> None:
    taken = [cell for panel in dashboard["panels"] for cell in cells(panel)]
    assert len(taken) == len(set(taken))
    assert {column for column, _ in taken} == set(range(COLUMNS))


def test_panels_and_their_queries_have_ids_of_their_own(dashboard: Object) -> None:
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    for panel in dashboard["panels"]:
        letters = [target["refId"] for target in panel.get("targets", ())]
        assert len(letters) == len(set(letters))


def test_every_panel_says_what_it_shows_in_which_unit_and_from_where(dashboard: Object) -> None:
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert all(panel["description"] and panel["fieldConfig"]["defaults"]["unit"] for panel in panels)
    sources = {panel["datasource"]["uid"] for panel in panels}
    assert sources == {"${datasource}"}
    assert "datasource" in [each["name"] for each in dashboard["templating"]["list"]]


def test_a_variable_is_there_if_and_only_if_a_query_uses_it(dashboard: Object) -> None:
    exprs = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    names = {each["name"] for each in dashboard["templating"]["list"]} - {"datasource"}
    assert names == ({"namespace"} if any("$namespace" in expr for expr in exprs) else set())
