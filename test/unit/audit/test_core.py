"""The auditor's rules: each violation is found, and what looks like one is not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from audit.core import GANGS, NODES, PODS, RELISTED, Audit, Limits

LIMITS = Limits(
    bind_deadline_seconds=10.0,
    fit_grace_seconds=2.0,
    starvation_timeout_seconds=30.0,
    race_seconds=1.0,
    in_flight_seconds=15.0,
)
OURS = "gang-scheduler"
PREFIX = "scheduling.kubeflow.org"


class World:
    """A cluster of one node with 4 CPUs, and an auditor that hears of every change in it."""

    def __init__(self) -> None:
        self.audit = Audit(LIMITS)
        self.node("node-a")

    def node(self, name: str, at: float = 0.0, change: str = "ADDED", cpu: str = "4", **spec: Any) -> None:
        """One without `cpu` has not said anything yet."""
        status = {"allocatable": {"cpu": cpu, "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}
        status = status if cpu else {}
        self._tell(NODES, change, {"metadata": {"name": name, "uid": name}, "spec": spec, "status": status}, at)

    def pod(
        self, name: str, at: float, change: str = "MODIFIED", *, gang: str = "", node: str = "", **more: Any
    ) -> None:
        """`more`: cpu, phase, attempt, scheduler, conditions. The member is the pod's name."""
        labels = {f"{PREFIX}/gang": gang, f"{PREFIX}/member": name, f"{PREFIX}/attempt": more.get("attempt", "1")}
        spec = {
            "schedulerName": more.get("scheduler", OURS),
            "containers": [{"resources": {"requests": {"cpu": more.get("cpu", "1")}}}],
            **({"nodeName": node} if node else {}),
        }
        status = {"phase": more.get("phase", "Pending"), "conditions": more.get("conditions", [])}
        meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": labels if gang else {}}
        meta["creationTimestamp"] = datetime.fromtimestamp(more.get("created", at), UTC).isoformat()
        self._tell(PODS, change, {"metadata": meta, "spec": spec, "status": status}, at)

    def gang(self, name: str, at: float, phase: str = "Waiting", *members: str, **more: Any) -> None:
        """Of as many workers with one CPU each as `count` says; `members` are those placed, on node-a."""
        status = {
            "phase": phase,
            "attempt": more.get("attempt", 1),
            "placement": [{"node": "node-a", "members": list(members)}] if members else [],
            "queuedTime": more.get("since", "1970-01-01T00:00:00Z"),
            **({"requeueTime": more["not_before"]} if "not_before" in more else {}),
            **more.get("said", {}),
        }
        spec = {
            "members": [{"name": "worker", "count": more.get("count", 2), "resources": {"cpu": "1"}}],
            "suspend": more.get("suspend", False),
        }
        uid = more.get("uid", f"uid-{name}")
        meta = {"name": name, "namespace": "ns", "uid": uid, "creationTimestamp": "1970-01-01T00:00:00Z"}
        self._tell(GANGS, more.get("change", "MODIFIED"), {"metadata": meta, "spec": spec, "status": status}, at)

    def rules(self, *ticks: float) -> list[str]:
        for now in ticks:
            self.audit.tick(now)
        return [each.rule for each in self.audit.violations]

    def _tell(self, kind: str, change: str, obj: dict[str, Any], at: float) -> None:
        self.audit.event(kind, change, obj, at)


@pytest.fixture
def world() -> World:
    return World()


def bound_gang(world: World, *names: str, at: float = 1.0) -> None:
    world.gang("g", at, "Admitted", "worker-0", "worker-1")
    for name in names:
        world.pod(name, at, gang="g", node="node-a")


def test_a_gang_that_is_admitted_bound_and_ends_is_no_violation(world: World) -> None:
    bound_gang(world, "worker-0", "worker-1")
    world.gang("g", 2.0, "Bound", "worker-0", "worker-1")
    world.pod("worker-0", 3.0, gang="g", node="node-a", phase="Succeeded")
    world.pod("worker-0", 4.0, "DELETED", gang="g", node="node-a", phase="Succeeded")
    assert world.rules(5.0, 100.0) == []


def test_more_pods_than_a_node_has_capacity_for_are_a_violation(world: World) -> None:
    world.pod("big", 1.0, node="node-a", cpu="4")
    world.pod("more", 5.0, node="node-a", cpu="100m")
    assert world.rules() == ["over-committed"]
    assert "cpu 4.1 of 4" in world.audit.violations[0].text


