"""Histories of a TrainJob for property tests: lists of events of its children, with syncs in between."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from msgspec.structs import replace

from helpers.clusterinmemory import World
from helpers.trainworld import admit, ends, train_world, world_in_steps
from tfjob_controller.api.common.core import Condition
from tfjob_controller.jobs.plan.gangterms import ON_REQUEST, GangPolicy
from tfjob_controller.jobs.state.indexedjobs import indexes
from tfjob_controller.jobs.state.replica_state import job_outcome
from tfjob_controller.util.timestamps import format_time

Step = Callable[[World], None]

NODES = ("node-0", "node-1")
CARRIERS = ("dataset-initializer-0", "model-initializer-0", "model-exporter-0")
IDS = st.sampled_from((*NODES, *NODES, "launcher-0", *CARRIERS))


def _makes_pods(cluster: World, replica_id: str) -> bool:
    """Whether the Job controller would create pods."""
    found = [each for each in cluster.plan.replicas.all if each.id == replica_id]
    job = cluster.jobs.get(found[0].job_name) if found else None
    if (
        job is None
        or job.metadata.deletion_timestamp is not None
        or found[0].index in indexes(job.status.completed_indexes)
    ):
        return False
    return not job.spec.suspend and not job_outcome(job)


def _has_pod(cluster: World, replica_id: str) -> bool:
    return _makes_pods(cluster, replica_id) and bool(cluster.pods_of(replica_id))


def runs(replica_id: str) -> Step:
    def step(cluster: World) -> None:
        if _makes_pods(cluster, replica_id):
            cluster.runs(replica_id)

    return step


def exits(replica_id: str, exit_code: int, counted: bool) -> Step:
    """The replica's program ends; `counted`: the Job controller has seen it."""

    def step(cluster: World) -> None:
        if not _makes_pods(cluster, replica_id):
            return
        if counted:
            ends(cluster, replica_id, exit_code=exit_code)
        else:
            cluster.exits(replica_id, exit_code)

    return step


def is_taken(replica_id: str, disrupted: bool) -> Step:
    """The replica's pod is deleted without a reported end."""

    def step(cluster: World) -> None:
        if not _has_pod(cluster, replica_id):
            return
        if disrupted:
            marked = Condition("DisruptionTarget", "True", last_transition_time=format_time(cluster.now))
            cluster.pod(replica_id, conditions=(marked,))
        cluster.pod_deleted(replica_id)

    return step


def job_fails(replica_id: str) -> Step:
    def step(cluster: World) -> None:
        if _makes_pods(cluster, replica_id):
            cluster.job_ends(replica_id, "Failed")

    return step


def job_vanishes(replica_id: str, with_pods: bool) -> Step:
    """A user deletes the Job."""

    def step(cluster: World) -> None:
        if not _makes_pods(cluster, replica_id):
            return
        name = cluster.name(replica_id)
        if with_pods:
            cluster.delete_job(name)
        else:
            del cluster.jobs[name]
            cluster.told_to_go(name)

    return step


def suspend(wanted: bool) -> Step:
    return lambda cluster: cluster.change(suspend=wanted)


def advance(seconds: int) -> Step:
    return lambda cluster: cluster.advance(seconds)


def sync(cluster: World) -> None:
    cluster.sync()


def all_run(cluster: World) -> None:
    for each in cluster.plan.replicas.all:
        runs(each.id)(cluster)


def all_end(cluster: World) -> None:
    """All existing replicas of any step succeed."""
    for each in cluster.plan.replicas.all:
        exits(each.id, 0, counted=True)(cluster)


def reap(cluster: World) -> None:
    cluster.reap()


def goes(replica_id: str) -> Step:
    """A Job that is being deleted is removed with its pods, or a pod without a Job is removed."""

    def step(cluster: World) -> None:
        name = next((each.job_name for each in cluster.plan.replicas.all if each.id == replica_id), "")
        if name in cluster.jobs and cluster.jobs[name].metadata.deletion_timestamp is not None:
            cluster.delete_job(name)
        elif name not in cluster.jobs:
            cluster.pods.pop(name, None)

    return step


def pods_of_deleted_jobs_go(cluster: World) -> None:
    """The garbage collector has seen the deleted Jobs: their pods are terminating."""
    for name, job in cluster.jobs.items():
        if job.metadata.deletion_timestamp is not None:
            cluster.told_to_go(name)


def admitted(cluster: World) -> None:
    if cluster.gang is not None and not cluster.gang.status.attempt:
        admit(cluster)


def loses_its_room(cluster: World) -> None:
    if cluster.gang is not None and cluster.gang.status.attempt:
        status = replace(cluster.gang.status, phase="Waiting", placement=())
        cluster.gang = replace(cluster.gang, status=status)


def placed_again(cluster: World) -> None:
    if cluster.gang is not None and not cluster.gang.status.placement:
        admit(cluster)


exit_codes = st.sampled_from([0, 0, 1, 137, 137, 143])
steps = st.one_of(
    *(st.just(each) for each in (sync, sync, all_run, all_end, reap, pods_of_deleted_jobs_go)),
    *(st.just(each) for each in (admitted, loses_its_room, placed_again)),
    st.builds(runs, IDS),
    st.builds(goes, IDS),
    st.builds(exits, IDS, exit_codes, st.booleans()),
    st.builds(is_taken, IDS, st.booleans()),
    st.builds(job_fails, IDS),
    st.builds(job_vanishes, IDS, st.booleans()),
    st.builds(suspend, st.booleans()),
    st.builds(advance, st.sampled_from([1, 12, 40, 400])),
)
histories = st.lists(steps, max_size=30)
policies = st.fixed_dictionaries(
    {
        "command": st.sampled_from([["train"], ["torchrun", "train.py"], ["mpirun", "train"]]),
        "gang": st.sampled_from([None, {"enabled": True}]),
        "in_steps": st.booleans(),
    },
    optional={"maxRestarts": st.integers(0, 2), "activeDeadlineSeconds": st.just(60)},
)


def new_world(in_steps: bool, **job: object) -> World:
    cluster = (world_in_steps if in_steps else train_world)(**job)
    cluster.gangs = GangPolicy(ON_REQUEST, "gang-scheduler")
    return cluster
