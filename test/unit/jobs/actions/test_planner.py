"""What is written so that the cluster holds what the plan says."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import (
    GRACE_SECONDS,
    LOST_SECONDS,
    World,
    running,
    running_world,
    terminated,
    waiting,
    world,
)
from helpers.manifests import master, parameter_servers, pod_template, workers
from tfjob_controller.api.common.core import JOBS, BatchJob, Condition, Terminated
from tfjob_controller.jobs.actions.model import NO_ACTIONS, Actions, build_delete
from tfjob_controller.jobs.state.replica_state import DEFAULT_GRACE_SECONDS, REPORT_SECONDS
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.util.timestamps import format_time


def created(actions: Actions) -> list[str]:
    return [f"{create.resource.kind}/{create.name}" for create in actions.creates]


def test_a_new_job_gets_a_job_and_a_service_for_each_replica_the_chief_first() -> None:
    actions = world().actions()
    assert created(actions) == [
        "ConfigMap/cm-ps-a6no",
        "Job/example-job-master-a6no-0",
        "Service/example-job-master-a6no-0",
        "Job/example-job-worker-a6no-0",
        "Service/example-job-worker-a6no-0",
        "Job/example-job-ps-a6no-0",
        "Service/example-job-ps-a6no-0",
        "Job/example-job-ps-a6no-1",
        "Service/example-job-ps-a6no-1",
    ]
    assert not actions.deletes
    assert not actions.suspends
    assert all(create.body["metadata"]["name"] == create.name for create in actions.creates)


def test_a_job_that_is_as_planned_needs_nothing() -> None:
    cluster = running_world()
    assert cluster.actions() is NO_ACTIONS
    assert not NO_ACTIONS


def test_only_what_is_missing_is_created() -> None:
    cluster = running_world()
    cluster.delete_job("example-job-ps-a6no-1")
    del cluster.services["example-job-worker-a6no-0"]
    assert created(cluster.actions()) == ["Service/example-job-worker-a6no-0", "Job/example-job-ps-a6no-1"]


def test_a_job_that_is_being_deleted_is_left_alone() -> None:
    cluster = world()
    cluster.job = replace(
        cluster.job, metadata=replace(cluster.job.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    )
    assert cluster.actions() is NO_ACTIONS


def test_a_replica_that_has_succeeded_is_not_run_again_although_its_job_failed() -> None:
    """Another container of its pod has failed, or its pod was deleted."""
    cluster = running_world()
    cluster.exits("worker-0", 0, phase="Failed")
    cluster.settle()
    assert cluster.job.status.succeeded_indexes == ("worker-0",)
    cluster.pods.pop("example-job-worker-a6no-0")
    assert cluster.actions() is NO_ACTIONS


def ends_beside_a_sidecar(cluster: World, replica_id: str, exit_code: int) -> None:
    cluster.exits(replica_id, exit_code, phase="Running")
    (ended,) = cluster.pods_of(replica_id)[-1].status.container_statuses
    cluster.pod(replica_id, container_statuses=(ended, running("side")))


@pytest.mark.parametrize(
    ("exit_code", "restart_policy", "own"),
    [
        (0, "OnFailure", {}),
        (1, "Never", {}),
        pytest.param(137, "Never", {"restartPolicy": "OnFailure"}, id="whatever policy its container has"),
    ],
)
def test_a_pod_whose_sidecar_runs_on_is_deleted_after_its_grace_period(
    exit_code: int, restart_policy: str, own: dict[str, str]
) -> None:
    training = {"name": "tensorflow", **own}
    template = pod_template(training, {"name": "side"}, restartPolicy=restart_policy, terminationGracePeriodSeconds=20)
    cluster = running_world(master(), workers(1, template=template))
    ends_beside_a_sidecar(cluster, "worker-0", exit_code)
    due = 20 + REPORT_SECONDS
    assert cluster.settle().wake_after_seconds == due + 1
    cluster.advance(due)
    (delete,) = cluster.actions().deletes
    assert (delete.resource.plural, delete.name) == ("pods", cluster.pods_of("worker-0")[-1].metadata.name)


def test_a_pod_whose_init_container_has_ended_the_job_keeps_its_log() -> None:
    """Its kubelet reports the end of the pod a moment later."""
    template = pod_template({"name": "tensorflow"}, initContainers=[{"name": "fetch"}], restartPolicy="OnFailure")
    cluster = world(master(template=template))
    cluster.settle()
    ended = Terminated(3, "Error", "no such dataset", finished_at=format_time(cluster.now))
    cluster.pod("master-0", phase="Pending", init_container_statuses=(terminated(ended, name="fetch"),))
    cluster.settle()
    assert (cluster.job.status.phase, cluster.actions().suspends) == ("CleanUp", ())
    cluster.pod("master-0", phase="Failed", init_container_statuses=(terminated(ended, name="fetch"),))
    cluster.settle()
    assert (cluster.job.status.phase, cluster.actions()) == ("Failed", NO_ACTIONS)


def test_a_pod_whose_sidecar_waits_for_its_next_start_is_deleted_as_early() -> None:
    template = pod_template(
        {"name": "tensorflow"}, {"name": "side"}, restartPolicy="Never", terminationGracePeriodSeconds=2
    )
    cluster = running_world(master(), workers(1, template=template))
    cluster.exits("worker-0", 137, phase="Running")
    (ended,) = cluster.pods_of("worker-0")[-1].status.container_statuses
    cluster.pod("worker-0", container_statuses=(ended, waiting("CrashLoopBackOff", name="side")))
    cluster.settle()
    cluster.advance(2 + REPORT_SECONDS)
    (delete,) = cluster.actions().deletes
    assert delete.name == cluster.pods_of("worker-0")[-1].metadata.name


def test_a_finished_job_does_not_wait_for_a_sidecar_that_it_keeps() -> None:
    """No event tells when the time of the sidecar is over."""
    template = pod_template({"name": "tensorflow"}, {"name": "side"}, terminationGracePeriodSeconds=4)
    cluster = running_world(master(template=template), cleanPodPolicy="None")
    ends_beside_a_sidecar(cluster, "master-0", 0)
    wake_after_seconds, seconds = cluster.settle().wake_after_seconds, 0.0
    assert cluster.job.status.phase == "CleanUp"
    while wake_after_seconds is not None and seconds < 60:
        seconds += wake_after_seconds
        cluster.advance(wake_after_seconds)
        wake_after_seconds = cluster.settle().wake_after_seconds
    assert cluster.job.status.phase == "Done"
    assert len(cluster.pods[cluster.name("master-0")]) == 1


def test_a_pod_in_which_nothing_runs_any_more_has_time_to_be_reported_as_ended() -> None:
    template = pod_template({"name": "tensorflow"}, restartPolicy="Never", terminationGracePeriodSeconds=0)
    cluster = running_world(master(), workers(1, template=template))
    cluster.exits("worker-0", 1, phase="Running")
    cluster.settle()
    cluster.advance(DEFAULT_GRACE_SECONDS)
    assert cluster.actions() is NO_ACTIONS


def test_a_pod_whose_container_the_kubelet_restarts_is_left_alone() -> None:
    cluster = running_world(master(), workers(1))
    cluster.exits("master-0", 137, phase="Running")
    cluster.exits("worker-0", 1, phase="Running")
    cluster.settle()
    cluster.advance(1000)
    assert cluster.actions() is NO_ACTIONS


def test_a_pod_that_its_kubelet_has_given_up_is_deleted() -> None:
    cluster = running_world(master(), workers(1))
    cluster.exits("master-0", 137, phase="Running")
    since = format_time(cluster.now)
    lost = Condition("PodReadyToStartContainers", "False", last_transition_time=since)
    cluster.pod("master-0", conditions=(lost,))
    assert cluster.settle().wake_after_seconds == 21
    cluster.advance(20)
    assert [each.resource.plural for each in cluster.actions().deletes] == ["pods"]


def test_a_parameter_server_that_ends_well_is_started_again_once_its_restart_is_recorded() -> None:
    cluster = running_world()
    name = "example-job-ps-a6no-0"
    cluster.exits("ps-0", 0)
    assert cluster.actions() is NO_ACTIONS
    assert cluster.sync().wake_after_seconds == 0
    assert cluster.job.status.restarts == 1
    (delete,) = cluster.actions().deletes
    # In the background: pods on lost nodes are not waited for.
    assert (delete.resource.plural, delete.name, delete.foreground) == ("jobs", name, False)
    job = cluster.jobs[name]
    assert delete.uid == job.metadata.uid
    cluster.jobs[name] = replace(job, metadata=replace(job.metadata, deletion_timestamp=format_time(cluster.now)))
    assert cluster.actions() is NO_ACTIONS
    cluster.jobs[name] = job
    cluster.sync()
    assert created(cluster.actions()) == ["Job/example-job-ps-a6no-0"]


# Suspend


def test_suspend_stops_all_jobs_and_creates_nothing() -> None:
    cluster = running_world()
    cluster.delete_job("example-job-ps-a6no-1")
    cluster.change(suspend=True)
    actions = cluster.actions()
    assert [(each.name, each.suspend) for each in actions.suspends] == [
        ("example-job-master-a6no-0", True),
        ("example-job-worker-a6no-0", True),
        ("example-job-ps-a6no-0", True),
    ]
    assert not actions.creates
    assert not actions.deletes


def test_resume_starts_them_again_but_not_what_is_done() -> None:
    cluster = running_world()
    cluster.exits("worker-0", 0)
    cluster.job_ends("worker-0", "Complete")
    cluster.change(suspend=True)
    cluster.settle()
    assert len(cluster.services) == 4
    cluster.change(suspend=False)
    actions = cluster.actions()
    assert not actions.suspends
    assert [(each.name, each.foreground, each.resumes) for each in actions.deletes] == [
        ("example-job-master-a6no-0", True, True),
        ("example-job-ps-a6no-0", True, True),
        ("example-job-ps-a6no-1", True, True),
    ]
    cluster.settle()
    assert cluster.actions() is NO_ACTIONS
    assert not any(job.spec.suspend for job in cluster.jobs.values())
    assert cluster.job.status.restarts == 0


# Workers come and go


def test_more_workers_are_added_and_the_rest_is_left_alone() -> None:
    cluster = running_world(master(), workers(1))
    before = dict(cluster.jobs)
    cluster.change(worker_replicas=3)
    assert cluster.actions().deletes == ()
    assert created(cluster.actions()) == [
        "Job/example-job-worker-a6no-1",
        "Service/example-job-worker-a6no-1",
        "Job/example-job-worker-a6no-2",
        "Service/example-job-worker-a6no-2",
    ]
    cluster.settle()
    assert cluster.status.scaled_replicas == 3
    assert {name: cluster.jobs[name] for name in before} == before


def test_of_fewer_workers_the_highest_index_goes_first_and_its_job_stays_until_its_pod_is_gone() -> None:
    """Else a worker that is wanted again would run beside the old one."""
    cluster = running_world(master(), workers(3))
    cluster.change(worker_replicas=1)
    assert [(delete.resource.plural, delete.name, delete.foreground) for delete in cluster.actions().deletes] == [
        ("jobs", "example-job-worker-a6no-1", True),
        ("jobs", "example-job-worker-a6no-2", True),
        ("services", "example-job-worker-a6no-1", False),
        ("services", "example-job-worker-a6no-2", False),
    ]
    cluster.settle()
    assert (cluster.job.status.workers, cluster.job.status.ready["worker"]) == (1, "1/1")


def test_a_worker_that_succeeded_does_not_run_again_after_a_scale_down_and_up() -> None:
    cluster = running_world(master(), workers(2))
    cluster.exits("worker-1", 0)
    cluster.settle()
    cluster.change(worker_replicas=1)
    cluster.settle()
    cluster.change(worker_replicas=2)
    assert created(cluster.actions()) == ["Service/example-job-worker-a6no-1"]


# Clean-up


def ended(exit_code: int = 0, **spec: str) -> World:
    """A job whose chief has just ended, with that on record but nothing cleaned up; one worker is done."""
    cluster = running_world(master(), workers(2), parameter_servers(1), **spec)
    cluster.exits("worker-1", 0)
    cluster.job_ends("worker-1", "Complete")
    cluster.settle()
    cluster.exits("master-0", exit_code)
    cluster.sync()
    return cluster


def test_nothing_is_cleaned_up_before_the_end_is_recorded() -> None:
    cluster = running_world()
    cluster.exits("master-0", 0)
    cluster.exits("ps-0", 0)
    assert cluster.actions() is NO_ACTIONS


def test_running_children_are_stopped_and_the_others_kept() -> None:
    cluster = ended()
    actions = cluster.actions()
    assert cluster.job.status.phase == "CleanUp"
    assert [(each.name, each.suspend) for each in actions.suspends] == [
        ("example-job-worker-a6no-0", True),
        ("example-job-ps-a6no-0", True),
    ]
    assert not actions.deletes
    cluster.settle()
    assert (cluster.job.status.phase, len(cluster.jobs), len(cluster.services)) == ("Done", 4, 4)
    assert [len(pods) for pods in cluster.pods.values()] == [1, 0, 1, 0]


def test_the_chiefs_job_is_not_stopped_while_the_job_controller_counts_its_success() -> None:
    cluster = ended()
    cluster.pod("master-0", phase="Running")
    assert "example-job-master-a6no-0" not in [each.name for each in cluster.actions().suspends]


def test_a_failed_chief_whose_job_fails_by_itself_is_not_stopped() -> None:
    cluster = ended(exit_code=1)
    assert "example-job-master-a6no-0" not in [each.name for each in cluster.actions().suspends]
    cluster.settle()
    assert cluster.job.status.phase == "Failed"


def test_a_failed_chief_is_not_stopped_either_while_its_pod_does_not_say_so_yet() -> None:
    """A stopped Job loses its unfinished pods, and this one has the log."""
    cluster = running_world()
    cluster.exits("master-0", 1, phase="Running")
    cluster.settle()
    assert cluster.job.status.phase == "CleanUp"
    assert not cluster.jobs["example-job-master-a6no-0"].spec.suspend
    cluster.pod("master-0", phase="Failed")
    cluster.settle()
    assert cluster.job.status.phase == "Failed"
    assert not cluster.jobs["example-job-master-a6no-0"].spec.suspend
    assert len(cluster.pods["example-job-master-a6no-0"]) == 1


def test_a_failed_chief_that_is_started_again_all_the_same_is_stopped() -> None:
    """By restart rules of the user's own, or in a pod that another container keeps alive."""
    cluster = running_world()
    cluster.exits("master-0", 1, phase="Running")
    cluster.settle()
    cluster.runs("master-0", restart_count=1)
    assert [each.name for each in cluster.actions().suspends] == ["example-job-master-a6no-0"]
    cluster.settle()
    assert cluster.job.status.phase == "Failed"


