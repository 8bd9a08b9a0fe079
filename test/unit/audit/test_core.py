"""Tests of audit.core: every violation is reported, and valid situations are not."""

from __future__ import annotations

from typing import Any

import pytest

from audit.core import PODS, RELISTED
from helpers.auditedcluster import PREFIX, Cluster


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def bound_gang(cluster: Cluster, *names: str, at: float = 1.0) -> None:
    cluster.gang("g", at, "Admitted", "worker-0", "worker-1")
    for name in names:
        cluster.pod(name, at, gang="g", node="node-a")


def test_a_gang_that_is_admitted_bound_and_ends_is_no_violation(cluster: Cluster) -> None:
    bound_gang(cluster, "worker-0", "worker-1")
    cluster.gang("g", 2.0, "Bound", "worker-0", "worker-1")
    cluster.pod("worker-0", 3.0, gang="g", node="node-a", phase="Succeeded")
    cluster.pod("worker-0", 4.0, "DELETED", gang="g", node="node-a", phase="Succeeded")
    assert cluster.rules(5.0, 100.0) == []


def test_more_pods_than_a_node_has_capacity_for_are_a_violation(cluster: Cluster) -> None:
    cluster.pod("big", 1.0, node="node-a", cpu="4")
    cluster.pod("more", 5.0, node="node-a", cpu="100m")
    assert cluster.rules() == ["over-committed"]
    assert "cpu 4.1 of 4" in cluster.audit.violations[0].text


def test_the_number_of_pods_is_a_resource_too(cluster: Cluster) -> None:
    for number in range(11):
        cluster.pod(f"pod-{number}", 1.0, node="node-a", cpu="0")
    assert cluster.rules() == ["over-committed"]


def test_two_schedulers_at_the_same_moment_are_a_race_and_counted_apart(cluster: Cluster) -> None:
    cluster.pod("big", 1.0, node="node-a", cpu="4", scheduler="default-scheduler")
    cluster.pod("more", 1.5, node="node-a")
    assert cluster.rules() == []
    assert [race.subject for race in cluster.audit.races] == ["ns/more"]


@pytest.mark.parametrize(
    ("first_at", "foreign_at", "second_at", "rules"),
    [
        pytest.param(5.0, 5.5, 6.4, [], id="bound after the first member, and so after the decision"),
        pytest.param(5.0, 4.1, 5.9, [], id="bound just before the first member: not delivered by a watch yet"),
        pytest.param(5.0, 3.9, 5.9, ["over-committed"], id="bound earlier: delivered by a watch"),
        pytest.param(5.0, 5.5, 7.0, ["over-committed"], id="delivered before the member was retried"),
    ],
)
def test_members_bound_in_one_round_were_placed_with_the_first_one(
    cluster: Cluster, first_at: float, foreign_at: float, second_at: float, rules: list[str]
) -> None:
    cluster.gang("g", 1.0, "Admitted", "worker-0", "worker-1")
    pods = {
        first_at: lambda: cluster.pod("worker-0", first_at, gang="g", node="node-a"),
        foreign_at: lambda: cluster.pod("big", foreign_at, node="node-a", cpu="3", scheduler="default-scheduler"),
        second_at: lambda: cluster.pod("worker-1", second_at, gang="g", node="node-a"),
    }
    for _, send_pod in sorted(pods.items()):
        send_pod()
    assert cluster.rules() == rules
    assert len(cluster.audit.races) == 1 - len(rules)


def test_a_foreign_pod_that_leaves_enough_capacity_does_not_excuse_over_commitment(cluster: Cluster) -> None:
    cluster.gang("g", 1.0, "Admitted", "worker-0", "worker-1")
    cluster.pod("big", 1.0, gang="g", node="node-a", cpu="4", attempt="0")
    cluster.pod("small", 5.0, node="node-a", cpu="0", scheduler="default-scheduler")
    cluster.pod("worker-0", 5.1, gang="g", node="node-a")
    assert "over-committed" in cluster.rules()
    assert not cluster.audit.races


