"""Whatever happens to a TrainJob's children, in whatever order: what it says of itself holds together.

That every status comes back from the wire as it went there is asserted at each write: see `helpers.trainworld`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from helpers.clusterinmemory import World
from helpers.examples import examples
from helpers.trainworld import admit, ends, generations, train_world, world_in_steps
from tfjob_controller.api.core import Condition
from tfjob_controller.trainer.actions import NOTHING
from tfjob_controller.trainer.gangterms import ON_REQUEST, GangPolicy
from tfjob_controller.trainer.labels import GENERATION
from tfjob_controller.trainer.pods import is_finished
from tfjob_controller.trainer.replicas import LOST_AFTER_SECONDS, is_lost, job_outcome
from tfjob_controller.trainer.status import next_status
from tfjob_controller.util.timestamps import format_time

Step = Callable[[World], None]

NODES = ("node-0", "node-1")
CARRIERS = ("dataset-initializer-0", "model-initializer-0", "model-exporter-0")
IDS = st.sampled_from((*NODES, *NODES, "launcher-0", *CARRIERS))


def _makes_pods(cluster: World, replica_id: str) -> bool:
    """Would the Job controller?"""
    found = [each for each in cluster.plan.replicas if each.id == replica_id]
    job = cluster.jobs.get(found[0].name) if found else None
    if job is None or job.metadata.deletion_timestamp is not None:
        return False
    return not job.spec.suspend and not job_outcome(job)


def _has_pod(cluster: World, replica_id: str) -> bool:
    return _makes_pods(cluster, replica_id) and bool(cluster.pods.get(cluster.name(replica_id)))


def runs(replica_id: str) -> Step:
    def step(cluster: World) -> None:
        if _makes_pods(cluster, replica_id):
            cluster.runs(replica_id)

    return step


def exits(replica_id: str, exit_code: int, counted: bool) -> Step:
    """`counted`: the Job controller has seen it."""

    def step(cluster: World) -> None:
        if not _makes_pods(cluster, replica_id):
            return
        if counted:
            ends(cluster, replica_id, exit_code=exit_code)
        else:
            cluster.exits(replica_id, exit_code)

    return step


def is_taken(replica_id: str, disrupted: bool) -> Step:
    """Its pod is deleted; nobody says whether it has ended."""

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
    """Somebody deletes it."""

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
    for each in cluster.plan.replicas:
        runs(each.id)(cluster)


def all_end(cluster: World) -> None:
    """Those that are here, in whatever step, do so well."""
    for each in cluster.plan.replicas:
        exits(each.id, 0, counted=True)(cluster)


def reap(cluster: World) -> None:
    cluster.reap()


def goes(replica_id: str) -> Step:
    """Its Job, on its way out, goes, and its pods with it; or a pod without a Job does."""

    def step(cluster: World) -> None:
        name = next((each.name for each in cluster.plan.replicas if each.id == replica_id), "")
        if name in cluster.jobs and cluster.jobs[name].metadata.deletion_timestamp is not None:
            cluster.delete_job(name)
        elif name not in cluster.jobs:
            cluster.pods.pop(name, None)

    return step


def pods_of_deleted_jobs_go(cluster: World) -> None:
    """The garbage collector has seen the Jobs: their pods are told to end, and have not yet."""
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


def living_generations(cluster: World) -> set[str]:
    """Of the pods that may still run somewhere, as far as anybody can know."""
    lost_before = format_time(cluster.now - timedelta(seconds=LOST_AFTER_SECONDS))
    pods = (pod for some in cluster.pods.values() for pod in some)
    living = (pod for pod in pods if not is_finished(pod) and not is_lost(pod, lost_before))
    return {pod.metadata.labels[GENERATION] for pod in living if GENERATION in pod.metadata.labels}


@given(history=histories, options=policies)
@settings(max_examples=examples(300))
def test_a_status_is_a_fixed_point_and_what_is_planned_comes_to_rest(
    history: list[Step], options: dict[str, object]
) -> None:
    cluster = new_world(**options)
    for step in history:
        step(cluster)
        cluster.settle()
        state = cluster.state
        again = next_status(state)
        assert again.status is state.status
        assert again.events == ()
        assert cluster.actions() is NOTHING


@given(history=histories, options=policies)
@settings(max_examples=examples(300))
def test_nodes_of_two_generations_never_live_at_the_same_time(history: list[Step], options: dict[str, object]) -> None:
    cluster = new_world(**options)
    for step in history:
        step(cluster)
        assert len(generations(cluster)) <= 1
        assert len(living_generations(cluster)) <= 1


@given(history=histories, options=policies)
@settings(max_examples=examples(300))
def test_counts_only_rise_up_to_their_limit_and_an_end_is_final(
    history: list[Step], options: dict[str, object]
) -> None:
    cluster = new_world(**options)
    limit = cluster.job.spec.max_restarts
    for step in history:
        before = cluster.job.status
        step(cluster)
        after = cluster.job.status
        assert before.restarts <= after.restarts <= before.restarts + 1
        assert limit is None or after.restarts <= limit
        if before.completion_time is not None:
            assert (after.state, after.reason, after.completion_time, after.restarts) == (
                before.state,
                before.reason,
                before.completion_time,
                before.restarts,
            )
        if before.phase in ("Done", "Failed"):
            assert after is before
            assert cluster.actions() is NOTHING


@given(history=histories, options=policies)
@settings(max_examples=examples(300))
def test_a_job_says_one_thing_at_a_time(history: list[Step], options: dict[str, object]) -> None:
    cluster = new_world(**options)
    for step in history:
        step(cluster)
        status = cluster.job.status
        true = {each.type for each in status.conditions if each.status == "True"}
        assert len(true & {"Complete", "Failed", "Suspended"}) <= 1
        assert ("Complete" in true) == (status.state == "SUCCESS")
        assert ("Failed" in true) == (status.state == "FAILED")
        assert bool(true & {"Complete", "Failed"}) == (status.completion_time is not None)
        assert not true & {"Complete", "Failed", "Suspended"} or not true & {"Running", "Restarting"}
        for role in status.jobs_status:
            assert 0 <= role.ready + role.succeeded <= role.replicas
            assert role.active + role.succeeded + role.failed <= role.replicas


@given(history=histories, options=policies)
@settings(max_examples=examples(300))
def test_a_job_that_is_left_in_peace_comes_to_its_end(history: list[Step], options: dict[str, object]) -> None:
    """No history leaves a job of which nothing more would come."""
    cluster = new_world(**options)
    for step in history:
        step(cluster)
    cluster.change(suspend=False)
    for _ in range(10):
        cluster.settle()
        cluster.advance(400)
        cluster.reap()
        placed_again(cluster)
        cluster.settle()
        all_end(cluster)
        cluster.pods_catch_up()
    cluster.settle()
    assert cluster.job.status.phase in ("Done", "Failed")
