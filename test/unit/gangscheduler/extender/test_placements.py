"""What kube-scheduler is told: the member's own node, or constant words."""

from __future__ import annotations

import msgspec
import pytest

from helpers.gangworld import NAMESPACE, GangWorld
from tfjob_controller.gangscheduler.bindrequests import GangMember
from tfjob_controller.gangscheduler.extender.verbs import (
    NO_GANG,
    NOT_A_MEMBER,
    NOT_ADMITTED,
    OLD_ATTEMPT,
    RESERVED,
    UNREADABLE,
)
from tfjob_controller.gangscheduler.extender.wire import WirePod
from tfjob_controller.kube.meta import ObjectMeta

KEY = f"{NAMESPACE}/one"
ATTEMPT = "scheduling.kubeflow.org/attempt"
LABELS = {
    "scheduling.kubeflow.org/gang": "one",
    "scheduling.kubeflow.org/member": "worker-0",
    ATTEMPT: "1",
}
NO_QUANTITY = b'{"metadata": {}, "spec": {"containers": [{"resources": {"requests": {"cpu": "x"}}}]}}'


def wire_pod(labels: dict[str, str], body: bytes = b"{}") -> WirePod:
    return WirePod(ObjectMeta(name="pod", namespace=NAMESPACE, labels=labels), body)


def foreign(cpu: str) -> WirePod:
    spec = {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    return wire_pod({}, msgspec.json.encode({"metadata": {"name": "foreign", "namespace": NAMESPACE}, "spec": spec}))


@pytest.mark.parametrize(
    ("labels", "who"),
    [
        pytest.param({}, None, id="no gang's"),
        pytest.param(LABELS, GangMember(KEY, 1, "worker-0"), id="a member"),
        pytest.param({**LABELS, ATTEMPT: "one"}, GangMember(KEY, -1, "worker-0"), id="no number"),
        pytest.param({**LABELS, ATTEMPT: "9" * 40}, GangMember(KEY, -1, "worker-0"), id="too large"),
        pytest.param({"scheduling.kubeflow.org/gang": "one"}, GangMember(KEY, -1, ""), id="nothing but the gang"),
    ],
)
def test_who_a_pod_is_stands_in_its_labels(world: GangWorld, labels: dict[str, str], who: GangMember | None) -> None:
    assert world.placements.member_of(wire_pod(labels)) == who


def test_a_gang_that_waits_has_no_node_for_anybody(world: GangWorld) -> None:
    world.add_gang("one", worker=100)
    world.run()
    assert world.placements.node_for(KEY, 1, "worker-0").reason == NOT_ADMITTED


def test_a_member_goes_where_it_was_placed_and_nobody_else_does(world: GangWorld) -> None:
    world.add_gang("one", worker=2)
    world.run()
    assert world.placements.node_for(KEY, 1, "worker-1").node in ("a", "b")
    assert world.placements.node_for(KEY, 1, "worker-2").reason == NOT_A_MEMBER
    assert world.placements.node_for(KEY, 2, "worker-0").reason == OLD_ATTEMPT
    assert world.placements.node_for(f"{NAMESPACE}/other", 1, "worker-0").reason == NO_GANG
    assert world.placements.node_for("elsewhere/one", 1, "worker-0").reason == NO_GANG


def test_another_pod_gets_only_nodes_with_room_that_nobody_has_reserved(world: GangWorld) -> None:
    world.add_gang("one", worker=3)
    world.run()
    node = world.placements.node_for(KEY, 1, "worker-0").node
    other = "b" if node == "a" else "a"
    assert world.placements.allowed_nodes(foreign("1"), ["a", "b"]) == (["a", "b"], {})
    assert world.placements.allowed_nodes(foreign("2"), ["a", "b"]) == ([other], {node: RESERVED})


def test_a_node_that_is_not_known_yet_is_kube_schedulers_to_judge(world: GangWorld) -> None:
    assert world.placements.allowed_nodes(foreign("1"), ["new"]) == (["new"], {})


@pytest.mark.parametrize("body", [b"[]", b"{", NO_QUANTITY], ids=["no object", "no JSON", "no quantity"])
def test_a_pod_that_cannot_be_read_goes_nowhere(world: GangWorld, body: bytes) -> None:
    assert world.placements.allowed_nodes(wire_pod({}, body), ["a"]) == ((), {"a": UNREADABLE})
