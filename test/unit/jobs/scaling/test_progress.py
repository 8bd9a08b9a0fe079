"""Steps: what is done, what is left for whom, and which reports count."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import World, running_world
from helpers.manifests import container, master, parameter_servers, pod_template, workers
from tfjob_controller.api.common.core import PodAnnotations
from tfjob_controller.jobs.actions.children import build_job
from tfjob_controller.jobs.scaling.effective_plan import effective_plan
from tfjob_controller.jobs.scaling.progress import next_progress, parse_steps
from tfjob_controller.jobs.state.observed import JOB_COMPLETE, ObservedState, Reading
from tfjob_controller.jobs.state.restarts import MAX_GONE

PATTERN = {"progress": {"pattern": "step ([^ ]+)"}}


def running(count: int = 4, **autoscaling: Any) -> World:
    given = {"maxWorkers": 6, "totalSteps": 10, **autoscaling}
    return running_world(master(), workers(1), parameter_servers(1), workerReplicas=count, autoscaling=given)


def annotate(cluster: World, replica: str, steps: str) -> None:
    pods = cluster.pods[cluster.name(replica)]
    meta = replace(pods[-1].metadata, annotations=PodAnnotations(steps))
    pods[-1] = replace(pods[-1], metadata=meta)


def uid_of(cluster: World, replica: str) -> str:
    return cluster.pods[cluster.name(replica)][-1].metadata.uid


def done(cluster: World) -> int:
    cluster.settle()
    assert cluster.job.status.progress is not None
    return cluster.job.status.progress.done


def env(cluster: World, replica: str) -> dict[str, str]:
    """The variables of that replica's container if its Job is made now."""
    plan = effective_plan(cluster.plan, cluster.observed, cluster.status)
    body = build_job(plan, next(each for each in plan.replicas.candidates or plan.replicas.all if each.id == replica))
    return {each["name"]: each["value"] for each in body["spec"]["template"]["spec"]["containers"][0]["env"]}


def shares(cluster: World, count: int) -> list[int]:
    return [int(env(cluster, f"worker-{index}")["TFJOB_STEPS"]) for index in range(count)]


def test_each_worker_gets_its_share_and_the_first_ones_what_does_not_divide() -> None:
    cluster = running(4)
    assert shares(cluster, 4) == [3, 3, 2, 2]
    for replica in ("master-0", "ps-0"):
        assert env(cluster, replica)["TFJOB_TOTAL_STEPS"] == "10"
        assert "TFJOB_STEPS" not in env(cluster, replica)


def test_the_variables_of_steps_come_first_and_replace_the_users_own() -> None:
    own = [{"name": "TFJOB_STEPS", "value": "7"}, {"name": "A", "value": "$(TFJOB_STEPS)"}]
    template = pod_template(container(env=own))
    cluster = running_world(workers(1, template=template), autoscaling={"maxWorkers": 2, "totalSteps": 10})
    assert list(env(cluster, "worker-0")) == ["TFJOB_TOTAL_STEPS", "TFJOB_STEPS", "A", "TF_CONFIG"]


def test_a_job_without_total_steps_has_no_such_variable() -> None:
    cluster = running(2, totalSteps=None)
    assert list(env(cluster, "worker-0")) == ["TF_CONFIG"]
    assert cluster.job.status.progress is None


def test_what_is_left_is_shared_by_those_that_start_after_a_resize() -> None:
    cluster = running(2, resize="Restart")
    annotate(cluster, "worker-0", "2")
    annotate(cluster, "worker-1", "1")
    assert done(cluster) == 3
    cluster.change(worker_replicas=3)
    cluster.settle()
    assert shares(cluster, 3) == [3, 2, 2]


def test_a_worker_that_comes_gets_its_part_of_what_is_left_as_it_is_known_at_that_moment() -> None:
    cluster = running(2)
    annotate(cluster, "worker-0", "4")
    cluster.change(worker_replicas=3)
    assert int(env(cluster, "worker-2")["TFJOB_STEPS"]) == 2


@pytest.mark.parametrize("steps", ["10", "9007199254740991"])
def test_a_share_is_never_negative(steps: str) -> None:
    cluster = running(2)
    annotate(cluster, "worker-0", steps)
    assert shares(cluster, 2) == [0, 0]


def test_a_worker_that_has_succeeded_has_no_share() -> None:
    cluster = running(3, resize="Restart", totalSteps=9)
    annotate(cluster, "worker-0", "3")
    cluster.exits("worker-0", 0)
    cluster.job_ends("worker-0", JOB_COMPLETE)
    cluster.settle()
    assert shares(cluster, 3) == [0, 3, 3]


def test_done_is_the_sum_over_all_pods_that_ever_were() -> None:
    cluster = running(2)
    annotate(cluster, "worker-0", "2")
    annotate(cluster, "worker-1", "3")
    assert done(cluster) == 5
    cluster.delete_job(cluster.name("worker-1"))
    cluster.settle()
    cluster.runs("worker-1")
    annotate(cluster, "worker-1", "1")
    assert done(cluster) == 6


