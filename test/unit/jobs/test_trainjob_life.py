"""The life of a TrainJob from its first child to its end, as the trainer decides it step by step."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import LOST_SECONDS, World, terminated, waiting
from helpers.clusterinmemory import running as running_container
from helpers.gangs import member_ids
from helpers.trainworld import (
    admit,
    ends,
    generations,
    jobs,
    running_train_world,
    sidecar,
    train_world,
    true_conditions,
    world_in_steps,
)
from tfjob_controller.api.common.core import PODS, Condition, ContainerState, Running, Terminated
from tfjob_controller.api.gang import BOUND, WAITING
from tfjob_controller.jobs.actions.model import NO_ACTIONS
from tfjob_controller.jobs.evaluation.cleanup import is_active
from tfjob_controller.jobs.plan.gangterms import ON_REQUEST, GangPolicy
from tfjob_controller.jobs.state.pods import GIVEN_UP_SECONDS
from tfjob_controller.jobs.state.replica_state import DEFAULT_GRACE_SECONDS, REPORT_SECONDS
from tfjob_controller.jobs.state.restarts import BASE_SECONDS, GRACE_SECONDS
from tfjob_controller.util.timestamps import format_time

GANGS = GangPolicy(ON_REQUEST, "gang-scheduler")
INITIALIZERS = ["dataset-initializer-0", "model-initializer-0"]
NODES = ["node-0", "node-1"]


def end_of(cluster: World) -> tuple[str, str, str]:
    status = cluster.job.status
    return status.phase, status.state, status.reason


def started_again(cluster: World) -> None:
    """What is to go has gone, and the nodes run once more."""
    cluster.settle()
    cluster.reap()
    cluster.settle()
    cluster.all_run()
    cluster.settle()


# Steps


def test_initializers_come_first_then_nodes_then_the_exporter() -> None:
    cluster = world_in_steps()
    cluster.settle()
    assert jobs(cluster) == INITIALIZERS
    assert not cluster.services
    ends(cluster, INITIALIZERS[0])
    cluster.settle()
    assert jobs(cluster) == INITIALIZERS
    ends(cluster, INITIALIZERS[1])
    cluster.settle()
    assert jobs(cluster) == [*NODES, *INITIALIZERS]
    cluster.all_run()
    cluster.settle()
    assert true_conditions(cluster) == {"Created", "Running"}
    ends(cluster, *NODES)
    cluster.settle()
    assert jobs(cluster) == [*NODES, *INITIALIZERS, "model-exporter-0"]
    assert cluster.job.status.phase == "Running"
    ends(cluster, "model-exporter-0")
    cluster.settle()
    assert end_of(cluster) == ("Done", "SUCCESS", "model-exporter-0 succeeded")
    assert true_conditions(cluster) == {"Created", "Complete"}


def test_an_initializer_that_runs_again_is_not_being_restarted() -> None:
    cluster = world_in_steps()
    cluster.settle()
    cluster.all_run()
    cluster.settle()
    for seconds in (0, 10):
        cluster.exits(INITIALIZERS[0], 203, "Error")
        cluster.settle()
        assert not seconds or "Restarting" in true_conditions(cluster)
        cluster.advance(seconds)
        cluster.settle()
        cluster.reap()
        cluster.settle()
        cluster.all_run()
        cluster.settle()
    assert "Restarting" not in true_conditions(cluster)
    assert not cluster.job.status.reason


def test_the_pods_of_a_completed_step_end_by_themselves_and_keep_their_logs() -> None:
    """A kubelet reports the phase of a pod some time after its program has ended, and a sidecar has a grace period."""
    cluster = world_in_steps()
    cluster.settle()
    for each in INITIALIZERS:
        cluster.exits(each, 0, phase="Running")
    cluster.settle()
    assert jobs(cluster) == [*NODES, *INITIALIZERS]
    assert not any(cluster.jobs[cluster.name(each)].spec.suspend for each in INITIALIZERS)
    cluster.pods_catch_up()
    for each in INITIALIZERS:
        cluster.job_ends(each, "Complete")
    cluster.advance(60)
    cluster.settle()
    assert [pod.status.phase for each in INITIALIZERS for pod in cluster.pods_of(each)] == ["Succeeded"] * 2


def test_a_sidecar_that_outlives_a_completed_step_is_ended_after_its_grace_period() -> None:
    cluster = world_in_steps()
    cluster.settle()
    ends(cluster, INITIALIZERS[1])
    cluster.exits(INITIALIZERS[0], 0, phase="Running")
    sidecar(cluster, INITIALIZERS[0], ContainerState(running=Running()))
    cluster.settle()
    assert cluster.pods_of(INITIALIZERS[0])
    cluster.advance(DEFAULT_GRACE_SECONDS + REPORT_SECONDS + 1)
    cluster.settle()
    assert not cluster.pods_of(INITIALIZERS[0])


def running(cluster: World) -> tuple[str, str]:
    (said,) = [each for each in cluster.job.status.conditions if each.type == "Running"]
    return said.status, said.message


def test_a_job_runs_as_long_as_any_node_does_and_while_the_model_is_exported() -> None:
    cluster = world_in_steps()
    cluster.settle()
    ends(cluster, *INITIALIZERS)
    cluster.settle()
    cluster.all_run()
    cluster.settle()
    assert running(cluster) == ("True", "node-0 runs")
    ends(cluster, "node-0")
    cluster.settle()
    assert running(cluster) == ("True", "node-1 runs")
    ends(cluster, "node-1")
    cluster.settle()
    assert running(cluster) == ("False", "model-exporter-0 does not run")
    cluster.runs("model-exporter-0")
    cluster.settle()
    assert running(cluster) == ("True", "model-exporter-0 runs")
    assert cluster.job.status.state == "RUNNING"


def test_a_job_runs_also_if_the_chief_succeeds_before_anybody_saw_it_run() -> None:
    cluster = train_world()
    cluster.settle()
    cluster.runs("node-1")
    ends(cluster, "node-0")
    cluster.settle()
    assert running(cluster) == ("True", "node-1 runs")
    assert (cluster.job.status.phase, cluster.job.status.state) == ("Running", "RUNNING")


def test_a_status_that_counts_a_restart_says_that_nothing_of_the_new_set_is_there() -> None:
    cluster = running_train_world()
    ends(cluster, "node-1", exit_code=137)
    cluster.sync()
    status = cluster.job.status
    assert (status.restarts, status.nodes, status.jobs_status[0].active) == (1, "0/2", 0)
    assert running(cluster) == ("False", "node-0 does not run")
    writes = cluster.status_writes
    cluster.settle()
    assert cluster.status_writes == writes


def stranded(cluster: World, **changed: Any) -> None:
    """As seen of node-0's pod, whose node failed after its first init container, when the node was started again."""
    done = terminated(Terminated(0, finished_at=format_time(cluster.now)), name="checkpoint-restore")
    cluster.pod(
        "node-0",
        **{
            "phase": "Pending",
            "container_statuses": (),
            "init_container_statuses": (done,),
            "conditions": (
                Condition("PodReadyToStartContainers", "False", last_transition_time=format_time(cluster.now)),
            ),
            **changed,
        },
    )


