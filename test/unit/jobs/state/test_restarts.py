"""Counting restarts over pods and Jobs that come and go.

The rules of jobs/state/restarts.py: how long a set waits before it is started again.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import START, World, plan_of, running, running_world, terminated, waiting
from helpers.manifests import master, parameter_servers, pod_template, workers
from helpers.trainworld import running_train_world, train_plan
from tfjob_controller.api.common.core import Condition, ContainerState, ContainerStatus, Terminated
from tfjob_controller.api.common.status import JobCondition
from tfjob_controller.jobs.state.restarts import BASE_SECONDS, CAP_SECONDS, backoff_seconds, seconds_until_restart
from tfjob_controller.jobs.trainingjob import TrainingStatus
from tfjob_controller.util.timestamps import format_time

NEVER = pod_template({"name": "tensorflow"}, restartPolicy="Never")


def restarts(cluster: World) -> int:
    cluster.settle()
    return cluster.job.status.restarts


def test_restarts_in_place_and_by_another_pod_are_added_up() -> None:
    cluster = running_world()
    assert (restarts(cluster), cluster.job.status.restart_counts) == (0, {})
    cluster.runs("worker-0", restart_count=2)
    cluster.exits("ps-0", 137)
    assert restarts(cluster) == 3
    assert cluster.job.status.restart_counts == {"worker-0": 2, "ps-0": 1}


def test_one_end_counts_once_whoever_observes_it() -> None:
    """The deletion of the pod, its end, that of its Job, and the next Job."""
    cluster = running_world(master(), workers(1))
    cluster.pod_deleted("worker-0")
    assert restarts(cluster) == 1
    cluster.exits("worker-0", 0)
    cluster.settle()
    cluster.pods.clear()
    assert restarts(cluster) == 1
    cluster.runs("worker-0")
    assert restarts(cluster) == 1
    assert cluster.job.status.disruptions == 1
    assert cluster.jobs[cluster.name("worker-0")].metadata.labels["kubeflow.org/restarts"] == "1"


def test_the_deletion_of_a_pod_that_was_restarted_in_place_before_is_a_disruption() -> None:
    cluster = running_world(master(), workers(1))
    cluster.exits("worker-0", 137, phase="Running")
    cluster.runs("worker-0", restart_count=1)
    cluster.settle()
    cluster.advance(10)
    cluster.pod_deleted("worker-0")
    assert (restarts(cluster), cluster.job.status.disruptions) == (2, 1)


@pytest.mark.parametrize(("exit_code", "job_is_gone"), [(0, False), (1, True)])
def test_the_last_deletion_of_a_kubelet_hides_no_earlier_one(exit_code: int, job_is_gone: bool) -> None:
    """It has no grace period and moves the time of the deletion, so the program seems to have ended before."""
    cluster = running_world(master(), workers(1))
    (pod,) = cluster.pods_of("master-0")
    name = cluster.name("master-0")
    due = format_time(cluster.now + timedelta(seconds=5))
    meta = replace(pod.metadata, deletion_timestamp=due, deletion_grace_period_seconds=5)
    cluster.pods[name] = [replace(pod, metadata=meta)]
    cluster.settle()
    cluster.advance(1)
    cluster.exits("master-0", exit_code)
    cluster.advance(1)
    (pod,) = cluster.pods_of("master-0")
    meta = replace(pod.metadata, deletion_timestamp=format_time(cluster.now), deletion_grace_period_seconds=0)
    cluster.pods[name] = [replace(pod, metadata=meta)]
    if job_is_gone:
        # The controller has deleted it to start another one.
        del cluster.jobs[name]
    cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.restarts) == ("Running", 1)
    assert cluster.created[-1] == "Job/example-job-master-a6no-0"


def test_restarts_of_init_containers_in_place_count_and_the_reason_names_them() -> None:
    cluster = running_world(master(), workers(1), backoffLimit=2)
    for count in (1, 2, 3):
        failed = terminated(Terminated(1, "Error", "no such dataset"), count, name="fetch")
        cluster.pod("worker-0", phase="Pending", container_statuses=(), init_container_statuses=(failed,))
        cluster.settle()
        if count <= 2:
            assert cluster.job.status.reason == (
                "worker-0: fetch: exit code 1: no such dataset; restarted with back-off"
            )
    assert cluster.job.status.reason == (
        "BackoffLimitExceeded: 3 restarts of replicas, backoffLimit is 2; worker-0 failed: fetch: exit code 1: no such "
        "dataset"
    )


def test_a_parameter_server_that_is_recreated_counts_and_waits_longer_each_time() -> None:
    cluster = running_world()
    for delay_seconds in (0, BASE_SECONDS, 2 * BASE_SECONDS):
        cluster.exits("ps-0", 0)
        due = cluster.settle().wake_after_seconds
        if delay_seconds:
            assert due == delay_seconds + 1
            assert cluster.pods_of("ps-0")
        cluster.advance(delay_seconds)
        cluster.settle()
        assert not cluster.pods_of("ps-0")
        cluster.runs("ps-0")
    assert restarts(cluster) == 3


def test_a_node_whose_clock_is_ahead_does_not_prolong_the_wait() -> None:
    cluster = running_world(master(), workers(1))
    for delay_seconds in (0, BASE_SECONDS):
        cluster.now += timedelta(hours=1)
        cluster.exits("worker-0", 137)
        cluster.now -= timedelta(hours=1)
        cluster.job_ends("worker-0", "Failed")
        cluster.settle()
        cluster.advance(delay_seconds)
        cluster.settle()
        assert not cluster.pods_of("worker-0")
        cluster.runs("worker-0")
    assert restarts(cluster) == 2


def test_deleted_pods_wait_as_long_as_others_whatever_their_programs_exit_with() -> None:
    cluster = running_world(master(), workers(1))
    created = "Job/example-job-worker-a6no-0"
    for count, delay_seconds in enumerate((0, BASE_SECONDS, 2 * BASE_SECONDS), start=1):
        cluster.pod_deleted("worker-0")
        cluster.settle()
        cluster.exits("worker-0", 0)
        cluster.pods[cluster.name("worker-0")] = []
        due = cluster.settle().wake_after_seconds
        if delay_seconds:
            assert due == delay_seconds + 1
            assert cluster.job.status.reason == f"worker-0: its pod is gone; started again after {delay_seconds} s"
            assert cluster.created.count(created) == count
        cluster.advance(delay_seconds)
        cluster.settle()
        assert cluster.created.count(created) == count + 1
        assert (cluster.job.status.restarts, cluster.job.status.disruptions) == (count, count)
        cluster.runs("worker-0")
    assert cluster.job.status.succeeded_indexes == ()


def test_the_failure_that_a_job_ends_with_is_no_restart() -> None:
    cluster = running_world(master(template=NEVER))
    cluster.exits("master-0", 1)
    assert restarts(cluster) == 0


def test_no_limit_applies_to_disruptions() -> None:
    cluster = running_world(master(), workers(1), backoffLimit=0)
    for replica_id in ("master-0", "worker-0"):
        cluster.pod(replica_id, conditions=(Condition("DisruptionTarget", "True", last_transition_time="2026"),))
        cluster.exits(replica_id, 137)
    assert restarts(cluster) == 2
    assert (cluster.job.status.disruptions, cluster.job.status.phase) == (2, "Running")
    assert cluster.created[-2:] == ["Job/example-job-master-a6no-0", "Job/example-job-worker-a6no-0"]


def test_an_eviction_for_the_pods_own_limits_is_an_error_of_its_program() -> None:
    cluster = running_world(master(), workers(1), backoffLimit=0)
    cluster.pod("worker-0", reason="Evicted", message="Usage of EmptyDir volume exceeds the limit")
    cluster.exits("worker-0", 137, "ContainerStatusUnknown")
    assert (restarts(cluster), cluster.job.status.disruptions) == (1, 0)
    assert cluster.job.status.reason == (
        "BackoffLimitExceeded: 1 restarts of replicas, backoffLimit is 0; worker-0 failed: Evicted: Usage of EmptyDir "
        "volume exceeds the limit"
    )


def test_a_container_that_an_eviction_has_lost_is_not_restarted_in_place() -> None:
    """The kubelet raises the count of a container that it cannot locate any more (seen with 1.36)."""
    cluster = running_world(master(), workers(1))
    lost = Terminated(137, "ContainerStatusUnknown", "The container could not be located when the pod was deleted.")
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "Usage exceeds the limit"}
    cluster.pod("worker-0", container_statuses=(waiting("ContainerCreating", last=lost, restart_count=1),), **evicted)
    assert restarts(cluster) == 1
    cluster.job_ends("worker-0", "Failed")
    ended = terminated(replace(lost, message="The container could not be located when the pod was terminated"), 1)
    cluster.pod("worker-0", container_statuses=(replace(ended, last_state=ContainerState(terminated=lost)),))
    assert restarts(cluster) == 1


def test_a_container_that_was_lost_and_runs_again_is_restarted_in_place() -> None:
    cluster = running_world(master(), workers(1))
    lost = Terminated(137, "ContainerStatusUnknown")
    cluster.pod("worker-0", container_statuses=(running(restart_count=1, last=ContainerState(terminated=lost)),))
    assert restarts(cluster) == 1


def test_a_pod_that_its_kubelet_rejects_is_a_disruption_and_the_next_one_waits_longer_each_time() -> None:
    cluster = running_world(master(), workers(1), backoffLimit=0)
    words = "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    for count, delay_seconds in enumerate((0, BASE_SECONDS, 2 * BASE_SECONDS), start=1):
        cluster.pod("worker-0", phase="Failed", reason="NodeAffinity", message=words, container_statuses=())
        cluster.job_ends("worker-0", "Failed")
        due = cluster.settle().wake_after_seconds
        if delay_seconds:
            assert due == delay_seconds + 1
            assert cluster.job.status.reason == f"worker-0: NodeAffinity: {words}"
        cluster.advance(delay_seconds)
        cluster.settle()
        assert cluster.created.count("Job/example-job-worker-a6no-0") == count + 1
    assert (restarts(cluster), cluster.job.status.disruptions, cluster.job.status.phase) == (3, 3, "Running")


def test_an_evicted_pod_whose_end_has_no_time_waits_from_the_end_of_its_job() -> None:
    cluster = running_world(master(), workers(1))
    for delay_seconds in (0, BASE_SECONDS):
        cluster.advance(300)
        lost = terminated(Terminated(137, "ContainerStatusUnknown"))
        cluster.pod("worker-0", phase="Failed", reason="Evicted", container_statuses=(lost,))
        cluster.job_ends("worker-0", "Failed")
        due = cluster.settle().wake_after_seconds
        assert due == (delay_seconds + 1 if delay_seconds else due)
        cluster.advance(delay_seconds)
        cluster.settle()
        cluster.runs("worker-0")
    assert restarts(cluster) == 2


def test_a_deadline_names_the_replica_that_waits_to_be_started_again() -> None:
    cluster = running_world(master(template=NEVER), workers(1), activeDeadlineSeconds=60)
    for seconds in (0, 10):
        cluster.advance(seconds)
        cluster.exits("master-0", 137, "Error", "boom")
        cluster.settle()
        cluster.advance(11)
        cluster.settle()
        cluster.runs("master-0")
        cluster.settle()
    cluster.advance(20)
    cluster.exits("master-0", 137, "Error", "boom")
    cluster.settle()
    cluster.advance(19)
    cluster.settle()
    assert cluster.job.status.reason == (
        "DeadlineExceeded: not done after 60 s; master-0: exit code 137: boom; started again after 20 s"
    )


def test_a_deadline_names_the_node_for_which_all_are_restarted() -> None:
    cluster = running_train_world(activeDeadlineSeconds=60)
    for _ in range(2):
        cluster.exits("node-1", 137, "Error")
        cluster.settle()
        cluster.reap()
        cluster.settle()
        cluster.advance(5)
        cluster.settle()
    cluster.advance(60)
    cluster.settle()
    assert cluster.job.status.reason == (
        "DeadlineExceeded: not done after 60 s; node-1 will be restarted: node-1 failed: exit code 137"
    )


def test_a_limit_that_a_restart_in_place_exceeds_names_what_the_program_ended_with() -> None:
    cluster = running_world(master(), workers(1), backoffLimit=0)
    cluster.exits("worker-0", 139, "Error", phase="Running")
    cluster.runs("worker-0", restart_count=1)
    cluster.settle()
    assert cluster.job.status.reason == (
        "BackoffLimitExceeded: 1 restarts of replicas, backoffLimit is 0; worker-0 failed: exit code 139"
    )


def test_the_reason_still_tells_how_a_program_ended_once_its_pod_is_gone() -> None:
    cluster = running_world(master(template=NEVER), workers(1, template=NEVER))
    reasons = []
    for number in range(3):
        cluster.exits("worker-0", 139, "Error", "boom")
        cluster.settle()
        cluster.pods[cluster.name("worker-0")] = []
        cluster.settle()
        reasons.append(cluster.job.status.reason)
        cluster.advance(60)
        cluster.settle()
        if number < 2:
            cluster.runs("worker-0")
            cluster.settle()
    assert reasons[1:] == [f"worker-0: exit code 139: boom; started again after {seconds} s" for seconds in (10, 20)]


SIDECARS = {
    "regular": {"container_statuses": (running("log"),)},
    "native": {"init_container_statuses": (running("log"),)},
}


@pytest.mark.parametrize("sidecar", SIDECARS.values(), ids=SIDECARS)
def test_a_pod_that_is_replaced_once_its_sidecar_has_ended_is_not_restarted_in_place(
    sidecar: dict[str, tuple[ContainerStatus, ...]],
) -> None:
    cluster = running_world(master(template=NEVER), workers(1, template=NEVER))
    ended = terminated(Terminated(139, "Error", finished_at=format_time(cluster.now)))
    statuses = {**sidecar, "container_statuses": (ended, *sidecar.get("container_statuses", ()))}
    cluster.pod("worker-0", phase="Running", **statuses)
    cluster.settle()
    assert cluster.job.status.reason == "worker-0: exit code 139; started again once its sidecars have ended"


def test_the_reason_names_no_sidecars_before_the_kubelet_reports_the_end_of_a_pod() -> None:
    """All containers have ended then, and the reason stays the same when the pod has its phase."""
    cluster = running_world(master(template=NEVER), workers(1, template=NEVER))
    reasons = []
    for _ in range(2):
        for phase in ("Running", "Failed"):
            cluster.exits("worker-0", 139, "Error", phase=phase)
            cluster.sync()
            reasons.append(cluster.job.status.reason)
        cluster.advance(60)
        cluster.settle()
        cluster.runs("worker-0")
        cluster.settle()
    again = "worker-0: exit code 139; started again"
    assert reasons == [again, again, f"{again} after 10 s", f"{again} after 10 s"]


def test_the_event_of_a_restart_names_the_replica() -> None:
    cluster = running_world(master(), workers(7), parameter_servers(1))
    cluster.events.clear()
    for index in range(7):
        cluster.runs(f"worker-{index}", restart_count=1)
    cluster.settle()
    (event,) = cluster.events
    assert (event.type, event.reason) == ("Warning", "Restarted")
    assert event.note == ("Restarted worker-0, worker-1, worker-2, worker-3, worker-4 and 2 more (7 restarts so far)")


def test_an_evicted_chief_that_ended_with_0_is_one_restart() -> None:
    """The kubelet lets an evicted pod fail whatever its containers have exited with."""
    cluster = running_world(master(template=NEVER))
    disrupted = Condition("DisruptionTarget", "True")
    cluster.pod("master-0", reason="Evicted", conditions=(disrupted,))
    cluster.exits("master-0", 0, phase="Failed")
    assert (restarts(cluster), cluster.job.status.disruptions) == (1, 1)
    assert cluster.created[-1] == "Job/example-job-master-a6no-0"


def restarting(restarts: int, status: str = "True") -> TrainingStatus:
    said = JobCondition("Restarting", status, "ReplicasRestarting", "", format_time(START), 1)
    return TrainingStatus(phase="Running", restarts=restarts, conditions=(said,))


@pytest.mark.parametrize(
    ("restarts", "seconds"),
    [(0, 0), (1, 0), (2, BASE_SECONDS), (3, 2 * BASE_SECONDS), (6, 160), (7, CAP_SECONDS), (10**9, CAP_SECONDS)],
)
def test_each_restart_but_the_first_waits_twice_as_long_up_to_a_cap(restarts: int, seconds: int) -> None:
    assert backoff_seconds(restarts) == seconds


@pytest.mark.parametrize(("passed", "left"), [(0, 20), (15, 5), (20, 0), (100, 0)])
def test_the_time_counts_from_the_failure(passed: int, left: int) -> None:
    assert seconds_until_restart(train_plan(), restarting(3), START + timedelta(seconds=passed)) == left


def test_a_job_that_is_not_being_restarted_waits_for_nothing() -> None:
    assert seconds_until_restart(train_plan(), restarting(3, "False"), START) == 0
    assert seconds_until_restart(train_plan(), replace(restarting(3), conditions=()), START) == 0


def test_replicas_that_are_restarted_one_by_one_are_the_kubelets_affair() -> None:
    assert seconds_until_restart(plan_of(), restarting(3), START) == 0
