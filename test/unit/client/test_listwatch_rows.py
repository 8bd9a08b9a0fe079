"""The rows that a watch brings, whatever becomes of its connection: a scripted server, in the test's own thread."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from helpers.scripted import Answer, PatientClock, ScriptedRequester
from helpers.things import error_line
from tfjob_controller.client.listwatch import merge_rows, watch_rows
from tfjob_controller.client.reader import TABLE, Reader
from tfjob_controller.kinds.tfjob.clientkind import CLIENT_KIND as TFJOB
from tfjob_controller.kinds.trainjob.clientkind import CLIENT_KIND as TRAINJOB
from tfjob_controller.kube.errors import ApiError


def row(name: str, version: int) -> dict[str, object]:
    metadata = {"name": name, "namespace": "ns", "resourceVersion": str(version)}
    return {"cells": [name, version], "object": {"metadata": metadata}}


def table(version: int, *rows: dict[str, object]) -> dict[str, object]:
    return {"kind": "Table", "metadata": {"resourceVersion": str(version)}, "columnDefinitions": [], "rows": rows}


def line(type_: str, name: str, version: int) -> bytes:
    """As the server sends them from the second event on: with null instead of columns."""
    event = {"type": type_, "object": {**table(version, row(name, version)), "columnDefinitions": None}}
    return json.dumps(event).encode()


def played(*answers: Answer, count: int) -> tuple[list[list[object]], ScriptedRequester, list[str]]:
    """The cells of the first rows, and what was said meanwhile."""
    requester, told = ScriptedRequester(*answers), list[str]()
    reader = Reader(requester, "ns", TFJOB, "team=a")
    watch = watch_rows(requester, reader, 5, told.append, PatientClock())
    return [each.cells for each in islice(watch, count)], requester, told


def test_every_change_is_a_row_and_a_deletion_is_the_last_one() -> None:
    lines = [line("ADDED", "a", 6), line("MODIFIED", "a", 7), line("BOOKMARK", "", 8), line("DELETED", "a", 9)]
    cells, requester, told = played(lines, count=3)
    assert cells == [["a", 6], ["a", 7], ["a", 9]]
    assert requester.accepted == [TABLE]
    asked = requester.asked[0]
    assert (asked["resourceVersion"], asked["labelSelector"], asked["watch"]) == ("5", "team=a", "1")
    assert requester.paths == ["/apis/kubeflow.org/v1alpha1/namespaces/ns/tfjobs"]
    assert told == []


def test_a_watch_that_ended_goes_on_where_it_ended() -> None:
    cells, requester, _ = played(
        [line("ADDED", "a", 6), line("BOOKMARK", "", 8)],
        ApiError(503, "", "the server is down"),
        ApiError(503, "", "the server is down"),
        [line("ADDED", "b", 9), ApiError(0, "ConnectionBroken", "broken")],
        [line("ADDED", "c", 10)],
        count=3,
    )
    assert cells == [["a", 6], ["b", 9], ["c", 10]]
    assert [each["resourceVersion"] for each in requester.asked] == ["5", "8", "8", "8", "9"]


def test_a_server_that_is_away_is_said_once() -> None:
    away = ApiError(0, "ConnectionRefused", "cannot connect")
    _, _, told = played(away, away, away, [line("ADDED", "a", 6)], count=1)
    assert told == ["cannot connect; trying again"]


def test_after_a_version_that_is_compacted_away_only_what_is_newer_is_shown() -> None:
    listed = json.dumps(table(20, row("old", 3), row("new", 15))).encode()
    cells, requester, _ = played(
        [line("ADDED", "a", 6), error_line(410, "Expired")], listed, [line("ADDED", "b", 21)], count=3
    )
    assert cells == [["a", 6], ["new", 15], ["b", 21]]
    assert requester.asked[2]["resourceVersion"] == "20"


def test_what_no_waiting_changes_is_raised() -> None:
    error = ApiError(403, "Forbidden", "no")
    with pytest.raises(ApiError) as caught:
        played(error, count=1)
    assert caught.value is error


def test_rows_of_several_watches_come_with_their_place_and_one_that_cannot_go_on_ends_all() -> None:
    silent = ScriptedRequester([line("ADDED", "a", 6)], ApiError(403, "Forbidden", "no rights any more"))
    watch = watch_rows(silent, Reader(silent, "ns", TFJOB), 5, print, PatientClock())
    refused = ScriptedRequester([line("ADDED", "b", 7)], ApiError(403, "Forbidden", "no rights any more"))
    other = watch_rows(refused, Reader(refused, "ns", TRAINJOB), 5, print, PatientClock())
    found: list[tuple[int, object]] = []
    with pytest.raises(ApiError, match="no rights any more"):
        found.extend((index, each.cells) for index, each in merge_rows([watch, other]))
    assert found in ([(0, ["a", 6])], [(1, ["b", 7])], [(0, ["a", 6]), (1, ["b", 7])], [(1, ["b", 7]), (0, ["a", 6])])
