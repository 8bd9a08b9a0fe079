"""How one replica is classified."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import LOST_SECONDS, World, running, running_world, terminated, waiting, world
from helpers.manifests import master, parameter_servers, pod_template, workers
from helpers.trainworld import running_train_world
from tfjob_controller.api.common.core import BatchJob, Condition, InitContainer, PodSpec, Terminated
from tfjob_controller.jobs.state.replica_state import LOST_AFTER_SECONDS, ReplicaState, classify_replicas
from tfjob_controller.util.timestamps import format_time

NEVER = pod_template({"name": "tensorflow"}, restartPolicy="Never")


def view_of(cluster: World, replica_id: str) -> ReplicaState:
    status = cluster.job.status
    views = classify_replicas(cluster.plan, cluster.observed, status.succeeded_indexes, cluster.now, status.start_time)
    return next(view for view in views if view.replica.id == replica_id)


def test_without_a_pod_a_replica_is_running() -> None:
    cluster = world()
    assert view_of(cluster, "worker-0").state == "Running"
    cluster.settle()
    assert view_of(cluster, "worker-0").state == "Running"


@pytest.mark.parametrize(
    ("exit_code", "reason", "state"),
    [
        pytest.param(0, "Completed", "Succeeded", id="0 is success"),
        pytest.param(1, "Error", "Failed", id="1 is permanent"),
        pytest.param(255, "Error", "Running", id="255 is retryable"),
        pytest.param(137, "OOMKilled", "Failed", id="out of memory is permanent"),
    ],
)
def test_the_exit_code_decides(exit_code: int, reason: str, state: str) -> None:
    cluster = running_world()
    cluster.exits("worker-0", exit_code, reason)
    assert view_of(cluster, "worker-0").state == state


def test_the_container_is_found_by_its_name() -> None:
    cluster = running_world()
    other = replace(terminated(Terminated(1)), name="side")
    cluster.pod("worker-0", container_statuses=(other, terminated(Terminated(0))))
    assert view_of(cluster, "worker-0").state == "Succeeded"


def test_a_past_end_counts_while_the_container_runs_again() -> None:
    cluster = running_world()
    cluster.exits("worker-0", 3, phase="Running")
    cluster.runs("worker-0", restart_count=1)
    view = view_of(cluster, "worker-0")
    assert (view.state, view.is_up, view.is_restarting) == ("Failed", True, False)


def test_the_most_recent_end_counts() -> None:
    cluster = running_world()
    ended = terminated(Terminated(0))
    cluster.pod("worker-0", container_statuses=(replace(ended, last_state=terminated(Terminated(137)).state),))
    assert view_of(cluster, "worker-0").state == "Succeeded"


def test_the_newest_pod_counts() -> None:
    cluster = running_world()
    cluster.exits("worker-0", 1)
    cluster.advance(10)
    cluster.runs("worker-0", newest=True)
    assert view_of(cluster, "worker-0").state == "Running"


def test_a_pod_that_has_not_started_yet_is_newer_than_one_that_ended() -> None:
    cluster = running_world()
    cluster.exits("worker-0", 1)
    cluster.pod("worker-0", newest=True, start_time=None)
    assert view_of(cluster, "worker-0").state == "Running"


def test_pods_of_an_earlier_job_of_the_same_name_do_not_count() -> None:
    cluster = running_world()
    cluster.exits("worker-0", 0)
    name = cluster.name("worker-0")
    job = cluster.jobs[name]
    cluster.jobs[name] = BatchJob(replace(job.metadata, uid="another"))
    assert view_of(cluster, "worker-0").state == "Running"


@pytest.mark.parametrize(
    ("outcome", "state"), [("Complete", "Succeeded"), ("Failed", "Running"), ("FailureTarget", "Running")]
)
def test_a_finished_job_without_pods_shows_whether_the_chief_succeeded(outcome: str, state: str) -> None:
    cluster = running_world()
    cluster.pods.clear()
    cluster.job_ends("master-0", outcome)
    assert view_of(cluster, "master-0").state == state


OUTCOMES = pytest.mark.parametrize(
    ("outcome", "exit_code", "state"),
    [("Complete", 0, "Succeeded"), ("Failed", 1, "Failed"), ("FailureTarget", 1, "Failed")],
)


@OUTCOMES
def test_the_end_of_a_job_counts_once_that_of_its_pod_is_seen(outcome: str, exit_code: int, state: str) -> None:
    cluster = running_world()
    cluster.job_ends("master-0", outcome)
    before = view_of(cluster, "master-0")
    cluster.exits("master-0", exit_code)
    after = view_of(cluster, "master-0")
    assert (before.state, before.is_up, before.must_redo) == ("Running", True, False)
    assert (after.state, after.exited is not None) == (state, True)


@OUTCOMES
def test_the_end_of_a_job_whose_pods_is_never_seen_counts_after_a_while(
    outcome: str, exit_code: int, state: str
) -> None:
    cluster = running_world()
    cluster.job_ends("master-0", outcome)
    due = cluster.settle().wake_after_seconds
    assert due == LOST_AFTER_SECONDS + 1
    cluster.advance(due - 1)
    assert view_of(cluster, "master-0").state == "Running"
    cluster.advance(1)
    assert view_of(cluster, "master-0").must_redo == (outcome != "Complete")


@pytest.mark.parametrize("outcome", ["Complete", "Failed"])
def test_a_worker_is_not_recreated_before_the_end_of_its_pod_is_seen(outcome: str) -> None:
    cluster = running_world()
    cluster.exits("worker-0", 3, phase="Running")
    cluster.runs("worker-0", restart_count=1)
    cluster.job_ends("worker-0", outcome)
    assert not view_of(cluster, "worker-0").must_redo


def test_a_complete_job_does_not_make_a_success_of_a_pod_that_was_deleted_before_its_end() -> None:
    cluster = running_world()
    cluster.pod_deleted("worker-0")
    cluster.job_ends("worker-0", "Complete")
    view = view_of(cluster, "worker-0")
    assert (view.state, view.must_redo) == ("Running", True)


def test_a_remembered_success_outweighs_everything() -> None:
    cluster = running_world()
    cluster.exits("worker-0", 0)
    cluster.settle()
    cluster.exits("worker-0", 1)
    assert view_of(cluster, "worker-0").state == "Succeeded"


def lost(cluster: World) -> None:
    cluster.exits("master-0", 1)
    cluster.pod("master-0", reason="NodeLost")


def rebooted(cluster: World) -> None:
    cluster.exits("master-0", 255, "Unknown")


def marked(cluster: World) -> None:
    cluster.exits("master-0", 1)
    condition = Condition("DisruptionTarget", "True", last_transition_time=format_time(cluster.now))
    cluster.pod("master-0", conditions=(condition,))


@pytest.mark.parametrize("disrupt", [lost, rebooted, marked])
def test_a_disruption_is_retryable_whatever_the_exit_code(disrupt: Callable[[World], None]) -> None:
    cluster = running_world()
    disrupt(cluster)
    view = view_of(cluster, "master-0")
    assert (view.state, view.is_restarting, view.is_disrupted) == ("Running", True, True)


def test_a_disruption_after_the_end_takes_nothing_back() -> None:
    cluster = running_world()
    cluster.exits("master-0", 0)
    later = format_time(cluster.now + timedelta(seconds=1))
    cluster.pod("master-0", conditions=(Condition("DisruptionTarget", "True", last_transition_time=later),))
    assert view_of(cluster, "master-0").state == "Succeeded"


@pytest.mark.parametrize("exit_code", [0, 1])
def test_what_a_pod_exits_with_while_it_is_deleted_does_not_count(exit_code: int) -> None:
    cluster = running_world()
    cluster.exits("master-0", exit_code)
    cluster.pod_deleted("master-0")
    view = view_of(cluster, "master-0")
    assert (view.state, view.is_restarting) == ("Running", True)


@pytest.mark.parametrize(("exit_code", "state"), [(0, "Succeeded"), (1, "Failed"), (137, "Running")])
def test_an_end_before_the_pod_is_deleted_counts(exit_code: int, state: str) -> None:
    cluster = running_world()
    cluster.exits("master-0", exit_code)
    cluster.advance(1)
    cluster.pod_deleted("master-0")
    view = view_of(cluster, "master-0")
    assert (view.state, view.is_restarting) == (state, exit_code == 137)


OWN_DEADLINE = "Pod was active on the node longer than the specified deadline"


def outlasts(cluster: World, replica_id: str, *, seconds: int, ended_after: int, phase: str = "Failed") -> None:
    """The pod has `activeDeadlineSeconds`, and its program exits with 0 when it has run for that long."""
    name, pod = cluster.name(replica_id), cluster.pods_of(replica_id)[-1]
    limited = replace(pod, spec=replace(pod.spec, active_deadline_seconds=seconds))
    cluster.pods[name] = [limited if each is pod else each for each in cluster.pods[name]]
    cluster.advance(ended_after)
    if phase == "Failed":
        cluster.pod(replica_id, reason="DeadlineExceeded", message=OWN_DEADLINE)
    cluster.exits(replica_id, 0, "Completed", phase=phase)


@pytest.mark.parametrize("phase", ["Running", "Failed"])
@pytest.mark.parametrize(("ended_after", "state"), [(7, "Succeeded"), (8, "Running")])
def test_a_program_that_exits_with_0_once_its_pods_own_deadline_is_over_has_not_succeeded(
    ended_after: int, state: str, phase: str
) -> None:
    """Its containers end some moments before the pod has its phase. Such a pod fails also if only a sidecar is late."""
    cluster = running_world()
    outlasts(cluster, "master-0", seconds=8, ended_after=ended_after, phase=phase)
    assert view_of(cluster, "master-0").state == state


def test_an_end_by_the_pods_own_deadline_is_an_error_of_the_program() -> None:
    cluster = running_world(master(template=NEVER), backoffLimit=1)
    for phase in ("Running", "Failed"):
        outlasts(cluster, "master-0", seconds=8, ended_after=8, phase="Running")
        cluster.settle()
        outlasts(cluster, "master-0", seconds=8, ended_after=0)
        cluster.settle()
        assert (cluster.job.status.phase, cluster.job.status.disruptions) == (phase, 0)
        cluster.runs("master-0")
    assert cluster.job.status.reason.startswith("BackoffLimitExceeded: 2 restarts of replicas")
    assert f"Restarted master-0: master-0 failed: DeadlineExceeded: {OWN_DEADLINE} (1 restarts so far)" in [
        each.note for each in cluster.events
    ]


def test_a_node_that_its_pods_own_deadline_ends_restarts_all_nodes() -> None:
    cluster = running_train_world(numNodes=2)
    outlasts(cluster, "node-1", seconds=8, ended_after=8)
    cluster.settle()
    assert cluster.status.restarts == 1
    assert cluster.status.succeeded_indexes == ()


def test_a_parameter_server_that_ends_well_is_recreated() -> None:
    cluster = running_world()
    cluster.exits("ps-0", 0)
    view = view_of(cluster, "ps-0")
    assert (view.state, view.must_redo) == ("Running", True)


def test_a_worker_whose_job_was_failed_is_recreated() -> None:
    cluster = running_world()
    cluster.exits("worker-0", 1)
    cluster.job_ends("worker-0", "Failed")
    view = view_of(cluster, "worker-0")
    assert (view.state, view.must_redo) == ("Failed", True)


def test_a_replica_on_a_lost_node_is_given_up_after_its_grace_period() -> None:
    cluster = running_world()
    for replica_id in ("master-0", "worker-0"):
        cluster.pod_deleted(replica_id)
    cluster.advance(LOST_SECONDS)
    assert not any(view_of(cluster, each).must_redo for each in ("master-0", "worker-0"))
    cluster.advance(1)
    assert all(view_of(cluster, each).must_redo for each in ("master-0", "worker-0"))


@pytest.mark.parametrize("reason", ["", "Error"])
def test_a_native_sidecar_that_ends_with_the_pod_is_not_the_failure(reason: str) -> None:
    cluster = running_world()
    mesh = terminated(Terminated(143, reason), name="mesh")
    fetch = terminated(Terminated(1, "Error", "no such dataset"), name="fetch")
    pod = cluster.pod("master-0", phase="Failed", container_statuses=(), init_container_statuses=(mesh, fetch))
    spec = PodSpec(init_containers=(InitContainer("mesh", "Always"), InitContainer("fetch")))
    cluster.pods[cluster.name("master-0")] = [replace(pod, spec=spec)]
    view = view_of(cluster, "master-0")
    assert (view.state, view.ended_in) == ("Failed", "fetch")


def test_while_suspended_what_does_not_run_is_unknown() -> None:
    cluster = running_world()
    cluster.change(suspend=True)
    cluster.pod_deleted("worker-0")
    assert view_of(cluster, "worker-0").state == "Running"
    cluster.exits("worker-0", 143)
    assert view_of(cluster, "worker-0").state == "Unknown"
    cluster.pods.clear()
    assert view_of(cluster, "worker-0").state == "Unknown"


UNSCHEDULABLE = Condition("PodScheduled", "False", "Unschedulable", "0/2 nodes are available: 2 Insufficient cpu.")
PULL = 'failed to pull "x": not found'


@pytest.mark.parametrize(
    ("status", "pending"),
    [
        pytest.param({}, "", id="just created"),
        pytest.param(
            {"conditions": (UNSCHEDULABLE,)},
            "Unschedulable: 0/2 nodes are available: 2 Insufficient cpu.",
            id="unschedulable",
        ),
        pytest.param(
            {"container_statuses": (waiting("ErrImagePull", PULL),)}, f"ImagePullBackOff: {PULL}", id="image pull error"
        ),
        pytest.param(
            {"container_statuses": (waiting("ImagePullBackOff", f'Back-off pulling image "x": ErrImagePull: {PULL}'),)},
            f"ImagePullBackOff: {PULL}",
            id="image pull back-off says the same, so that the reason stays still",
        ),
        pytest.param(
            {"init_container_statuses": (waiting("CrashLoopBackOff", "back-off 10s", name="i", last=Terminated(2)),)},
            "CrashLoopBackOff: container i is restarted with back-off after exit code 2",
            id="an init container crashes",
        ),
        pytest.param(
            {"init_container_statuses": (terminated(Terminated(1, "Error", "no"), 3, name="checkpoint-restore"),)},
            "checkpoint-restore: exit code 1: no; restarted with back-off",
            id="a restore that fails again, as its kubelet shows it for most of the back-off",
        ),
        pytest.param(
            {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"},
            "OutOfcpu: Node didn't have enough resource: cpu",
            id="refused by the kubelet",
        ),
        pytest.param({"container_statuses": (running(),), "phase": "Running"}, "", id="running"),
    ],
)
def test_why_a_replica_waits(status: dict[str, Any], pending: str) -> None:
    cluster = world()
    cluster.settle()
    cluster.pod("worker-0", **{"phase": "Pending", **status})
    assert view_of(cluster, "worker-0").pending == pending


def test_a_crash_looping_replica_says_so_without_the_changing_delay() -> None:
    cluster = running_world()
    crashed = waiting("CrashLoopBackOff", "back-off 40s restarting failed container", last=Terminated(3))
    cluster.pod("worker-0", container_statuses=(crashed,))
    view = view_of(cluster, "worker-0")
    assert (view.state, view.is_restarting) == ("Failed", True)
    assert view.pending == "CrashLoopBackOff: container tensorflow is restarted with back-off after exit code 3"


def test_a_job_that_gets_no_pod_says_where_to_look() -> None:
    cluster = world(master(), workers(1), parameter_servers(1))
    cluster.settle()
    cluster.advance(30)
    assert view_of(cluster, "worker-0").pending == ""
    cluster.advance(1)
    assert "`kubectl describe job example-job-worker-a6no-0 -n ns`" in view_of(cluster, "worker-0").pending


def test_after_a_resume_the_wait_for_a_pod_begins_again() -> None:
    cluster = world(suspend=False)
    cluster.settle()
    cluster.change(suspend=True)
    cluster.settle()
    cluster.advance(1000)
    cluster.change(suspend=False)
    cluster.settle()
    assert view_of(cluster, "worker-0").pending == ""


@pytest.mark.parametrize(
    ("ready", "pending"),
    [
        pytest.param(Condition("Ready", "False"), "NodeNotReady: n does not report", id="its node is silent"),
        pytest.param(Condition("Ready", "True"), "", id="its node reports"),
        pytest.param(Condition("Ready", "False", "ReadinessGatesNotReady"), "", id="a gate of the user's"),
    ],
)
def test_a_program_whose_node_does_not_report_is_not_said_to_run_without_a_word(ready: Condition, pending: str) -> None:
    """Until its pod is evicted, after five minutes by default, the containers are shown as they were last seen."""
    cluster = running_world()
    pod = cluster.pod("worker-0", conditions=(ready,))
    cluster.pods[cluster.name("worker-0")] = [replace(pod, spec=replace(pod.spec, node_name="n"))]
    cluster.settle()
    assert view_of(cluster, "worker-0").pending == pending
    assert cluster.job.status.reason == (f"worker-0: {pending}" if pending else "")