def test_a_pod_that_its_kubelet_never_starts_is_deleted_so_that_another_one_takes_its_place() -> None:
    cluster = running_train_world()
    stranded(cluster)
    result = cluster.sync()
    assert not cluster.actions().deletes
    assert result.wake_after_seconds == GIVEN_UP_SECONDS + 1
    cluster.advance(GIVEN_UP_SECONDS)
    (delete,) = cluster.actions().deletes
    assert (delete.resource, delete.name) == (PODS, cluster.pods_of("node-0")[-1].metadata.name)
    assert delete.uid


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"phase": "Running", "container_statuses": (running_container("node"),)}, id="runs"),
        pytest.param({"init_container_statuses": ()}, id="no init container has run: it may be a slow start"),
        pytest.param({"conditions": ()}, id="an older kubelet"),
        pytest.param({"conditions": (Condition("PodReadyToStartContainers", "True"),)}, id="ready"),
    ],
)
def test_other_pods_are_left_alone_however_long_they_take(changed: dict[str, Any]) -> None:
    cluster = running_train_world()
    stranded(cluster, **changed)
    cluster.sync()
    cluster.advance(10 * GIVEN_UP_SECONDS)
    assert not [each for each in cluster.actions().deletes if each.resource == PODS]


@pytest.mark.parametrize("failing", [INITIALIZERS[0], "model-exporter-0"])
def test_an_initializer_or_exporter_fails_the_job_with_its_message(failing: str) -> None:
    cluster = world_in_steps()
    cluster.settle()
    if failing == "model-exporter-0":
        ends(cluster, *INITIALIZERS)
        cluster.settle()
        ends(cluster, *NODES)
        cluster.settle()
    cluster.exits(failing, 1, "Error", message="no such bucket")
    cluster.job_ends(failing, "Failed")
    cluster.settle()
    phase, state, reason = end_of(cluster)
    assert (phase, state) == ("Failed", "FAILED")
    assert reason.startswith(f"{failing} failed: ")
    assert "no such bucket" in reason


