"""What is said of a job whose number of workers changes, and when the controller changes it itself."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import World, running_world, world
from helpers.manifests import master, workers
from tfjob_controller.api.common.status import JobCondition
from tfjob_controller.api.gang import ADMITTED, BOUND, NodePlacement, wanted_members
from tfjob_controller.jobs.conditions import StatusEvent
from tfjob_controller.jobs.plan.gangterms import (
    OFF,
    ON,
    ON_REQUEST,
    RECOMMEND,
    GangPolicy,
)
from tfjob_controller.jobs.state.observed import JOB_COMPLETE
from tfjob_controller.jobs.status.update import StatusResult

WHY = "capacity for default/b, waiting 31 s"


def gang_world(mode: str = ON, **autoscaling: Any) -> World:
    """A job of 4 workers that runs as a gang."""
    given = {"minWorkers": 2, "maxWorkers": 6, **autoscaling}
    cluster = world(master(), workers(1), workerReplicas=4, gang={"enabled": True}, autoscaling=given)
    cluster.gangs = GangPolicy(ON_REQUEST, "gang-scheduler", autoscaling=mode)
    cluster.settle()
    for phase in (ADMITTED, BOUND):
        follow(cluster, phase)
        cluster.settle()
        cluster.all_run()
    cluster.settle()
    cluster.lingers = True
    return cluster


def follow(cluster: World, phase: str = BOUND) -> None:
    """What the gang scheduler does once it has seen the count."""
    gang = cluster.gang
    assert gang is not None
    placement = (NodePlacement("n1", wanted_members(gang)),)
    status = replace(gang.status, phase=phase, attempt=1, placement=placement, target_members={}, leaving=())
    cluster.gang = replace(gang, status=replace(status, target_reason=""))


def wish(cluster: World, target: int, *leaving: str, reason: str = WHY) -> None:
    assert cluster.gang is not None
    status = replace(cluster.gang.status, target_members={"worker": target}, leaving=leaving, target_reason=reason)
    cluster.gang = replace(cluster.gang, status=status)


def resizing(cluster: World) -> JobCondition | None:
    return next((each for each in cluster.job.status.conditions if each.type == "Resizing"), None)


def said(cluster: World) -> tuple[str, str, str]:
    found = resizing(cluster)
    assert found is not None
    return found.status, found.reason, found.message


def notes(cluster: World, reason: str) -> list[str]:
    return [event.note for event in cluster.events if event.reason == reason]


def act(cluster: World) -> StatusResult:
    """Sync, and do to the spec what the answer asks for."""
    result = cluster.sync()
    if result.scale_to is not None:
        cluster.change(worker_replicas=result.scale_to)
    return result


@pytest.mark.parametrize("before", [2, 4])
def test_a_change_of_the_spec_has_an_event_and_the_condition_holds_until_the_children_follow(before: int) -> None:
    cluster = running_world(master(), workers(before))
    assert resizing(cluster) is None
    cluster.lingers = True
    cluster.change(worker_replicas=3)
    cluster.sync()
    words = f"scaled {before} → 3 workers by spec.workerReplicas"
    assert said(cluster) == ("True", "ChildrenFollow", words)
    cluster.reap()
    cluster.settle()
    assert said(cluster) == ("False", "Resized", words)
    assert notes(cluster, "Resized") == [words]


def test_a_change_of_the_entry_is_reported_as_that() -> None:
    cluster = running_world(master(), workers(2))
    specs = cluster.job.spec.replica_specs
    cluster.change(replica_specs=(specs[0], replace(specs[1], replicas=3)))
    cluster.settle()
    assert notes(cluster, "Resized") == ["scaled 2 → 3 workers by replicas of WORKER"]


def test_the_resize_request_is_recorded_before_it_is_written_and_told_once_it_is_there() -> None:
    cluster = gang_world()
    wish(cluster, 2, "worker-1", "worker-2")
    result = act(cluster)
    assert result.scale_to == 2
    assert result.status.scaling is not None
    assert (result.status.scaling.target, result.status.scaling.replicas) == (2, 4)
    act(cluster)
    words = f"shrunk 4 → 2 workers: {WHY}"
    assert said(cluster) == ("True", "ChildrenFollow", words)
    follow(cluster)
    act(cluster)
    assert said(cluster)[0] == "True"
    cluster.reap()
    cluster.settle()
    assert said(cluster) == ("False", "Resized", words)
    assert notes(cluster, "Resized") == [words]
    assert notes(cluster, "AutoscalerOverridden") == []


@pytest.mark.parametrize(
    ("target", "reason", "note"),
    [
        (5, "the cluster has free capacity", "grown 4 → 5 workers: the cluster has free capacity"),
        (3, "", "shrunk 4 → 3 workers: the gang scheduler requests it"),
    ],
)
def test_a_resize_is_reported_with_its_reason_or_a_general_one(target: int, reason: str, note: str) -> None:
    cluster = gang_world()
    wish(cluster, target, reason=reason)
    act(cluster)
    act(cluster)
    assert StatusEvent("Normal", "Resized", note) in cluster.events


def test_a_resize_request_stands_until_it_is_fulfilled_or_withdrawn() -> None:
    cluster = gang_world()
    wish(cluster, 3, "worker-3")
    assert cluster.sync().scale_to == 3
    assert cluster.sync().scale_to == 3
    follow(cluster)
    assert cluster.sync().scale_to is None
    assert cluster.job.status.scaling is not None
    assert cluster.job.status.scaling.target == 0


@pytest.mark.parametrize(("target", "written"), [(1, 2), (9, 6)])
def test_a_resize_request_beyond_the_bounds_of_the_job_is_cut(target: int, written: int) -> None:
    cluster = gang_world()
    wish(cluster, target)
    assert cluster.sync().scale_to == written


def test_a_user_who_scales_before_the_resize_request_is_written_wins_and_gets_an_event() -> None:
    cluster = gang_world()
    wish(cluster, 2, "worker-2", "worker-3")
    cluster.sync()
    cluster.change(worker_replicas=5)
    assert cluster.sync().scale_to is None
    assert notes(cluster, "Resized") == ["scaled 4 → 5 workers by spec.workerReplicas"]
    (note,) = notes(cluster, "AutoscalerOverridden")
    assert note.startswith("Worker count changed to 5, overriding the autoscaler's target of 2")


def test_a_user_who_resizes_further_or_reverts_an_own_resize_does_not_override_the_autoscaler() -> None:
    cluster = gang_world()
    wish(cluster, 3, "worker-3")
    act(cluster)
    act(cluster)
    follow(cluster)
    cluster.reap()
    cluster.settle()
    cluster.change(worker_replicas=2)
    cluster.settle()
    assert notes(cluster, "AutoscalerOverridden") == []
    cluster.reap()
    cluster.change(worker_replicas=4)
    cluster.settle()
    assert notes(cluster, "AutoscalerOverridden") == []


def test_a_fight_is_reported_each_time() -> None:
    cluster = gang_world()
    for count in (1, 2):
        wish(cluster, 3, "worker-3")
        act(cluster)
        act(cluster)
        follow(cluster)
        cluster.reap()
        cluster.settle()
        cluster.change(worker_replicas=4)
        cluster.settle()
        follow(cluster)
        cluster.settle()
        assert len(notes(cluster, "AutoscalerOverridden")) == count


def test_a_recommendation_is_only_said_and_only_once() -> None:
    cluster = gang_world(RECOMMEND)
    wish(cluster, 2, "worker-2", "worker-3")
    for restarts in range(3):
        cluster.runs("worker-1", restart_count=restarts)
        assert cluster.sync().scale_to is None
    words = f"recommends 4 → 2 workers: {WHY}"
    assert said(cluster) == ("False", "ResizeRecommended", words)
    assert notes(cluster, "ResizeRecommended") == [words]
    follow(cluster)
    cluster.settle()
    assert said(cluster)[:2] == ("False", "NoneRecommended")


def _off(cluster: World) -> None:
    cluster.gangs = GangPolicy(ON_REQUEST, "gang-scheduler", autoscaling=OFF)


def _suspended(cluster: World) -> None:
    cluster.change(suspend=True)


def _being_resized(cluster: World) -> None:
    cluster.change(worker_replicas=3)
    cluster.sync()


def _a_worker_has_succeeded(cluster: World) -> None:
    cluster.exits("worker-1", 0)
    cluster.job_ends("worker-1", JOB_COMPLETE)


def _the_chief_has_ended(cluster: World) -> None:
    cluster.exits("master-0", 0)


def _not_bound_yet(cluster: World) -> None:
    follow(cluster, ADMITTED)


def _changed_since(cluster: World) -> None:
    assert cluster.gang is not None
    cluster.gang = replace(cluster.gang, metadata=replace(cluster.gang.metadata, generation=1))


def _without_autoscaling(cluster: World) -> None:
    cluster.change(autoscaling=None)


@pytest.mark.parametrize(
    "happens",
    [
        _off,
        _suspended,
        _being_resized,
        _a_worker_has_succeeded,
        _the_chief_has_ended,
        _not_bound_yet,
        _changed_since,
        _without_autoscaling,
    ],
    ids=lambda each: each.__name__,
)
def test_nobody_is_resized_that(happens: Any) -> None:
    cluster = gang_world()
    happens(cluster)
    wish(cluster, 2, "worker-2", "worker-3")
    assert cluster.sync().scale_to is None


def test_a_job_that_ends_is_not_resizing_any_more() -> None:
    cluster = running_world(master(), workers(3))
    cluster.lingers = True
    cluster.change(worker_replicas=2)
    cluster.sync()
    assert said(cluster)[0] == "True"
    cluster.exits("master-0", 0)
    cluster.settle()
    assert said(cluster)[:2] == ("False", "ChiefSucceeded")