def test_the_number_of_pods_is_a_resource_too(world: World) -> None:
    for number in range(11):
        world.pod(f"pod-{number}", 1.0, node="node-a", cpu="0")
    assert world.rules() == ["over-committed"]


def test_two_schedulers_at_the_same_moment_are_a_race_and_counted_apart(world: World) -> None:
    world.pod("big", 1.0, node="node-a", cpu="4", scheduler="default-scheduler")
    world.pod("more", 1.5, node="node-a")
    assert world.rules() == []
    assert [each.subject for each in world.audit.races] == ["ns/more"]


@pytest.mark.parametrize(
    ("first_at", "foreign_at", "second_at", "rules"),
    [
        pytest.param(5.0, 5.5, 6.4, [], id="came after the first member, and so after the decision"),
        pytest.param(5.0, 4.1, 5.9, [], id="came just before the first member: no watch had told it"),
        pytest.param(5.0, 3.9, 5.9, ["over-committed"], id="came before, and was to be known"),
        pytest.param(5.0, 5.5, 7.0, ["over-committed"], id="was to be known when the member was tried again"),
    ],
)
def test_members_that_come_in_one_go_were_decided_with_the_first(
    world: World, first_at: float, foreign_at: float, second_at: float, rules: list[str]
) -> None:
    world.gang("g", 1.0, "Admitted", "worker-0", "worker-1")
    pods = {
        first_at: lambda: world.pod("worker-0", first_at, gang="g", node="node-a"),
        foreign_at: lambda: world.pod("big", foreign_at, node="node-a", cpu="3", scheduler="default-scheduler"),
        second_at: lambda: world.pod("worker-1", second_at, gang="g", node="node-a"),
    }
    for _, happen in sorted(pods.items()):
        happen()
    assert world.rules() == rules
    assert len(world.audit.races) == 1 - len(rules)


def test_a_foreign_pod_that_would_have_left_capacity_excuses_nothing(world: World) -> None:
    world.gang("g", 1.0, "Admitted", "worker-0", "worker-1")
    world.pod("big", 1.0, gang="g", node="node-a", cpu="4", attempt="0")
    world.pod("small", 5.0, node="node-a", cpu="0", scheduler="default-scheduler")
    world.pod("worker-0", 5.1, gang="g", node="node-a")
    assert "over-committed" in world.rules()
    assert not world.audit.races


@pytest.mark.parametrize(
    ("created", "rules"),
    [
        pytest.param(1.5, [], id="made before the member came: it may have been decided before"),
        pytest.param(8.0, ["over-committed"], id="made long after"),
    ],
)
def test_a_pod_of_another_scheduler_that_overcommits_a_node(world: World, created: float, rules: list[str]) -> None:
    bound_gang(world, "worker-0", "worker-1", at=2.0)
    world.pod("big", 9.0, node="node-a", cpu="4", scheduler="default-scheduler", created=created)
    assert world.rules() == rules


def test_what_happens_while_nobody_can_read_the_cluster_is_known_to_nobody(world: World) -> None:
    world.gang("g", 1.0, "Admitted", "worker-0", "worker-1")
    world.audit.outage(4.0)
    world.pod("big", 5.0, node="node-a", cpu="4", scheduler="default-scheduler")
    world.audit.outage(6.5)
    world.pod("worker-0", 7.2, gang="g", node="node-a")
    assert world.rules() == []
    world.pod("worker-1", 9.0, gang="g", node="node-a")
    assert world.rules() == ["over-committed"]


@pytest.mark.parametrize("how", ["phase", "deletion"])
def test_a_pod_that_has_ended_uses_no_capacity(world: World, how: str) -> None:
    world.pod("big", 1.0, node="node-a", cpu="4")
    change, phase = ("MODIFIED", "Failed") if how == "phase" else ("DELETED", "Running")
    world.pod("big", 2.0, change, node="node-a", cpu="4", phase=phase)
    world.pod("next", 5.0, node="node-a", cpu="4")
    assert world.rules() == []


def test_a_pod_that_was_created_with_its_node_was_bound_by_nobody(world: World) -> None:
    world.pod("big", 1.0, node="node-a", cpu="4")
    world.pod("more", 5.0, "ADDED", node="node-a")
    assert world.rules() == []