def test_an_initializer_that_was_evicted_is_run_again_and_is_no_restart_of_the_nodes() -> None:
    cluster = world_in_steps(maxRestarts=0)
    cluster.settle()
    cluster.exits(INITIALIZERS[0], 137, "Evicted")
    cluster.pod(INITIALIZERS[0], reason="Evicted")
    cluster.settle()
    status = cluster.job.status
    assert (status.phase, status.restarts, status.disruptions) == ("Creating", 0, 0)
    cluster.advance(1)
    cluster.runs(INITIALIZERS[0], newest=True)
    ends(cluster, *INITIALIZERS)
    cluster.settle()
    assert jobs(cluster)[:2] == NODES


# Restart of the whole set


def test_one_nodes_failure_restarts_all_once_nothing_of_before_is_left() -> None:
    cluster = running_train_world()
    ends(cluster, "node-1", exit_code=137)
    cluster.settle()
    assert cluster.job.status.restarts == 1
    assert "Restarting" in true_conditions(cluster)
    assert generations(cluster) == {"0"}
    assert all(each.metadata.deletion_timestamp for each in cluster.jobs.values())
    cluster.advance(1)
    cluster.settle()
    assert generations(cluster) == {"0"}
    cluster.reap()
    cluster.settle()
    assert generations(cluster) == {"1"}
    assert jobs(cluster) == NODES
    cluster.all_run()
    cluster.settle()
    assert true_conditions(cluster) == {"Created", "Running"}


def test_a_set_of_which_several_fail_at_once_or_one_by_one_is_restarted_once() -> None:
    cluster = running_train_world(nodes=4)
    ends(cluster, "node-1", "node-2", exit_code=137)
    cluster.settle()
    ends(cluster, "node-0", exit_code=1)
    cluster.settle()
    ends(cluster, "node-3", exit_code=143)
    started_again(cluster)
    assert cluster.job.status.restarts == 1
    assert true_conditions(cluster) == {"Created", "Running"}
    assert [each.note for each in cluster.events if each.reason == "Restarted"] == [
        "Restarting all replicas: node-1 failed: exit code 137 (restart 1)"
    ]


def test_nodes_that_had_succeeded_run_again_with_the_others() -> None:
    cluster = running_train_world()
    ends(cluster, "node-0")
    cluster.settle()
    assert cluster.job.status.succeeded_indexes == ("node-0",)
    ends(cluster, "node-1", exit_code=137)
    cluster.settle()
    assert cluster.job.status.succeeded_indexes == ()
    cluster.reap()
    cluster.settle()
    assert jobs(cluster) == NODES
    ends(cluster, "node-1")
    cluster.settle()
    assert cluster.job.status.phase != "Done"
    ends(cluster, "node-0")
    cluster.settle()
    assert end_of(cluster) == ("Done", "SUCCESS", "all 2 nodes succeeded")


