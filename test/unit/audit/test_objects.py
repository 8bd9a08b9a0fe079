"""Tests of audit.objects and audit.quantity: the auditor's own parsers."""

from __future__ import annotations

from typing import Any

import pytest

from audit.objects import gang_of, pod_of, requests_of
from audit.quantity import thousandths


def test_quantities_are_parsed_as_in_the_api_server() -> None:
    quantities = {"2": 2000, "100m": 100, "0.5": 500, ".5": 500, "1Ki": 1_024_000, "1E": 10**21, "1u": 1}
    quantities |= {"2e3": 2_000_000, "1e-1": 100}
    assert {text: thousandths(text) for text in quantities} == quantities


@pytest.mark.parametrize("text", ["", "1Xi", "1e"])
def test_an_invalid_quantity_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"quantity|unit"):
        thousandths(text)


def container(cpu: str, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}, **more}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [container("1"), container("2")]}, 3000),
        ({"containers": [container("1")], "initContainers": [container("4")]}, 4000),
        ({"containers": [container("1")], "initContainers": [container("1", restartPolicy="Always")]}, 2000),
        (
            {
                "containers": [container("1")],
                "initContainers": [container("1", restartPolicy="Always"), container("5")],
            },
            6000,
        ),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1250),
    ],
    ids=["sum", "init container", "sidecar", "sidecar beside an init container", "overhead"],
)
def test_requests_are_computed_as_in_kube_scheduler(spec: dict[str, Any], cpu: int) -> None:
    assert requests_of(spec) == {"cpu": cpu, "pods": 1000}


def test_an_invalid_gang_is_never_reported_to_fit() -> None:
    meta = {"name": "g", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = {"members": [{"name": "worker", "count": 1, "resources": {"cpu": "much"}}]}
    gang = gang_of({"metadata": meta, "spec": spec, "status": {"queuedTime": "yesterday"}})
    assert not gang.needs[0].is_plain
    assert gang.since == 0.0


@pytest.mark.parametrize(
    ("labels", "member"),
    [
        ({"scheduling.kubeflow.org/member": "worker-3"}, "worker-3"),
        ({"scheduling.kubeflow.org/member-kind": "node", "batch.kubernetes.io/job-completion-index": "17"}, "node-17"),
        ({"scheduling.kubeflow.org/member-kind": "node"}, ""),
        ({"batch.kubernetes.io/job-completion-index": "17"}, ""),
    ],
)
def test_a_member_is_identified_by_its_name_or_its_index(labels: dict[str, str], member: str) -> None:
    body = {"metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": labels}, "spec": {"containers": []}}
    assert pod_of(body).member == member
