"""bench.scalelag: which status follows from which change of a pod."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bench.scalelag import changes_of, lags_in, rank

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


def status(seconds: float, **said: Any) -> Object:
    return entry(seconds, "tfjobs", "job", "tfjob-controller/0.1.0", {"status": said})


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


def test_the_master_counts_until_the_status_that_says_what_it_does() -> None:
    assert lags_in(ENTRIES, "scale").master == pytest.approx([0.25, 0.5])


def test_each_replica_counts_until_the_first_status_that_counts_it() -> None:
    assert lags_in(ENTRIES, "scale").replicas == pytest.approx([0.25, 2.0, 1.0, 0.5])


def test_what_was_refused_and_what_others_wrote_are_no_changes() -> None:
    noise = [pod(0.5, MASTER, code=409), pod(0.6, MASTER, agent="kube-scheduler/v1.36.3"), pod(0.7, "unknown")]
    assert lags_in([*noise, *ENTRIES], "scale") == lags_in(ENTRIES, "scale")


def test_a_pod_that_was_stopped_at_the_end_waits_for_no_status() -> None:
    stopped = "job-worker-k3f9-1-ccccc"
    more = [*ENTRIES, pod(5.1, stopped), pod(6.0, stopped)]
    assert len(lags_in(more, "scale").replicas) == 4


def test_other_namespaces_do_not_count() -> None:
    assert not changes_of(ENTRIES, "another")


def test_a_rank_is_a_value_that_was_seen() -> None:
    assert (rank([3.0, 1.0, 2.0], 0.5), rank([1.0, 2.0], 0.99)) == (2.0, 2.0)
