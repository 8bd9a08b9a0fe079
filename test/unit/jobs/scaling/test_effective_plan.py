"""Jobs whose workers come and go: which there are, what they are told, and that the others do not notice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from helpers.clusterinmemory import World, running_world, world
from helpers.gangs import member_ids
from helpers.manifests import master, parameter_servers, workers
from tfjob_controller.api.common.core import JOBS, BatchJob
from tfjob_controller.api.gang import (
    ADMITTED,
    ATTEMPT_LABEL,
    BOUND,
    MEMBER_LABEL,
    WAITING,
    NodePlacement,
    wanted_members,
)
from tfjob_controller.jobs.actions.model import Actions, Delete
from tfjob_controller.jobs.plan.gangterms import ON, ON_REQUEST, GangPolicy
from tfjob_controller.jobs.state.observed import JOB_COMPLETE

MOST = 6


def elastic(count: int = 4, **spec: Any) -> dict[str, Any]:
    return {"workerReplicas": count, "autoscaling": {"minWorkers": 1, "maxWorkers": MOST}, **spec}


def running(count: int = 4, **spec: Any) -> World:
    return running_world(master(), workers(1), parameter_servers(1), **elastic(count, **spec))


def worker_jobs(cluster: World) -> dict[int, BatchJob]:
    """By index, those that are not on their way out."""
    return {
        int(job.metadata.labels["task_index"]): job
        for job in cluster.jobs.values()
        if job.metadata.labels["job_type"] == "WORKER" and job.metadata.deletion_timestamp is None
    }


def indexes(cluster: World) -> list[int]:
    return sorted(worker_jobs(cluster))


def scale(cluster: World, count: int) -> None:
    cluster.change(worker_replicas=count)
    cluster.settle()


# Without a gang


def told(cluster: World, replica_id: str) -> dict[str, list[str]]:
    """The addresses in TF_CONFIG, of a child made now."""
    plan = cluster.plan
    replica = next(each for each in plan.replicas.candidates if each.id == replica_id)
    found: dict[str, list[str]] = json.loads(plan.environment(replica)["TF_CONFIG"])["cluster"]
    return found


def test_every_replica_gets_the_addresses_of_the_maximum_of_workers() -> None:
    cluster = running(2)
    for replica in ("master-0", "ps-0", "worker-0", "worker-1"):
        assert told(cluster, replica)["worker"] == [f"example-job-worker-a6no-{index}:2222" for index in range(MOST)]
    assert indexes(cluster) == [0, 1]
    assert len(cluster.services) == 4


def test_what_a_leaving_worker_exits_with_counts_for_nothing() -> None:
    cluster = running(3, backoffLimit=0, failurePolicy="AnyReplica")
    cluster.lingers = True
    scale(cluster, 2)
    cluster.pod_deleted("worker-2")
    cluster.exits("worker-2", 1)
    cluster.job_status("worker-2", failed=1)
    cluster.settle()
    cluster.reap()
    cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.restarts) == ("Running", 0)
    assert indexes(cluster) == [0, 1]


def test_a_worker_that_is_wanted_again_waits_until_its_old_pod_has_gone() -> None:
    cluster = running(3)
    cluster.lingers = True
    scale(cluster, 2)
    scale(cluster, 3)
    assert indexes(cluster) == [0, 1]
    cluster.reap()
    cluster.settle()
    assert indexes(cluster) == [0, 1, 2]


def test_a_worker_that_has_succeeded_keeps_its_index_and_counts_as_one_of_those_that_are_wanted() -> None:
    cluster = running(4)
    cluster.exits("worker-1", 0)
    cluster.job_ends("worker-1", JOB_COMPLETE)
    cluster.settle()
    cluster.delete_job(cluster.name("worker-1"))
    scale(cluster, 3)
    assert indexes(cluster) == [0, 2]
    scale(cluster, 4)
    assert indexes(cluster) == [0, 2, 3]
    assert cluster.job.status.succeeded_indexes == ("worker-1",)


def test_a_worker_that_is_on_its_way_out_anyway_is_the_first_to_leave() -> None:
    cluster = running(4)
    cluster.lingers = True
    cluster.carry_out(Actions(deletes=(Delete(JOBS, cluster.name("worker-1"), "", foreground=True),)))
    scale(cluster, 3)
    assert indexes(cluster) == [0, 2, 3]


def test_a_most_that_is_lowered_makes_the_highest_leave() -> None:
    cluster = running(4)
    cluster.change(
        worker_replicas=3,
        autoscaling=replace(cluster.job.spec.autoscaling, max_workers=3),  # type: ignore[type-var]  # it has one
    )
    cluster.settle()
    assert indexes(cluster) == [0, 1, 2]


# As a gang


class Gangs:
    """A world whose gang scheduler is played."""

    def __init__(self, count: int = 4, **spec: Any) -> None:
        self.world = world(master(), workers(1), **elastic(count, gang={"enabled": True}, **spec))
        self.world.gangs = GangPolicy(ON_REQUEST, "gang-scheduler", autoscaling=ON)

    def start(self) -> World:
        self.world.settle()
        self.says("admit")
        self.world.settle()
        self.world.all_run()
        self.says("bound")
        self.world.settle()
        return self.world

    def says(self, word: str, leaving: tuple[str, ...] = ()) -> None:
        gang = self.world.gang
        assert gang is not None
        status = gang.status
        if word == "waiting":
            status = replace(status, phase=WAITING, placement=())
        elif word == "admit":
            placement = (NodePlacement("n1", member_ids(gang.spec)),)
            status = replace(status, phase=ADMITTED, attempt=status.attempt + 1, placement=placement, leaving=())
        elif word == "bound":
            status = replace(status, phase=BOUND)
        elif word == "leaving":
            count = self.count - len(leaving)
            status = replace(status, leaving=leaving, target_members={"worker": count}, target_reason="capacity for b")
        elif word == "follows":
            placement = (NodePlacement("n1", wanted_members(gang)),)
            status = replace(status, placement=placement, leaving=(), target_members={}, target_reason="")
        self.world.gang = replace(gang, status=status)

    @property
    def count(self) -> int:
        assert self.world.gang is not None
        return next(each.count for each in self.world.gang.spec.members if each.name == "worker")


def test_bounds_are_written_for_the_gang_scheduler() -> None:
    spec = Gangs(4).start().gang.spec  # type: ignore[union-attr]  # it has one
    assert (spec.min_members, spec.max_members) == ({"worker": 1}, {"worker": MOST})


def test_the_gang_follows_when_the_most_changes() -> None:
    gangs = Gangs(4)
    cluster = gangs.start()
    autoscaling = cluster.job.spec.autoscaling
    assert autoscaling is not None
    cluster.change(autoscaling=replace(autoscaling, max_workers=9))
    cluster.settle()
    assert cluster.gang is not None
    assert cluster.gang.spec.max_members == {"worker": 9}
    cluster.gangs = GangPolicy(ON_REQUEST, "gang-scheduler")
    cluster.settle()
    assert cluster.gang.spec.max_members == {}


def test_a_gang_that_starts_partly_gets_the_addresses_of_all_possible_members() -> None:
    gangs = Gangs(3)
    cluster = gangs.world
    cluster.settle()
    gangs.says("admit")
    assert cluster.gang is not None
    part = (NodePlacement("n1", ("master-0", "worker-0")),)
    cluster.gang = replace(cluster.gang, status=replace(cluster.gang.status, placement=part))
    created = {each.name: each.body for each in cluster.actions().creates if each.resource is JOBS}
    assert created.keys() == {cluster.name("master-0"), cluster.name("worker-0")}
    for body in created.values():
        (variable,) = body["spec"]["template"]["spec"]["containers"][0]["env"]
        assert len(json.loads(variable["value"])["cluster"]["worker"]) == MOST


def test_the_gang_names_the_leaving_members() -> None:
    gangs = Gangs(4)
    cluster = gangs.start()
    before = dict(cluster.jobs)
    gangs.says("leaving", ("worker-1",))
    scale(cluster, 3)
    assert indexes(cluster) == [0, 2, 3]
    assert gangs.count == 3
    assert all(cluster.jobs[name] is before[name] for name in cluster.jobs)
    gangs.says("follows")
    cluster.settle()
    assert (indexes(cluster), gangs.count) == ([0, 2, 3], 3)
    scale(cluster, 4)
    gangs.says("follows")
    cluster.settle()
    assert (indexes(cluster), gangs.count) == ([0, 1, 2, 3], 4)


@pytest.mark.parametrize("done", ["nothing", "the gang", "the gang, and its scheduler followed", "one Job"])
def test_a_crash_during_a_shrink_does_not_change_the_leaving_members(done: str) -> None:
    gangs = Gangs(4)
    cluster = gangs.start()
    gangs.says("leaving", ("worker-1", "worker-2"))
    cluster.change(worker_replicas=2)
    actions = cluster.actions()
    if "the gang" in done:
        cluster.carry_out(Actions(patches=actions.patches))
    if "followed" in done:
        gangs.says("follows")
    if done == "one Job":
        cluster.delete_job(cluster.name("worker-2"))
    cluster.settle()
    assert indexes(cluster) == [0, 3]
    assert gangs.count == 2


def test_workers_added_during_a_shrink_are_the_leaving_ones() -> None:
    gangs = Gangs(4)
    cluster = gangs.start()
    gangs.says("leaving", ("worker-1", "worker-2"))
    scale(cluster, 3)
    assert (indexes(cluster), gangs.count) == ([0, 1, 3], 3)


def test_a_gang_with_holes_that_goes_back_to_the_queue_starts_again_without_them() -> None:
    gangs = Gangs(4)
    cluster = gangs.start()
    gangs.says("leaving", ("worker-1",))
    scale(cluster, 3)
    gangs.says("follows")
    gangs.says("waiting")
    cluster.settle()
    assert cluster.jobs == {}
    gangs.says("admit")
    cluster.settle()
    assert (indexes(cluster), gangs.count) == ([0, 1, 2], 3)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("scale"), st.integers(1, MOST)),
        st.tuples(st.sampled_from(("leaving", "follows", "waiting", "admit", "bound")), st.integers(1, MOST - 1)),
        st.tuples(st.sampled_from(("ends", "lost", "reap", "sync", "suspend", "resume")), st.integers(1, MOST - 1)),
    ),
    max_size=20,
)


@given(steps)
def test_a_job_always_has_the_desired_number_of_workers_with_worker_0(
    happenings: list[tuple[str, int]],
) -> None:
    gangs = Gangs(3)
    cluster = gangs.start()
    cluster.lingers = True
    first = cluster.jobs[cluster.name("worker-0")].metadata.uid
    attempts = 1
    for word, number in happenings:
        attempts += happen(gangs, word, number)
        cluster.sync()
        if attempts == 1 and not cluster.job.spec.suspend:
            assert worker_jobs(cluster)[0].metadata.uid == first
    settle_whole(gangs)
    wanted = cluster.job.spec.worker_replicas
    done = {int(each.rpartition("-")[2]) for each in cluster.job.status.succeeded_indexes}
    alive = set(indexes(cluster))
    assert len(alive | done) >= (wanted or 0)
    assert len(alive - done) <= (wanted or 0)
    assert cluster.gang is not None
    attempt = str(cluster.gang.status.attempt)
    present = [job for job in worker_jobs(cluster).values() if job.metadata.labels[ATTEMPT_LABEL] == attempt]
    members = [job.metadata.labels[MEMBER_LABEL] for job in present]
    assert len(members) == len(set(members))


def happen(gangs: Gangs, word: str, number: int) -> int:
    """1 for the beginning of another attempt."""
    cluster, gang = gangs.world, gangs.world.gang
    assert gang is not None
    if word == "scale":
        cluster.change(worker_replicas=number)
    elif word in ("suspend", "resume"):
        cluster.change(suspend=word == "suspend")
        return 1
    elif word == "reap":
        cluster.reap()
    elif word == "leaving":
        members = [each for each in wanted_members(gang) if each.startswith("worker-") and each != "worker-0"]
        if gang.status.phase == BOUND:
            gangs.says("leaving", tuple(members[:number]))
    elif word in ("ends", "lost"):
        go(cluster, word, number)
    elif word in ("follows", "bound") and gang.status.phase in (ADMITTED, BOUND):
        gangs.says(word)
    elif word == "waiting" or (word == "admit" and gang.status.phase == WAITING and not gang.spec.suspend):
        gangs.says(word)
        return 1
    return 0


def go(cluster: World, word: str, number: int) -> None:
    job = worker_jobs(cluster).get(number)
    if job is not None and not job.spec.suspend and word == "ends":
        cluster.exits(f"worker-{number}", 0)
        cluster.job_ends(f"worker-{number}", JOB_COMPLETE)
    elif job is not None and word == "lost":
        cluster.delete_job(job.metadata.name)


def settle_whole(gangs: Gangs) -> None:
    cluster = gangs.world
    cluster.change(suspend=False)
    for _ in range(6):
        cluster.reap()
        cluster.settle()
        assert cluster.gang is not None
        if cluster.gang.status.phase not in (ADMITTED, BOUND):
            gangs.says("admit")
        gangs.says("follows")
        gangs.says("bound")
        cluster.settle()