# Back-off


def test_a_set_that_fails_before_all_of_it_runs_waits_as_long_as_any_other() -> None:
    """One node never comes up, another fails each time: nothing would ever slow that down."""
    cluster = running_train_world()
    ends(cluster, "node-1", exit_code=137)
    started_again(cluster)
    for wait in (BASE_SECONDS, 2 * BASE_SECONDS, 4 * BASE_SECONDS):
        ends(cluster, "node-1", exit_code=137)
        cluster.settle()
        cluster.reap()
        assert cluster.settle().wake_after_seconds == wait
        cluster.advance(wait - 1)
        cluster.settle()
        assert jobs(cluster) == []
        cluster.advance(1)
        cluster.settle()
        assert jobs(cluster) == NODES
        cluster.runs("node-1")
        cluster.settle()


# Lost nodes, taken pods


@pytest.mark.parametrize(("in_steps", "is_gang"), [(False, False), (True, True)], ids=["one-step", "gang-in-steps"])
def test_a_node_that_is_lost_is_given_up_and_the_set_starts_without_waiting_for_it(
    in_steps: bool, is_gang: bool
) -> None:
    cluster = (world_in_steps if in_steps else train_world)(gang={"enabled": is_gang})
    cluster.gangs = GANGS
    cluster.settle()
    if in_steps:
        ends(cluster, *INITIALIZERS)
        cluster.settle()
    if is_gang:
        admit(cluster)
        cluster.settle()
    cluster.all_run()
    cluster.settle()
    cluster.pod_deleted("node-1")
    (lost,) = cluster.pods_of("node-1")
    cluster.settle()
    assert cluster.job.status.restarts == 0
    cluster.advance(LOST_SECONDS + 1)
    cluster.settle()
    assert cluster.job.status.restarts == 1
    assert "Restarting" in true_conditions(cluster)
    # The pod on the node that answers goes; the lost one stays, and with it what waits for it.
    cluster.jobs.pop(cluster.name("node-1"), None)
    cluster.pods[cluster.name("node-1")] = [lost]
    cluster.settle()
    assert lost in cluster.pods_of("node-1")
    assert generations(cluster) == {"1"}
    cluster.all_run()
    cluster.settle()
    assert true_conditions(cluster) - {"Scheduled"} == {"Created", "Running"}
    assert cluster.job.status.nodes == "2/2"


def test_a_pod_whose_job_is_gone_already_is_waited_for_like_any_other() -> None:
    cluster = running_train_world()
    name = cluster.name("node-0")
    del cluster.jobs[name]
    cluster.told_to_go(name)
    cluster.settle()
    assert cluster.job.status.restarts == 1
    assert jobs(cluster) == []
    cluster.pods.pop(name)
    cluster.settle()
    assert jobs(cluster) == NODES
    assert generations(cluster) == {"1"}


# Suspension


def test_one_that_fails_while_its_job_is_suspended_counts_when_it_is_resumed() -> None:
    cluster = running_train_world()
    ends(cluster, "node-1", exit_code=137)
    cluster.change(suspend=True)
    cluster.settle()
    assert cluster.job.status.restarts == 0
    cluster.change(suspend=False)
    started_again(cluster)
    assert cluster.job.status.restarts == 1
    assert true_conditions(cluster) == {"Created", "Running"}


def test_if_only_some_were_stopped_when_a_job_is_resumed_all_are_replaced() -> None:
    """The controller was killed between two writes, say."""
    cluster = running_train_world(command=["mpirun", "train"])
    cluster.suspend_job(cluster.name("launcher-0"), True)
    cluster.settle()
    assert cluster.actions().creates == ()
    for _ in range(3):
        cluster.reap()
        cluster.settle()
    assert not any(job.spec.suspend for job in cluster.jobs.values())
    assert len(cluster.jobs) == 2
    assert cluster.job.status.restarts == cluster.job.status.disruptions


