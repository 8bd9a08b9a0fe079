"""The rows of the page of jobs: their bounded size, and how they are selected, sorted and divided into pages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tfjob_controller.client.jobclass import JobClass
from tfjob_controller.dashboard.jobrows import JobRow, Selection, row_decoder, select
from tfjob_controller.dashboard.paging import PAGE_ROWS
from tfjob_controller.kinds.tfjob.clientkind import CLIENT_KIND as TFJOB
from tfjob_controller.kinds.trainjob.clientkind import CLIENT_KIND as TRAINJOB
from tfjob_controller.kube.meta import ObjectMeta


def row(name: str, *, kind: str = "tfjob", job_class: JobClass = JobClass.RUNNING, **fields: Any) -> JobRow:
    meta = ObjectMeta(
        name=name,
        namespace=fields.pop("namespace", "ns"),
        uid=name,
        creation_timestamp=f"2026-01-0{len(name)}T00:00:00Z",
    )
    figures = {"percent": None, "loss": None, "gpus": 0, "restarts": 0}
    values = {"cause": "", "ready": "", "progress": "", "reason": ""} | figures | fields
    return JobRow(metadata=meta, kind=kind, job_class=job_class, **values)


def names(rows: list[JobRow], **parameters: str) -> list[str]:
    return [each.metadata.name for each in select(rows, Selection.of(parameters, "")).rows]


def test_a_row_keeps_little_of_a_large_job() -> None:
    body = {
        "apiVersion": "kubeflow.org/v2alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "labels": {"l": "x" * 60}, "resourceVersion": "3"},
        "spec": {"trainer": {"image": "i", "args": ["y" * 100_000]}},
        "status": {
            "phase": "Running",
            "summary": "Running",
            "reason": "r\x1b[31m" * 1000,
            "progress": "step 40",
            "nodes": "1/2",
            "metrics": [{"name": "loss", "value": "0.25"}],
            "trainerStatus": {"progressPercentage": 40},
        },
    }
    found = row_decoder(TRAINJOB)(json.dumps(body).encode())
    assert (found.job_class, found.ready, found.progress, found.loss) == ("Running", "node 1/2", "step 40", 0.25)
    assert found.percent == 40
    assert found.metadata.labels == {}
    assert len(found.reason) < 2000
    assert "\x1b" not in found.reason


def test_a_row_says_what_is_wrong_with_a_job_that_needs_somebody() -> None:
    body = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "spec": {"numNodes": 4, "trainer": {"resourcesPerNode": {"limits": {"nvidia.com/gpu": "8"}}}},
        "status": {"phase": "Creating", "summary": "Pending", "reason": "node-0: ImagePullBackOff: no such image"},
    }
    found = row_decoder(TRAINJOB)(json.dumps(body).encode())
    assert (found.job_class, found.cause, found.gpus) == ("Needs you", "Broken image", 32)


@pytest.mark.parametrize("containers", ["x", [1], [{"resources": 3}], [{"resources": {"limits": {"a.b/gpu": "x"}}}]])
def test_a_row_of_a_job_without_a_valid_template_requests_no_gpus(containers: Any) -> None:
    replicas = {"tfReplicaType": "MASTER", "template": {"spec": {"containers": containers}}}
    body = {"metadata": {"name": "a", "namespace": "ns", "uid": "u"}, "spec": {"replicaSpecs": [replicas]}}
    assert row_decoder(TFJOB)(json.dumps(body).encode()).gpus == 0


def test_a_row_adds_up_the_gpus_of_all_replicas() -> None:
    template = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 2, "cpu": "4"}}}]}}
    entries = [{"tfReplicaType": "MASTER"}, {"tfReplicaType": "WORKER", "replicas": 3, "template": template}]
    body = {"metadata": {"name": "a", "namespace": "ns", "uid": "u"}, "spec": {"replicaSpecs": entries}}
    assert row_decoder(TFJOB)(json.dumps(body).encode()).gpus == 6


def test_the_progress_of_a_tfjob_is_a_share_of_its_steps() -> None:
    body = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "spec": {},
        "status": {"progress": {"done": 50, "total": 200}},
    }
    found = row_decoder(TFJOB)(json.dumps(body).encode())
    assert (found.progress, found.percent, found.job_class) == ("50 of 200 steps", 25, "Starting")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"sort": "name"}, ["a", "bb", "ccc"]),
        ({"sort": "-name"}, ["ccc", "bb", "a"]),
        ({}, ["bb", "a", "ccc"]),
        ({"sort": "-age"}, ["ccc", "bb", "a"]),
        ({"sort": "-gpus"}, ["a", "ccc", "bb"]),
        ({"sort": "loss"}, ["bb", "a", "ccc"]),
        ({"kind": "trainjob"}, ["bb"]),
        ({"state": "failed"}, ["ccc"]),
        ({"state": "Failed"}, ["ccc"]),
        ({"state": "Pending"}, ["bb", "a", "ccc"]),
        ({"text": "OOM"}, ["ccc"]),
        ({"text": "other", "sort": "name"}, ["bb"]),
        ({"sort": "__class__", "state": "x", "page": "-1"}, ["bb", "a", "ccc"]),
    ],
)
def test_rows_are_selected_and_sorted(parameters: dict[str, str], expected: list[str]) -> None:
    rows = [
        row("a", loss=0.5, gpus=8),
        row("bb", kind="trainjob", namespace="other", loss=0.1),
        row("ccc", job_class=JobClass.FAILED, reason="worker-1: OOMKilled"),
    ]
    assert names(rows, **parameters) == expected


@pytest.mark.parametrize(("sort", "expected"), [("loss", "abcde"), ("-loss", "bacde")])
def test_rows_without_a_loss_come_last_in_both_directions(sort: str, expected: str) -> None:
    losses = {"a": -1.0, "b": 2.0, "c": float("nan"), "d": float("-inf"), "e": None}
    assert names([row(name, loss=loss) for name, loss in losses.items()], sort=sort) == list(expected)


@pytest.mark.parametrize(("sort", "expected"), [("progress", "abc"), ("-progress", "bac")])
def test_rows_without_a_known_progress_come_last_in_both_directions(sort: str, expected: str) -> None:
    percentages = {"c": None, "a": 0, "b": 50}
    assert names([row(name, percent=percent) for name, percent in percentages.items()], sort=sort) == list(expected)


def test_counts_disregard_the_selected_state() -> None:
    shown = select([row("a"), row("bb", job_class=JobClass.FAILED)], Selection(state="failed"))
    assert (shown.counts, shown.total, shown.all) == ({"Running": 1, "Failed": 1}, 1, 2)


def test_what_needs_somebody_comes_first() -> None:
    rows = [row(job_class.slug, job_class=job_class) for job_class in reversed(JobClass)]
    assert names(rows)[0] == "needs-you"


def test_the_head_of_a_column_sorts_by_it_and_then_turns_the_order_round() -> None:
    def head(label: str, sort: str) -> tuple[str, str]:
        return next((each.sort, each.direction) for each in Selection(sort=sort).heads if each.label == label)

    assert head("Loss", "name") == ("loss", "")
    assert head("Loss", "loss") == ("-loss", "ascending")
    assert head("Loss", "-loss") == ("loss", "descending")
    # The newest job has the smallest age.
    assert head("Age", "name") == ("-age", "")
    assert head("Age", "-age") == ("age", "ascending")
    assert head("Reason", "name") == ("", "")


def test_rows_are_shown_in_pages() -> None:
    rows = [row(f"{number:04}") for number in range(PAGE_ROWS * 2 + 1)]
    last = select(rows, Selection(sort="name", page=99))
    assert (last.page, last.pages, last.total, len(last.rows)) == (3, 3, PAGE_ROWS * 2 + 1, 1)


def test_the_address_of_a_selection_leads_back_to_it() -> None:
    selection = Selection(namespace="a", kind="tfjob", state="failed", text="x y", sort="-loss", page=3)
    assert Selection.of(selection.parameters(page=3), "default") == selection
    assert Selection.of(selection.parameters(), "default").page == 1
    assert Selection.of(Selection().parameters(), "default").namespace == ""
