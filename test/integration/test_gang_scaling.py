"""Gangs that shrink and grow again, beside a real, unmodified kube-scheduler; the test is their owner."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.cluster import Cluster
from helpers.gangkeeper import Keeper, pod_name
from helpers.gangscheduler import running_schedulers
from helpers.poll import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.cluster

# The fixture's two nodes take four pods each.
ALL = 8
LIMITS: dict[str, Any] = {"minMembers": {"worker": 4}, "maxMembers": {"worker": ALL}}

Object = dict[str, Any]


def status(keeper: Keeper, name: str) -> Object:
    return keeper.seen(name).status


def fill(keeper: Keeper) -> None:
    """An elastic gang on the whole cluster, and one of three members that waits for capacity."""
    keeper.submit("big", ALL, **LIMITS)
    keeper.tend_until_whole("big")
    keeper.submit("next", 3)
    keeper.await_phase("Waiting", "next", timeout=PATIENCE_SECONDS)


def await_target(keeper: Keeper, target: int) -> Object:
    """What the gang `big` is told while it should have so many."""
    eventually(lambda: status(keeper, "big").get("targetMembers") == {"worker": target})
    return status(keeper, "big")


def set_count(keeper: Keeper, count: int) -> None:
    members = [{"name": "worker", "count": count, "resources": {"cpu": "1"}}]
    keeper.api.patch(f"{keeper.gangs_path}/big", {"spec": {"members": members}})


def await_members(keeper: Keeper, count: int) -> None:
    """Its placement has followed, and it is not asked for so many any more; it may be asked for more by then."""

    def has_followed() -> bool:
        seen = keeper.seen("big")
        return len(seen.placed) == count and seen.status.get("targetMembers") != {"worker": count}

    eventually(has_followed)


def await_lack(keeper: Keeper, available: str) -> None:
    """The gang scheduler has seen that so many CPUs are free, and `next` is told so."""

    def is_told() -> bool:
        missing = status(keeper, "next").get("missing") or [{}]
        return bool(missing[0].get("available") == available)

    eventually(is_told)


def test_a_gang_shrinks_for_the_head_of_the_queue_only_and_grows_again_when_that_has_ended(
    gang_cluster: Cluster,
) -> None:
    keeper = Keeper(gang_cluster.api)
    options = {"scale_down_after": 1.0, "scale_up_after": 2.0}
    with running_schedulers(gang_cluster, **options):
        fill(keeper)
        told = await_target(keeper, 5)
        leaving = told["leaving"]
        assert len(leaving) == 3
        assert "worker-0" not in leaving
        assert told["targetReason"].startswith("capacity for gangs/next, waiting ")
        keeper.submit("small", 1)
        keeper.await_phase("Waiting", "small", timeout=PATIENCE_SECONDS)
        set_count(keeper, 5)
        await_members(keeper, 5)
        assert not keeper.seen("big").placed.keys() & set(leaving)
        keeper.delete_pod(pod_name("big", leaving[0], 1))
        # There is capacity for the small one now.
        await_lack(keeper, "1")
        for member in leaving[1:]:
            keeper.delete_pod(pod_name("big", member, 1))
        seen = keeper.await_phase("Admitted", "next", timeout=PATIENCE_SECONDS)
        assert (seen["small"].phase, seen["small"].attempt) == ("Waiting", 0)
        keeper.tend_until_whole("next", "big")
        for name in ("small", "next"):
            keeper.api.delete(f"{keeper.gangs_path}/{name}")
        for member in seen["next"].placed:
            keeper.delete_pod(pod_name("next", member, 1))
        told = await_target(keeper, 6)
        assert (told["targetReason"], told.get("leaving")) == ("the cluster has free capacity", None)
        set_count(keeper, 6)
        await_members(keeper, 6)
        keeper.tend_until_whole("big")
        await_target(keeper, 7)
