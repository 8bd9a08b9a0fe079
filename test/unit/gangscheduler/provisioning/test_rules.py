"""Which gangs ask a node autoscaler for nodes, and what follows from the conditions of their requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from helpers.gangs import NOW
from tfjob_controller.api.common.cluster import RESOURCE_QUOTAS, ResourceQuota
from tfjob_controller.api.gang import GANGS, Gang
from tfjob_controller.api.provisioningrequest import PROVISIONING_REQUESTS, ProvisioningRequest
from tfjob_controller.gangscheduler.provisioning.bodies import request_bodies
from tfjob_controller.gangscheduler.provisioning.rules import (
    BACKOFF_SECONDS,
    MAX_BACKOFF_SECONDS,
    MAX_OF_NAMESPACE,
    MAX_REQUESTS,
    ProvisioningPolicy,
    RequestPlan,
    RequestPlanner,
    RequestState,
    request_state,
)
from tfjob_controller.kube.meta import key_of
from tfjob_controller.scheduling.decisions import (
    BACKING_OFF,
    EXCEEDS_CLUSTER_CAPACITY,
    HELD_BACK,
    INVALID_RESOURCES,
    Decision,
    Pending,
    Unschedulable,
)

CLASS, AFTER = "class.example.com", 15.0
LACKS = "needs 4 x cpu"


def a_gang(name: str = "a", namespace: str = "ns", *, uid: str = "", cpu: str = "1", **spec: Any) -> Gang:
    status = spec.pop("status", {})
    members = spec.pop("members", [{"name": "worker", "count": 4, "resources": {"cpu": cpu}}])
    body = {
        "metadata": {"name": name, "namespace": namespace, "uid": uid or f"uid-{namespace}-{name}"},
        "spec": {"members": members, **spec},
        "status": {"phase": "Waiting", **status},
    }
    return GANGS.decode(msgspec.json.encode(body))


def a_quota(hard: Mapping[str, str]) -> ResourceQuota:
    body = {"metadata": {"name": "q", "namespace": "ns"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": {}}}
    return RESOURCE_QUOTAS.decode(msgspec.json.encode(body))


def lacking(gang: Gang, message: str = LACKS, **more: bool) -> Pending:
    return Pending(key_of(gang), 1, (), message, **more)


def exceeding(gang: Gang) -> Unschedulable:
    return Unschedulable(key_of(gang), EXCEEDS_CLUSTER_CAPACITY, "more than the whole cluster has")


class World:
    """A planner, the requests that it has created, and a clock."""

    def __init__(self, quota: ResourceQuota | None = None) -> None:
        self.planner = RequestPlanner(
            ProvisioningPolicy(CLASS, AFTER), lambda namespace: [quota] if quota is not None else []
        )
        self.requests: dict[str, ProvisioningRequest] = {}
        self.seconds = 1000.0

    def plan(self, gangs: Sequence[Gang], decisions: Sequence[Decision], nominated: str = "") -> RequestPlan:
        now = NOW + timedelta(seconds=self.seconds)
        plan = self.planner.plan(gangs, decisions, self.requests.values(), nominated, self.seconds, now)
        for each in plan.deletes:
            del self.requests[each.metadata.name]
        for _, bodies in plan.creates:
            self.requests[bodies.name] = PROVISIONING_REQUESTS.decode(msgspec.json.encode(bodies.request))
        return plan

    def after(self, seconds: float, gangs: Sequence[Gang], decisions: Sequence[Decision], **more: str) -> RequestPlan:
        self.plan(gangs, decisions, **more)
        self.seconds += seconds
        return self.plan(gangs, decisions, **more)

    def set_condition(self, type_: str, status: str = "True", message: str = "") -> None:
        for name, request in self.requests.items():
            body = msgspec.to_builtins(request)
            body["status"] = {"conditions": [{"type": type_, "status": status, "message": message}]}
            self.requests[name] = PROVISIONING_REQUESTS.decode(msgspec.json.encode(body))


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("decide", [lacking, exceeding])
def test_a_gang_asks_once_it_has_lacked_capacity_for_long_enough(world: World, decide: Any) -> None:
    gang = a_gang()
    assert not world.after(AFTER - 0.1, [gang], [decide(gang)]).creates
    world.seconds += 0.1
    plan = world.plan([gang], [decide(gang)])
    assert [key_of(each) for each, _ in plan.creates] == ["ns/a"]
    plan = world.plan([gang], [decide(gang)])
    assert (plan.creates, plan.deletes) == ([], [])
    assert "waits for the node autoscaler" in plan.notes["ns/a"]


@pytest.mark.parametrize(
    "decision",
    [
        lacking(a_gang(), BACKING_OFF),
        lacking(a_gang(), HELD_BACK, may_fit=True),
        lacking(a_gang(), "waits for quota", is_over_quota=True),
        Unschedulable("ns/a", INVALID_RESOURCES, "invalid"),
    ],
    ids=["backs off", "held back", "over quota", "invalid"],
)
def test_a_gang_that_waits_for_something_else_does_not_ask(world: World, decision: Decision) -> None:
    assert not world.after(10 * AFTER, [a_gang()], [decision]).creates


def test_a_gang_for_which_others_leave_does_not_ask(world: World) -> None:
    gang = a_gang()
    assert not world.after(10 * AFTER, [gang], [lacking(gang)], nominated="ns/a").creates


def test_the_time_counts_from_when_capacity_was_lacking_last(world: World) -> None:
    gang = a_gang()
    world.after(AFTER / 2, [gang], [lacking(gang)])
    world.plan([gang], [lacking(gang, HELD_BACK, may_fit=True)])
    assert not world.after(AFTER / 2 + 1, [gang], [lacking(gang)]).creates


def test_an_elastic_gang_asks_for_the_least_that_it_starts_with() -> None:
    members = [
        {"name": "worker", "count": 8, "resources": {"cpu": "1"}},
        {"name": "ps", "count": 2, "resources": {"cpu": "1", "nvidia.com/gpu": "1"}, "nodeSelector": {"pool": "a"}},
        {"name": "none", "count": 0, "resources": {"cpu": "1"}},
    ]
    bodies = request_bodies(a_gang(members=members, minMembers={"worker": 3}), CLASS, 1)
    sets = {each["podTemplateRef"]["name"]: each["count"] for each in bodies.request["spec"]["podSets"]}
    assert sets == {f"{bodies.name}-worker": 3, f"{bodies.name}-ps": 2}
    assert bodies.pods == 5
    spec = {each["metadata"]["name"]: each["template"]["spec"] for each in bodies.templates}[f"{bodies.name}-ps"]
    assert spec["nodeSelector"] == {"pool": "a"}
    (container,) = spec["containers"]
    # The API server refuses an extended resource without an equal limit.
    assert container["resources"] == {
        "requests": {"cpu": "1", "nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
    }


def test_names_differ_by_what_is_asked_for_and_by_the_gang() -> None:
    name = request_bodies(a_gang(), CLASS, 1).name
    assert name == request_bodies(a_gang(), CLASS, 1).name
    others = {
        request_bodies(a_gang(uid="other"), CLASS, 1).name,
        request_bodies(a_gang(cpu="2"), CLASS, 1).name,
        request_bodies(a_gang(), "other", 1).name,
        request_bodies(a_gang(), CLASS, 2).name,
    }
    assert len(others | {name}) == 5
    assert len(request_bodies(a_gang("g" * 253), CLASS, 1).templates[0]["metadata"]["name"]) <= 253


@pytest.mark.parametrize(
    ("changed", "decided"),
    [
        (a_gang(suspend=True), False),
        (a_gang(status={"phase": "Bound"}), False),
        (a_gang(cpu="2"), True),
        (a_gang(uid="recreated"), True),
        (None, False),
    ],
    ids=["suspended", "bound", "another spec", "recreated", "deleted"],
)
def test_a_request_that_is_not_what_the_gang_needs_is_deleted(
    world: World, changed: Gang | None, decided: bool
) -> None:
    gang = a_gang()
    world.after(AFTER, [gang], [lacking(gang)])
    (name,) = world.requests
    plan = world.plan([changed] if changed else [], [lacking(changed)] if changed and decided else [])
    assert [each.metadata.name for each in plan.deletes] == [name]


def test_a_request_that_was_used_stays_until_all_pods_run(world: World) -> None:
    gang = a_gang()
    world.after(AFTER, [gang], [lacking(gang)])
    world.set_condition("Provisioned")
    plan = world.plan([gang], [lacking(gang)])
    (name,) = world.requests
    assert plan.current == {"ns/a": name}
    admitted = a_gang(status={"phase": "Admitted", "provisioningRequest": {"name": name, "className": CLASS}})
    assert not world.plan([admitted], []).deletes
    assert world.plan([a_gang(status={"phase": "Bound"})], []).deletes


@pytest.mark.parametrize(
    ("type_", "state"),
    [
        ("Failed", RequestState.FAILED),
        ("BookingExpired", RequestState.EXPIRED),
        ("CapacityRevoked", RequestState.REVOKED),
    ],
)
def test_a_request_that_is_over_is_repeated_with_a_growing_backoff(
    world: World, type_: str, state: RequestState
) -> None:
    gang = a_gang()
    world.after(AFTER, [gang], [lacking(gang)])
    backoff = BACKOFF_SECONDS
    for number in range(1, 8):
        world.set_condition(type_, message="no capacity")
        plan = world.plan([gang], [lacking(gang)])
        assert not world.requests
        ((over,), notes) = plan.ended, plan.notes
        assert over.state == state
        assert "no capacity; the next one follows at" in notes["ns/a"]
        assert not world.after(backoff - 1, [gang], [lacking(gang)]).creates
        world.seconds += 1
        ((_, bodies),) = world.plan([gang], [lacking(gang)]).creates
        assert bodies.request["metadata"]["labels"]["scheduling.kubeflow.org/provisioning-number"] == str(number + 1)
        backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)
    assert backoff == MAX_BACKOFF_SECONDS


def test_a_request_that_the_api_server_refuses_is_repeated_and_said(world: World) -> None:
    gang = a_gang()
    world.after(AFTER, [gang], [lacking(gang)])
    world.requests.clear()
    world.planner.refused(gang, "exceeded quota: count/podtemplates", world.seconds, NOW)
    plan = world.plan([gang], [lacking(gang)])
    assert not plan.creates
    assert "exceeded quota: count/podtemplates" in plan.notes["ns/a"]
    assert world.after(BACKOFF_SECONDS, [gang], [lacking(gang)]).creates


def test_requests_have_a_bound_for_each_namespace_and_for_all(world: World) -> None:
    gangs = [a_gang(f"g{each}", f"ns{number}") for number in range(12) for each in range(MAX_OF_NAMESPACE + 5)]
    decisions = [lacking(each) for each in gangs]
    plan = world.after(AFTER, gangs, decisions)
    assert len(plan.creates) == MAX_REQUESTS
    by_namespace = [gang.metadata.namespace for gang, _ in plan.creates]
    assert max(map(by_namespace.count, by_namespace)) == MAX_OF_NAMESPACE
    plan = world.plan(gangs, decisions)
    assert not plan.creates
    assert f"the namespace has {MAX_OF_NAMESPACE}" in plan.notes["ns0/g14"]
    assert f"the cluster has {MAX_REQUESTS}" in plan.notes["ns11/g0"]


def test_what_a_namespace_asks_for_counts_together_against_its_quotas() -> None:
    world = World(a_quota({"requests.cpu": "10"}))
    gangs = [a_gang("a"), a_gang("b"), a_gang("c")]
    decisions = [lacking(each) for each in gangs]
    plan = world.after(AFTER, gangs, decisions)
    assert [gang.metadata.name for gang, _ in plan.creates] == ["a", "b"]
    assert "quotas" in plan.notes["ns/c"]
    # Also if another gang comes first later.
    plan = world.plan(gangs, decisions[::-1])
    assert (plan.creates, plan.deletes) == ([], [])


def test_what_admitted_gangs_have_reserved_counts_too() -> None:
    world = World(a_quota({"requests.cpu": "7"}))
    placement = [{"node": "n", "members": [f"worker-{index}" for index in range(4)]}]
    gangs = [a_gang("b", status={"phase": "Admitted", "placement": placement}), a_gang("a")]
    assert not world.after(AFTER, gangs, [lacking(gangs[1])]).creates


def test_a_gang_beyond_its_quota_that_exceeds_the_cluster_does_not_ask() -> None:
    world = World(a_quota({"requests.cpu": "3"}))
    gang = a_gang()
    assert not world.after(AFTER, [gang], [exceeding(gang)]).creates


def test_a_request_is_withdrawn_when_the_quota_does_not_allow_it_any_more(world: World) -> None:
    gang = a_gang()
    world.after(AFTER, [gang], [lacking(gang)])
    plan = world.plan([gang], [lacking(gang, "waits for quota", is_over_quota=True)])
    assert len(plan.deletes) == 1
    assert not plan.ended


def test_what_others_write_into_a_condition_is_one_short_line(world: World) -> None:
    gang = a_gang()
    world.after(AFTER, [gang], [lacking(gang)])
    world.set_condition("Provisioned", "False", "\x1b[2J first\nsecond\u2028" + "x" * 10_000)
    ((state, message),) = (request_state(each) for each in world.requests.values())
    assert state is RequestState.REQUESTED
    assert message.startswith("[2J first second xx")
    assert len(message) <= 200
