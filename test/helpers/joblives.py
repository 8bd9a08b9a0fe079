"""Lives of jobs of all kinds for property tests: how a job is created, and what happens to its children, with syncs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st
from msgspec.structs import replace

from helpers.clusterinmemory import World, world
from helpers.manifests import master, parameter_servers, pod_template, workers
from helpers.trainworld import admit, train_world, world_in_steps
from tfjob_controller.api.common.core import Condition
from tfjob_controller.jobs.plan.gangterms import ON_REQUEST, GangPolicy
from tfjob_controller.jobs.state.observed import indexes, job_outcome
from tfjob_controller.util.timestamps import format_time

Step = Callable[[World], None]
Life = tuple[Callable[[], World], Sequence[Step]]

CHIEF = "master-0"
OTHERS = ("worker-0", "worker-1", "ps-0")
NODES = ("node-0", "node-1")
CARRIERS = ("dataset-initializer-0", "model-initializer-0", "model-exporter-0")


# Steps of one replica


def _runs_pods(cluster: World, replica_id: str) -> bool:
    """Whether there is a Job that runs pods of the replica.

    In a world whose objects do not linger it may also have ended or be suspended, as caches may show it.
    """
    replica = next((replica for replica in cluster.plan.replicas.all if replica.id == replica_id), None)
    job = cluster.jobs.get(replica.job_name) if replica is not None else None
    if replica is None or job is None or not cluster.lingers:
        return job is not None
    is_open = not job.spec.suspend and not job_outcome(job) and job.metadata.deletion_timestamp is None
    return is_open and replica.index not in indexes(job.status.completed_indexes)


def of_replica(replica_id: str, step: Step) -> Step:
    """Returns the step, which happens only while there is a Job that runs pods of the replica."""
    return lambda cluster: step(cluster) if _runs_pods(cluster, replica_id) else None


def runs(replica_id: str, newest: bool = False, restart_count: int = 0) -> Step:
    return of_replica(replica_id, lambda cluster: cluster.runs(replica_id, newest=newest, restart_count=restart_count))


def exits(replica_id: str, exit_code: int, *, reason: str = "", phase: str = "", counted: bool = False) -> Step:
    """The replica's program ends; `counted`: the Job controller has seen it."""

    def step(cluster: World) -> None:
        cluster.exits(replica_id, exit_code, reason, phase=phase)
        if counted:
            cluster.job_ends(replica_id, "Failed" if exit_code else "Complete")

    return of_replica(replica_id, step)


def is_taken(replica_id: str, disrupted: bool) -> Step:
    """The replica's pod is deleted without a reported end."""

    def step(cluster: World) -> None:
        if not cluster.pods_of(replica_id):
            return
        if disrupted:
            marked = Condition("DisruptionTarget", "True", last_transition_time=format_time(cluster.now))
            cluster.pod(replica_id, conditions=(marked,))
        cluster.pod_deleted(replica_id)

    return of_replica(replica_id, step)


def job_ends(replica_id: str, outcome: str) -> Step:
    return of_replica(replica_id, lambda cluster: cluster.job_ends(replica_id, outcome))


def job_vanishes(replica_id: str, with_pods: bool) -> Step:
    """A user deletes the Job."""

    def step(cluster: World) -> None:
        name = cluster.name(replica_id)
        if with_pods:
            cluster.delete_job(name)
        else:
            del cluster.jobs[name]
            cluster.told_to_go(name)

    return of_replica(replica_id, step)


def goes(replica_id: str) -> Step:
    """A Job that is being deleted is removed with its pods, or a pod without a Job is removed."""

    def step(cluster: World) -> None:
        name = next((replica.job_name for replica in cluster.plan.replicas.all if replica.id == replica_id), "")
        if name in cluster.jobs and cluster.jobs[name].metadata.deletion_timestamp is not None:
            cluster.delete_job(name)
        elif name not in cluster.jobs:
            cluster.pods.pop(name, None)

    return step


# Steps of the whole job


def sync(cluster: World) -> None:
    cluster.sync()


def reap(cluster: World) -> None:
    cluster.reap()


def suspend(wanted: bool) -> Step:
    return lambda cluster: cluster.change(suspend=wanted)


def scale(worker_replicas: int) -> Step:
    return lambda cluster: cluster.change(worker_replicas=worker_replicas)


