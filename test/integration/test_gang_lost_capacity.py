"""Gangs that lose capacity before their Bindings get other capacity in the same attempt, or return to the queue.

Each case has nodes of its own (a pool), so that all of them happen at once, under one gang scheduler.
"""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from helpers.cluster import Cluster
from helpers.gangkeeper import POOL, Keeper, Seen
from helpers.gangowner import pod
from helpers.gangscheduler import running_schedulers
from helpers.leapclock import LeapClock
from helpers.poll import PATIENCE_SECONDS, eventually
from localcluster.api import Api
from localcluster.fakekubelet import make_node
from localcluster.gangscheduler import NAME
from tfjob_controller.flags import BindAddress

pytestmark = pytest.mark.cluster

SIZE = 3
ROOM = {"cpu": str(SIZE), "memory": "8Gi", "pods": "20"}
# How many of a gang's pods are there when it happens; of more than none their bind calls wait.
BEFORE, MEANWHILE = 0, SIZE - 1
BIND_TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Case:
    """`how` the node that a gang was given is lost, when so many of its pods wait there."""

    how: str
    parked: int

    @property
    def gang(self) -> str:
        return f"{self.how}-{self.parked}"


CASES = [Case(how, parked) for how, parked in itertools.product(("cordoned", "deleted", "taken"), (BEFORE, MEANWHILE))]


@contextmanager
def gangs(cluster: Cluster, nodes_each: int, clock: LeapClock) -> Iterator[Keeper]:
    """All of them stand where the case says, each on the first node of its pool. None is given up before `clock` has
    been made to leap by `BIND_TIMEOUT_SECONDS`, however slow the machine is."""
    for case in CASES:
        for number in range(nodes_each):
            make_node(cluster.api, f"{case.gang}-{number}", ROOM, {POOL: case.gang})
    keeper = Keeper(cluster.api)
    pages = BindAddress("127.0.0.1", 0)
    options = {"bind_timeout": BIND_TIMEOUT_SECONDS, "debug_bind_address": pages}
    with running_schedulers(cluster, clock=clock, **options) as scheduler:
        for case in CASES:
            keeper.submit(case.gang, SIZE, pool=case.gang)
        keeper.await_phase("Admitted", *(case.gang for case in CASES))
        for case in CASES:
            for number in range(case.parked):
                keeper.make_pod(case.gang, f"worker-{number}", 1)
        await_calls(scheduler.servers[0].port, sum(case.parked for case in CASES))
        yield keeper


def await_calls(port: int, count: int) -> None:
    """So many bind calls wait."""

    def calls() -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/debug/permit", timeout=PATIENCE_SECONDS) as page:
            return int(json.load(page)["calls"])

    eventually(lambda: calls() == count)


def lose(keeper: Keeper, case: Case, node: str) -> None:
    if case.how == "cordoned":
        keeper.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    elif case.how == "deleted":
        keeper.api.delete(f"/api/v1/nodes/{node}")
    else:
        other = pod(f"other-{case.gang}", "2")
        other["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        keeper.api.create(keeper.pods_path, other)


def await_others(keeper: Keeper) -> None:
    """The pods that take the room are on their nodes: the default scheduler knows of no reservations."""
    names = [f"other-{case.gang}" for case in CASES if case.how == "taken"]
    eventually(lambda: all(keeper.api.get(f"{keeper.pods_path}/{name}")["spec"].get("nodeName") for name in names))


def give_back(keeper: Keeper, case: Case, node: str) -> None:
    if case.how == "taken":
        keeper.delete_pod(f"other-{case.gang}")
    else:
        make_node(keeper.api, node, ROOM, {POOL: case.gang})
        keeper.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})


def lose_all(keeper: Keeper) -> dict[str, str]:
    """The node that each gang has lost."""
    found = keeper.look()
    lost = {}
    for case in CASES:
        (lost[case.gang],) = set(found[case.gang].placed.values())
        lose(keeper, case, lost[case.gang])
    await_others(keeper)
    return lost


def is_left(seen: Seen, node: str, how: str) -> bool:
    """Only as many as necessary: beside the other pod there is capacity for one."""
    return list(seen.placed.values()).count(node) <= (1 if how == "taken" else 0)


def test_members_whose_capacity_is_lost_before_they_are_bound_get_other_capacity_in_the_same_attempt(
    gang_cluster: Cluster,
) -> None:
    with gangs(gang_cluster, nodes_each=2, clock=LeapClock()) as keeper:
        check_that_others_pass(gang_cluster.api, keeper)
        lost = lose_all(keeper)
        eventually(
            lambda: all(is_left(seen, lost[name], name.partition("-")[0]) for name, seen in keeper.look().items()),
            20,
            0.05,
        )
        found = keeper.tend_until_whole(*lost)
        assert {seen.attempt for seen in found.values()} == {1}


def check_that_others_pass(api: Api, keeper: Keeper) -> None:
    """A pod of no gang does not wait for gangs that do, though it has the same scheduler."""
    api.create(keeper.pods_path, pod("passes", "1", scheduler=NAME))
    eventually(lambda: api.get(f"{keeper.pods_path}/passes")["spec"].get("nodeName") in ("node-a", "node-b"))
    assert all(seen.bound == 0 for seen in keeper.look().values())


def test_gangs_whose_capacity_is_lost_before_they_are_bound_go_back_whole_where_there_is_no_other(
    gang_cluster: Cluster,
) -> None:
    clock = LeapClock()
    with gangs(gang_cluster, nodes_each=1, clock=clock) as keeper:
        lost = lose_all(keeper)
        seen_bound: Sequence[str] = ()

        def all_are_back() -> bool:
            nonlocal seen_bound
            found = keeper.tend()
            seen_bound = [name for name, seen in found.items() if seen.bound]
            # One that was admitted before the loss was seen, too.
            if any(seen.phase == "Admitted" for seen in found.values()):
                clock.leap(BIND_TIMEOUT_SECONDS)
            return bool(seen_bound) or all(
                seen.phase in ("Waiting", "Unschedulable") and not seen.pods for seen in found.values()
            )

        eventually(all_are_back)
        assert seen_bound == []
        for case in CASES:
            give_back(keeper, case, lost[case.gang])
        found = keeper.tend_until_whole(*lost)
        assert min(seen.attempt for seen in found.values()) >= 2