def test_a_chief_out_of_memory_is_stopped_since_it_would_be_restarted() -> None:
    cluster = running_world(cleanPodPolicy="None")
    cluster.exits("master-0", 137, "OOMKilled", phase="Running")
    cluster.sync()
    assert [each.name for each in cluster.actions().suspends] == ["example-job-master-a6no-0"]
    cluster.settle()
    assert cluster.job.status.phase == "Failed"


def test_policy_none_leaves_all_pods() -> None:
    cluster = ended(cleanPodPolicy="None")
    assert (cluster.job.status.phase, cluster.actions()) == ("Done", NO_ACTIONS)
    assert [len(pods) for pods in cluster.pods.values()] == [1, 1, 1, 1]


def test_what_policy_none_leaves_is_stopped_when_a_kubelet_starts_it_again() -> None:
    cluster = running_world(master(), workers(1), cleanPodPolicy="None")
    cluster.exits("worker-0", 137, "Error", phase="Running")
    cluster.runs("worker-0", restart_count=1)
    cluster.exits("master-0", 0)
    cluster.settle()
    assert (cluster.job.status.phase, cluster.actions()) == ("Done", NO_ACTIONS)
    cluster.advance(5)
    cluster.exits("worker-0", 137, "Error", phase="Running")
    cluster.runs("worker-0", restart_count=2)
    assert [each.name for each in cluster.actions().suspends] == ["example-job-worker-a6no-0"]


