"""For any history of its children, the status of a TFJob is consistent.

The history of a job is a list of things that happen to it in the cluster, with syncs in between.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.clusterinmemory import World
from helpers.examples import examples
from helpers.tfjobhistories import CHIEF, Step, histories, histories_of_others, new_world, policies
from tfjob_controller.jobs.actions.model import NO_ACTIONS
from tfjob_controller.jobs.status.update import next_status


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
        jobs = {f"Job/{replica.name}" for replica in cluster.plan.replicas.all if replica.id in succeeded}
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
def test_a_status_is_a_fixed_point_and_planned_actions_settle(history: list[Step], options: dict[str, object]) -> None:
    cluster = new_world(**options)
    for step in history:
        step(cluster)
        cluster.settle()
        again = next_status(cluster.state)
        assert again.status is cluster.job.status
        assert again.events == ()
        assert cluster.actions() is NO_ACTIONS


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
