"""The rows of the page of jobs: their bounded size, and how they are selected, sorted and divided into pages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tfjob_controller.dashboard.jobrows import PAGE_ROWS, JobRow, Selection, row_decoder, select
from tfjob_controller.kinds.tfjob.clientkind import CLIENT_KIND as TFJOB
from tfjob_controller.kinds.trainjob.clientkind import CLIENT_KIND as TRAINJOB
from tfjob_controller.kube.meta import ObjectMeta


def row(name: str, *, kind: str = "tfjob", state: str = "Running", **fields: Any) -> JobRow:
    meta = ObjectMeta(
        name=name,
        namespace=fields.pop("namespace", "ns"),
        uid=name,
        creation_timestamp=f"2026-01-0{len(name)}T00:00:00Z",
    )
    values = {"ready": "", "progress": "", "percent": None, "loss": None, "restarts": 0, "reason": ""} | fields
    return JobRow(metadata=meta, kind=kind, state=state, **values)


def names(rows: list[JobRow], **parameters: str) -> list[str]:
    return [each.metadata.name for each in select(rows, Selection.of(parameters, "")).rows]


def test_a_row_keeps_little_of_a_large_job() -> None:
    body = {
        "apiVersion": "kubeflow.org/v2alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "labels": {"l": "x" * 60}, "resourceVersion": "3"},
        "spec": {"trainer": {"image": "i", "args": ["y" * 100_000]}},
        "status": {
            "summary": "Running",
            "reason": "r\x1b[31m" * 1000,
            "progress": "step 40",
            "nodes": "1/2",
            "metrics": [{"name": "loss", "value": "0.25"}],
            "trainerStatus": {"progressPercentage": 40},
        },
    }
    found = row_decoder(TRAINJOB)(json.dumps(body).encode())
    assert (found.state, found.ready, found.progress, found.loss) == ("Running", "node 1/2", "step 40", 0.25)
    assert found.percent == 40
    assert found.metadata.labels == {}
    assert len(found.reason) < 2000
    assert "\x1b" not in found.reason


def test_the_state_of_a_row_is_short_and_printable() -> None:
    body = {
        "apiVersion": "kubeflow.org/v2alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "status": {"summary": "Run\x1b[31m\u202e" * 1000},
    }
    state = row_decoder(TRAINJOB)(json.dumps(body).encode()).state
    assert state.isprintable()
    assert len(state) < 2000


def test_the_progress_of_a_tfjob_is_a_share_of_its_steps() -> None:
    body = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "spec": {},
        "status": {"progress": {"done": 50, "total": 200}},
    }
    found = row_decoder(TFJOB)(json.dumps(body).encode())
    assert (found.progress, found.percent, found.state) == ("50 of 200 steps", 25, "New")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"sort": "name"}, ["a", "bb", "ccc"]),
        ({"sort": "-name"}, ["ccc", "bb", "a"]),
        ({}, ["ccc", "bb", "a"]),
        ({"sort": "loss"}, ["bb", "a", "ccc"]),
        ({"kind": "trainjob"}, ["bb"]),
        ({"state": "Failed"}, ["ccc"]),
        ({"text": "OOM"}, ["ccc"]),
        ({"text": "other", "sort": "name"}, ["bb"]),
        ({"sort": "__class__", "state": "x", "page": "-1"}, ["ccc", "bb", "a"]),
    ],
)
def test_rows_are_selected_and_sorted(parameters: dict[str, str], expected: list[str]) -> None:
    rows = [
        row("a", loss=0.5),
        row("bb", kind="trainjob", namespace="other", loss=0.1),
        row("ccc", state="Failed", reason="worker-1: OOMKilled"),
    ]
    assert names(rows, **parameters) == expected


def test_counts_disregard_the_selected_state() -> None:
    rows = [row("a"), row("bb", state="Failed")]
    assert select(rows, Selection(state="Failed")).counts == {"Running": 1, "Failed": 1}


def test_rows_are_shown_in_pages() -> None:
    rows = [row(f"{number:04}") for number in range(PAGE_ROWS * 2 + 1)]
    last = select(rows, Selection(sort="name", page=99))
    assert (last.page, last.pages, last.total, len(last.rows)) == (3, 3, PAGE_ROWS * 2 + 1, 1)


def test_the_address_of_a_selection_leads_back_to_it() -> None:
    selection = Selection(namespace="a", kind="tfjob", state="Failed", text="x y", sort="-loss", page=3)
    assert Selection.of(selection.parameters(page=3), "default") == selection
    assert Selection.of(selection.parameters(), "default").page == 1
    assert Selection.of(Selection().parameters(), "default").namespace == ""