UNSCHEDULABLE = {"conditions": (Condition("PodScheduled", "False", "Unschedulable"),)}
INITIALIZING = {
    "init_container_statuses": (running("pre"),),
    "container_statuses": (waiting("PodInitializing"),),
}


@pytest.mark.parametrize("status", [UNSCHEDULABLE, INITIALIZING], ids=["unschedulable", "initializing"])
def test_policy_none_stops_a_pod_whose_program_has_not_started(status: dict[str, Any]) -> None:
    """Training would start after the end of the job."""
    cluster = world(master(), workers(2), cleanPodPolicy="None")
    cluster.settle()
    cluster.runs("master-0")
    cluster.runs("worker-0")
    cluster.pod("worker-1", phase="Pending", **status)
    cluster.settle()
    cluster.exits("master-0", 0)
    cluster.settle()
    assert cluster.job.status.phase == "Done"
    assert [name for name, job in cluster.jobs.items() if job.spec.suspend] == [cluster.name("worker-1")]
    assert [len(cluster.pods[cluster.name(each)]) for each in ("worker-0", "worker-1")] == [1, 0]


@pytest.mark.parametrize("policy", ["Running", "None"])
def test_a_job_is_not_over_while_a_kubelet_may_be_starting_a_pod(policy: str) -> None:
    cluster = world(master(), workers(2), cleanPodPolicy=policy)
    cluster.stops_slowly = cluster.lingers = True
    cluster.settle()
    cluster.hangs("worker-0")
    cluster.runs("worker-1")
    cluster.runs("master-0")
    cluster.exits("master-0", 3)
    result = cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.state) == ("CleanUp", "Failed")
    assert result.wake_after_seconds == LOST_SECONDS + 1
    # Its kubelet reacts late.
    cluster.advance(GRACE_SECONDS + 1)
    assert cluster.settle().status.phase == "CleanUp"
    cluster.runs("worker-0")
    cluster.settle()
    assert cluster.job.status.phase == "Failed"


