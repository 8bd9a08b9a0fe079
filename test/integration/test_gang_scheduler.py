"""The gang scheduler beside a real, unmodified kube-scheduler: all pods of a gang, or none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.cluster import Cluster
from helpers.gangowner import GANGS, Owner, pod
from helpers.gangscheduler import running_gang_scheduler
from helpers.poll import eventually, never
from localcluster.gangscheduler import NAME
from tfjob_controller.programs.gangscheduler import GangScheduler as Program


@pytest.fixture
def owner(gang_scheduling: Cluster) -> Owner:
    return Owner(gang_scheduling.api, "gangs")


def test_no_pod_is_bound_before_the_last_one_has_come_and_then_all_are_where_placed(
    owner: Owner,
) -> None:
    owner.submit("one", worker=3, ps=2)
    status = owner.await_phase("one", "Admitted")
    owner.make_pods("one", skip=frozenset({"worker-2"}))
    never(lambda: any(owner.nodes("one").values()), 3)
    owner.make_pod("one", "worker-2", status["attempt"])
    owner.await_phase("one", "Bound")
    placed = {member: place["node"] for place in status["placement"] for member in place["members"]}
    assert owner.nodes("one") == placed
    assert len(placed) == 5


def test_of_two_gangs_that_do_not_fit_together_one_waits_until_the_other_has_gone(
    owner: Owner, gang_scheduling: Cluster
) -> None:
    owner.submit("first", worker=6)
    owner.await_phase("first", "Admitted")
    owner.submit("second", worker=6)
    waiting = owner.await_phase("second", "Waiting")
    assert waiting["position"] == 1
    assert "cpu" in waiting["message"]
    owner.make_pods("first")
    owner.await_phase("first", "Bound")
    for member in owner.nodes("first"):
        gang_scheduling.api.delete(f"/api/v1/namespaces/gangs/pods/first-{member}-1", gracePeriodSeconds=0)
    owner.await_phase("first", "Released")
    owner.await_phase("second", "Admitted")


def test_another_pod_is_kept_off_capacity_that_is_reserved(owner: Owner, gang_scheduling: Cluster) -> None:
    owner.submit("holder", worker=8)
    owner.await_phase("holder", "Admitted")
    gang_scheduling.api.create("/api/v1/namespaces/gangs/pods", pod("stranger", "1", scheduler=NAME))
    path = "/api/v1/namespaces/gangs/pods/stranger"
    eventually(lambda: "reserved for gangs" in str(gang_scheduling.api.get(path)["status"].get("conditions")))
    owner.make_pods("holder")
    owner.await_phase("holder", "Bound")
    assert not gang_scheduling.api.get(path)["spec"].get("nodeName")


def test_a_suspended_gang_releases_its_capacity_and_queues_again_once_it_is_resumed(
    owner: Owner, gang_scheduling: Cluster
) -> None:
    owner.submit("rest", worker=6)
    owner.await_phase("rest", "Admitted")
    path = f"{GANGS.format('gangs')}/rest"
    gang_scheduling.api.patch(path, {"spec": {"suspend": True}})
    owner.await_phase("rest", "Released")
    owner.submit("other", worker=6)
    owner.await_phase("other", "Admitted")
    gang_scheduling.api.patch(path, {"spec": {"suspend": False}})
    assert owner.await_phase("rest", "Waiting")["position"] == 1
    gang_scheduling.api.delete(f"{GANGS.format('gangs')}/other")
    assert owner.await_phase("rest", "Admitted")["attempt"] == 2


@pytest.fixture
def tight_quota(gang_cluster: Cluster) -> Iterator[str]:
    """The path of a quota of two pods, which is in force; before the gang scheduler starts, so that it knows it."""
    path = "/api/v1/namespaces/gangs/resourcequotas"
    spec = {"hard": {"pods": "2"}}
    gang_cluster.api.create(
        path, {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "tight"}, "spec": spec}
    )
    try:
        # The API server enforces what kube-controller-manager has taken over into the status, and so does this one.
        eventually(lambda: gang_cluster.api.get(f"{path}/tight")["status"].get("hard"))
        yield f"{path}/tight"
    finally:
        gang_cluster.api.delete(f"{path}/tight")


def test_a_gang_waits_for_a_quota_of_its_namespace_until_that_allows_it(
    tight_quota: str, gang_cluster: Cluster, owner: Owner
) -> None:
    owner.submit("wide", worker=3)
    waiting = owner.await_phase("wide", "Waiting")
    assert waiting["message"] == "waits for quota: 3 \u00d7 pods, 2 left"
    gang_cluster.api.patch(tight_quota, {"spec": {"hard": {"pods": "3"}}})
    owner.await_phase("wide", "Admitted")
    owner.make_pods("wide")
    owner.await_phase("wide", "Bound")
    owner.submit("next", worker=1)
    assert owner.await_phase("next", "Waiting")["message"] == "waits for quota: 1 \u00d7 pods, 0 left"


def test_in_fair_order_the_namespace_that_has_less_comes_before_older_gangs(gang_cluster: Cluster) -> None:
    api = gang_cluster.api
    api.create_if_missing("/api/v1/namespaces", {"metadata": {"name": "small-team"}})
    flood, small = Owner(api, "gangs"), Owner(api, "small-team")
    with running_gang_scheduler(gang_cluster.kubeconfig, queue_order="fair"):
        for number in range(4):
            flood.submit(f"flood-{number}", worker=4)
        flood.await_phase("flood-0", "Admitted")
        flood.await_phase("flood-1", "Admitted")
        flood.await_phase("flood-2", "Waiting")
        small.submit("late", worker=4)
        small.await_phase("late", "Waiting")
        api.delete(f"{GANGS.format('gangs')}/flood-0")
        small.await_phase("late", "Admitted")
        assert flood.status("flood-2")["phase"] == "Waiting"


def test_the_weight_of_a_namespace_is_that_of_its_annotation_also_when_it_changes(gang_cluster: Cluster) -> None:
    """Of two that hold as much, the one of the larger weight is next, although the other has waited longer."""
    api = gang_cluster.api
    owners = {name: Owner(api, name) for name in ("light", "heavy")}
    annotation = "scheduling.kubeflow.org/queue-weight"
    for name in owners:
        api.create_if_missing("/api/v1/namespaces", {"metadata": {"name": name}})
    with running_gang_scheduler(gang_cluster.kubeconfig, queue_order="fair") as scheduler:
        for name, owner in owners.items():
            owner.submit(f"{name}-holds", worker=4)
            owner.await_phase(f"{name}-holds", "Admitted")
        owners["light"].submit("light-waits", worker=1)
        owners["light"].await_phase("light-waits", "Waiting")
        owners["heavy"].submit("heavy-waits", worker=1)
        eventually(lambda: owners["heavy"].status("heavy-waits").get("position") == 2)
        api.patch("/api/v1/namespaces/heavy", {"metadata": {"annotations": {annotation: "lots"}}})
        eventually(lambda: scheduler.caches.namespaces and _weight_text(scheduler, "heavy") == "lots")
        assert scheduler.caches.weight_of("heavy") == 1.0
        api.patch("/api/v1/namespaces/heavy", {"metadata": {"annotations": {annotation: "2"}}})
        eventually(lambda: owners["heavy"].status("heavy-waits").get("position") == 1)
        assert owners["light"].status("light-waits")["phase"] == "Waiting"


def _weight_text(scheduler: Program, namespace: str) -> str:
    found = scheduler.caches.namespaces.store.get(namespace) if scheduler.caches.namespaces is not None else None
    return found.metadata.annotations.queue_weight if found is not None else ""
