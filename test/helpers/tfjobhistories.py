"""Histories of a TFJob for property tests: lists of events of its children, with syncs in between."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from helpers.clusterinmemory import World, world
from helpers.manifests import master, parameter_servers, pod_template, workers
from tfjob_controller.api.common.core import Condition
from tfjob_controller.util.timestamps import format_time

Step = Callable[[World], None]

CHIEF = "master-0"
OTHERS = ("worker-0", "worker-1", "ps-0")


def _exists(cluster: World, replica_id: str) -> bool:
    return any(replica.id == replica_id and replica.name in cluster.jobs for replica in cluster.plan.replicas.all)


def _has_pod(cluster: World, replica_id: str) -> bool:
    return _exists(cluster, replica_id) and bool(cluster.pods.get(cluster.name(replica_id)))


def runs(replica_id: str, newest: bool, restart_count: int) -> Step:
    def step(cluster: World) -> None:
        if _exists(cluster, replica_id):
            cluster.runs(replica_id, newest=newest, restart_count=restart_count)

    return step


def exits(replica_id: str, exit_code: int, reason: str, in_place: bool) -> Step:
    def step(cluster: World) -> None:
        if _exists(cluster, replica_id):
            cluster.exits(replica_id, exit_code, reason, phase="Running" if in_place else "")

    return step


def disrupted(replica_id: str) -> Step:
    def step(cluster: World) -> None:
        if _has_pod(cluster, replica_id):
            marked = Condition("DisruptionTarget", "True", last_transition_time=format_time(cluster.now))
            cluster.pod(replica_id, conditions=(marked,))
            cluster.pod_deleted(replica_id)

    return step


def job_ends(replica_id: str, outcome: str) -> Step:
    def step(cluster: World) -> None:
        if _exists(cluster, replica_id):
            cluster.job_ends(replica_id, outcome)

    return step


def job_vanishes(replica_id: str) -> Step:
    def step(cluster: World) -> None:
        if _exists(cluster, replica_id):
            cluster.delete_job(cluster.name(replica_id))

    return step


def suspend(wanted: bool) -> Step:
    return lambda cluster: cluster.change(suspend=wanted)


def scale(workers_wanted: int) -> Step:
    return lambda cluster: cluster.change(worker_replicas=workers_wanted)


def advance(seconds: int) -> Step:
    return lambda cluster: cluster.advance(seconds)


def sync(cluster: World) -> None:
    cluster.sync()


exit_codes = st.sampled_from([0, 1, 127, 128, 137, 255])
outcomes = st.sampled_from(["Complete", "Failed"])


def steps_of(ids: st.SearchStrategy[str]) -> st.SearchStrategy[Step]:
    return st.one_of(
        st.just(sync),
        st.just(sync),
        st.builds(runs, ids, st.booleans(), st.integers(0, 3)),
        st.builds(exits, ids, exit_codes, st.sampled_from(["Error", "OOMKilled"]), st.booleans()),
        st.builds(disrupted, ids),
        st.builds(job_ends, ids, outcomes),
        st.builds(job_vanishes, ids),
        st.builds(suspend, st.booleans()),
        st.builds(scale, st.integers(0, 3)),
        st.builds(advance, st.sampled_from([1, 40])),
    )


histories = st.lists(steps_of(st.sampled_from((CHIEF, *OTHERS))), max_size=30)
histories_of_others = st.lists(steps_of(st.sampled_from(OTHERS)), max_size=30)
policies = st.fixed_dictionaries(
    {
        "cleanPodPolicy": st.sampled_from(["All", "Running", "None"]),
        "failurePolicy": st.sampled_from(["Chief", "AnyReplica"]),
        "restart_rules": st.booleans(),
    },
    optional={"backoffLimit": st.integers(0, 3), "activeDeadlineSeconds": st.just(60)},
)


def new_world(**options: object) -> World:
    template = pod_template({"name": "tensorflow"})
    return world(master(template=template), workers(2), parameter_servers(1), **options)