def test_a_pod_that_a_kubelet_was_starting_holds_the_end_up_until_it_is_lost() -> None:
    cluster = world(master(), workers(1))
    cluster.stops_slowly = True
    cluster.settle()
    cluster.hangs("worker-0")
    cluster.exits("master-0", 3)
    cluster.settle()
    cluster.advance(LOST_SECONDS + 1)
    cluster.settle()
    assert cluster.job.status.phase == "Failed"


def test_policy_none_stops_a_pod_that_a_release_before_has_left_without_a_started_program() -> None:
    cluster = running_world(master(), workers(1), cleanPodPolicy="None")
    cluster.exits("master-0", 0)
    cluster.settle()
    assert (cluster.job.status.phase, cluster.actions()) == ("Done", NO_ACTIONS)
    cluster.pod("worker-0", phase="Pending", **INITIALIZING)
    assert [each.name for each in cluster.actions().suspends] == [cluster.name("worker-0")]


def test_policy_all_deletes_the_finished_pods_too() -> None:
    cluster = ended(cleanPodPolicy="All")
    actions = cluster.actions()
    assert [delete.resource.plural for delete in actions.deletes] == ["pods", "pods"]
    assert len(actions.suspends) == 2
    cluster.settle()
    assert (cluster.job.status.phase, len(cluster.jobs)) == ("Done", 4)
    assert not any(cluster.pods.values())


