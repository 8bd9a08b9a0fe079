"""Jobs that are resized by a restart: never two generations at once, and nobody's failure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from helpers.clusterinmemory import LOST_SECONDS, World, running_world, world
from helpers.manifests import master, parameter_servers, workers
from helpers.trainworld import ends, running_train_world, world_in_steps
from tfjob_controller.api.gang import ADMITTED, BOUND, NodePlacement, wanted_members
from tfjob_controller.jobs.naming import RESTART_ATTEMPT
from tfjob_controller.jobs.plan.gangterms import ON_REQUEST, GangPolicy
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.scaling.effective_plan import effective_plan
from tfjob_controller.jobs.state.attempts import of_current_attempt, seconds_until_pod_lost, without_lost_pods
from tfjob_controller.jobs.state.observed import JOB_COMPLETE, job_outcome
from tfjob_controller.jobs.state.pods import is_finished

RESTART: dict[str, Any] = {"autoscaling": {"minWorkers": 1, "maxWorkers": 6, "resize": "Restart"}}


def running(count: int = 3, **spec: Any) -> World:
    cluster = running_world(master(), workers(count), parameter_servers(1), **RESTART, **spec)
    cluster.lingers = True
    return cluster


def generations(cluster: World) -> set[str]:
    return {job.metadata.labels[RESTART_ATTEMPT] for job in cluster.jobs.values()}


def told(cluster: World) -> int:
    """How many workers TF_CONFIG lists, of a child made now."""
    plan = cluster.plan
    return len(json.loads(plan.environment(plan.replicas.chief)["TF_CONFIG"])["cluster"]["worker"])


def is_resizing(cluster: World) -> bool:
    return any(each.type == "Resizing" and each.status == "True" for each in cluster.job.status.conditions)


def scale(cluster: World, count: int) -> None:
    cluster.change(worker_replicas=count)
    cluster.settle()


def test_all_stop_and_start_again_once_all_have_gone_and_services_stay() -> None:
    cluster = running(3)
    before, services = dict(cluster.jobs), dict(cluster.services)
    scale(cluster, 2)
    assert cluster.jobs.keys() == before.keys()
    assert all(job.metadata.deletion_timestamp for job in cluster.jobs.values())
    cluster.delete_job(cluster.name("master-0"))
    cluster.settle()
    assert len(cluster.jobs) == len(before) - 1
    cluster.reap()
    cluster.settle()
    assert len(cluster.jobs) == 4
    assert generations(cluster) == {"1"}
    assert told(cluster) == 2
    assert all(service is services[name] for name, service in cluster.services.items())


def test_pods_that_are_still_there_keep_the_next_generation_waiting() -> None:
    cluster = running(2)
    scale(cluster, 3)
    pods = dict(cluster.pods)
    cluster.reap()
    cluster.pods = pods
    cluster.settle()
    assert cluster.jobs == {}
    cluster.pods = {}
    cluster.settle()
    assert len(cluster.jobs) == 5


def test_a_job_that_is_suspended_while_they_go_is_not_resizing_any_more() -> None:
    cluster = running(2)
    scale(cluster, 3)
    assert is_resizing(cluster)
    cluster.change(suspend=True)
    cluster.settle()
    assert not is_resizing(cluster)


def test_those_that_are_to_go_are_stopped_by_suspend_and_not_started_again_by_resume() -> None:
    cluster = running(2)
    cluster.change(worker_replicas=3)
    cluster.sync()
    cluster.change(suspend=True)
    actions = cluster.actions()
    assert {(each.name, each.suspend) for each in actions.suspends} == {(name, True) for name in cluster.jobs}
    assert actions.deletes == ()
    cluster.settle()
    cluster.change(suspend=False)
    actions = cluster.actions()
    assert {each.name for each in actions.deletes} == cluster.jobs.keys()
    assert actions.suspends == ()


def test_what_they_exit_with_is_nobodys_failure() -> None:
    cluster = running(2, backoffLimit=0, failurePolicy="AnyReplica")
    scale(cluster, 3)
    for replica in ("master-0", "worker-0", "worker-1"):
        cluster.exits(replica, 1)
        cluster.job_status(replica, failed=1)
    cluster.settle()
    cluster.reap()
    cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.restarts) == ("Running", 0)
    assert len(cluster.jobs) == 5


def test_a_worker_that_has_succeeded_does_not_run_again_and_keeps_its_log() -> None:
    cluster = running(3)
    cluster.exits("worker-1", 0)
    cluster.job_ends("worker-1", JOB_COMPLETE)
    cluster.settle()
    done = cluster.jobs[cluster.name("worker-1")]
    scale(cluster, 4)
    cluster.reap()
    cluster.settle()
    assert cluster.jobs[cluster.name("worker-1")] is done
    assert len(cluster.jobs) == 6


def test_a_resize_during_a_resize_is_one_generation_more() -> None:
    cluster = running(2)
    scale(cluster, 3)
    scale(cluster, 4)
    cluster.reap()
    cluster.settle()
    assert (generations(cluster), told(cluster)) == ({"2"}, 4)
    scale(cluster, 2)
    cluster.delete_job(cluster.name("worker-0"))
    scale(cluster, 4)
    cluster.reap()
    cluster.settle()
    assert (generations(cluster), told(cluster), len(cluster.jobs)) == ({"4"}, 4, 6)


def test_nothing_is_deleted_before_the_next_attempt_is_recorded() -> None:
    cluster = running(2)
    cluster.change(worker_replicas=3)
    actions = cluster.actions()
    assert (actions.deletes, actions.creates) == ((), ())
    cluster.sync()
    assert cluster.job.status.scaling is not None
    assert (cluster.job.status.scaling.generation, cluster.job.status.scaling.members) == (1, 3)
    assert len(cluster.actions().deletes) == 4


def test_a_suspended_job_is_resized_when_it_is_resumed() -> None:
    cluster = running(2)
    cluster.change(suspend=True)
    cluster.settle()
    scale(cluster, 3)
    assert not any(job.metadata.deletion_timestamp for job in cluster.jobs.values())
    cluster.change(suspend=False)
    cluster.settle()
    cluster.reap()
    cluster.settle()
    assert (generations(cluster), len(cluster.jobs)) == ({"1"}, 5)


# As a gang


def gang_world(count: int) -> World:
    cluster = world(master(), workers(count), gang={"enabled": True, "minWorkers": 1}, **RESTART)
    cluster.gangs = GangPolicy(ON_REQUEST, "gang-scheduler")
    cluster.lingers = True
    cluster.settle()
    return cluster


def place(cluster: World, *members: str, phase: str = BOUND, attempt: int = 1, leaving: tuple[str, ...] = ()) -> None:
    assert cluster.gang is not None
    placement = (NodePlacement("n1", members or wanted_members(cluster.gang)),)
    status = replace(cluster.gang.status, phase=phase, attempt=attempt, placement=placement, leaving=leaving)
    cluster.gang = replace(cluster.gang, status=status)
    cluster.settle()


def test_a_gang_that_starts_with_a_part_is_restarted_when_more_have_a_place() -> None:
    cluster = gang_world(3)
    place(cluster, "master-0", "worker-0", phase=ADMITTED)
    first = generations(cluster)
    assert len(cluster.jobs) == 2
    assert not any(job.metadata.deletion_timestamp for job in cluster.jobs.values())
    cluster.all_run()
    place(cluster, "master-0", "worker-0", "worker-1")
    cluster.reap()
    cluster.settle()
    assert len(cluster.jobs) == 3
    assert generations(cluster) != first


def test_nobody_is_restarted_because_a_worker_has_lost_its_place() -> None:
    cluster = gang_world(3)
    place(cluster, phase=ADMITTED)
    cluster.all_run()
    place(cluster, "master-0", "worker-0", "worker-1")
    assert not any(job.metadata.deletion_timestamp for job in cluster.jobs.values())
    assert len(cluster.jobs) == 4


def test_a_gang_keeps_its_attempt_and_takes_the_members_that_stay() -> None:
    cluster = gang_world(3)
    place(cluster, phase=ADMITTED)
    cluster.all_run()
    place(cluster, leaving=("worker-1",))
    scale(cluster, 2)
    cluster.reap()
    cluster.settle()
    members = {job.metadata.labels["scheduling.kubeflow.org/member"] for job in cluster.jobs.values()}
    assert members == {"master-0", "worker-0", "worker-2"}
    assert {job.metadata.labels["task_index"] for job in cluster.jobs.values()} == {"0", "1"}
    assert cluster.gang is not None
    assert [member.count for member in cluster.gang.spec.members] == [1, 2]


@given(st.lists(st.sampled_from(("2", "3", "5", "reap", "sync", "suspend", "resume", "fails")), max_size=15))
def test_pods_of_two_restart_attempts_never_run_at_once(happenings: list[str]) -> None:
    cluster = running(2)
    for word in happenings:
        if word.isdecimal():
            cluster.change(worker_replicas=int(word))
        elif word == "reap":
            cluster.reap()
        elif word in ("suspend", "resume"):
            cluster.change(suspend=word == "suspend")
        elif word == "fails" and cluster.name("worker-1") in cluster.jobs:
            cluster.exits("worker-1", 1)
        cluster.sync()
        alive = [job for job in cluster.jobs.values() if not job_outcome(job)]
        fresh = {each.metadata.labels[RESTART_ATTEMPT] for each in alive if each.metadata.deletion_timestamp is None}
        going = {
            each.metadata.labels[RESTART_ATTEMPT] for each in alive if each.metadata.deletion_timestamp is not None
        }
        assert len(fresh) <= 1
        assert not (fresh and going - fresh)
    cluster.change(suspend=False)
    for _ in range(3):
        cluster.settle()
        cluster.reap()
    cluster.settle()
    assert len(cluster.jobs) == 2 + (cluster.job.spec.worker_replicas or 2)
    assert len(generations(cluster)) == 1
    assert cluster.job.status.phase in ("Running", "Creating")


# Sets that are started again because one has failed: their generation is the count of their restarts.


def failed_set(count: int = 2, **job: Any) -> World:
    """All of generation 0 are told to go, and none has gone."""
    cluster = running_train_world(nodes=count, **job)
    ends(cluster, "node-0", exit_code=137)
    cluster.settle()
    for name in cluster.jobs:
        cluster.told_to_go(name)
    return cluster


def set_plan(cluster: World) -> Plan:
    return effective_plan(cluster.plan, cluster.observed, cluster.status)


def test_steps_have_the_generation_of_their_job_and_only_nodes_carry_it_and_expire() -> None:
    cluster = world_in_steps()
    cluster.settle()
    assert all(RESTART_ATTEMPT not in job.metadata.labels for job in cluster.jobs.values())
    ends(cluster, "dataset-initializer-0", "model-initializer-0")
    cluster.settle()
    cluster.all_run()
    ends(cluster, "node-0", exit_code=137)
    cluster.settle()
    assert {step.restart_attempt for step in set_plan(cluster).steps} == {1}
    nodes = [job for job in cluster.jobs.values() if RESTART_ATTEMPT in job.metadata.labels]
    assert [job.metadata.name for job in nodes] == [cluster.name("node-0")]
    current = of_current_attempt(set_plan(cluster), cluster.observed)
    assert sorted(current.jobs) == [cluster.name("dataset-initializer-0"), cluster.name("model-initializer-0")]


def test_those_of_before_have_had_their_say() -> None:
    cluster = failed_set()
    seen = of_current_attempt(set_plan(cluster), cluster.observed)
    assert seen.jobs == {}
    assert not any(seen.pods.values())
    assert cluster.status.restarts == 1


@pytest.mark.parametrize(
    ("seconds", "waits_for", "left"),
    [
        pytest.param(0, 1, LOST_SECONDS + 1, id="at-first-it-may-still-end"),
        pytest.param(LOST_SECONDS, 1, 1, id="not-yet"),
        pytest.param(LOST_SECONDS + 1, 0, None, id="its-node-is-gone"),
    ],
)
def test_a_pod_of_before_is_waited_for_until_it_is_lost(seconds: int, waits_for: int, left: float | None) -> None:
    cluster = failed_set()
    cluster.advance(seconds)
    plan = set_plan(cluster)
    kept = without_lost_pods(plan, cluster.observed, cluster.now).pods
    assert sum(not is_finished(pod) for pods in kept.values() for pod in pods) == waits_for
    assert seconds_until_pod_lost(plan, cluster.observed, cluster.now) == left


def test_the_first_generation_has_nothing_before_it() -> None:
    cluster = running_train_world()
    cluster.pod_deleted("node-1")
    cluster.advance(1000)
    plan = cluster.plan
    assert without_lost_pods(plan, cluster.observed, cluster.now) == cluster.observed
    assert seconds_until_pod_lost(plan, cluster.observed, cluster.now) is None