def test_a_binding_that_was_not_observed_is_only_checked_for_capacity(world: World) -> None:
    world.gang("g", 1.0, "Waiting")
    world.pod("big", 2.0, RELISTED, gang="g", node="node-a", cpu="4")
    assert world.rules() == []
    world.pod("more", 5.0, RELISTED, node="node-a")
    assert world.rules() == ["over-committed"]


def test_a_node_that_shrinks_is_nobodys_fault(world: World) -> None:
    world.pod("big", 1.0, node="node-a", cpu="4")
    world.node("node-a", 2.0, "MODIFIED", cpu="2")
    world.pod("big", 3.0, node="node-a", cpu="4", phase="Running")
    assert world.rules(4.0) == []


def test_a_node_that_comes_back_and_says_nothing_yet_is_nobodys_fault(world: World) -> None:
    world.node("node-a", 1.0, "DELETED")
    world.node("node-a", 2.0, cpu="")
    world.pod("late", 2.1, node="node-a")
    assert world.rules() == []
    world.node("node-a", 2.2, "MODIFIED", cpu="4")
    world.pod("big", 5.0, node="node-a", cpu="4")
    assert world.rules() == ["over-committed"]


def test_a_gang_that_stays_partly_bound_is_a_violation(world: World) -> None:
    bound_gang(world, "worker-0", at=1.0)
    assert world.rules(10.9) == []
    assert "partly-bound" in world.rules(11.1)
    assert world.rules(12.0, 13.0).count("partly-bound") == 1


def test_a_replacement_has_as_long_as_the_deadline(world: World) -> None:
    bound_gang(world, "worker-0", "worker-1")
    world.gang("g", 2.0, "Bound", "worker-0", "worker-1")
    world.pod("worker-1", 50.0, "DELETED", gang="g", node="node-a")
    assert world.rules(59.0) == []
    world.pod("worker-1", 59.5, gang="g", node="node-a")
    assert world.rules(100.0) == []
    assert world.audit.longest_partly_bound_seconds == 9.0


def test_pods_that_stay_when_their_gang_waits_again_hold_capacity_without_right(world: World) -> None:
    bound_gang(world, "worker-0", "worker-1")
    world.gang("g", 2.0, "Waiting")
    assert "partly-bound" in world.rules(12.5)


def test_a_failed_member_counts_as_bound_while_its_pod_is_there(world: World) -> None:
    bound_gang(world, "worker-0", "worker-1")
    world.pod("worker-1", 2.0, gang="g", node="node-a", phase="Failed")
    world.gang("g", 2.0, "Bound", "worker-0", "worker-1")
    assert world.rules(50.0) == []
    world.pod("worker-1", 51.0, "DELETED", gang="g", node="node-a", phase="Failed")
    assert world.rules(62.0) == ["partly-bound"]


def test_an_admitted_gang_that_comes_no_nearer_is_stuck(world: World) -> None:
    world.gang("g", 1.0, "Admitted", "worker-0", "worker-1")
    world.pod("worker-0", 9.0, gang="g")
    assert world.rules(18.0) == []
    assert world.rules(19.5) == ["stuck"]


@pytest.mark.parametrize(
    ("phase", "attempt", "member", "words"),
    [
        ("Waiting", 1, "worker-0", "is Waiting"),
        ("Unschedulable", 1, "worker-0", "is Unschedulable"),
        ("", 1, "worker-0", "is new"),
        ("Admitted", 2, "worker-0", "attempt 1 and its gang is in attempt 2"),
        ("Bound", 1, "worker-7", "not a placed member"),
    ],
)
def test_a_pod_that_had_no_right_to_be_bound_is_a_violation(
    world: World, phase: str, attempt: int, member: str, words: str
) -> None:
    placed = ("worker-0", "worker-1") if phase in ("Admitted", "Bound") else ()
    world.gang("g", 1.0, phase, *placed, attempt=attempt)
    world.pod(member, 2.0, gang="g", node="node-a")
    assert world.rules() == ["not-admitted"]
    assert words in world.audit.violations[0].text


def test_a_pod_of_a_gang_that_is_not_there_is_a_violation(world: World) -> None:
    world.pod("worker-0", 2.0, gang="g", node="node-a")
    assert world.rules() == ["not-admitted"]