def test_a_job_is_not_done_before_its_pods_go() -> None:
    cluster = ended()
    name = "example-job-ps-a6no-0"
    pods = cluster.pods[name]
    cluster.carry_out(cluster.actions())
    cluster.pods[name] = pods
    cluster.sync()
    assert cluster.job.status.phase == "CleanUp"
    cluster.pod_deleted("ps-0")
    cluster.sync()
    assert cluster.job.status.phase == "Done"


def test_a_job_is_not_done_before_the_job_controller_has_seen_that_its_jobs_are_suspended() -> None:
    cluster = ended()
    cluster.carry_out(cluster.actions())
    name = "example-job-ps-a6no-0"
    confirmed = cluster.jobs[name]
    cluster.jobs[name] = replace(confirmed, status=replace(confirmed.status, conditions=()))
    cluster.sync()
    assert cluster.job.status.phase == "CleanUp"
    cluster.jobs[name] = confirmed
    cluster.sync()
    assert cluster.job.status.phase == "Done"


def test_after_a_deadline_the_chief_is_stopped_as_well() -> None:
    cluster = running_world(activeDeadlineSeconds=1)
    cluster.advance(2)
    cluster.sync()
    assert len(cluster.actions().suspends) == 4
    cluster.settle()
    assert cluster.job.status.phase == "Failed"


def test_a_finished_job_needs_nothing_whatever_happens_to_its_children() -> None:
    cluster = ended()
    cluster.settle()
    cluster.jobs.clear()
    cluster.change(worker_replicas=9)
    assert cluster.actions() is NO_ACTIONS


@pytest.mark.parametrize(("restart_policy", "stays"), [("OnFailure", False), ("Never", True)])
def test_a_pod_that_is_not_restarted_is_not_stopped_before_the_kubelet_has_reported_its_end(
    restart_policy: str, stays: bool
) -> None:
    template = pod_template({"name": "tensorflow"}, restartPolicy=restart_policy)
    cluster = running_world(master(template=template), workers(1))
    cluster.exits("master-0", 137, "OOMKilled", phase="Running")
    cluster.settle()
    name = cluster.name("master-0")
    assert cluster.job.status.phase == ("CleanUp" if stays else "Failed")
    assert bool(cluster.pods[name]) is stays
    assert cluster.jobs[name].spec.suspend is not stays
    if stays:
        cluster.exits("master-0", 137, "OOMKilled")
        cluster.settle()
        assert cluster.job.status.phase == "Failed"
        assert not cluster.jobs[name].spec.suspend
        assert cluster.pods[name]


@pytest.mark.parametrize(("deleted", "version"), [(None, "7"), ("2026-01-01T00:00:00Z", "")])
def test_a_child_job_is_deleted_as_it_was_seen_but_for_one_that_is_going_already(
    deleted: str | None, version: str
) -> None:
    """Of that the API server refuses any version, where the delete takes its last finalizer."""
    job = BatchJob(ObjectMeta(name="j", uid="u", resource_version="7", deletion_timestamp=deleted))
    assert build_delete(JOBS, job).version == version
