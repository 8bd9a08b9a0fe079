"""One Indexed Job is shown as a Job for each of its replicas, and a failed one blames those who failed."""

from __future__ import annotations

import pytest

from helpers.trainworld import ends, running_train_world, train_plan
from tfjob_controller.api.common.core import Condition
from tfjob_controller.jobs.actions.children import build_job, build_service
from tfjob_controller.jobs.actions.model import NO_ACTIONS
from tfjob_controller.jobs.state.observed import by_replica, indexes, job_outcome
from tfjob_controller.jobs.state.replica_state import LOST_AFTER_SECONDS
from tfjob_controller.jobs.state.restarts import GRACE_SECONDS

INDEXES = [("", set()), ("0", {0}), ("0-2", {0, 1, 2}), ("1,3-5,7", {1, 3, 4, 5, 7})]


@pytest.mark.parametrize(("text", "expected"), INDEXES, ids=[text or "none" for text, _ in INDEXES])
def test_indexes_are_parsed(text: str, expected: set[int]) -> None:
    assert indexes(text) == expected


def test_a_set_is_one_indexed_job_and_one_service() -> None:
    plan = train_plan(nodes=500, command=["torchrun", "x"])
    jobs, services = zip(
        *((build_job(plan, each), build_service(plan, each)) for each in plan.replicas.all), strict=True
    )
    assert all(each == jobs[0] for each in jobs)
    assert all(each == services[0] for each in services)
    spec = jobs[0]["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 500, 500)
    assert (spec["backoffLimitPerIndex"], spec["podReplacementPolicy"]) == (0, "Failed")
    assert spec["template"]["spec"]["subdomain"] == services[0]["metadata"]["name"]
    selector = services[0]["spec"]["selector"]
    assert selector.items() <= spec["template"]["metadata"]["labels"].items()
    assert "task_index" not in selector


def test_each_replica_has_the_outcome_of_its_index() -> None:
    cluster = running_train_world(nodes=3)
    cluster.job_ends("node-1", "Complete")
    jobs = by_replica(cluster.plan, cluster.observed).jobs
    assert [job_outcome(jobs[each.name]) for each in cluster.plan.replicas.all] == ["", "Complete", ""]
    assert [each.metadata.name for each in jobs.values()] == [each.name for each in cluster.plan.replicas.all]


@pytest.mark.parametrize("phase", ["Failed", "Running"])
def test_a_node_that_has_failed_before_it_was_deleted_fails_the_job_with_its_permanent_error(phase: str) -> None:
    """All nodes fail at the same time, and the Job controller deletes those whose end it has not seen yet."""
    cluster = running_train_world(nodes=2)
    cluster.exits("node-0", 1, phase="Failed")
    cluster.exits("node-1", 1, phase=phase)
    cluster.advance(1)
    cluster.pod_deleted("node-1")
    cluster.settle()
    assert cluster.job.status.restarts == 0
    cluster.job_ends("node-0", "Failed")
    cluster.advance(GRACE_SECONDS)
    cluster.settle()
    assert (cluster.job.status.restarts, cluster.job.status.reason) == (0, "node-0 failed: exit code 1")


def test_the_node_that_is_named_as_the_cause_is_one_whose_pod_stays() -> None:
    cluster = running_train_world(nodes=2)
    for node in ("node-0", "node-1"):
        cluster.exits(node, 1, phase="Failed")
    cluster.advance(1)
    cluster.pod_deleted("node-0")
    cluster.job_ends("node-1", "Failed")
    cluster.advance(GRACE_SECONDS)
    cluster.settle()
    assert cluster.job.status.reason == "node-1 failed: exit code 1"


def test_a_node_whose_pod_stays_is_named_even_if_it_failed_a_moment_after_the_one_whose_pod_is_deleted() -> None:
    """Its kubelet reported it first, so that the Job controller deleted the other one, which had failed before it."""
    cluster = running_train_world(nodes=2)
    cluster.exits("node-0", 1, phase="Failed")
    cluster.advance(2)
    cluster.exits("node-1", 1, phase="Failed")
    cluster.pod_deleted("node-0")
    cluster.job_ends("node-1", "Failed")
    cluster.advance(GRACE_SECONDS - 2)
    cluster.settle()
    assert cluster.job.status.reason == "node-1 failed: exit code 1"


def test_an_older_job_whose_pods_were_deleted_by_force_is_restarted_at_once() -> None:
    cluster = running_train_world()
    cluster.advance(LOST_AFTER_SECONDS)
    cluster.pods.clear()
    for node in ("node-0", "node-1"):
        cluster.job_ends(node, "Failed")
    cluster.job_status("node-0", conditions=(Condition("Failed", "True"),))
    cluster.settle()
    assert (cluster.job.status.restarts, cluster.job.status.disruptions) == (1, 1)


def test_a_failed_index_does_not_end_the_others() -> None:
    cluster = running_train_world(nodes=3)
    ends(cluster, "node-1", exit_code=1)
    cluster.settle()
    cluster.advance(GRACE_SECONDS)
    cluster.settle()
    assert (cluster.job.status.restarts, cluster.job.status.reason) == (0, "node-1 failed: exit code 1")
    assert cluster.jobs[cluster.name("node-0")].spec.suspend
    assert [len(cluster.pods_of(node)) for node in ("node-0", "node-1", "node-2")] == [0, 1, 0]


def test_a_node_whose_pod_went_while_nobody_looked_is_a_disruption_of_all() -> None:
    """Only the index is left, and the Job ends once the other pods have, which wait for their peer."""
    cluster = running_train_world(nodes=2, maxRestarts=0)
    name = cluster.replica("node-1").job_name
    cluster.pods[name] = [pod for pod in cluster.pods[name] if pod not in cluster.pods_of("node-1")]
    cluster.job_ends("node-1", "Failed")
    cluster.settle()
    status = cluster.job.status
    assert (status.restarts, status.disruptions, status.state) == (1, 1, "RUNNING")
    assert status.reason == "node-1 will be restarted: node-1 failed: its pod was deleted, evicted or lost"


def test_a_node_whose_sidecar_failed_has_succeeded_and_the_others_go_on() -> None:
    cluster = running_train_world(nodes=2)
    cluster.exits("node-0", 0, phase="Failed")
    cluster.job_ends("node-0", "Failed")
    cluster.settle()
    assert (cluster.job.status.succeeded_indexes, cluster.job.status.restarts) == (("node-0",), 0)
    assert cluster.actions() is NO_ACTIONS
    cluster.exits("node-1", 0)
    cluster.job_ends("node-1", "Complete")
    cluster.settle()
    assert cluster.job.status.state == "SUCCESS"