def test_a_worker_that_leaves_has_done_what_it_has_done() -> None:
    cluster = running(2)
    cluster.lingers = True
    cluster.change(worker_replicas=1)
    cluster.settle()
    cluster.pod_deleted("worker-1")
    annotate(cluster, "worker-1", "3")
    assert cluster.sync().is_urgent
    cluster.reap()
    assert done(cluster) == 3


def test_steps_of_a_pod_that_stays_can_be_read_again_so_they_may_wait() -> None:
    cluster = running(2)
    annotate(cluster, "worker-1", "3")
    assert not cluster.sync().is_urgent


@pytest.mark.parametrize(
    ("reports", "counted", "problem"),
    [
        (["3", "2"], 3, "worker-1 went back from 3 to 2 steps"),
        (["3", "many"], 3, "worker-1 reported 'many', which is not a number of steps"),
        (["3", "x", "2", "5"], 5, "worker-1 reported 'x', which is not a number of steps"),
        (["9" * 100], 0, f"worker-1 reported '{'9' * 60}', which is not a number of steps"),
        (["3", "3", "4"], 4, ""),
    ],
)
def test_an_impossible_report_is_ignored_and_reported_once(reports: list[str], counted: int, problem: str) -> None:
    cluster = running(2)
    for report in reports:
        annotate(cluster, "worker-1", report)
        assert done(cluster) <= counted
    assert done(cluster) == counted
    told = [event.note for event in cluster.events if event.reason == "ProgressIgnored"]
    assert told == ([f"Progress is not counted: {problem}"] if problem else [])
    assert cluster.job.status.progress is not None
    assert cluster.job.status.progress.ignored == problem


def test_pods_that_are_gone_do_not_make_the_status_grow_for_ever() -> None:
    cluster = running(1)
    for _ in range(2 * MAX_GONE):
        annotate(cluster, "worker-0", "1")
        cluster.settle()
        cluster.delete_job(cluster.name("worker-0"))
        cluster.settle()
        cluster.runs("worker-0")
    assert done(cluster) == 2 * MAX_GONE
    assert cluster.job.status.progress is not None
    assert len(cluster.job.status.progress.counts) <= MAX_GONE + 2


# From logs


def test_with_a_pattern_the_log_counts_and_not_the_annotation() -> None:
    cluster = running(2, **PATTERN)
    annotate(cluster, "worker-0", "9")
    cluster.readings = {uid_of(cluster, "worker-0"): Reading("worker-0", "3")}
    assert done(cluster) == 3


def test_the_message_of_a_container_that_failed_counts() -> None:
    cluster = running(2, **PATTERN)
    cluster.exits("worker-1", 143, message="step 3 of mine\nstep 4 of mine\nbye\n")
    assert done(cluster) == 4


def test_the_message_is_that_of_the_scaled_roles_own_container() -> None:
    cluster = running(2, **PATTERN)
    cluster.exits("worker-1", 143, message="step 4 of mine")
    pod = cluster.pods[cluster.name("worker-1")][-1]
    statuses = tuple(replace(status, name="trainer") for status in pod.status.container_statuses)
    renamed = replace(pod, status=replace(pod.status, container_statuses=statuses))
    observed = ObservedState(pods={cluster.name("worker-1"): [renamed]})
    roles = tuple(
        dataclasses.replace(role, container="trainer") if role.name == "worker" else role
        for role in cluster.plan.replicas.roles
    )
    plan = dataclasses.replace(cluster.plan, replicas=dataclasses.replace(cluster.plan.replicas, roles=roles))
    assert next_progress(plan, observed, None).done == 4


def test_what_was_read_of_a_pod_that_is_gone_by_now_counts_once() -> None:
    cluster = running(2, **PATTERN)
    cluster.readings = {"gone": Reading("worker-1", "3", is_last=True)}
    assert done(cluster) == 3
    assert done(cluster) == 3


def test_a_job_ends_once_the_logs_of_the_workers_that_ended_are_read() -> None:
    cluster = running(1, **PATTERN)
    cluster.readings = {}
    cluster.exits("worker-0", 0)
    cluster.exits("master-0", 0)
    assert cluster.sync().status.phase == "Running"
    cluster.readings = {uid_of(cluster, "worker-0"): Reading("worker-0", "10", is_last=True)}
    cluster.settle()
    cluster.pods_catch_up()
    assert done(cluster) == 10
    assert cluster.job.status.state == "Succeeded"


def test_nobody_waits_for_a_log_that_never_was() -> None:
    cluster = running(1, **PATTERN)
    cluster.readings = {}
    cluster.pod("worker-0", phase="Failed", reason="Evicted", container_statuses=())
    cluster.exits("master-0", 0)
    assert cluster.sync().status.state == "Succeeded"


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("12", 12),
        (" 12\n", 12),
        ("0", 0),
        ("-1", None),
        ("1.5", None),
        ("٣", None),
        (str(2**53 - 1), 2**53 - 1),
        (str(2**53), None),
    ],
)
def test_a_number_of_steps_is_a_plain_number(text: str, steps: int | None) -> None:
    assert parse_steps(text) == steps