def test_a_pod_that_something_else_holds_keeps_a_job_from_being_resumed_only_for_a_while() -> None:
    cluster = running_train_world()
    cluster.stops_slowly = True
    cluster.change(suspend=True)
    cluster.settle()
    cluster.exits("node-0", 143, "Error")
    cluster.pod("node-0", phase="Failed")
    cluster.change(suspend=False)
    while any(job.spec.suspend for job in cluster.jobs.values()):
        due = cluster.settle().wake_after_seconds
        assert due is not None
        cluster.advance(due)
        cluster.settle()


def test_a_job_in_steps_is_suspended_in_each_of_them() -> None:
    cluster = world_in_steps()
    cluster.settle()
    for step in (INITIALIZERS, NODES, ["model-exporter-0"]):
        cluster.all_run()
        cluster.settle()
        cluster.change(suspend=True)
        cluster.settle()
        assert all(cluster.jobs[cluster.name(each)].spec.suspend for each in step)
        cluster.change(suspend=False)
        started_again(cluster)
        assert not any(cluster.jobs[cluster.name(each)].spec.suspend for each in step)
        ends(cluster, *step)
        cluster.settle()
    assert end_of(cluster)[1] == "SUCCESS"


# Deadline


def test_a_deadline_ends_a_job_in_any_step() -> None:
    cluster = world_in_steps(activeDeadlineSeconds=60)
    cluster.settle()
    cluster.all_run()
    cluster.advance(60)
    cluster.settle()
    assert end_of(cluster)[:2] == ("Failed", "FAILED")
    assert [each.reason for each in cluster.job.status.conditions if each.type == "Failed"] == ["DeadlineExceeded"]
    assert not any(cluster.pods.values())


# Gangs


def gang_in_steps(**job: Any) -> World:
    cluster = world_in_steps(gang={"enabled": True}, **job)
    cluster.gangs = GANGS
    return cluster


def test_initializers_start_the_job_before_there_is_a_gang_and_hold_no_capacity() -> None:
    cluster = gang_in_steps()
    cluster.settle()
    assert jobs(cluster) == INITIALIZERS
    assert cluster.gang is None
    started = cluster.job.status.start_time
    assert started is not None
    cluster.advance(5)
    ends(cluster, *INITIALIZERS)
    cluster.settle()
    assert cluster.job.status.start_time == started
    assert cluster.gang is not None
    assert member_ids(cluster.gang.spec) == ("node-0", "node-1")
    assert jobs(cluster) == INITIALIZERS
    admit(cluster)
    cluster.settle()
    assert jobs(cluster) == [*NODES, *INITIALIZERS]
    ends(cluster, *NODES)
    cluster.settle()
    assert jobs(cluster)[-1] == "model-exporter-0"
    ends(cluster, "model-exporter-0")
    cluster.settle()
    assert end_of(cluster)[1] == "SUCCESS"


def test_a_gang_that_is_restarted_keeps_its_capacity() -> None:
    cluster = gang_in_steps()
    cluster.settle()
    ends(cluster, *INITIALIZERS)
    cluster.settle()
    admit(cluster)
    cluster.settle()
    cluster.all_run()
    assert cluster.gang is not None
    cluster.gang = replace(cluster.gang, status=replace(cluster.gang.status, phase=BOUND))
    cluster.settle()
    ends(cluster, "node-0", exit_code=137)
    started_again(cluster)
    assert generations(cluster) == {"1"}
    assert cluster.job.status.restarts == 1
    assert cluster.gang.status.attempt == 1
    assert true_conditions(cluster) >= {"Created", "Running"}