@pytest.mark.parametrize(
    ("created", "rules"),
    [
        pytest.param(1.5, [], id="created before the member was bound: the decision may be older"),
        pytest.param(8.0, ["over-committed"], id="created long after"),
    ],
)
def test_a_pod_of_another_scheduler_that_overcommits_a_node(cluster: Cluster, created: float, rules: list[str]) -> None:
    bound_gang(cluster, "worker-0", "worker-1", at=2.0)
    cluster.pod("big", 9.0, node="node-a", cpu="4", scheduler="default-scheduler", created=created)
    assert cluster.rules() == rules


def test_changes_during_an_outage_are_unknown_to_schedulers(cluster: Cluster) -> None:
    cluster.gang("g", 1.0, "Admitted", "worker-0", "worker-1")
    cluster.audit.outage(4.0)
    cluster.pod("big", 5.0, node="node-a", cpu="4", scheduler="default-scheduler")
    cluster.audit.outage(6.5)
    cluster.pod("worker-0", 7.2, gang="g", node="node-a")
    assert cluster.rules() == []
    cluster.pod("worker-1", 9.0, gang="g", node="node-a")
    assert cluster.rules() == ["over-committed"]


@pytest.mark.parametrize("how", ["phase", "deletion"])
def test_a_pod_that_has_ended_uses_no_capacity(cluster: Cluster, how: str) -> None:
    cluster.pod("big", 1.0, node="node-a", cpu="4")
    change, phase = ("MODIFIED", "Failed") if how == "phase" else ("DELETED", "Running")
    cluster.pod("big", 2.0, change, node="node-a", cpu="4", phase=phase)
    cluster.pod("next", 5.0, node="node-a", cpu="4")
    assert cluster.rules() == []


def test_a_pod_that_was_created_with_a_node_name_is_not_judged(cluster: Cluster) -> None:
    cluster.pod("big", 1.0, node="node-a", cpu="4")
    cluster.pod("more", 5.0, "ADDED", node="node-a")
    assert cluster.rules() == []


def test_a_binding_that_was_not_observed_is_only_checked_for_capacity(cluster: Cluster) -> None:
    cluster.gang("g", 1.0, "Waiting")
    cluster.pod("big", 2.0, RELISTED, gang="g", node="node-a", cpu="4")
    assert cluster.rules() == []
    cluster.pod("more", 5.0, RELISTED, node="node-a")
    assert cluster.rules() == ["over-committed"]


def test_a_node_that_shrinks_is_no_violation(cluster: Cluster) -> None:
    cluster.pod("big", 1.0, node="node-a", cpu="4")
    cluster.node("node-a", 2.0, "MODIFIED", cpu="2")
    cluster.pod("big", 3.0, node="node-a", cpu="4", phase="Running")
    assert cluster.rules(4.0) == []


def test_a_recreated_node_without_reported_capacity_is_no_violation(cluster: Cluster) -> None:
    cluster.node("node-a", 1.0, "DELETED")
    cluster.node("node-a", 2.0, cpu="")
    cluster.pod("late", 2.1, node="node-a")
    assert cluster.rules() == []
    cluster.node("node-a", 2.2, "MODIFIED", cpu="4")
    cluster.pod("big", 5.0, node="node-a", cpu="4")
    assert cluster.rules() == ["over-committed"]


def test_a_gang_that_stays_partly_bound_is_a_violation(cluster: Cluster) -> None:
    bound_gang(cluster, "worker-0", at=1.0)
    assert cluster.rules(10.9) == []
    assert "partly-bound" in cluster.rules(11.1)
    assert cluster.rules(12.0, 13.0).count("partly-bound") == 1


def test_a_replaced_member_must_be_bound_within_the_deadline(cluster: Cluster) -> None:
    bound_gang(cluster, "worker-0", "worker-1")
    cluster.gang("g", 2.0, "Bound", "worker-0", "worker-1")
    cluster.pod("worker-1", 50.0, "DELETED", gang="g", node="node-a")
    assert cluster.rules(59.0) == []
    cluster.pod("worker-1", 59.5, gang="g", node="node-a")
    assert cluster.rules(100.0) == []
    cluster.pod("worker-1", 101.0, "DELETED", gang="g", node="node-a")
    assert cluster.rules(111.5) == ["partly-bound"]


