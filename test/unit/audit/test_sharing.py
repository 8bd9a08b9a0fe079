"""Tests of the auditor's rules for shared clusters: quotas and preemption."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from helpers.auditedcluster import LIMITS, Cluster

GRACE, PREEMPTOR, INVERSION = 5.0, 20.0, 15.0
WORKERS = ("worker-0", "worker-1")


@pytest.fixture
def cluster() -> Cluster:
    limits = replace(LIMITS, preemption_grace_seconds=GRACE, preemptor_seconds=PREEMPTOR, inversion_seconds=INVERSION)
    return Cluster(limits)


def time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def run(cluster: Cluster, name: str, at: float, *, state: str = "", asked: float = 0.0, **more: Any) -> None:
    """Sends a gang of two that was bound at `at`. With a `state` it was asked at `asked` to leave for ns/high."""
    preemption = {"preemption": {"by": "ns/high", "state": state, "time": time(asked)}} if state else {}
    cluster.gang(name, at, "Bound", *WORKERS, status_fields={"boundTime": time(at), **preemption}, **more)
    for member in WORKERS:
        cluster.pod(f"{name}-{member}", at, gang=name, member=member, node="node-a")


def leave(cluster: Cluster, name: str, at: float) -> None:
    """The pods of a gang are deleted, and it waits again."""
    for member in WORKERS:
        cluster.pod(f"{name}-{member}", at, "DELETED", gang=name, member=member, node="node-a")
    preemption = {"by": "ns/high", "state": "Preempted", "time": time(at)}
    cluster.gang(name, at, "Waiting", status_fields={"preemption": preemption})


def test_a_gang_of_higher_priority_that_starts_after_others_left_is_no_violation(cluster: Cluster) -> None:
    run(cluster, "low", 1.0)
    run(cluster, "other", 1.0)
    cluster.gang("high", 2.0, priority=9)
    run(cluster, "low", 1.0, state="Requested", asked=7.0)
    leave(cluster, "low", 8.0)
    run(cluster, "high", 9.0, priority=9)
    assert cluster.rules(10.0, 100.0) == []


@pytest.mark.parametrize("priority", [0, 9])
def test_no_gang_leaves_for_one_of_lower_or_equal_priority(cluster: Cluster, priority: int) -> None:
    run(cluster, "low", 1.0, priority=9)
    cluster.gang("high", 2.0, priority=priority)
    run(cluster, "low", 1.0, state="Requested", asked=7.0, priority=9)
    assert cluster.rules() == ["preempted-by-lower"]


def test_no_gang_is_asked_to_leave_within_the_grace_time(cluster: Cluster) -> None:
    run(cluster, "low", 1.0)
    cluster.gang("high", 2.0, priority=9)
    run(cluster, "low", 1.0, state="Requested", asked=4.0)
    assert cluster.rules() == ["preempted-too-early"]


def test_a_preemptor_that_does_not_start_after_its_victims_left_is_a_violation(cluster: Cluster) -> None:
    run(cluster, "low", 1.0)
    run(cluster, "other", 1.0)
    cluster.gang("high", 2.0, priority=9)
    run(cluster, "low", 1.0, state="Requested", asked=7.0)
    assert "preempted-for-nothing" not in cluster.rules(7.0 + PREEMPTOR + 1)
    leave(cluster, "low", 40.0)
    assert cluster.rules(40.0 + PREEMPTOR - 1) == []
    assert cluster.rules(40.0 + PREEMPTOR + 1) == ["preempted-for-nothing"]
    assert cluster.audit.violations[0].subject == "ns/high"


@pytest.mark.parametrize("end", ["deleted", "suspended"])
def test_a_preemptor_that_does_not_want_to_start_any_more_is_none(cluster: Cluster, end: str) -> None:
    run(cluster, "low", 1.0)
    cluster.gang("high", 2.0, priority=9)
    run(cluster, "low", 1.0, state="Requested", asked=7.0)
    if end == "deleted":
        cluster.gang("high", 8.0, priority=9, change="DELETED")
    else:
        cluster.gang("high", 8.0, priority=9, suspend=True)
    leave(cluster, "low", 9.0)
    assert "preempted-for-nothing" not in cluster.rules(9.0 + PREEMPTOR + 1)


def test_an_outage_delays_a_preemptor(cluster: Cluster) -> None:
    run(cluster, "low", 1.0)
    cluster.gang("high", 2.0, priority=9)
    run(cluster, "low", 1.0, state="Requested", asked=7.0)
    leave(cluster, "low", 10.0)
    for at in range(11, 21):
        cluster.audit.outage(float(at))
    assert "preempted-for-nothing" not in cluster.rules(10.0 + PREEMPTOR + 8)
    assert "preempted-for-nothing" in cluster.rules(10.0 + PREEMPTOR + 12)


def test_a_gang_that_could_preempt_and_does_not_is_a_violation(cluster: Cluster) -> None:
    for name in ("low", "other"):
        run(cluster, name, 1.0)
    cluster.gang("high", 10.0, priority=9)
    assert cluster.rules(10.0, 10.0 + INVERSION - 1) == []
    assert cluster.rules(10.0 + INVERSION + 1) == ["priority-inversion"]
    assert cluster.audit.violations[0].subject == "ns/high"


@pytest.mark.parametrize(
    ("high", "low"),
    [
        pytest.param({"priority": 9}, {"priority": 9}, id="nothing runs with a lower priority"),
        pytest.param({"priority": 9, "count": 5}, {}, id="it exceeds the cluster"),
        pytest.param({"priority": 9, "suspend": True}, {}, id="it is suspended"),
        pytest.param({"priority": 9, "not_before": "2999-01-01T00:00:00Z"}, {}, id="it backs off"),
        pytest.param({"priority": 9}, {"quota": "5"}, id="it exceeds its quota"),
        pytest.param(
            {"priority": 9, "status_fields": {"message": "needs capacity; preempts no gang before a pod …"}},
            {},
            id="it is said to be refused",
        ),
    ],
)
def test_a_gang_that_may_preempt_nobody_is_no_violation(
    cluster: Cluster, high: dict[str, Any], low: dict[str, Any]
) -> None:
    if quota := low.pop("quota", ""):
        cluster.quota(0.5, pods=quota)
    for name in ("low", "other"):
        run(cluster, name, 1.0, **low)
    cluster.gang("high", 10.0, **high)
    assert cluster.rules(10.0, 10.0 + INVERSION + 1) == []


def test_without_preemption_no_gang_has_to_leave() -> None:
    cluster = Cluster()
    for name in ("low", "other"):
        run(cluster, name, 1.0)
    cluster.gang("high", 10.0, priority=9)
    assert cluster.rules(10.0, 10.0 + INVERSION + 1) == []


def test_reservations_count_in_a_quota_before_their_pods_exist(cluster: Cluster) -> None:
    cluster.quota(0.5, **{"requests.cpu": "3"})
    cluster.gang("one", 1.0, "Admitted", *WORKERS)
    assert cluster.rules() == []
    cluster.gang("two", 2.0, "Admitted", *WORKERS)
    assert cluster.rules() == ["quota-exceeded"]
    assert "cpu 4 of 3" in cluster.audit.violations[0].text


def test_a_member_counts_once_in_a_quota(cluster: Cluster) -> None:
    cluster.quota(0.5, pods="4", cpu="4")
    run(cluster, "one", 1.0)
    cluster.pod("one-worker-0", 2.0, gang="one", member="worker-0", node="node-a", phase="Failed")
    cluster.gang("two", 3.0, "Admitted", *WORKERS)
    cluster.pod("one-worker-1", 4.0, gang="one", member="worker-1", node="node-a", phase="Succeeded")
    cluster.gang("three", 5.0, "Admitted", "worker-0")
    assert cluster.rules() == []
    cluster.gang("four", 6.0, "Admitted", "worker-0")
    assert cluster.rules() == ["quota-exceeded"]


def test_pods_without_a_gang_count_in_a_quota_and_cause_no_violation_themselves(cluster: Cluster) -> None:
    cluster.quota(0.5, pods="3", **{"limits.cpu": "0"})
    cluster.gang("one", 1.0, "Admitted", *WORKERS)
    for name in ("a", "b"):
        cluster.pod(name, 2.0)
    assert cluster.rules() == []
    cluster.gang("two", 5.0, "Admitted", "worker-0")
    assert cluster.rules() == ["quota-exceeded"]


def test_pods_that_the_gang_scheduler_may_not_know_yet_do_not_count_in_a_quota(cluster: Cluster) -> None:
    cluster.quota(0.5, pods="2")
    cluster.pod("a", 4.5)
    cluster.gang("one", 5.0, "Admitted", *WORKERS)
    assert cluster.rules() == []


def test_new_pods_of_an_admitted_gang_count_in_a_quota(cluster: Cluster) -> None:
    cluster.quota(0.5, pods="2")
    cluster.gang("one", 4.0, "Admitted", *WORKERS)
    for member in WORKERS:
        cluster.pod(f"one-{member}", 4.9, gang="one", member=member)
    cluster.gang("two", 5.0, "Admitted", "worker-0")
    assert cluster.rules() == ["quota-exceeded"]


def test_a_gang_that_gets_other_nodes_or_a_next_phase_needs_no_more_quota(cluster: Cluster) -> None:
    """Pods without a reservation may have taken what was left."""
    cluster.quota(0.5, pods="2")
    cluster.gang("one", 1.0, "Admitted", *WORKERS)
    cluster.pod("a", 2.0)
    cluster.gang("one", 5.0, "Bound", *WORKERS)
    assert cluster.rules() == []
    cluster.gang("one", 6.0, "Bound", *WORKERS, "worker-2", count=3)
    assert cluster.rules() == ["quota-exceeded"]


def test_a_gang_that_waits_for_what_a_quota_still_counts_as_used_is_no_violation(cluster: Cluster) -> None:
    """The API server would refuse its pods."""
    cluster.quota(0.5, {"requests.cpu": "3", "pods": "3"}, **{"requests.cpu": "4"})
    cluster.gang("one", 1.0, "Waiting")
    assert cluster.rules(1.0, 100.0) == []
    cluster.quota(100.0, {"requests.cpu": "2", "pods": "2"}, **{"requests.cpu": "4"})
    assert cluster.rules(100.0, 200.0) == ["fits-and-waits"]


def test_what_a_quota_still_counts_as_used_is_not_counted_against_an_admitted_gang(cluster: Cluster) -> None:
    cluster.quota(0.5, {"pods": "3"}, pods="4")
    cluster.gang("one", 1.0, "Admitted", *WORKERS)
    assert cluster.rules() == []