@pytest.mark.parametrize("is_admitted_again", [False, True])
def test_a_gang_that_went_back_to_the_queue_has_not_failed_when_its_jobs_are_seen_to_go_before_their_pods(
    is_admitted_again: bool,
) -> None:
    """Jobs and pods are seen by watches of their own, and that of the pods may be late."""
    cluster = train_world(gang={"enabled": True})
    cluster.gangs = GANGS
    cluster.settle()
    admit(cluster)
    cluster.settle()
    cluster.all_run()
    cluster.settle()
    assert cluster.gang is not None
    cluster.gang = replace(cluster.gang, status=replace(cluster.gang.status, phase=WAITING, placement=()))
    cluster.settle()
    del cluster.jobs[cluster.name("node-0")]
    if is_admitted_again:
        admit(cluster)
    cluster.sync()
    cluster.sync()
    assert cluster.job.status.restarts == 0
    assert not cluster.jobs, "none of the next attempt is made beside a pod of the last one"
    cluster.pods.clear()
    if not is_admitted_again:
        admit(cluster)
    cluster.settle()
    assert (cluster.job.status.restarts, jobs(cluster)) == (0, NODES)


# MPI


def mpi_world(**job: Any) -> World:
    return train_world(command=["mpirun", "train"], **job)


def test_a_launcher_comes_with_its_nodes_their_keys_and_the_hostfile() -> None:
    cluster = mpi_world()
    cluster.settle()
    assert jobs(cluster) == ["launcher-0", *NODES]
    assert cluster.has_secret
    assert cluster.has_config_map
    assert list(cluster.services) == [cluster.replica("node-0").role.service_name]
    assert cluster.created.count("Secret/example-train-mpi-ssh-auth") == 1


def test_the_launchers_end_is_the_jobs_and_stops_the_nodes() -> None:
    cluster = mpi_world()
    cluster.settle()
    cluster.all_run()
    cluster.settle()
    ends(cluster, "launcher-0")
    cluster.settle()
    assert end_of(cluster) == ("Done", "SUCCESS", "launcher-0 succeeded")
    assert all(cluster.jobs[cluster.name(each)].spec.suspend for each in NODES)


@pytest.mark.parametrize(
    ("failing", "exit_code"), [("launcher-0", 137), ("node-1", 137), pytest.param("node-1", 0, id="its sshd ends well")]
)
def test_launcher_and_nodes_are_started_again_together(failing: str, exit_code: int) -> None:
    cluster = mpi_world()
    cluster.settle()
    cluster.all_run()
    cluster.settle()
    ends(cluster, failing, exit_code=exit_code)
    started_again(cluster)
    assert generations(cluster) == {"1"}
    assert jobs(cluster) == ["launcher-0", *NODES]
    assert cluster.job.status.restarts == 1
    assert true_conditions(cluster) == {"Created", "Running"}


def test_ends_of_nodes_after_the_launcher_has_succeeded_do_not_affect_the_exporter() -> None:
    cluster = world_in_steps(command=["mpirun", "train"])
    cluster.settle()
    ends(cluster, *INITIALIZERS)
    cluster.settle()
    cluster.all_run()
    cluster.settle()
    ends(cluster, "launcher-0")
    ends(cluster, "node-0", exit_code=137)
    cluster.settle()
    assert cluster.job.status.restarts == 0
    assert jobs(cluster)[-1] == "model-exporter-0"
    assert not is_active(cluster.jobs[cluster.name("node-1")])
    assert "Restarting" not in true_conditions(cluster)
    ends(cluster, "model-exporter-0")
    cluster.settle()
    assert end_of(cluster) == ("Done", "SUCCESS", "model-exporter-0 succeeded")