def advance(seconds: int) -> Step:
    return lambda cluster: cluster.advance(seconds)


def all_run(cluster: World) -> None:
    for replica in cluster.plan.replicas.all:
        runs(replica.id)(cluster)


def all_end(cluster: World) -> None:
    """All existing replicas of any step succeed."""
    for replica in cluster.plan.replicas.all:
        exits(replica.id, 0, counted=True)(cluster)


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


# Kinds of jobs


@dataclass(frozen=True, slots=True)
class JobKind:
    """How a new job of a kind is created from its policies, and the histories of its children."""

    new_world: Callable[..., World]
    policies: st.SearchStrategy[dict[str, object]]
    histories: st.SearchStrategy[list[Step]]

    def lives(self) -> st.SearchStrategy[Life]:
        worlds = st.builds(lambda policies: functools.partial(self.new_world, **policies), self.policies)
        return st.tuples(worlds, self.histories)


def _new_tfjob(**options: object) -> World:
    template = pod_template({"name": "tensorflow"})
    return world(master(template=template), workers(2), parameter_servers(1), **options)


def tfjob_histories(*replica_ids: str) -> st.SearchStrategy[list[Step]]:
    ids = st.sampled_from(replica_ids)
    exit_codes = st.sampled_from([0, 1, 127, 128, 137, 255])
    reasons, phases = st.sampled_from(["Error", "OOMKilled"]), st.sampled_from(["Running", ""])
    steps = st.one_of(
        st.just(sync),
        st.just(sync),
        st.builds(runs, ids, st.booleans(), st.integers(0, 3)),
        st.builds(exits, ids, exit_codes, reason=reasons, phase=phases),
        st.builds(is_taken, ids, st.just(True)),
        st.builds(job_ends, ids, st.sampled_from(["Complete", "Failed"])),
        st.builds(job_vanishes, ids, st.just(True)),
        st.builds(suspend, st.booleans()),
        st.builds(scale, st.integers(0, 3)),
        st.builds(advance, st.sampled_from([1, 40])),
    )
    return st.lists(steps, max_size=30)


TFJOBS = JobKind(
    _new_tfjob,
    st.fixed_dictionaries(
        {
            "cleanPodPolicy": st.sampled_from(["All", "Running", "None"]),
            "failurePolicy": st.sampled_from(["Chief", "AnyReplica"]),
            "restart_rules": st.booleans(),
        },
        optional={"backoffLimit": st.integers(0, 3), "activeDeadlineSeconds": st.just(60)},
    ),
    tfjob_histories(CHIEF, *OTHERS),
)


def _new_trainjob(in_steps: bool, **job: object) -> World:
    cluster = (world_in_steps if in_steps else train_world)(**job)
    cluster.gangs = GangPolicy(ON_REQUEST, "gang-scheduler")
    return cluster


def _trainjob_histories() -> st.SearchStrategy[list[Step]]:
    ids = st.sampled_from((*NODES, *NODES, "launcher-0", *CARRIERS))
    exit_codes = st.sampled_from([0, 0, 1, 137, 137, 143])
    steps = st.one_of(
        *(st.just(step) for step in (sync, sync, all_run, all_end, reap, pods_of_deleted_jobs_go)),
        *(st.just(step) for step in (admitted, loses_its_room, placed_again)),
        st.builds(runs, ids),
        st.builds(goes, ids),
        st.builds(exits, ids, exit_codes, counted=st.booleans()),
        st.builds(is_taken, ids, st.booleans()),
        st.builds(job_ends, ids, st.just("Failed")),
        st.builds(job_vanishes, ids, st.booleans()),
        st.builds(suspend, st.booleans()),
        st.builds(advance, st.sampled_from([1, 12, 40, 400])),
    )
    return st.lists(steps, max_size=30)


TRAINJOBS = JobKind(
    _new_trainjob,
    st.fixed_dictionaries(
        {
            "command": st.sampled_from([["train"], ["torchrun", "train.py"], ["mpirun", "train"]]),
            "gang": st.sampled_from([None, {"enabled": True}]),
            "in_steps": st.booleans(),
        },
        optional={"maxRestarts": st.integers(0, 2), "activeDeadlineSeconds": st.just(60)},
    ),
    _trainjob_histories(),
)

lives = TFJOBS.lives() | TRAINJOBS.lives()
