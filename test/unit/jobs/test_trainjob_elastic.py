"""An elastic TrainJob: its nodes come, leave and are replaced one by one, and all are restarted only if needed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import LOST_SECONDS, World
from helpers.trainmanifests import override
from helpers.trainworld import (
    ends,
    generations,
    jobs,
    running_train_world,
    runtime_spec,
    train_plan,
    train_world,
    true_conditions,
)
from tfjob_controller.api.common.core import Condition, ContainerState, ContainerStatus, Terminated
from tfjob_controller.jobs.actions.children import build_first_service, build_job, build_service
from tfjob_controller.jobs.frameworks.environment import JOIN_SECONDS
from tfjob_controller.jobs.plan.model import UnplannableError
from tfjob_controller.jobs.state.observed import job_outcome
from tfjob_controller.jobs.state.restarts import KEPT_FAILED_PODS
from tfjob_controller.jobs.status.update import next_status
from tfjob_controller.util.timestamps import format_time

TORCHRUN = {"command": ["torchrun", "train.py"]}
ELASTIC: dict[str, Any] = {**TORCHRUN, "elasticPolicy": {"minNodes": 2, "maxNodes": 6}}


def running(nodes: int = 4, **job: Any) -> World:
    return running_train_world(nodes=nodes, **ELASTIC, **job)


def resize(cluster: World, nodes: int) -> None:
    cluster.change(num_nodes=nodes)
    cluster.settle()


def fails(cluster: World, replica_id: str, exit_code: int = 137) -> None:
    """The pod ends, and the Job controller has not replaced it yet."""
    cluster.exits(replica_id, exit_code, "Error")
    cluster.settle()


def is_replaced(cluster: World, *replica_ids: str) -> None:
    for each in replica_ids:
        cluster.runs(each, newest=True)
    cluster.settle()


def restarts(cluster: World) -> tuple[int, int]:
    """All, and those of the whole set."""
    status = cluster.job.status
    return status.restarts, status.scaling.attempt


# The pods


def test_the_job_controller_replaces_nodes_one_by_one() -> None:
    plan = train_plan(nodes=2, **ELASTIC)
    spec = build_job(plan, plan.replicas.chief)["spec"]
    assert spec["backoffLimitPerIndex"] == spec["backoffLimit"] == 2**31 - 1
    assert spec["podReplacementPolicy"] == "Failed"
    assert "podFailurePolicy" not in spec


def test_torchrun_meets_at_node_0_and_knows_no_number_of_nodes() -> None:
    plan = train_plan(nodes=3, **ELASTIC)
    assert plan.environment(plan.replicas.all[2]) == {
        "PET_NNODES": "2:6",
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{plan.replicas.chief.name}:29500",
        "PET_RDZV_ID": "uid-job",
        "PET_RDZV_CONF": "join_timeout=900,last_call_timeout=10,read_timeout=900",
        "PET_MAX_RESTARTS": "100",
    }


def test_node_0_has_a_service_of_its_own_under_its_host_name() -> None:
    cluster = running()
    chief = cluster.plan.replicas.chief
    assert set(cluster.services) == {chief.role.service_name, chief.name}
    cluster.services.clear()
    cluster.settle()
    assert set(cluster.services) == {chief.role.service_name, chief.name}
    own, of_all = build_first_service(cluster.plan, chief)["spec"], build_service(cluster.plan, chief)["spec"]
    assert own["selector"] == {**of_all["selector"], "batch.kubernetes.io/job-completion-index": "0"}
    assert (own["clusterIP"], own["ports"]) == ("None", of_all["ports"])


def test_variables_of_the_rendezvous_are_reserved_in_elastic_jobs_only() -> None:
    name = "PET_RDZV_CONF"
    trainer = {"env": [{"name": name, "value": "x"}]}
    assert train_plan(**TORCHRUN, trainer=trainer).replicas.chief.id == "node-0"
    with pytest.raises(UnplannableError, match=f"{name} is set by the controller"):
        train_plan(**ELASTIC, trainer=trainer)


def test_a_variable_of_an_override_gives_way_to_the_rendezvous() -> None:
    overrides = [override(containers=[{"name": "node", "env": [{"name": "PET_MAX_RESTARTS", "value": "1"}]}])]
    plan = train_plan(podSpecOverrides=overrides, **ELASTIC)
    (container,) = build_job(plan, plan.replicas.chief)["spec"]["template"]["spec"]["containers"]
    assert [each["value"] for each in container["env"] if each["name"] == "PET_MAX_RESTARTS"] == ["100"]


# Resizes


@pytest.mark.parametrize("nodes", [2, 6])
def test_a_resize_is_one_patch_of_the_job(nodes: int) -> None:
    cluster = running(4)
    uid = cluster.jobs[cluster.name("node-0")].metadata.uid
    before = len(cluster.created)
    resize(cluster, nodes)
    assert cluster.resizes == [nodes]
    assert cluster.jobs[cluster.name("node-0")].metadata.uid == uid
    assert len(cluster.created) == before
    (step,) = cluster.job.status.jobs_status
    assert step.replicas == nodes
    assert restarts(cluster) == (0, 0)
    assert "Resizing" in true_conditions(cluster) or nodes > 4


def test_a_job_is_resized_until_the_nodes_that_leave_have_left() -> None:
    cluster = running(4)
    resize(cluster, 2)
    cluster.reap()
    cluster.settle()
    assert "Resizing" not in true_conditions(cluster)
    status = cluster.job.status
    assert (status.nodes, status.current_nodes, status.scaling.nodes, status.scaling.before) == ("2/2", 2, 2, 4)
    assert ("Resized", "scaled 4 → 2 nodes by spec.numNodes") in [(each.reason, each.note) for each in cluster.events]
    assert "job_type=node" in status.selector


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_node_that_leaves_has_neither_failed_nor_succeeded(exit_code: int) -> None:
    cluster = running(4)
    job = cluster.job
    resize(cluster, 2)
    smaller = cluster.job
    # It ends as torchrun does when it is told to.
    cluster.job = job
    going = cluster.pods_of("node-3")[-1]
    cluster.exits("node-3", exit_code)
    assert going.metadata.deletion_timestamp is not None
    cluster.job = smaller
    cluster.advance(30)
    cluster.settle()
    assert restarts(cluster) == (0, 0)
    assert cluster.job.status.phase == "Running"
    assert cluster.job.status.succeeded_indexes == ()


def test_nodes_that_are_added_have_time_to_get_their_pods() -> None:
    cluster = running(4)
    cluster.advance(3600)
    resize(cluster, 5)
    assert cluster.job.status.reason == ""
    cluster.advance(32)
    cluster.settle()
    assert cluster.job.status.reason.startswith("node-4: no pod after 30 s")


def test_a_node_that_comes_back_before_it_has_left_was_not_restarted() -> None:
    cluster = running(4)
    resize(cluster, 2)
    resize(cluster, 4)
    assert cluster.resizes == [2, 4]
    cluster.advance(5)
    cluster.settle()
    is_replaced(cluster, "node-2", "node-3")
    cluster.reap()
    cluster.settle()
    assert restarts(cluster) == (0, 0)
    assert cluster.job.status.nodes == "4/4"


def test_a_suspended_job_is_resized_before_it_goes_on() -> None:
    cluster = running(4)
    cluster.change(suspend=True)
    cluster.settle()
    resize(cluster, 3)
    assert cluster.resizes == [3]
    cluster.change(suspend=False)
    cluster.settle()
    cluster.reap()
    cluster.settle()
    cluster.all_run()
    cluster.settle()
    assert cluster.job.status.nodes == "3/3"
    assert restarts(cluster) == (0, 0)


def test_a_restart_takes_the_number_that_holds_then() -> None:
    cluster = running(4)
    fails(cluster, "node-0")
    resize(cluster, 3)
    assert cluster.resizes == []
    cluster.reap()
    cluster.settle()
    assert cluster.jobs[cluster.name("node-0")].spec.parallelism == 3
    assert generations(cluster) == {"1"}


def test_the_end_of_a_job_waits_for_the_pods_of_nodes_that_have_succeeded() -> None:
    """Otherwise their logs would be gone."""
    cluster = running(2)
    for each in ("node-0", "node-1"):
        cluster.exits(each, 0, phase="Running")
    cluster.settle()
    assert cluster.job.status.phase == "CleanUp"
    assert not any(job.spec.suspend for job in cluster.jobs.values())
    cluster.pods_catch_up()
    cluster.settle()
    assert cluster.job.status.phase == "Done"
    assert [pod.status.phase for pod in cluster.pods_of("node-1")] == ["Succeeded"]


def test_nobody_joins_a_job_of_which_a_node_has_succeeded() -> None:
    cluster = running(3)
    ends(cluster, "node-1")
    cluster.settle()
    resize(cluster, 5)
    assert cluster.resizes == []
    ends(cluster, "node-0", "node-2")
    cluster.job_status("node-0", conditions=(Condition("Complete", "True"),), active=0)
    cluster.settle()
    assert cluster.job.status.state == "SUCCESS"


def test_a_node_that_never_existed_has_not_succeeded() -> None:
    cluster = running(3)
    cluster.change(num_nodes=5)
    ends(cluster, "node-0", "node-1", "node-2")
    cluster.job_status("node-0", conditions=(Condition("Complete", "True"),), active=0)
    cluster.settle()
    status = cluster.job.status
    assert (status.state, status.reason) == ("SUCCESS", "all 3 nodes succeeded")
    assert status.succeeded_indexes == ("node-0", "node-1", "node-2")


def test_all_present_nodes_must_succeed_and_those_that_left_need_not() -> None:
    cluster = running(4)
    resize(cluster, 2)
    cluster.reap()
    cluster.settle()
    ends(cluster, "node-0", "node-1")
    cluster.settle()
    assert (cluster.job.status.state, cluster.job.status.reason) == ("SUCCESS", "all 2 nodes succeeded")


def test_an_index_that_comes_back_is_to_run_once_more() -> None:
    cluster = running(3)
    ends(cluster, "node-2")
    cluster.settle()
    assert cluster.job.status.succeeded_indexes == ("node-2",)
    resize(cluster, 2)
    assert cluster.job.status.succeeded_indexes == ()


# Replacements and restarts


def test_a_node_with_a_retryable_end_is_replaced_by_itself_and_counted_once() -> None:
    cluster = running(4)
    before = dict(cluster.jobs)
    fails(cluster, "node-2")
    assert cluster.jobs == before
    assert cluster.job.status.reason == "node-2: exit code 137; started again with back-off"
    assert restarts(cluster) == (1, 0)
    assert {"Running", "Restarting"} <= true_conditions(cluster)
    is_replaced(cluster, "node-2")
    assert restarts(cluster) == (1, 0)
    assert "Restarting" not in true_conditions(cluster)
    fails(cluster, "node-2")
    is_replaced(cluster, "node-2")
    fails(cluster, "node-3")
    assert restarts(cluster) == (3, 0)
    assert [each.note for each in cluster.events if each.reason == "Restarted"] == [
        "Replacing node-2: node-2 failed: exit code 137 (1 restarts so far)",
        "Replacing node-2: node-2 failed: exit code 137 (2 restarts so far)",
        "Replacing node-3: node-3 failed: exit code 137 (3 restarts so far)",
    ]


def restart_note(cluster: World) -> str:
    (event,) = [each for each in cluster.events if each.reason == "Restarted"]
    return event.note


def test_the_event_of_a_replacement_that_is_seen_late_names_the_cause() -> None:
    cluster = running(4)
    cluster.exits("node-3", 143, "Error")
    cluster.advance(1)
    cluster.exits("node-2", 137, "Error")
    is_replaced(cluster, "node-2", "node-3")
    assert restart_note(cluster) == "Replacing node-2, node-3: node-3 failed: exit code 143 (2 restarts so far)"


def test_the_event_of_a_node_that_fails_and_is_about_to_leave_names_the_node() -> None:
    cluster = running(4)
    cluster.exits("node-3", 137, "Error")
    cluster.change(num_nodes=2)
    notes = [each.note for each in next_status(cluster.state).events if each.reason == "Restarted"]
    assert notes == ["Replacing node-3 (1 restarts so far)"]


def test_the_event_of_a_replacement_tells_a_deletion_from_an_error() -> None:
    cluster = running(4)
    cluster.advance(5)
    cluster.pod_deleted("node-1")
    cluster.settle()
    assert restart_note(cluster) == (
        "Replacing node-1: node-1 failed: its pod was deleted, evicted or lost (1 restarts so far)"
    )


@pytest.mark.parametrize("is_seen_early", [False, True])
def test_a_node_whose_pod_is_taken_away_is_counted_once(is_seen_early: bool) -> None:
    cluster = running(4)
    cluster.advance(5)
    cluster.pod_deleted("node-1")
    if is_seen_early:
        cluster.settle()
        assert restarts(cluster) == (1, 0)
    cluster.exits("node-1", 143)
    cluster.settle()
    assert restarts(cluster) == (1, 0)
    is_replaced(cluster, "node-1")
    cluster.reap()
    cluster.settle()
    assert restarts(cluster) == (1, 0)


def test_a_node_that_is_lost_restarts_all_and_is_counted_once() -> None:
    cluster = running(4, maxRestarts=0)
    cluster.pod_deleted("node-1")
    cluster.settle()
    cluster.advance(LOST_SECONDS + 1)
    cluster.settle()
    status = cluster.job.status
    assert (restarts(cluster), status.disruptions, status.state) == ((1, 1), 1, "RUNNING")


def test_a_drain_that_restarts_all_uses_up_no_restart() -> None:
    cluster = running(4, maxRestarts=0)
    cluster.pod_deleted("node-1")
    cluster.settle()
    cluster.exits("node-1", 0)
    cluster.job_ends("node-1", "Complete")
    cluster.pods[cluster.replica("node-1").job_name] = [
        pod for replica_id in ("node-0", "node-2", "node-3") for pod in cluster.pods_of(replica_id)
    ]
    cluster.settle()
    assert (restarts(cluster), cluster.job.status.disruptions) == ((1, 1), 1)
    assert cluster.job.status.state == "RUNNING"


def test_the_last_deletion_of_a_kubelet_does_not_hide_a_drain() -> None:
    """It has no grace period and moves the time of the deletion, so the program seems to have ended before."""
    cluster = running(4)
    cluster.pod_deleted("node-1")
    cluster.settle()
    cluster.exits("node-1", 0)
    cluster.advance(5)
    (pod,) = cluster.pods_of("node-1")
    meta = replace(pod.metadata, deletion_timestamp=format_time(cluster.now), deletion_grace_period_seconds=0)
    cluster.pods[pod.metadata.owner_references[0].name].remove(pod)
    cluster.pods[pod.metadata.owner_references[0].name].append(replace(pod, metadata=meta))
    cluster.job_ends("node-1", "Complete")
    cluster.settle()
    assert (restarts(cluster), cluster.job.status.succeeded_indexes) == ((1, 1), ())


def test_a_drained_node_of_which_only_the_completed_index_is_left_has_not_succeeded() -> None:
    cluster = running(4)
    cluster.pod_deleted("node-1")
    cluster.settle()
    (pod,) = cluster.pods_of("node-1")
    cluster.pods[pod.metadata.owner_references[0].name].remove(pod)
    cluster.job_ends("node-1", "Complete")
    cluster.settle()
    assert (restarts(cluster), cluster.job.status.succeeded_indexes) == ((1, 1), ())


def test_a_node_that_was_replaced_before_succeeds_if_only_its_completed_index_is_left() -> None:
    cluster = running(4)
    fails(cluster, "node-1")
    is_replaced(cluster, "node-1")
    job_name = cluster.replica("node-1").job_name
    gone = set(map(id, cluster.pods_of("node-1")))
    counted = cluster.pods[job_name]
    cluster.pods[job_name] = [pod for pod in counted if id(pod) not in gone or pod.status.phase != "Failed"]
    cluster.settle()
    assert dict(cluster.job.status.restart_counts) == {"node-1": 1}
    cluster.pods[job_name] = [pod for pod in counted if id(pod) not in gone]
    cluster.job_ends("node-1", "Complete")
    cluster.settle()
    assert (restarts(cluster), cluster.job.status.succeeded_indexes) == ((1, 0), ("node-1",))


def test_a_completed_index_counts_once_the_end_of_its_pod_is_seen() -> None:
    """Only the pod says whether it was drained."""
    cluster = running(4)
    cluster.job_ends("node-1", "Complete")
    cluster.settle()
    assert cluster.job.status.succeeded_indexes == ()
    cluster.exits("node-1", 0)
    cluster.settle()
    assert cluster.job.status.succeeded_indexes == ("node-1",)


def test_the_pods_of_a_suspended_job_that_is_gone_are_no_restarts() -> None:
    cluster = running(4)
    cluster.stops_slowly = True
    cluster.change(suspend=True)
    cluster.settle()
    cluster.change(suspend=False)
    cluster.settle()
    for each in ("node-0", "node-1"):
        cluster.exits(each, 137)
    cluster.jobs.clear()
    cluster.settle()
    assert restarts(cluster) == (0, 0)


def test_a_node_that_failed_beside_its_sidecar_is_removed_and_counted_as_a_failure() -> None:
    cluster = running(4)
    cluster.exits("node-1", 137, "Error", phase="Running")
    cluster.settle()
    cluster.advance(60)
    cluster.pod_deleted("node-1")
    cluster.settle()
    status = cluster.job.status
    assert (restarts(cluster), status.disruptions) == ((1, 0), 0)


def fails_beside_a_success(cluster: World) -> None:
    beside = ContainerStatus("log", state=ContainerState(terminated=Terminated(3, "Error")))
    cluster.exits("node-1", 0, phase="Failed")
    pod = cluster.pods_of("node-1")[-1]
    cluster.pod("node-1", container_statuses=(*pod.status.container_statuses, beside))
    cluster.settle()


def test_a_sidecar_for_which_a_node_runs_again_is_named() -> None:
    cluster = running(4, maxRestarts=0)
    fails_beside_a_success(cluster)
    assert cluster.job.status.reason == (
        "BackoffLimitExceeded: 1 restarts of replicas, maxRestarts is 0; node-1: sidecar log failed: exit code 3"
    )


def test_of_the_failed_pods_of_replaced_nodes_the_newest_are_kept() -> None:
    cluster = running(4)
    for _ in range(6):
        fails(cluster, "node-2")
        cluster.advance(1)
        is_replaced(cluster, "node-2")
    pods = cluster.pods_of("node-2")
    assert [pod.status.phase for pod in pods] == ["Failed"] * KEPT_FAILED_PODS + ["Running"]
    assert restarts(cluster) == (6, 0)


def test_nodes_that_a_suspension_stops_are_no_restarts() -> None:
    cluster = running(4)
    cluster.stops_slowly = True
    cluster.change(suspend=True)
    cluster.settle()
    for each in ("node-0", "node-1", "node-2"):
        cluster.exits(each, 1)
    cluster.settle()
    cluster.reap()
    cluster.change(suspend=False)
    cluster.settle()
    cluster.reap()
    cluster.settle()
    cluster.all_run()
    cluster.settle()
    assert restarts(cluster) == (0, 0)
    assert cluster.job.status.nodes == "4/4"


def test_a_failure_of_node_0_restarts_all() -> None:
    cluster = running(4)
    fails(cluster, "node-2")
    is_replaced(cluster, "node-2")
    fails(cluster, "node-0")
    assert restarts(cluster) == (2, 1)
    # The others lose their rendezvous.
    for each in ("node-1", "node-2", "node-3"):
        cluster.exits(each, 1)
    cluster.settle()
    cluster.reap()
    cluster.settle()
    assert generations(cluster) == {"1"}
    assert jobs(cluster) == [f"node-{index}" for index in range(4)]
    cluster.all_run()
    cluster.settle()
    assert cluster.job.status.nodes == "4/4"
    assert restarts(cluster) == (2, 1)


def test_node_0_that_was_replaced_while_nobody_looked_restarts_all() -> None:
    cluster = running(3)
    cluster.advance(20)
    cluster.pods[cluster.name("node-0")].remove(cluster.pods_of("node-0")[0])
    cluster.runs("node-0", newest=True)
    cluster.settle()
    assert restarts(cluster) == (1, 1)


def test_a_job_that_is_deleted_after_a_success_restarts_all_while_a_node_is_replaced() -> None:
    cluster = running(3)
    ends(cluster, "node-1")
    fails(cluster, "node-2")
    assert "Restarting" in true_conditions(cluster)
    cluster.delete_job(cluster.name("node-0"))
    cluster.pods.clear()
    cluster.settle()
    assert restarts(cluster) == (2, 1)
    assert cluster.job.status.succeeded_indexes == ()


def test_a_permanent_error_ends_the_job() -> None:
    cluster = running(4)
    fails(cluster, "node-2", exit_code=1)
    cluster.advance(5)
    cluster.settle()
    assert (cluster.job.status.state, cluster.job.status.reason) == ("FAILED", "node-2 failed: exit code 1")
    # Its Job must make no other pod, and release the failed one.
    assert job_outcome(cluster.jobs[cluster.name("node-0")]) == "Failed"
    assert restarts(cluster) == (0, 0)


def test_an_error_after_the_end_of_a_peer_is_a_consequence() -> None:
    cluster = running(4)
    fails(cluster, "node-2")
    cluster.advance(1)
    fails(cluster, "node-3", exit_code=1)
    cluster.advance(5)
    cluster.settle()
    assert cluster.job.status.phase == "Running"
    assert restarts(cluster) == (1, 0)
    is_replaced(cluster, "node-3")
    assert restarts(cluster) == (2, 0)


@pytest.mark.parametrize(("limit", "state"), [(0, "FAILED"), (1, "RUNNING")])
def test_replacements_count_as_restarts(limit: int, state: str) -> None:
    cluster = running(4, maxRestarts=limit)
    fails(cluster, "node-2")
    assert cluster.job.status.state == state
    if state == "RUNNING":
        is_replaced(cluster, "node-2")
        fails(cluster, "node-3")
        assert cluster.job.status.reason == (
            "BackoffLimitExceeded: 2 restarts of replicas, maxRestarts is 1; node-3 failed: exit code 137"
        )


def test_a_node_that_is_deleted_or_evicted_uses_up_no_restart() -> None:
    cluster = running(4, maxRestarts=0)
    cluster.pod_deleted("node-2")
    evicted = Condition("DisruptionTarget", "True", last_transition_time=format_time(cluster.now))
    cluster.pod("node-3", conditions=(evicted,))
    cluster.exits("node-3", 137, "Error")
    cluster.settle()
    status = cluster.job.status
    assert (status.state, status.restarts, status.disruptions) == ("RUNNING", 2, 2)


def loses(cluster: World, *replica_ids: str) -> None:
    """They fail, and their replacements find no room."""
    for each in replica_ids:
        cluster.exits(each, 137, "Error")
        cluster.settle()
        cluster.pod(each, newest=True)
    cluster.settle()


def test_too_few_nodes_for_longer_than_they_wait_restart_all() -> None:
    cluster = running(4)
    loses(cluster, "node-1", "node-2", "node-3")
    assert "Running" not in true_conditions(cluster)
    cluster.advance(JOIN_SECONDS - 1)
    result = cluster.settle()
    assert restarts(cluster) == (3, 0)
    assert result.wake_after_seconds == 1.0
    cluster.advance(1)
    cluster.settle()
    assert restarts(cluster) == (4, 1)
    assert "node-1 failed: it has not run for 600 s, and there are fewer nodes than the minimum" in (
        cluster.events[-1].note
    )


def test_enough_nodes_go_on_without_the_others_for_ever() -> None:
    cluster = running(4)
    loses(cluster, "node-2", "node-3")
    assert "Running" in true_conditions(cluster)
    cluster.advance(JOIN_SECONDS * 10)
    cluster.settle()
    assert restarts(cluster) == (2, 0)
    assert cluster.job.status.state == "RUNNING"


def test_nodes_wait_since_there_were_enough_of_them_for_the_last_time() -> None:
    cluster = running(4)
    loses(cluster, "node-1", "node-2", "node-3")
    cluster.advance(JOIN_SECONDS - 1)
    cluster.settle()
    cluster.runs("node-1")
    cluster.settle()
    cluster.advance(JOIN_SECONDS * 2)
    loses(cluster, "node-1")
    cluster.advance(JOIN_SECONDS - 1)
    cluster.settle()
    assert restarts(cluster)[1] == 0
    cluster.advance(1)
    cluster.settle()
    assert restarts(cluster)[1] == 1


def test_a_new_job_does_not_run_before_it_has_enough_nodes() -> None:
    cluster = train_world(nodes=4, **ELASTIC)
    cluster.settle()
    cluster.runs("node-0")
    cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.state) == ("Creating", "")
    cluster.runs("node-2")
    cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.state) == ("Running", "RUNNING")


# The number of nodes


@pytest.mark.parametrize(
    ("given", "of_runtime", "expected"), [(None, None, 2), (None, 4, 4), (None, 9, 6), (None, 1, 2), (3, 5, 3)]
)
def test_the_number_of_nodes_is_within_the_bounds(given: int | None, of_runtime: int | None, expected: int) -> None:
    runtime = runtime_spec(numNodes=of_runtime) if of_runtime else None
    assert train_plan(nodes=given, runtime=runtime, **ELASTIC).replicas.chief.role.replicas == expected


def test_a_started_job_keeps_its_number_if_its_spec_has_none() -> None:
    cluster = running(4)
    cluster.job = replace(cluster.job, spec=replace(cluster.job.spec, num_nodes=None))
    assert cluster.plan.replicas.chief.role.replicas == 4


def test_the_reason_tells_why_all_nodes_are_restarted_until_they_are_created_again() -> None:
    cluster = running(nodes=3)
    for number in range(3):
        fails(cluster, "node-0")
        cluster.reap()
        cluster.settle()
        if number:
            assert not cluster.jobs
            words = "node-0 will be restarted: node-0 failed: exit code 137"
            assert cluster.job.status.reason == words
            cluster.advance(10 * number)
            cluster.settle()
        cluster.all_run()
        cluster.settle()
        assert not cluster.job.status.reason