def half_bound_gang(world: World) -> None:
    """One of its two members is bound, and both are there."""
    bound_gang(world, "worker-0")
    world.pod("worker-1", 2.0, "ADDED", gang="g")


def delete_gang(world: World, at: float = 3.0) -> None:
    world.gang("g", at, "Admitted", "worker-0", "worker-1", change="DELETED")


@pytest.mark.parametrize("how", ["deleted", "made anew", "made anew, and seen gone by nobody"])
@pytest.mark.parametrize(
    ("at", "rules"),
    [
        pytest.param(3.2, [], id="at once: its Binding was under way"),
        pytest.param(17.9, [], id="as late as a request may be"),
        pytest.param(18.5, ["not-admitted"], id="long after"),
    ],
)
def test_a_binding_that_was_in_progress_when_its_gang_was_deleted_may_come_a_little_later(
    world: World, at: float, rules: list[str], how: str
) -> None:
    half_bound_gang(world)
    if "nobody" not in how:
        delete_gang(world)
    if "anew" in how:
        world.gang("g", 3.0, "", uid="uid-anew", attempt=0)
    world.pod("worker-1", at, gang="g", node="node-a")
    assert world.rules() == rules


def test_a_late_deletion_event_does_not_remove_the_recreated_object(world: World) -> None:
    bound_gang(world, "worker-0")
    world.gang("g", 3.0, "Admitted", "worker-0", "worker-1", uid="uid-anew")
    delete_gang(world, 3.1)
    world.pod("worker-1", 50.0, gang="g", node="node-a")
    assert world.rules() == []


def test_while_nobody_can_work_no_request_comes_any_nearer(world: World) -> None:
    half_bound_gang(world)
    delete_gang(world)
    for now in (10.0, 13.0, 16.0):
        world.audit.outage(now)
    world.pod("worker-1", 23.9, gang="g", node="node-a")
    assert world.rules() == []


@pytest.mark.parametrize(
    ("phase", "attempt", "placed", "is_late"),
    [
        pytest.param("Waiting", 1, (), False, id="its gang waited when it was deleted"),
        pytest.param("Admitted", 2, ("worker-0", "worker-1"), False, id="its gang was in another attempt"),
        pytest.param("Admitted", 1, ("worker-0",), False, id="it was no placed member"),
        pytest.param("Admitted", 1, ("worker-0", "worker-1"), True, id="it was made after its gang was deleted"),
    ],
)
def test_a_pod_that_nobody_could_bind_when_its_gang_was_deleted_is_to_be_bound_no_later_either(
    world: World, phase: str, attempt: int, placed: tuple[str, ...], is_late: bool
) -> None:
    world.gang("g", 1.0, phase, *placed, attempt=attempt)
    if not is_late:
        world.pod("worker-1", 2.0, "ADDED", gang="g")
    world.gang("g", 3.0, phase, *placed, attempt=attempt, change="DELETED")
    if is_late:
        world.pod("worker-1", 3.1, "ADDED", gang="g")
    world.pod("worker-1", 3.2, gang="g", node="node-a")
    assert world.rules() == ["not-admitted"]


def test_a_pod_that_was_there_before_is_not_judged() -> None:
    world = World()
    meta = {"name": "p", "namespace": "ns", "uid": "u", "labels": {f"{PREFIX}/gang": "none"}}
    world.audit.seed(PODS, "ADDED", {"metadata": meta, "spec": {"nodeName": "node-a"}, "status": {}}, 0.0)
    assert world.rules(1.0) == []


def test_a_gang_that_fits_and_waits_is_a_violation_after_the_grace(world: World) -> None:
    world.gang("g", 1.0)
    assert world.rules(1.0, 2.9) == []
    assert world.rules(3.5) == ["fits-and-waits"]


def test_time_in_which_nobody_can_work_counts_for_no_deadline(world: World) -> None:
    bound_gang(world, "worker-0", at=1.0)
    for now in (5.0, 7.0, 9.0):
        world.audit.outage(now)
    assert world.rules(14.9) == []
    assert set(world.rules(15.1)) == {"partly-bound", "stuck"}


def test_time_that_a_busy_machine_gave_to_others_counts_for_no_deadline(world: World) -> None:
    bound_gang(world, "worker-0", at=1.0)
    world.audit.lost(5.0)
    assert world.rules(15.9) == []
    assert set(world.rules(16.1)) == {"partly-bound", "stuck"}


