"""Two pods of one replica never run at once, whoever deletes its Job, and however."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import LOST_SECONDS, World, running_world, world
from helpers.gangs import member_ids
from helpers.manifests import master, parameter_servers, workers
from helpers.trainworld import running_train_world, world_in_steps
from tfjob_controller.api.gang import ADMITTED, NodePlacement
from tfjob_controller.jobs.plan.gangterms import ON_REQUEST, GangPolicy
from tfjob_controller.jobs.state.replica_state import PATIENCE_SECONDS
from tfjob_controller.util.timestamps import format_time

ELASTIC = {"workerReplicas": 2, "autoscaling": {"minWorkers": 1, "maxWorkers": 4}}


def plain() -> World:
    return running_world(master(), workers(2))


def elastic() -> World:
    return running_world(master(), workers(1), **ELASTIC)


def gang(**spec: object) -> World:
    cluster = world(master(), workers(2), gang={"enabled": True}, **spec)
    cluster.gangs = GangPolicy(ON_REQUEST, "gang-scheduler")
    cluster.settle()
    assert cluster.gang is not None
    placement = (NodePlacement("n1", member_ids(cluster.gang.spec)),)
    status = replace(cluster.gang.status, phase=ADMITTED, attempt=1, placement=placement)
    cluster.gang = replace(cluster.gang, status=status)
    cluster.settle()
    cluster.all_run()
    cluster.settle()
    return cluster


def initializers() -> World:
    cluster = world_in_steps()
    cluster.settle()
    cluster.all_run()
    cluster.settle()
    return cluster


def fixed_set() -> World:
    return running_train_world()


WORLDS = [
    pytest.param(plain, "worker-1", id="TFJob"),
    pytest.param(elastic, "worker-1", id="elastic TFJob"),
    pytest.param(gang, "worker-1", id="gang"),
    pytest.param(lambda: gang(**ELASTIC), "worker-1", id="elastic gang"),
    pytest.param(initializers, "dataset-initializer-0", id="step of a TrainJob"),
]


def delete_job(cluster: World, replica: str) -> str:
    """In the background: the garbage collector has not come to the pods yet."""
    name = cluster.name(replica)
    del cluster.jobs[name]
    cluster.created.clear()
    return name


def is_gone(cluster: World, name: str) -> None:
    cluster.pods[name] = []


def has_ended(cluster: World, name: str) -> None:
    cluster.pods[name] = [replace(pod, status=replace(pod.status, phase="Failed")) for pod in cluster.pods[name]]


def is_lost(cluster: World, name: str) -> None:
    assert cluster.settle().wake_after_seconds == LOST_SECONDS + 1
    cluster.advance(LOST_SECONDS + 1)


@pytest.mark.parametrize(
    ("build", "replica", "end"),
    [
        *(pytest.param(*world.values, is_gone, id=world.id) for world in WORLDS),
        *((plain, "worker-1", end) for end in (has_ended, is_lost)),
    ],
)
def test_the_next_job_waits_for_the_pods_of_the_one_that_somebody_deleted(
    build: Callable[[], World], replica: str, end: Callable[[World, str], None]
) -> None:
    cluster = build()
    name = delete_job(cluster, replica)
    cluster.settle()
    cluster.told_to_go(name)
    cluster.settle()
    assert cluster.created == []
    pod = cluster.pods[name][0].metadata.name
    assert cluster.status.reason == f"{replica}: waits for pod {pod} of its deleted Job to end"
    end(cluster, name)
    cluster.settle()
    assert cluster.created == [f"Job/{name}"]
    assert cluster.status.reason == ""


@pytest.mark.parametrize("build", [plain, elastic, gang, initializers, fixed_set])
def test_a_job_that_is_resumed_does_not_run_before_the_pods_of_its_suspended_jobs_have_ended(
    build: Callable[[], World],
) -> None:
    cluster = build()
    cluster.lingers = cluster.stops_slowly = True
    cluster.change(suspend=True)
    cluster.settle()
    cluster.change(suspend=False)
    cluster.settle()
    first = next(each for each in cluster.plan.replicas.all if cluster.pods_of(each.id))
    pod = cluster.pods_of(first.id)[0].metadata.name
    assert cluster.status.reason.startswith(f"{first.id}: waits for pod {pod} of its suspended Job to end")
    assert cluster.status.summary == "Pending"
    assert all(role.ready == 0 for role in cluster.status.roles)


@pytest.mark.parametrize("build", [plain, gang, fixed_set])
def test_a_deletion_that_a_finalizer_holds_up_is_named_after_half_a_minute(build: Callable[[], World]) -> None:
    cluster = build()
    cluster.lingers = True
    cluster.change(suspend=True)
    cluster.settle()
    first = next(each for each in cluster.plan.replicas.all if each.job_name in cluster.jobs)
    cluster.pod(first.id, phase="Failed", start_time=format_time(cluster.now))
    cluster.change(suspend=False)
    assert cluster.settle().wake_after_seconds == PATIENCE_SECONDS + 1
    cluster.advance(PATIENCE_SECONDS + 1)
    cluster.settle()
    words = f"{first.id}: waits for Job {first.job_name} to be deleted, which finalizers hold up: see those of pod "
    assert cluster.status.reason.startswith(words)
    cluster.lingers = False
    cluster.reap()
    cluster.settle()
    assert "finalizers" not in cluster.status.reason


@pytest.mark.parametrize(("build", "replica"), WORLDS[:1])
def test_its_service_does_not_wait(build: Callable[[], World], replica: str) -> None:
    cluster = build()
    name = delete_job(cluster, replica)
    del cluster.services[name]
    cluster.settle()
    assert cluster.created == [f"Service/{name}"]


@pytest.mark.parametrize(
    ("build", "replica", "exit_code"),
    [
        *(pytest.param(*world.values, 0, id=world.id) for world in WORLDS),
        *((plain, "master-0", exit_code) for exit_code in (0, 1)),
    ],
)
def test_the_exit_code_of_a_terminating_pod_is_neither_success_nor_failure(
    build: Callable[[], World], replica: str, exit_code: int
) -> None:
    cluster = build()
    name = delete_job(cluster, replica)
    cluster.told_to_go(name)
    cluster.settle()
    cluster.advance(2)
    cluster.exits(replica, exit_code)
    cluster.settle()
    assert cluster.created == [f"Job/{name}"]
    assert replica not in cluster.status.succeeded_indexes
    assert (cluster.status.phase in ("Running", "Creating"), cluster.status.restarts) == (True, 0)


@pytest.mark.parametrize("grace_seconds", [0, 30])
def test_what_they_had_exited_with_before_counts(grace_seconds: int) -> None:
    cluster = plain()
    cluster.exits("worker-1", 0)
    cluster.advance(1)
    name = delete_job(cluster, "worker-1")
    cluster.told_to_go(name)
    cluster.advance(grace_seconds)
    (pod,) = cluster.pods[name]
    deadline = {"deletion_timestamp": format_time(cluster.now), "deletion_grace_period_seconds": grace_seconds}
    cluster.pods[name] = [replace(pod, metadata=replace(pod.metadata, **deadline))]
    cluster.settle()
    assert cluster.created == []
    assert cluster.status.succeeded_indexes == ("worker-1",)


def test_a_parameter_server_whose_pod_goes_on_is_said_to_run_until_it_goes() -> None:
    cluster = running_world(master(), parameter_servers(1))
    name = delete_job(cluster, "ps-0")
    cluster.settle()
    assert cluster.job.status.ready["ps"] == "1/1"
    cluster.told_to_go(name)
    is_gone(cluster, name)
    cluster.settle()
    assert cluster.job.status.ready["ps"] == "0/1"


@pytest.mark.parametrize(("build", "replica"), [WORLDS[0], WORLDS[-1]])
def test_a_pod_that_its_job_left_behind_is_waited_for_too(build: Callable[[], World], replica: str) -> None:
    cluster = build()
    name = delete_job(cluster, replica)
    cluster.orphans[name] = cluster.pods.pop(name)
    cluster.settle()
    assert cluster.created == []
    pod = cluster.orphans[name][0].metadata.name
    words = f"{replica}: waits for pod {pod}, which no Job controls any more, to end; or delete it"
    assert cluster.status.reason == words
    cluster.orphans.clear()
    cluster.settle()
    assert cluster.created == [f"Job/{name}"]
