"""An elastic TrainJob as a gang: it starts with a part of its nodes, and is resized with it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import World
from helpers.trainworld import admit, train_plan, train_world, true_conditions
from tfjob_controller.api.common.core import Condition
from tfjob_controller.api.gang import ADMITTED, BOUND, Gang, GangStatus, NodePlacement
from tfjob_controller.jobs.actions.children import build_job
from tfjob_controller.jobs.gang.podgroup import build_pod_group
from tfjob_controller.jobs.plan.gangterms import (
    ALWAYS,
    OFF,
    ON,
    GangPolicy,
)
from tfjob_controller.jobs.plan.podgroupbackends import BACKENDS
from tfjob_controller.jobs.status.update import StatusResult

POLICY = GangPolicy(ALWAYS, "gang-scheduler", autoscaling=ON)
ELASTIC = {"command": ["torchrun", "x"], "elasticPolicy": {"minNodes": 2, "maxNodes": 6}}


def gang_of(cluster: World) -> Gang:
    assert cluster.gang is not None
    return cluster.gang


def waiting(nodes: int = 4, policy: GangPolicy = POLICY) -> World:
    cluster = train_world(nodes=nodes, gangs=policy, **ELASTIC)
    cluster.settle()
    return cluster


def places(cluster: World, *indexes: int, phase: str = BOUND, **status: object) -> None:
    """The gang scheduler has nodes for these members."""
    gang = gang_of(cluster)
    placement = (NodePlacement("n1", tuple(f"node-{index}" for index in indexes)),)
    new = GangStatus(
        phase=phase,
        attempt=max(gang.status.attempt, 1),
        placement=placement,
        observed_generation=gang.metadata.generation,
    )
    cluster.gang = replace(gang, status=replace(new, **status))


def started(*indexes: int, nodes: int = 4) -> World:
    cluster = waiting(nodes)
    places(cluster, *indexes, phase=ADMITTED)
    cluster.settle()
    for index in indexes:
        cluster.runs(f"node-{index}")
    places(cluster, *indexes)
    cluster.settle()
    return cluster


def count(cluster: World) -> int:
    """The nodes that the Gang asks for."""
    (member,) = gang_of(cluster).spec.members
    return member.count


def resize(cluster: World, nodes: int) -> StatusResult:
    cluster.change(num_nodes=nodes)
    return cluster.settle()


@pytest.mark.parametrize(("autoscaling", "most"), [(ON, {"node": 6}), (OFF, {})])
def test_the_gang_has_the_bounds_of_the_job(autoscaling: str, most: dict[str, int]) -> None:
    cluster = waiting(4, replace_autoscaling(autoscaling))
    spec = gang_of(cluster).spec
    (member,) = spec.members
    assert (member.name, member.count, member.indexed) == ("node", 4, True)
    assert (spec.min_members, spec.max_members) == ({"node": 2}, most)


def replace_autoscaling(autoscaling: str) -> GangPolicy:
    return GangPolicy(ALWAYS, "gang-scheduler", autoscaling=autoscaling)


def test_a_job_of_a_fixed_size_has_no_bounds() -> None:
    cluster = train_world(nodes=4, gangs=POLICY, command=["torchrun", "x"])
    cluster.settle()
    assert (gang_of(cluster).spec.min_members, gang_of(cluster).spec.max_members) == ({}, {})


def test_it_starts_with_the_nodes_that_have_a_place_and_grows_to_the_others() -> None:
    cluster = started(0, 1, 2)
    job = cluster.jobs[cluster.name("node-0")]
    assert job.spec.parallelism == 3
    assert count(cluster) == 4
    status = cluster.job.status
    assert (status.nodes, status.current_nodes, status.phase, status.restarts) == ("3/4", 3, "Running", 0)
    cluster.advance(60)
    cluster.settle()
    assert cluster.job.status.reason == ""
    places(cluster, 0, 1, 2, 3)
    cluster.settle()
    assert cluster.resizes == [4]
    cluster.runs("node-3")
    cluster.settle()
    assert (cluster.job.status.nodes, cluster.job.status.restarts) == ("4/4", 0)


def test_it_does_not_start_with_fewer_than_the_minimum() -> None:
    cluster = waiting(4)
    places(cluster, 0, phase=ADMITTED)
    cluster.settle()
    assert cluster.jobs == {}


def test_only_indexes_without_a_gap_start() -> None:
    cluster = waiting(5)
    places(cluster, 0, 1, 3, phase=ADMITTED)
    cluster.settle()
    assert cluster.jobs[cluster.name("node-0")].spec.parallelism == 2


def test_a_part_of_the_nodes_that_have_all_succeeded_ends_the_job() -> None:
    cluster = started(0, 1, 2)
    for index in range(3):
        cluster.exits(f"node-{index}", 0)
        cluster.job_ends(f"node-{index}", "Complete")
    assert cluster.jobs[cluster.name("node-0")].status.completed_indexes == "0,1,2"
    complete_with_its_own_count(cluster)
    cluster.settle()
    assert cluster.job.status.state == "SUCCESS"


def complete_with_its_own_count(cluster: World) -> None:
    cluster.job_status("node-0", conditions=(Condition("Complete", "True"),), active=0)


def test_a_resize_goes_through_the_gang_up_but_not_down() -> None:
    cluster = started(0, 1, 2, nodes=3)
    resize(cluster, 5)
    assert (count(cluster), cluster.resizes) == (5, [])
    places(cluster, 0, 1, 2, 3)
    cluster.settle()
    assert cluster.resizes == [4]
    cluster.settle()
    assert "Resizing" in true_conditions(cluster)
    resize(cluster, 2)
    assert (count(cluster), cluster.resizes) == (2, [4, 2])
    assert cluster.job.status.restarts == 0


def test_the_gang_schedulers_request_is_carried_out() -> None:
    cluster = started(0, 1, 2, 3)
    places(
        cluster,
        0, 1, 2, 3,
        target_members={"node": 2},
        leaving=("node-2", "node-3"),
        target_reason="capacity for b",
    )  # fmt: skip
    result = cluster.sync()
    assert result.scale_to == 2
    assert (cluster.job.status.scaling.target, cluster.job.status.scaling.nodes) == (2, 4)
    resize(cluster, 2)
    notes = [each.note for each in cluster.events if each.reason == "Resized"]
    assert notes == ["shrunk 4 → 2 nodes: capacity for b"]
    assert {name for name, pods in by_index(cluster).items() if not pods} == {"2", "3"}


def by_index(cluster: World) -> dict[str, list[str]]:
    """The pods that stay."""
    found: dict[str, list[str]] = {str(index): [] for index in range(4)}
    for pod in cluster.pods[cluster.name("node-0")]:
        if pod.metadata.deletion_timestamp is None:
            labels = pod.metadata.labels
            found[labels["batch.kubernetes.io/job-completion-index"]].append(pod.metadata.uid)
    return found


def test_node_0_restarts_all_in_the_same_gang() -> None:
    cluster = started(0, 1, 2)
    cluster.exits("node-0", 137, "Error")
    cluster.settle()
    cluster.reap()
    cluster.settle()
    job = cluster.jobs[cluster.name("node-0")]
    assert (job.spec.parallelism, cluster.job.status.scaling.attempt) == (3, 1)


def test_a_resumed_job_takes_the_nodes_of_its_new_admission() -> None:
    cluster = started(0, 1, 2, 3)
    cluster.change(suspend=True)
    cluster.settle()
    resize(cluster, 3)
    assert cluster.resizes == []
    cluster.change(suspend=False)
    cluster.settle()
    admit(cluster)
    for _ in range(3):
        cluster.settle()
        cluster.reap()
    assert cluster.jobs[cluster.name("node-0")].spec.parallelism == 3


@pytest.mark.parametrize("name", BACKENDS)
def test_other_schedulers_start_with_the_minimum_and_no_pod_knows_the_number(name: str) -> None:
    policy = GangPolicy(ALWAYS, backend=BACKENDS[name])
    bodies = []
    for nodes in (3, 5):
        plan = train_plan(nodes=nodes, gangs=policy, **ELASTIC)
        bodies.append(build_job(plan, plan.replicas.chief)["spec"]["template"])
        assert plan.scheduling.pod_group is not None
        spec = build_pod_group(plan, plan.scheduling.pod_group, ())["spec"]
        # Kueue has no minimum: it admits the job with the number that it has then.
        assert "2" in str(spec) or name == "kueue"
        assert str(nodes) not in str({key: value for key, value in spec.items() if key != "podSets"})
    assert bodies[0] == bodies[1]
