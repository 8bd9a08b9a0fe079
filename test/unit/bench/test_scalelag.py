"""Tests of bench.scalelag: the time from a change of a pod to the status that reports it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bench.report import rank
from bench.scalelag import changes_of, lags_in

Object = dict[str, Any]
MASTER, WORKER = "job-master-k3f9-0-aaaaa", "job-worker-k3f9-0-bbbbb"


def entry(seconds: float, resource: str, name: str, agent: str, body: Object | None = None, code: int = 200) -> Object:
    return {
        "objectRef": {"namespace": "scale", "resource": resource, "name": name, "subresource": "status"},
        "responseStatus": {"code": code},
        "stageTimestamp": datetime.fromtimestamp(seconds, UTC).isoformat(),
        "userAgent": agent,
        **({"requestObject": body} if body else {}),
    }


def pod(seconds: float, name: str, agent: str = "kwok/0.8.0", code: int = 200) -> Object:
    return entry(seconds, "pods", name, agent, code=code)


def status(seconds: float, **fields: Any) -> Object:
    return entry(seconds, "tfjobs", "job", "tfjob-controller/0.1.0", {"status": fields})


ENTRIES = [
    # A child that has no pod yet counts as Running.
    status(0.5, state="Running", phase="Creating", ready={"master": "0/1", "worker": "0/1"}),
    pod(1.0, MASTER),
    status(1.25, state="Running", phase="Running", ready={"master": "1/1", "worker": "0/1"}),
    pod(2.0, WORKER),
    pod(3.0, WORKER),
    status(4.0, ready={"worker": "1/1"}, succeededIndexes=["worker-0"]),
    pod(5.0, MASTER),
    status(5.5, state="Succeeded", phase="Done", succeededIndexes=["master-0", "worker-0"]),
]


def test_the_lag_of_the_master_ends_with_the_status_that_reports_its_state() -> None:
    assert lags_in(ENTRIES, "scale").master == pytest.approx([0.25, 0.5])


def test_the_lag_of_a_replica_ends_with_the_first_status_that_counts_it() -> None:
    assert lags_in(ENTRIES, "scale").replicas == pytest.approx([0.25, 2.0, 1.0, 0.5])


def test_rejected_writes_and_writes_of_other_programs_are_ignored() -> None:
    noise = [pod(0.5, MASTER, code=409), pod(0.6, MASTER, agent="kube-scheduler/v1.36.3"), pod(0.7, "unknown")]
    assert lags_in([*noise, *ENTRIES], "scale") == lags_in(ENTRIES, "scale")


def test_a_pod_that_is_stopped_after_the_job_ended_has_no_lag() -> None:
    stopped = "job-worker-k3f9-1-ccccc"
    more = [*ENTRIES, pod(5.1, stopped), pod(6.0, stopped)]
    assert len(lags_in(more, "scale").replicas) == 4


def test_other_namespaces_do_not_count() -> None:
    assert not changes_of(ENTRIES, "another")


def test_a_percentile_is_an_observed_value() -> None:
    assert (rank([3.0, 1.0, 2.0], 0.5), rank([1.0, 2.0], 0.99)) == (2.0, 2.0)