def test_a_job_that_is_suspended_before_a_restart_has_deleted_its_nodes_stops_them() -> None:
    """The restart is on record, and the Jobs from before it are in no view any more."""
    cluster = running_train_world(nodes=2)
    ends(cluster, "node-0", exit_code=137)
    cluster.sync()
    assert cluster.status.restarts == 1
    cluster.change(suspend=True)
    cluster.settle()
    assert not is_active(cluster.jobs[cluster.name("node-1")])
    assert cluster.actions() is NO_ACTIONS
    cluster.reap()
    cluster.change(suspend=False)
    for _ in range(3):
        cluster.settle()
        cluster.reap()
    assert generations(cluster) == {"1"}
    assert not any(job.spec.suspend for job in cluster.jobs.values())
    assert cluster.status.restarts == 1


# The log of what failed


@pytest.mark.parametrize(("num_nodes", "exit_code"), [(1, 7), (2, 137)])
def test_the_pod_of_what_failed_stays(num_nodes: int, exit_code: int) -> None:
    """The kubelet reports a pod as failed some moments after its containers, and a Job that is suspended before that
    deletes it.
    """
    cluster = running_train_world(nodes=num_nodes, maxRestarts=0)
    cluster.exits("node-0", exit_code, "Error", phase="Running")
    cluster.settle()
    cluster.advance(GRACE_SECONDS)
    cluster.settle()
    assert cluster.status.phase == "CleanUp"
    assert len(cluster.pods_of("node-0")) == 1
    assert not cluster.jobs[cluster.name("node-0")].spec.suspend
    cluster.pod("node-0", phase="Failed")
    cluster.job_ends("node-0", "Failed")
    cluster.settle()
    assert end_of(cluster)[:2] == ("Failed", "FAILED")
    assert len(cluster.pods_of("node-0")) == 1


# Containers that can never start

NO_PROGRAM = (
    'OCI runtime create failed: runc create failed: exec: "pyhton3": executable file not found in $PATH: unknown'
)
CANNOT_START = 'node-0 cannot start: exec: "pyhton3": executable file not found in $PATH'


def test_a_program_that_the_image_does_not_have_fails_the_job_without_a_restart() -> None:
    cluster = train_world()
    cluster.settle()
    cluster.runs("node-1")
    cluster.exits("node-0", 128, "StartError", NO_PROGRAM)
    cluster.settle()
    cluster.advance(GRACE_SECONDS)
    cluster.settle()
    assert end_of(cluster) == ("Failed", "FAILED", CANNOT_START)
    assert cluster.jobs[cluster.name("node-0")].spec.suspend
    assert cluster.job.status.restarts == 0


def test_a_container_that_waits_and_can_never_start_fails_the_job() -> None:
    cluster = train_world()
    cluster.settle()
    cluster.pod("node-0", phase="Pending", container_statuses=(waiting("RunContainerError", NO_PROGRAM, name="node"),))
    cluster.settle()
    assert end_of(cluster) == ("Failed", "FAILED", CANNOT_START)


def test_so_does_one_that_has_to_run_before_it_and_another_does_not() -> None:
    cluster = train_world()
    cluster.settle()
    stuck = waiting("CreateContainerError", NO_PROGRAM, name="other")
    cluster.pod("node-0", phase="Running", container_statuses=(running_container("node"), stuck))
    cluster.settle()
    assert cluster.job.status.phase == "Running"
    cluster.pod("node-1", phase="Pending", init_container_statuses=(stuck,))
    cluster.settle()
    assert end_of(cluster)[2] == CANNOT_START.replace("node-0", "node-1: other")


def test_a_set_that_is_resumed_after_one_node_has_succeeded_starts_again_without_a_restart() -> None:
    cluster = running_train_world()
    ends(cluster, "node-0")
    cluster.settle()
    assert cluster.job.status.succeeded_indexes == ("node-0",)
    cluster.change(suspend=True)
    cluster.settle()
    cluster.change(suspend=False)
    for _ in range(3):
        cluster.settle()
        cluster.reap()
    cluster.settle()
    cluster.all_run()
    cluster.settle()
    status = cluster.job.status
    assert (status.restarts, status.succeeded_indexes, status.nodes) == (0, (), "2/2")
