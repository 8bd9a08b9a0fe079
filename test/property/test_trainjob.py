"""For any history of its children, the nodes of a TrainJob live and restart together.

test_status.py has the rules of its status that hold for jobs of all kinds.
"""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings

from helpers.clusterinmemory import World
from helpers.examples import examples
from helpers.joblives import TRAINJOBS, Step, all_end, placed_again
from helpers.trainworld import generations
from tfjob_controller.jobs.naming import RESTART_ATTEMPT
from tfjob_controller.jobs.state.pods import is_finished
from tfjob_controller.jobs.state.replica_state import LOST_AFTER_SECONDS, is_lost
from tfjob_controller.util.timestamps import format_time


def living_generations(cluster: World) -> set[str]:
    """Of the pods that may still run somewhere, as far as anybody can know."""
    lost_before = format_time(cluster.now - timedelta(seconds=LOST_AFTER_SECONDS))
    pods = (pod for some in cluster.pods.values() for pod in some)
    living = (pod for pod in pods if not is_finished(pod) and not is_lost(pod, lost_before))
    return {pod.metadata.labels[RESTART_ATTEMPT] for pod in living if RESTART_ATTEMPT in pod.metadata.labels}


@given(history=TRAINJOBS.histories, options=TRAINJOBS.policies)
@settings(max_examples=examples(300))
def test_nodes_of_two_generations_never_live_at_the_same_time(history: list[Step], options: dict[str, object]) -> None:
    cluster = TRAINJOBS.new_world(**options)
    for step in history:
        step(cluster)
        assert len(generations(cluster)) <= 1
        assert len(living_generations(cluster)) <= 1


@given(history=TRAINJOBS.histories, options=TRAINJOBS.policies)
@settings(max_examples=examples(300))
def test_restarts_are_counted_one_by_one_up_to_their_limit(history: list[Step], options: dict[str, object]) -> None:
    cluster = TRAINJOBS.new_world(**options)
    limit = cluster.job.spec.max_restarts
    for step in history:
        before = cluster.job.status
        step(cluster)
        after = cluster.job.status
        assert before.restarts <= after.restarts <= before.restarts + 1
        # No limit applies to disruptions.
        assert limit is None or after.restarts - after.disruptions <= limit
        for role in after.jobs_status:
            assert 0 <= role.ready + role.succeeded <= role.replicas
            assert role.active + role.succeeded + role.failed <= role.replicas


@given(history=TRAINJOBS.histories, options=TRAINJOBS.policies)
@settings(max_examples=examples(300))
def test_a_job_that_is_left_in_peace_comes_to_its_end(history: list[Step], options: dict[str, object]) -> None:
    """No history leaves a job of which nothing more would come."""
    cluster = TRAINJOBS.new_world(**options)
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
