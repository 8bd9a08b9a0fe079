"""Whatever happens to its children, in whatever order: what a job says of itself holds together.

The history of a job is a list of things that happen to it in the cluster, with syncs in between.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.clusterinmemory import World, world
from helpers.examples import examples
from helpers.manifests import master, parameter_servers, pod_template, workers
from tfjob_controller.api.core import Condition
from tfjob_controller.trainer.actions import NOTHING
from tfjob_controller.trainer.status import next_status
from tfjob_controller.util.timestamps import format_time

Step = Callable[[World], None]

CHIEF = "master-0"
OTHERS = ("worker-0", "worker-1", "ps-0")


def _exists(cluster: World, replica_id: str) -> bool:
    return any(replica.id == replica_id and replica.name in cluster.jobs for replica in cluster.plan.replicas)


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


def is_true(cluster: World, condition_type: str) -> bool:
    return any(each.type == condition_type and each.status == "True" for each in cluster.job.status.conditions)


@given(history=histories, options=policies)
@settings(max_examples=examples(300))
def test_a_job_is_never_both_succeeded_and_failed(history: list[Step], options: dict[str, object]) -> None:
    cluster = new_world(**options)
    for step in history:
        step(cluster)
        assert not (is_true(cluster, "Succeeded") and is_true(cluster, "Failed"))
        if cluster.job.status.phase in ("CleanUp", "Done", "Failed"):
            assert is_true(cluster, "Succeeded") == (cluster.job.status.state == "Succeeded")
            assert is_true(cluster, "Failed") == (cluster.job.status.state == "Failed")
            assert not is_true(cluster, "Running")
        else:
            assert not is_true(cluster, "Succeeded")
            assert not is_true(cluster, "Failed")


@given(history=histories, options=policies)
@settings(max_examples=examples(300))
def test_a_succeeded_index_is_never_run_again(history: list[Step], options: dict[str, object]) -> None:
    cluster = new_world(**options)
    for step in history:
        succeeded = cluster.job.status.succeeded_indexes
        cluster.created.clear()
        step(cluster)
        assert set(succeeded) <= set(cluster.job.status.succeeded_indexes)
        jobs = {f"Job/{replica.name}" for replica in cluster.plan.replicas if replica.id in succeeded}
        assert jobs.isdisjoint(cluster.created)


@given(history=histories_of_others, clean_pod_policy=st.sampled_from(["All", "Running", "None"]))
@settings(max_examples=examples(300))
def test_nothing_that_happens_to_others_ends_a_job_but_the_chief_does(
    history: list[Step], clean_pod_policy: str
) -> None:
    cluster = new_world(cleanPodPolicy=clean_pod_policy)
    for step in history:
        step(cluster)
        assert cluster.job.status.phase in ("", "Creating", "Running")
    cluster.change(suspend=False)
    cluster.settle()
    cluster.exits(CHIEF, 0)
    cluster.pods_catch_up()
    cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.state) == ("Done", "Succeeded")


@given(history=histories, options=policies)
@settings(max_examples=examples(300))
def test_a_status_is_a_fixed_point_and_what_is_planned_comes_to_rest(
    history: list[Step], options: dict[str, object]
) -> None:
    cluster = new_world(**options)
    for step in history:
        step(cluster)
        cluster.settle()
        again = next_status(cluster.state)
        assert again.status is cluster.job.status
        assert again.events == ()
        assert cluster.actions() is NOTHING


@given(history=histories, options=policies)
@settings(max_examples=examples(300))
def test_counts_only_rise_and_an_end_is_final(history: list[Step], options: dict[str, object]) -> None:
    cluster = new_world(**options)
    for step in history:
        before = cluster.job.status
        step(cluster)
        after = cluster.job.status
        assert after.restarts >= before.restarts
        if before.completion_time is not None:
            assert (after.state, after.reason, after.completion_time) == (
                before.state,
                before.reason,
                before.completion_time,
            )
        if before.phase in ("Done", "Failed"):
            assert after is before
