"""For any history of its children, the status of a job of any kind is consistent.

The history of a job is a list of things that happen to it in the cluster, with syncs in between. Each write also checks
that the status can be encoded and decoded without loss: see `helpers.trainworld`.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.clusterinmemory import World
from helpers.examples import examples
from helpers.joblives import CHIEF, OTHERS, TFJOBS, Life, Step, lives, tfjob_histories
from tfjob_controller.jobs.actions.model import NO_ACTIONS
from tfjob_controller.jobs.status.update import next_status


def true_conditions(cluster: World) -> set[str]:
    return {each.type for each in cluster.status.conditions if each.status == "True"}


@given(life=lives)
@settings(max_examples=examples(400))
def test_a_job_says_one_thing_at_a_time(life: Life) -> None:
    new_job, history = life
    cluster = new_job()
    for happens in history:
        happens(cluster)
        status, true = cluster.status, true_conditions(cluster)
        ends = true & {"Succeeded", "Failed"}
        assert len(true & {"Succeeded", "Failed", "Suspended"}) <= 1
        assert ends == ({status.state} & {"Succeeded", "Failed"})
        assert bool(ends) == (status.completion_time is not None) == (status.phase in ("CleanUp", "Done", "Failed"))
        assert not ends or not true & {"Running", "Restarting"}


@given(life=lives)
@settings(max_examples=examples(400))
def test_a_status_is_a_fixed_point_and_planned_actions_settle(life: Life) -> None:
    new_job, history = life
    cluster = new_job()
    for happens in history:
        happens(cluster)
        cluster.settle()
        state = cluster.state
        again = next_status(state)
        assert again.status is state.status
        assert again.events == ()
        assert cluster.actions() is NO_ACTIONS


@given(life=lives)
@settings(max_examples=examples(400))
def test_counts_only_rise_and_an_end_is_final(life: Life) -> None:
    new_job, history = life
    cluster = new_job()
    for happens in history:
        job, before = cluster.job, cluster.status
        happens(cluster)
        after = cluster.status
        assert after.restarts >= before.restarts
        if before.completion_time is not None:
            assert (after.state, after.reason, after.completion_time) == (
                before.state,
                before.reason,
                before.completion_time,
            )
        if before.phase in ("Done", "Failed"):
            assert cluster.job.status is job.status
            assert cluster.actions() is NO_ACTIONS


@given(history=TFJOBS.histories, options=TFJOBS.policies)
@settings(max_examples=examples(300))
def test_a_succeeded_index_is_never_run_again(history: list[Step], options: dict[str, object]) -> None:
    cluster = TFJOBS.new_world(**options)
    for step in history:
        succeeded = cluster.job.status.succeeded_indexes
        cluster.created.clear()
        step(cluster)
        assert set(succeeded) <= set(cluster.job.status.succeeded_indexes)
        jobs = {f"Job/{replica.name}" for replica in cluster.plan.replicas.all if replica.id in succeeded}
        assert jobs.isdisjoint(cluster.created)


@given(history=tfjob_histories(*OTHERS), clean_pod_policy=st.sampled_from(["All", "Running", "None"]))
@settings(max_examples=examples(300))
def test_nothing_that_happens_to_others_ends_a_job_but_the_chief_does(
    history: list[Step], clean_pod_policy: str
) -> None:
    cluster = TFJOBS.new_world(cleanPodPolicy=clean_pod_policy)
    for step in history:
        step(cluster)
        assert cluster.job.status.phase in ("", "Creating", "Running")
    cluster.change(suspend=False)
    cluster.settle()
    cluster.exits(CHIEF, 0)
    cluster.pods_catch_up()
    cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.state) == ("Done", "Succeeded")
