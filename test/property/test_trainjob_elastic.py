"""For any history of its nodes and any resizes, an elastic TrainJob keeps its pods, its counts and its word."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from helpers.clusterinmemory import World
from helpers.examples import examples
from helpers.joblives import advance, reap, runs, suspend, sync
from helpers.trainmanifests import trainjob
from helpers.trainworld import TrainJobs, decoded_train, generations
from tfjob_controller.api.common.core import Condition
from tfjob_controller.jobs.actions.children import build_job
from tfjob_controller.jobs.actions.model import NO_ACTIONS
from tfjob_controller.jobs.state.observed import indexes, job_outcome
from tfjob_controller.jobs.status.update import next_status

Step = Callable[[World], None]

LEAST, MOST = 2, 5
IDS = st.sampled_from([f"node-{index}" for index in range(MOST)])


def new_world(**spec: object) -> World:
    bounds = {"minNodes": LEAST, "maxNodes": MOST}
    job = decoded_train(trainjob(nodes=3, command=["torchrun", "x"], elasticPolicy=bounds, **spec))
    return World(job, TrainJobs(), lingers=True)


def present(replica_id: str, step: Callable[[World], None]) -> Step:
    """The step, if the job has that node and its Job makes pods."""

    def guarded(cluster: World) -> None:
        replica = next((each for each in cluster.plan.replicas.all if each.id == replica_id), None)
        job = cluster.jobs.get(replica.job_name) if replica is not None else None
        if replica is None or job is None or job.spec.suspend or job.metadata.deletion_timestamp is not None:
            return
        if not job_outcome(job) and replica.index < job.spec.parallelism:
            step(cluster)

    return guarded


def starts(replica_id: str) -> Step:
    return present(replica_id, runs(replica_id))


def is_replaced(replica_id: str) -> Step:
    """The Job controller makes another pod for one that has ended or goes."""

    def step(cluster: World) -> None:
        pods = cluster.pods_of(replica_id)
        if pods and (pods[-1].metadata.deletion_timestamp is not None or pods[-1].status.phase == "Failed"):
            cluster.runs(replica_id, newest=True)

    return present(replica_id, step)


def ends(replica_id: str, exit_code: int) -> Step:
    def step(cluster: World) -> None:
        pods = cluster.pods_of(replica_id)
        if pods and pods[-1].status.phase == "Running":
            cluster.exits(replica_id, exit_code)
            if not exit_code and pods[-1].metadata.deletion_timestamp is None:
                cluster.job_ends(replica_id, "Complete")

    return present(replica_id, step)


def is_taken(replica_id: str) -> Step:
    return present(replica_id, lambda cluster: cluster.pod_deleted(replica_id) if cluster.pods_of(replica_id) else None)


def resize(nodes: int) -> Step:
    return lambda cluster: cluster.change(num_nodes=nodes)


def everybody_runs(cluster: World) -> None:
    for each in cluster.plan.replicas.all:
        is_replaced(each.id)(cluster)
        starts(each.id)(cluster)


steps = st.one_of(
    *(st.just(each) for each in (sync, sync, reap, everybody_runs, everybody_runs)),
    st.builds(starts, IDS),
    st.builds(is_replaced, IDS),
    st.builds(ends, IDS, st.sampled_from([0, 137, 137, 143, 1])),
    st.builds(is_taken, IDS),
    st.builds(resize, st.integers(LEAST, MOST)),
    st.builds(suspend, st.booleans()),
    st.builds(advance, st.sampled_from([1, 12, 40, 700])),
)
histories = st.lists(steps, max_size=30)
options = st.fixed_dictionaries({}, optional={"maxRestarts": st.integers(0, 3)})


@given(history=histories, spec=options)
@settings(max_examples=examples(300))
def test_a_status_is_a_fixed_point_and_the_job_has_as_many_nodes_as_it_should(
    history: list[Step], spec: dict[str, object]
) -> None:
    cluster = new_world(**spec)
    for step in history:
        step(cluster)
        cluster.settle()
        state = cluster.state
        again = next_status(state)
        assert again.status is state.status
        assert cluster.actions() is NO_ACTIONS
        if cluster.job.status.phase not in ("Creating", "Running") or cluster.job.status.succeeded_indexes:
            continue
        wanted = cluster.job.spec.num_nodes
        assert cluster.job.status.scaling.nodes == wanted
        (step_status,) = cluster.job.status.jobs_status
        assert step_status.replicas == wanted
        for job in cluster.jobs.values():
            assert job.metadata.deletion_timestamp is not None or job_outcome(job) or job.spec.parallelism == wanted


@given(history=histories, spec=options)
@settings(max_examples=examples(300))
def test_restarts_only_rise_and_the_limit_ends_the_job(history: list[Step], spec: dict[str, object]) -> None:
    cluster = new_world(**spec)
    limit = cluster.job.spec.max_restarts
    for step in history:
        before = cluster.job.status
        step(cluster)
        cluster.settle()
        after = cluster.job.status
        assert len(generations(cluster)) <= 1
        assert before.restarts <= after.restarts
        attempts = (0 if each.scaling is None else each.scaling.attempt for each in (before, after))
        assert next(attempts) <= next(attempts) <= after.restarts
        if limit is not None and after.restarts > limit:
            assert after.state == "FAILED"
        if before.completion_time is not None:
            assert (after.state, after.reason, after.restarts) == (before.state, before.reason, before.restarts)


@given(history=st.lists(st.builds(resize, st.integers(LEAST, MOST)) | st.just(everybody_runs) | st.just(reap)))
@settings(max_examples=examples(200))
def test_no_resize_restarts_anybody(history: list[Step]) -> None:
    cluster = new_world()
    cluster.settle()
    for step in history:
        step(cluster)
        cluster.advance(1)
        cluster.settle()
    assert len([each for each in cluster.created if each.startswith("Job/")]) == 1
    assert cluster.job.status.restarts == 0
    assert cluster.resizes == [each for each in cluster.resizes if LEAST <= each <= MOST]


@given(nodes=st.integers(1, 50), more=st.integers(0, 50), gpus=st.integers(0, 4))
def test_a_pod_is_the_same_byte_by_byte_for_any_number_of_nodes(nodes: int, more: int, gpus: int) -> None:
    bounds = {"minNodes": 1, "maxNodes": 100}
    trainer = {"resourcesPerNode": {"limits": {"nvidia.com/gpu": gpus}}}

    def template(count: int) -> object:
        job = decoded_train(trainjob(nodes=count, command=["torchrun", "x"], elasticPolicy=bounds, trainer=trainer))
        plan = World(job, TrainJobs()).plan
        return build_job(plan, plan.replicas.chief)["spec"]["template"]

    assert repr(template(nodes)) == repr(template(nodes + more))


@given(history=histories, spec=options)
@settings(max_examples=examples(200))
def test_a_job_that_is_left_in_peace_comes_to_its_end(history: list[Step], spec: dict[str, object]) -> None:
    cluster = new_world(**spec)
    for step in history:
        step(cluster)
    cluster.change(suspend=False)
    for _ in range(10):
        cluster.settle()
        cluster.advance(400)
        cluster.reap()
        cluster.settle()
        everybody_runs(cluster)
        for each in cluster.plan.replicas.all:
            ends(each.id, 0)(cluster)
        for name, job in cluster.jobs.items():
            done = job.status.completed_indexes
            if job.spec.parallelism <= len(cluster.plan.replicas.all) and done:
                _complete(cluster, name)
        cluster.pods_catch_up()
    cluster.settle()
    assert cluster.job.status.phase in ("Done", "Failed")


def _complete(cluster: World, name: str) -> None:
    """A Job with fewer indexes than the plan is complete with them."""
    job = cluster.jobs[name]
    if set(range(job.spec.parallelism)) <= indexes(job.status.completed_indexes) and not job_outcome(job):
        status = replace(job.status, conditions=(Condition("Complete", "True"),))
        cluster.jobs[name] = replace(job, status=status)