def test_pods_that_remain_after_their_gang_waits_again_are_a_violation(cluster: Cluster) -> None:
    bound_gang(cluster, "worker-0", "worker-1")
    cluster.gang("g", 2.0, "Waiting")
    assert "partly-bound" in cluster.rules(12.5)


def test_a_failed_member_counts_as_bound_while_its_pod_exists(cluster: Cluster) -> None:
    bound_gang(cluster, "worker-0", "worker-1")
    cluster.pod("worker-1", 2.0, gang="g", node="node-a", phase="Failed")
    cluster.gang("g", 2.0, "Bound", "worker-0", "worker-1")
    assert cluster.rules(50.0) == []
    cluster.pod("worker-1", 51.0, "DELETED", gang="g", node="node-a", phase="Failed")
    assert cluster.rules(62.0) == ["partly-bound"]


def test_an_admitted_gang_without_progress_is_stuck(cluster: Cluster) -> None:
    cluster.gang("g", 1.0, "Admitted", "worker-0", "worker-1")
    cluster.pod("worker-0", 9.0, gang="g")
    assert cluster.rules(18.0) == []
    assert cluster.rules(19.5) == ["stuck"]


@pytest.mark.parametrize(
    ("phase", "attempt", "member", "words"),
    [
        ("Waiting", 1, "worker-0", "is Waiting"),
        ("", 1, "worker-0", "is new"),
        ("Admitted", 2, "worker-0", "attempt 1 and its gang is in attempt 2"),
        ("Bound", 1, "worker-7", "not a placed member"),
    ],
)
def test_a_bound_pod_that_was_not_admitted_is_a_violation(
    cluster: Cluster, phase: str, attempt: int, member: str, words: str
) -> None:
    placed = ("worker-0", "worker-1") if phase in ("Admitted", "Bound") else ()
    cluster.gang("g", 1.0, phase, *placed, attempt=attempt)
    cluster.pod(member, 2.0, gang="g", node="node-a")
    assert cluster.rules() == ["not-admitted"]
    assert words in cluster.audit.violations[0].text


def test_a_bound_pod_of_a_missing_gang_is_a_violation(cluster: Cluster) -> None:
    cluster.pod("worker-0", 2.0, gang="g", node="node-a")
    assert cluster.rules() == ["not-admitted"]


def half_bound_gang(cluster: Cluster) -> None:
    """The pods of both members exist, and one is bound."""
    bound_gang(cluster, "worker-0")
    cluster.pod("worker-1", 2.0, "ADDED", gang="g")


def delete_gang(cluster: Cluster, at: float = 3.0) -> None:
    cluster.gang("g", at, "Admitted", "worker-0", "worker-1", change="DELETED")


@pytest.mark.parametrize("how", ["deleted", "recreated", "recreated, deletion not observed"])
@pytest.mark.parametrize(
    ("at", "rules"),
    [
        pytest.param(17.9, [], id="just within the time limit: its Binding was in flight"),
        pytest.param(18.5, ["not-admitted"], id="after it"),
    ],
)
def test_a_binding_in_flight_when_its_gang_is_deleted_is_allowed_for_a_limited_time(
    cluster: Cluster, at: float, rules: list[str], how: str
) -> None:
    half_bound_gang(cluster)
    if "not observed" not in how:
        delete_gang(cluster)
    if "recreated" in how:
        cluster.gang("g", 3.0, "", uid="uid-recreated", attempt=0)
    cluster.pod("worker-1", at, gang="g", node="node-a")
    assert cluster.rules() == rules


def test_a_late_deletion_event_does_not_remove_the_recreated_object(cluster: Cluster) -> None:
    bound_gang(cluster, "worker-0")
    cluster.gang("g", 3.0, "Admitted", "worker-0", "worker-1", uid="uid-recreated")
    delete_gang(cluster, 3.1)
    cluster.pod("worker-1", 50.0, gang="g", node="node-a")
    assert cluster.rules() == []


