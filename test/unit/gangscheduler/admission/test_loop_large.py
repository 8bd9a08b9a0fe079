"""A gang of 5,000 pods of one Indexed Job: placed, admitted, bound, shown and resized, without quadratic work.

The limits of CPU time are several times what each step takes, and a fraction of what it would take if each member were
compared with each other one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from helpers.gangworld import NAMESPACE, GangWorld
from tfjob_controller.api.gang import GANGS, member_of, placed_nodes
from tfjob_controller.gangscheduler.bindrequests import BindRequest, GangMember

MEMBERS = 5_000
KEY = f"{NAMESPACE}/large"
ETCD_LIMIT = 1_500_000


@pytest.fixture
def large() -> Iterator[GangWorld]:
    """Admitted, one member a node; the nodes have names as those of a cloud."""
    world = GangWorld(is_indexed=True)
    for index in range(MEMBERS):
        world.put_node(f"ip-10-{index // 250}-{index % 250}-7.eu-central-1.compute.internal", 2)
    world.add_gang("large", cpu=2, node=MEMBERS)
    world.run()
    yield world
    world.stop_writing()


def cpu_seconds(act: Callable[[], object]) -> float:
    begin = time.process_time()
    act()
    return time.process_time() - begin


def bring_all(world: GangWorld) -> None:
    """kube-scheduler's bind calls, and the results of the Bindings."""
    for pod in [pod for pod in world.pods.values() if not pod.spec.node_name]:
        who = GangMember(KEY, world.gangs.list()[0].status.attempt, member_of(pod.metadata))
        node = world.placements.node_for(who.gang, who.attempt, who.name).node
        request = BindRequest(NAMESPACE, pod.metadata.name, pod.metadata.uid, node)
        world.permit.request_bind(who, request, lambda error: None)
    world.end_bindings()


def test_it_is_admitted_in_one_write_that_is_far_below_the_limit_of_an_object(large: GangWorld) -> None:
    gang = large.gang("large")
    assert (gang.status.phase, gang.status.members) == ("Admitted", f"{MEMBERS}/{MEMBERS}")
    assert gang.status.message == f"Admitted: {MEMBERS} pods on {MEMBERS} nodes"
    assert len(large.api.written("PATCH")) == 1
    (body,) = large.api.list("gangs")
    encoded = msgspec.json.encode(body)
    assert len(encoded) < ETCD_LIMIT / 3
    assert placed_nodes(GANGS.decode(encoded).status).keys() == {f"node-{index}" for index in range(MEMBERS)}


def test_it_is_bound_all_at_once_and_half_of_it_leaves_and_comes_again(large: GangWorld) -> None:
    large.create_pods("large")
    late = next(iter(large.pods.values())).metadata
    large.remove_pod(late.name)
    large.is_binding_slow = True
    bring_all(large)
    assert not any(pod.spec.node_name for pod in large.pods.values())
    large.create_pods("large")
    bring_all(large)
    assert {member_of(pod.metadata): pod.spec.node_name for pod in large.pods.values()} == placed_nodes(
        large.gang("large").status
    )
    large.run()
    assert (large.phase("large"), large.gang("large").status.message) == ("Bound", f"Bound: {MEMBERS} pods")
    for count in (MEMBERS // 2, MEMBERS):
        large.resize("large", count, "node", cpu=2)
        assert cpu_seconds(large.run) < 2.0
        large.delete_old_pods("large")
        assert large.gang("large").status.members == f"{count}/{count}"


def test_members_that_no_longer_fit_get_other_nodes_in_one_pass(large: GangWorld) -> None:
    for index in range(MEMBERS // 2):
        large.put_node(f"spare-{index}", 2)
    large.run()
    for name in list(large.nodes)[: MEMBERS // 2]:
        large.put_node(name, 2, unschedulable=True)
    assert cpu_seconds(large.run) < 2.0
    assert not any(large.nodes[node].spec.unschedulable for node in placed_nodes(large.gang("large").status).values())


def test_pods_that_request_more_than_their_gang_says_are_checked_in_linear_time(large: GangWorld) -> None:
    for name in list(large.nodes):
        large.put_node(name, 3)
    large.create_pods("large", cpu=3)
    large.run()
    large.is_binding_slow = True
    assert cpu_seconds(lambda: bring_all(large)) < 2.0
    assert all(pod.spec.node_name for pod in large.pods.values())