def test_a_gang_that_waits_goes_on_waiting_while_the_machine_is_busy(world: World) -> None:
    world.gang("g", 1.0)
    assert world.rules(1.0, 2.9) == []
    world.audit.lost(3.0)
    assert world.rules(5.9) == []
    assert world.rules(6.1) == ["fits-and-waits"]


def test_a_gang_waits_again_once_somebody_works_again(world: World) -> None:
    world.gang("g", 1.0)
    assert world.rules(1.0, 2.9) == []
    world.audit.outage(3.0)
    assert world.rules(3.1, 5.0) == []
    assert world.rules(5.5) == ["fits-and-waits"]


def test_time_counts_from_when_it_fitted(world: World) -> None:
    world.pod("big", 0.5, node="node-a", cpu="4")
    world.gang("g", 1.0)
    assert world.rules(1.0, 20.0) == []
    world.pod("big", 20.5, "DELETED", node="node-a", cpu="4")
    assert world.rules(20.6, 22.0) == []
    world.pod("big", 22.1, node="node-a", cpu="4")
    world.pod("big", 22.2, "DELETED", node="node-a", cpu="4")
    assert world.rules(22.3, 24.0) == []
    assert world.rules(25.0) == ["fits-and-waits"]


@pytest.mark.parametrize(
    "more",
    [
        {"count": 5},
        {"suspend": True},
        {"not_before": "1970-01-01T01:00:00Z"},
    ],
    ids=["does not fit", "suspended", "rests"],
)
def test_a_gang_may_wait_with_reason(world: World, more: dict[str, Any]) -> None:
    world.gang("g", 1.0, **more)
    assert world.rules(1.0, 20.0) == []


@pytest.mark.parametrize(
    "spec",
    [{"unschedulable": True}, {"taints": [{"key": "a", "effect": "NoSchedule"}]}],
    ids=["cordoned", "tainted"],
)
def test_a_closed_node_has_no_capacity(world: World, spec: dict[str, Any]) -> None:
    world.node("node-a", 0.5, "MODIFIED", **spec)
    world.gang("g", 1.0)
    assert world.rules(1.0, 20.0) == []


def test_capacity_that_is_reserved_for_an_admitted_gang_is_not_free(world: World) -> None:
    world.gang("first", 0.5, "Admitted", "worker-0", "worker-1", "worker-2", count=3)
    world.pod("worker-0", 0.6, gang="first", node="node-a")
    world.gang("g", 1.0)
    assert world.rules(1.0, 9.0) == []


def test_a_gang_behind_a_starving_one_may_have_to_wait(world: World) -> None:
    world.gang("old", 0.5, count=5)
    world.gang("young", 40.0, since="1970-01-01T00:00:40Z")
    assert world.rules(40.0, 50.0) == []


def test_a_gang_before_a_starving_one_need_not_wait(world: World) -> None:
    world.gang("old", 0.5, count=5, since="1970-01-01T00:00:05Z")
    world.gang("older", 40.0, since="1970-01-01T00:00:01Z")
    assert world.rules(40.0, 50.0) == ["fits-and-waits"]


@pytest.mark.parametrize(
    ("said", "rules"),
    [
        pytest.param({"targetMembers": {"worker": 1}}, [], id="asked for it"),
        pytest.param({"lastResizeTime": "1970-01-01T00:01:00Z"}, [], id="gave some just now"),
        pytest.param({"lastResizeTime": "1970-01-01T00:00:05Z"}, ["fits-and-waits"], id="gave some long ago"),
    ],
)
def test_capacity_that_another_gang_gives_away_may_be_kept(
    world: World, said: dict[str, Any], rules: list[str]
) -> None:
    world.gang("gives", 60.0, "Bound", "worker-0", said=said, count=1)
    world.pod("worker-0", 60.0, gang="gives", node="node-a")
    world.gang("g", 70.0, since="1970-01-01T00:01:10Z")
    assert world.rules(70.0, 75.0) == rules


def test_an_eviction_in_favour_of_another_pod_is_a_violation(world: World) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    world.pod("victim", 1.0, node="node-a", conditions=[condition])
    assert world.rules() == ["preempted"]


def test_what_was_seen_is_counted(world: World) -> None:
    bound_gang(world, "worker-0", "worker-1")
    report = world.audit.report()
    assert (report["gangs"], report["pods"], report["bound"], report["events"]) == (1, 2, 2, 4)