def test_an_outage_extends_the_time_for_bindings_in_flight(cluster: Cluster) -> None:
    half_bound_gang(cluster)
    delete_gang(cluster)
    for now in (10.0, 13.0, 16.0):
        cluster.audit.outage(now)
    cluster.pod("worker-1", 23.9, gang="g", node="node-a")
    assert cluster.rules() == []


@pytest.mark.parametrize(
    ("phase", "attempt", "placed", "is_late"),
    [
        pytest.param("Waiting", 1, (), False, id="its gang waited when it was deleted"),
        pytest.param("Admitted", 2, ("worker-0", "worker-1"), False, id="its gang was in another attempt"),
        pytest.param("Admitted", 1, ("worker-0",), False, id="it was not a placed member"),
        pytest.param("Admitted", 1, ("worker-0", "worker-1"), True, id="it was created after its gang was deleted"),
    ],
)
def test_a_pod_that_could_not_be_bound_before_its_gang_was_deleted_must_not_be_bound_afterwards(
    cluster: Cluster, phase: str, attempt: int, placed: tuple[str, ...], is_late: bool
) -> None:
    cluster.gang("g", 1.0, phase, *placed, attempt=attempt)
    if not is_late:
        cluster.pod("worker-1", 2.0, "ADDED", gang="g")
    cluster.gang("g", 3.0, phase, *placed, attempt=attempt, change="DELETED")
    if is_late:
        cluster.pod("worker-1", 3.1, "ADDED", gang="g")
    cluster.pod("worker-1", 3.2, gang="g", node="node-a")
    assert cluster.rules() == ["not-admitted"]


def test_a_pod_that_existed_before_the_audit_is_not_judged() -> None:
    cluster = Cluster()
    meta = {"name": "p", "namespace": "ns", "uid": "u", "labels": {f"{PREFIX}/gang": "none"}}
    cluster.audit.seed(PODS, "ADDED", {"metadata": meta, "spec": {"nodeName": "node-a"}, "status": {}}, 0.0)
    assert cluster.rules(1.0) == []


def test_a_gang_that_fits_and_waits_is_a_violation_after_the_grace_period(cluster: Cluster) -> None:
    cluster.gang("g", 1.0)
    assert cluster.rules(1.0, 2.9) == []
    assert cluster.rules(3.5) == ["fits-and-waits"]


def test_the_time_of_an_outage_counts_for_no_deadline(cluster: Cluster) -> None:
    bound_gang(cluster, "worker-0", at=1.0)
    for now in (5.0, 7.0, 9.0):
        cluster.audit.outage(now)
    assert cluster.rules(14.9) == []
    assert set(cluster.rules(15.1)) == {"partly-bound", "stuck"}


def test_time_lost_on_a_busy_machine_counts_for_no_deadline(cluster: Cluster) -> None:
    bound_gang(cluster, "worker-0", at=1.0)
    cluster.audit.lost(5.0)
    assert cluster.rules(15.9) == []
    assert set(cluster.rules(16.1)) == {"partly-bound", "stuck"}


def test_time_lost_on_a_busy_machine_extends_the_grace_period(cluster: Cluster) -> None:
    cluster.gang("g", 1.0)
    assert cluster.rules(1.0, 2.9) == []
    cluster.audit.lost(3.0)
    assert cluster.rules(5.9) == []
    assert cluster.rules(6.1) == ["fits-and-waits"]


def test_the_grace_period_starts_again_after_an_outage(cluster: Cluster) -> None:
    cluster.gang("g", 1.0)
    assert cluster.rules(1.0, 2.9) == []
    cluster.audit.outage(3.0)
    assert cluster.rules(3.1, 5.0) == []
    assert cluster.rules(5.5) == ["fits-and-waits"]


