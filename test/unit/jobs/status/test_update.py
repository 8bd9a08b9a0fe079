"""From what is observed to what a job says of itself."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import START, World, decoded, running_world, terminated, tfjob, waiting, world
from helpers.manifests import master, pod_template, workers
from helpers.trainworld import running_train_world
from tfjob_controller.api.common.core import Condition, Terminated
from tfjob_controller.api.common.status import JobCondition
from tfjob_controller.jobs.state.observed import Obstacle
from tfjob_controller.jobs.status.summary import MAX_REASON
from tfjob_controller.jobs.status.update import finished_status, invalid_status
from tfjob_controller.kinds.tfjob.status import tfjob_work

NEVER = pod_template({"name": "tensorflow"}, restartPolicy="Never")


def condition(cluster: World, condition_type: str) -> JobCondition | None:
    return next((each for each in cluster.job.status.conditions if each.type == condition_type), None)


def is_true(cluster: World, condition_type: str) -> bool:
    found = condition(cluster, condition_type)
    return found is not None and found.status == "True"


def states(cluster: World) -> dict[str, tuple[str, dict[str, int]]]:
    return {each.role: (each.state, each.states) for each in cluster.job.status.replica_statuses}


def test_a_new_job_is_creating_and_says_what_it_consists_of() -> None:
    cluster = world()
    cluster.sync()
    status = cluster.job.status
    assert (status.phase, status.state, status.reason, status.control_paused) == ("Creating", "Running", "", False)
    assert (status.start_time, status.observed_generation) == ("2026-01-01T00:00:00Z", 1)
    assert states(cluster) == {
        "MASTER": ("Running", {"Running": 1}),
        "WORKER": ("Running", {"Running": 1}),
        "PS": ("Running", {"Running": 2}),
    }
    assert status.ready == {"master": "0/1", "worker": "0/1", "ps": "0/2"}
    assert is_true(cluster, "Created")


def test_a_job_runs_once_its_chief_does() -> None:
    cluster = world()
    cluster.settle()
    cluster.runs("ps-0")
    cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.ready["ps"]) == ("Creating", "1/2")
    cluster.runs("master-0")
    cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.state) == ("Running", "Running")
    assert is_true(cluster, "Running")


def test_the_phase_stays_running_while_the_chief_is_restarted_but_the_condition_says_it() -> None:
    cluster = running_world()
    cluster.exits("master-0", 137, phase="Running")
    cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.state) == ("Running", "Running")
    assert not is_true(cluster, "Running")
    assert is_true(cluster, "Restarting")
    cluster.runs("master-0", restart_count=1)
    cluster.settle()
    assert is_true(cluster, "Running")
    assert not is_true(cluster, "Restarting")


def test_a_job_that_is_over_knows_the_last_restart_though_its_childs_end_was_seen_before_the_pods() -> None:
    cluster = running_world()
    cluster.job_ends("master-0", "Complete")
    cluster.settle()
    assert cluster.job.status.phase == "Running"
    cluster.pod("master-0", phase="Succeeded", container_statuses=(terminated(Terminated(0), restart_count=1),))
    cluster.settle()
    assert (cluster.job.status.state, cluster.job.status.restarts) == ("Succeeded", 1)


def test_a_failed_job_has_its_chiefs_message_although_the_childs_end_was_seen_before_the_pods() -> None:
    cluster = running_world()
    cluster.job_ends("master-0", "Failed", "Container tensorflow for pod failed with exit code 3")
    cluster.settle()
    assert cluster.job.status.phase == "Running"
    cluster.exits("master-0", 3, message="no data")
    cluster.settle()
    assert cluster.job.status.reason == "master-0 failed: exit code 3: no data"


def test_the_chiefs_success_is_the_jobs() -> None:
    cluster = running_world()
    cluster.advance(60)
    cluster.exits("master-0", 0)
    cluster.settle()
    status = cluster.job.status
    assert (status.phase, status.state, status.reason) == ("Done", "Succeeded", "master-0 succeeded")
    assert status.completion_time == "2026-01-01T00:01:00Z"
    assert is_true(cluster, "Succeeded")
    assert not is_true(cluster, "Running")
    assert condition(cluster, "Failed") is None
    assert cluster.status_writes == 4
    assert [(event.type, event.reason) for event in cluster.events] == [
        ("Normal", "Running"),
        ("Normal", "CleanUp"),
        ("Normal", "Done"),
    ]


def test_the_chiefs_permanent_error_is_the_jobs_with_its_message() -> None:
    cluster = running_world(master())
    cluster.events.clear()
    cluster.exits("master-0", 3, "Error", "no such\n  data set")
    cluster.settle()
    status = cluster.job.status
    assert (status.phase, status.state, cluster.status.summary) == ("Failed", "Failed", "Failed")
    assert status.reason == "master-0 failed: exit code 3: no such data set"
    assert is_true(cluster, "Failed")
    assert condition(cluster, "Succeeded") is None
    (event,) = cluster.events
    assert (event.type, event.reason, event.note) == (
        "Warning",
        "Failed",
        f"Job is in phase Failed: {status.reason}",
    )


def test_a_chief_whose_pod_is_gone_without_a_trace_was_disrupted() -> None:
    cluster = running_world()
    cluster.pods.clear()
    cluster.job_ends("master-0", "Failed")
    cluster.settle()
    assert (cluster.job.status.restarts, cluster.job.status.disruptions) == (1, 1)
    assert cluster.created[-1] == "Job/example-job-master-a6no-0"


def test_how_a_worker_ends_is_not_how_the_job_ends() -> None:
    cluster = running_world()
    cluster.exits("worker-0", 1, phase="Running")
    cluster.settle()
    assert cluster.job.status.phase == "Running"
    assert states(cluster)["WORKER"] == ("Failed", {"Failed": 1})


def test_under_any_replica_a_workers_permanent_error_is_the_jobs() -> None:
    cluster = running_world(failurePolicy="AnyReplica")
    cluster.exits("ps-1", 1)
    cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.reason) == ("Failed", "ps-1 failed: exit code 1")


@pytest.mark.parametrize(
    ("ended", "state"),
    [
        pytest.param({"worker-0": 0, "worker-1": 1}, "Failed", id="one failed"),
        pytest.param({"worker-0": 0}, "Running", id="one runs"),
        pytest.param({"worker-0": 0, "worker-1": 0}, "Succeeded", id="all succeeded"),
    ],
)
def test_a_types_state_is_that_of_its_worst_replica(ended: dict[str, int], state: str) -> None:
    cluster = running_world(master(), workers(2))
    for replica_id, exit_code in ended.items():
        cluster.exits(replica_id, exit_code, phase="Running")
    cluster.settle()
    assert states(cluster)["WORKER"][0] == state


def test_a_type_without_replicas_is_unknown() -> None:
    cluster = running_world(master(), workers(0))
    assert states(cluster)["WORKER"] == ("Unknown", {})


def test_a_succeeded_replica_is_remembered_when_its_job_is_gone() -> None:
    cluster = running_world(master(), workers(11))
    for replica_id in ("worker-10", "worker-2"):
        cluster.exits(replica_id, 0)
    cluster.settle()
    assert cluster.job.status.succeeded_indexes == ("worker-2", "worker-10")
    cluster.delete_job(cluster.name("worker-2"))
    cluster.created.clear()
    cluster.settle()
    assert cluster.created == []
    assert cluster.job.status.succeeded_indexes == ("worker-2", "worker-10")
    assert cluster.job.status.ready["worker"] == "11/11"


def test_the_reason_names_the_first_replica_that_waits_and_how_many_more() -> None:
    cluster = world()
    cluster.settle()
    unschedulable = Condition("PodScheduled", "False", "Unschedulable", "0/2 nodes are available.")
    for replica_id in ("worker-0", "ps-1"):
        cluster.pod(replica_id, conditions=(unschedulable,))
    cluster.settle()
    assert cluster.job.status.reason == "worker-0: Unschedulable: 0/2 nodes are available. (and 1 more wait)"
    cluster.all_run()
    cluster.settle()
    assert cluster.job.status.reason == ""


def test_a_passing_obstacle_shows_as_reason_until_it_is_gone() -> None:
    cluster = world()
    quota = Obstacle("Service x: exceeded quota: services=0")
    cluster.sync([quota, quota])
    assert (cluster.job.status.phase, cluster.job.status.reason) == ("Creating", quota.message)
    cluster.sync()
    assert cluster.job.status.reason == ""


def test_a_permanent_obstacle_ends_the_job_with_the_servers_message() -> None:
    cluster = running_world()
    cluster.sync([Obstacle("Job x is invalid: spec.template: Required value", permanent=True)])
    cluster.settle()
    status = cluster.job.status
    assert (status.phase, status.reason) == ("Failed", "Job x is invalid: spec.template: Required value")
    assert is_true(cluster, "Failed")


def test_a_chief_that_is_done_is_stronger_than_any_obstacle() -> None:
    cluster = running_world(backoffLimit=0, activeDeadlineSeconds=1)
    cluster.advance(100)
    cluster.job_status("worker-0", failed=5)
    cluster.exits("master-0", 0)
    cluster.sync([Obstacle("no", permanent=True)])
    cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.state) == ("Done", "Succeeded")


# Deadline


def test_the_deadline_wakes_the_controller_and_fails_the_job() -> None:
    cluster = world(activeDeadlineSeconds=60)
    assert cluster.sync().wake_after_seconds == 31  # to see whether pods have come
    cluster.all_run()
    assert cluster.sync().wake_after_seconds == 60
    cluster.advance(59)
    assert cluster.sync().wake_after_seconds == 1
    cluster.advance(1)
    assert cluster.sync().wake_after_seconds == 0  # to clean up
    cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.reason) == ("Failed", "DeadlineExceeded: not done after 60 s")


def test_the_deadline_counts_from_the_resume() -> None:
    cluster = running_world(activeDeadlineSeconds=60)
    cluster.advance(50)
    cluster.change(suspend=True)
    assert cluster.settle().wake_after_seconds is None
    assert cluster.job.status.start_time is None
    cluster.advance(1000)
    cluster.change(suspend=False)
    cluster.settle()
    cluster.all_run()
    assert cluster.settle().wake_after_seconds == 60
    assert cluster.job.status.start_time == "2026-01-01T00:17:30Z"


# Suspend


def test_suspend_and_resume_have_events() -> None:
    cluster = running_world()
    cluster.events.clear()
    cluster.change(suspend=True)
    cluster.settle()
    status = cluster.job.status
    assert (status.phase, status.state, status.reason) == ("Creating", "Unknown", "Suspended: spec.suspend is true")
    assert is_true(cluster, "Suspended")
    assert not is_true(cluster, "Running")
    cluster.change(suspend=False)
    cluster.settle()
    cluster.all_run()
    cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.reason) == ("Running", "")
    assert not is_true(cluster, "Suspended")
    assert [event.reason for event in cluster.events] == ["Suspended", "Resumed", "Running"]


def test_a_job_that_fails_as_it_is_resumed_is_not_suspended_any_more() -> None:
    cluster = running_world(master(), backoffLimit=0)
    cluster.exits("master-0", 137, "Error")
    cluster.job_ends("master-0", "Failed")
    cluster.change(suspend=True)
    cluster.settle()
    assert is_true(cluster, "Suspended")
    cluster.change(suspend=False)
    cluster.settle()
    assert (cluster.job.status.phase, is_true(cluster, "Suspended")) == ("Failed", False)


def test_a_job_may_be_suspended_from_the_beginning() -> None:
    cluster = world(suspend=True)
    cluster.settle()
    assert (cluster.created, cluster.job.status.phase) == ([], "Creating")
    assert states(cluster)["PS"] == ("Unknown", {"Unknown": 2})


# Conditions, events, fixed point


def test_a_transition_time_moves_only_with_the_status() -> None:
    cluster = running_world()
    since = condition(cluster, "Running")
    cluster.advance(10)
    cluster.change(backoff_limit=3)
    cluster.settle()
    now = condition(cluster, "Running")
    assert since is not None
    assert now is not None
    assert now.last_transition_time == since.last_transition_time
    assert (since.observed_generation, now.observed_generation) == (1, 2)


def test_workers_are_counted_for_the_scale_subresource() -> None:
    cluster = running_world(master(), workers(3))
    assert cluster.job.status.workers == 3
    assert cluster.job.status.worker_selector == (
        "job_type=WORKER,kubeflow.org=,runtime_id=a6no,tf_job_name=example-job"
    )


# Finished and invalid jobs


def test_a_finished_job_is_never_touched_again() -> None:
    cluster = running_world()
    cluster.exits("master-0", 0)
    cluster.settle()
    status = cluster.job.status
    cluster.change(suspend=True, worker_replicas=5)
    cluster.pods.clear()
    cluster.settle()
    assert cluster.job.status is status


@pytest.mark.parametrize(("waited", "wake_after", "delete"), [(0, 60.0, False), (59, 1.0, False), (60, 0.0, True)])
def test_a_finished_job_is_deleted_when_its_time_is_over(waited: float, wake_after: float, delete: bool) -> None:
    cluster = running_world(ttlSecondsAfterFinished=60)
    cluster.exits("master-0", 0)
    cluster.settle()
    cluster.advance(waited)
    work = cluster.work
    result = finished_status(work, cluster.now)
    assert (result.wake_after_seconds, result.delete_job) == (wake_after, delete)
    assert result.status is work.status


def test_where_nothing_is_to_be_cleaned_one_write_ends_the_job_and_says_when_its_time_is_over() -> None:
    cluster = running_world(master(), ttlSecondsAfterFinished=60)
    writes = cluster.status_writes
    cluster.exits("master-0", 0)
    assert cluster.sync().wake_after_seconds == 60
    assert (cluster.job.status.phase, cluster.status_writes - writes) == ("Done", 1)


@pytest.mark.parametrize("seconds", [-1, 2**31])
def test_a_time_to_live_that_is_refused_deletes_nothing(seconds: int) -> None:
    """Or the user would never read why the job is invalid."""
    job = tfjob_work(decoded(tfjob(ttlSecondsAfterFinished=seconds)))
    result = invalid_status(job, "spec.ttlSecondsAfterFinished: must be from 0 to 2147483647", START)
    assert (result.status.phase, result.wake_after_seconds) == ("Failed", None)
    later = finished_status(replace(job, status=result.status), START)
    assert (later.wake_after_seconds, later.delete_job) == (None, False)


def test_an_invalid_job_fails_at_once_and_for_good() -> None:
    job = tfjob_work(decoded(tfjob(), generation=4))
    result = invalid_status(job, "Missing ReplicaSpec for chief: MASTER", START)
    status = result.status
    assert (status.phase, status.state, status.summary) == ("Failed", "Failed", "Failed")
    assert status.reason == "invalid job spec: Missing ReplicaSpec for chief: MASTER"
    assert [(event.type, event.reason, event.note) for event in result.events] == [
        ("Warning", "InvalidSpec", status.reason)
    ]
    assert status.conditions == (
        JobCondition("Failed", "True", "InvalidSpec", status.reason, "2026-01-01T00:00:00Z", 4),
    )
    again = invalid_status(replace(job, status=status), "other words", START)
    assert again.status is status
    assert again.events == ()


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59Z", "yesterday"])
def test_a_finished_job_whose_end_was_edited_into_no_time_stays(text: str) -> None:
    cluster = running_world(master(), ttlSecondsAfterFinished=60)
    ended = replace(cluster.work, status=replace(cluster.status, phase="Done", completion_time=text))
    result = finished_status(ended, cluster.now)
    assert (result.delete_job, result.wake_after_seconds) == (False, None)


def test_a_waiting_word_is_shortened() -> None:
    cluster = world()
    cluster.settle()
    cluster.pod("master-0", container_statuses=(waiting("CreateContainerError", "x" * 5000),))
    cluster.settle()
    assert len(cluster.job.status.reason) <= MAX_REASON


SSHD = "debug1: sshd version OpenSSH_9.2\n" * 60 + "sshd: no hostkeys available -- exiting."


def message(cluster: World, kind: str) -> str:
    return next(each.message for each in cluster.job.status.conditions if each.type == kind)


def test_a_reason_has_the_replica_its_end_and_the_last_words_of_a_long_message_and_no_more() -> None:
    cluster = running_train_world(maxRestarts=1)
    cluster.exits("node-1", 137, "Error", SSHD)
    cluster.settle()
    restarting = cluster.job.status.reason
    assert restarting.startswith("node-1 will be restarted: node-1 failed: exit code 137: ")
    assert restarting.endswith(" sshd: no hostkeys available -- exiting.")
    assert len(restarting) <= MAX_REASON
    (note,) = (each.note for each in cluster.events if each.reason == "Restarted")
    assert min(len(note), len(message(cluster, "Restarting"))) > 2 * MAX_REASON


def test_the_reason_of_a_failed_job_is_bounded_as_well() -> None:
    cluster = running_train_world(maxRestarts=0)
    cluster.exits("node-1", 137, "Error", SSHD)
    cluster.advance(5)
    cluster.settle()
    reason = cluster.job.status.reason
    assert reason.startswith("node-1 failed: exit code 137: ")
    assert reason.endswith("no hostkeys available -- exiting.; maxRestarts is 0")
    assert len(reason) <= MAX_REASON < len(message(cluster, "Failed")) / 2


def test_a_long_reason_is_the_same_whenever_it_is_decided() -> None:
    cluster = running_world()
    cluster.exits("worker-0", 137, message=SSHD, phase="Running")
    cluster.settle()
    reason = cluster.job.status.reason
    assert reason.startswith("worker-0: exit code 137: ")
    cluster.advance(1)
    cluster.settle()
    assert cluster.job.status.reason == reason


def test_what_somebody_has_to_do_is_never_cut() -> None:
    cluster = running_world()
    cluster.exits("worker-0", 137, message=SSHD, phase="Running")
    remedy = f"another client keeps suspending Job {'x' * MAX_REASON}: stop it"
    cluster.sync([Obstacle(remedy)])
    first, _, second = cluster.job.status.reason.partition("; ")
    assert first == remedy
    assert second.startswith("worker-0: exit code 137: ")
    assert len(second) <= MAX_REASON


def test_a_refusal_names_the_field_in_the_reason_and_is_whole_elsewhere() -> None:
    result = invalid_status(world().work, f"spec.x: {'y ' * 400}leave it out", START)
    assert result.status.reason.startswith("invalid job spec: spec.x: y")
    assert result.status.reason.endswith("leave it out")
    assert len(result.status.reason) <= MAX_REASON < len(result.events[0].note)
    assert result.events[0].note in [each.message for each in result.status.conditions]


@pytest.mark.parametrize("restart_policy", ["OnFailure", "Never"])
def test_a_worker_that_can_never_start_is_tried_again_and_the_reason_says_why(restart_policy: str) -> None:
    """A worker's errors are its own affair, whatever they are, but the job must not look as if all were well."""
    cluster = running_world(master(), workers(1))
    ended = Terminated(
        128, "StartError", 'runc create failed: exec: "pyhton3": executable file not found in $PATH: unknown'
    )
    if restart_policy == "Never":
        cluster.pod("worker-0", phase="Failed", container_statuses=(terminated(ended),))
    else:
        cluster.pod("worker-0", phase="Running", container_statuses=(waiting("CrashLoopBackOff", last=ended),))
    cluster.settle()
    status = cluster.job.status
    assert (status.phase, status.state) == ("Running", "Running")
    assert status.reason == 'worker-0: cannot start: exec: "pyhton3": executable file not found in $PATH'


# The summary


def test_a_summary_says_whether_the_job_runs() -> None:
    cluster = world(master(), workers(1))
    cluster.settle()
    assert (cluster.status.state, cluster.status.summary) == ("Running", "Pending")
    cluster.pod("master-0", phase="Pending", container_statuses=(waiting("ErrImagePull", "not found"),))
    cluster.settle()
    assert cluster.status.summary == "Pending"
    cluster.all_run()
    cluster.settle()
    assert cluster.status.summary == "Running"
    cluster.change(suspend=True)
    cluster.settle()
    assert cluster.status.summary == "Suspended"
    cluster.change(suspend=False)
    cluster.settle()
    assert cluster.status.summary == "Pending"
    cluster.all_run()
    cluster.settle()
    cluster.exits("master-0", 0)
    cluster.settle()
    assert cluster.status.summary == "Succeeded"