def test_the_grace_period_starts_when_the_gang_begins_to_fit(cluster: Cluster) -> None:
    cluster.pod("big", 0.5, node="node-a", cpu="4")
    cluster.gang("g", 1.0)
    assert cluster.rules(1.0, 20.0) == []
    cluster.pod("big", 20.5, "DELETED", node="node-a", cpu="4")
    assert cluster.rules(20.6, 22.0) == []
    cluster.pod("big", 22.1, node="node-a", cpu="4")
    cluster.pod("big", 22.2, "DELETED", node="node-a", cpu="4")
    assert cluster.rules(22.3, 24.0) == []
    assert cluster.rules(25.0) == ["fits-and-waits"]


@pytest.mark.parametrize(
    "more",
    [
        {"count": 5},
        {"suspend": True},
        {"not_before": "1970-01-01T01:00:00Z"},
    ],
    ids=["does not fit", "suspended", "backs off"],
)
def test_a_gang_with_a_reason_to_wait_is_no_violation(cluster: Cluster, more: dict[str, Any]) -> None:
    cluster.gang("g", 1.0, **more)
    assert cluster.rules(1.0, 20.0) == []


@pytest.mark.parametrize(
    "spec",
    [{"unschedulable": True}, {"taints": [{"key": "a", "effect": "NoSchedule"}]}],
    ids=["cordoned", "tainted"],
)
def test_a_cordoned_or_tainted_node_has_no_capacity(cluster: Cluster, spec: dict[str, Any]) -> None:
    cluster.node("node-a", 0.5, "MODIFIED", **spec)
    cluster.gang("g", 1.0)
    assert cluster.rules(1.0, 20.0) == []


def test_capacity_that_is_reserved_for_an_admitted_gang_is_not_free(cluster: Cluster) -> None:
    cluster.gang("first", 0.5, "Admitted", "worker-0", "worker-1", "worker-2", count=3)
    cluster.pod("worker-0", 0.6, gang="first", node="node-a")
    cluster.gang("g", 1.0)
    assert cluster.rules(1.0, 9.0) == []


def test_a_gang_behind_a_starving_one_may_have_to_wait(cluster: Cluster) -> None:
    cluster.gang("old", 0.5, count=5)
    cluster.gang("young", 40.0, since="1970-01-01T00:00:40Z")
    assert cluster.rules(40.0, 50.0) == []


def test_a_gang_ahead_of_a_starving_one_must_not_wait(cluster: Cluster) -> None:
    cluster.gang("old", 0.5, count=5, since="1970-01-01T00:00:05Z")
    cluster.gang("older", 40.0, since="1970-01-01T00:00:01Z")
    assert cluster.rules(40.0, 50.0) == ["fits-and-waits"]


@pytest.mark.parametrize(
    ("status_fields", "rules"),
    [
        pytest.param({"targetMembers": {"worker": 1}}, [], id="the resize is requested"),
        pytest.param({"lastResizeTime": "1970-01-01T00:01:00Z"}, [], id="resized recently"),
        pytest.param({"lastResizeTime": "1970-01-01T00:00:05Z"}, ["fits-and-waits"], id="resized long ago"),
    ],
)
def test_capacity_released_by_a_resized_gang_may_be_reserved(
    cluster: Cluster, status_fields: dict[str, Any], rules: list[str]
) -> None:
    cluster.gang("resized", 60.0, "Bound", "worker-0", status_fields=status_fields, count=1)
    cluster.pod("worker-0", 60.0, gang="resized", node="node-a")
    cluster.gang("g", 70.0, since="1970-01-01T00:01:10Z")
    assert cluster.rules(70.0, 75.0) == rules


def test_an_eviction_in_favour_of_another_pod_is_a_violation(cluster: Cluster) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    cluster.pod("victim", 1.0, node="node-a", conditions=[condition])
    assert cluster.rules() == ["preempted"]


def test_the_report_counts_objects_and_events(cluster: Cluster) -> None:
    bound_gang(cluster, "worker-0", "worker-1")
    report = cluster.audit.report()
    assert (report["gangs"], report["pods"], report["bound"], report["events"]) == (1, 2, 2, 4)
