"""The class of a job, from the statuses that the controller really writes, and from those of each kind on the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import World, running_world, terminated, waiting, world
from helpers.manifests import master, workers
from helpers.v1manifests import v1_manifest
from tfjob_controller.api.common.core import Condition, Terminated
from tfjob_controller.api.common.status import JobCondition
from tfjob_controller.client.jobclass import BY_SLUG, JobClass, class_of, code_of
from tfjob_controller.client.kinds import KINDS
from tfjob_controller.jobs.state.observed import Obstacle
from tfjob_controller.kinds.trainjob.clientkind import CLIENT_KIND as TRAINJOB

NEEDS_YOU, QUEUED, STARTING = JobClass.NEEDS_YOU, JobClass.QUEUED, JobClass.STARTING

NO_MATCH = "node(s) didn't match Pod's node affinity/selector"
NO_HELP = "Preemption is not helpful for scheduling"


def of_world(cluster: World) -> JobClass:
    cluster.settle()
    return class_of(cluster.job)


def waits(reason: str, message: str = "", **fields: Any) -> World:
    cluster = world(master(), workers(1))
    cluster.settle()
    cluster.pod("worker-0", phase="Pending", container_statuses=(waiting(reason, message, **fields),))
    return cluster


def unscheduled(message: str) -> World:
    cluster = world(master())
    cluster.settle()
    cluster.pod("master-0", conditions=(Condition("PodScheduled", "False", "Unschedulable", message),))
    return cluster


def warned(warning: str) -> World:
    cluster = world(master())
    cluster.settle()
    cluster.hangs("master-0")
    cluster.advance(60)
    cluster.warnings[cluster.pods_of("master-0")[-1].metadata.uid] = warning
    return cluster


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        (waits("ContainerCreating"), STARTING),
        (waits("ErrImagePull", "failed to pull"), NEEDS_YOU),
        (waits("InvalidImageName", "Failed to apply default image tag"), NEEDS_YOU),
        (waits("CreateContainerConfigError", 'secret "s" not found'), NEEDS_YOU),
        (waits("CrashLoopBackOff", "back-off", last=Terminated(1)), NEEDS_YOU),
        (waits("RunContainerError", 'exec: "x": executable file not found in $PATH'), NEEDS_YOU),
        (unscheduled("0/2 nodes are available: 2 Insufficient nvidia.com/gpu."), QUEUED),
        (unscheduled('persistentvolumeclaim "data" not found'), NEEDS_YOU),
        (
            unscheduled(f"0/2 nodes are available: 2 {NO_MATCH}. preemption: 0/2 nodes are available: 2 {NO_HELP}."),
            NEEDS_YOU,
        ),
        # The other node matches, and is full.
        (unscheduled(f"0/2 nodes are available: 1 Insufficient cpu, 1 {NO_MATCH}."), QUEUED),
        (unscheduled(f"0/12 nodes are available: 1 {NO_MATCH}, 11 Insufficient cpu."), QUEUED),
        (warned('FailedMount: MountVolume.SetUp failed for volume "v": secret "s" not found'), NEEDS_YOU),
        (warned("FailedCreate: Error creating: exceeded quota"), NEEDS_YOU),
        (warned("NoSuchWarning: nobody has to do anything"), STARTING),
    ],
)
def test_a_job_that_waits_is_queued_starts_or_needs_somebody(cluster: World, expected: JobClass) -> None:
    assert of_world(cluster) is expected, cluster.job.status.reason


def test_a_job_is_followed_through_its_classes() -> None:
    cluster = world(master(), workers(1))
    assert class_of(cluster.job) is STARTING
    assert of_world(cluster) is STARTING
    cluster.all_run()
    assert of_world(cluster) is JobClass.RUNNING
    cluster.change(suspend=True)
    assert of_world(cluster) is JobClass.SUSPENDED
    cluster.change(suspend=False)
    cluster.settle()
    cluster.all_run()
    cluster.settle()
    cluster.exits("master-0", 0)
    assert of_world(cluster) is JobClass.DONE


def test_a_job_has_failed_while_it_is_cleaned_up() -> None:
    cluster = running_world(master(), workers(1))
    cluster.exits("master-0", 1)
    cluster.sync()
    assert class_of(cluster.job) is JobClass.FAILED


def test_a_job_needs_somebody_while_another_of_its_replicas_runs() -> None:
    cluster = running_world(master(), workers(1))
    cluster.pod("worker-0", phase="Pending", container_statuses=(waiting("ImagePullBackOff"),))
    assert of_world(cluster) is NEEDS_YOU


def test_a_refused_child_needs_somebody() -> None:
    cluster = world(master())
    cluster.sync([Obstacle("cannot create Job a: exceeded quota: jobs")])
    assert class_of(cluster.job) is NEEDS_YOU


def test_a_crash_loop_needs_somebody_from_the_third_failure_and_not_while_it_runs() -> None:
    cluster = running_world(master(), workers(1))
    classes = []
    for count in (1, 2, 3):
        ended = Terminated(137, "Error")
        cluster.pod(
            "worker-0",
            container_statuses=(waiting("ContainerCreating", last=ended, restart_count=count),),
            phase="Running",
        )
        cluster.settle()
        classes.append(class_of(cluster.job))
        cluster.runs("worker-0", restart_count=count)
        assert of_world(cluster) is JobClass.RUNNING
    assert classes == [JobClass.RUNNING, JobClass.RUNNING, NEEDS_YOU], cluster.job.status


def test_disruptions_are_no_crash_loop() -> None:
    job = running_world(master()).job
    restarting = JobCondition("Restarting", "True", "ReplicasRestarting", "", "2026-01-01T00:00:00Z")
    for disruptions, expected in ((0, NEEDS_YOU), (5, STARTING)):
        status = replace(
            job.status,
            restarts=5,
            disruptions=disruptions,
            conditions=(restarting,),
            summary="Pending",
            phase="Running",
        )
        assert class_of(replace(job, status=status)) is expected


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("WaitingForCapacity", QUEUED),
        ("Preempted", QUEUED),
        ("WaitingForScheduler", QUEUED),
        ("ExceedsClusterCapacity", NEEDS_YOU),
        ("GangSchedulingOff", STARTING),
    ],
)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.word}-{kind.resource.version}")
def test_a_gang_of_each_kind_waits_in_the_queue_unless_it_is_too_large(
    kind: Any, reason: str, expected: JobClass
) -> None:
    conditions = [
        {"type": type_, "status": status, "reason": why, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for type_, status, why in (("Scheduled", "False", reason), ("Created", "True", "x"))
    ]
    body = {
        **v1_manifest("PyTorchJob", {"Master": 1}, "a"),
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "status": {"phase": "Creating", "summary": "Pending", "conditions": conditions},
    }
    assert class_of(kind.resource.decode(json.dumps(body).encode())) is expected


@pytest.mark.parametrize(
    ("true", "expected"),
    [
        ((), STARTING),
        (("Created",), STARTING),
        (("Created", "Running"), JobClass.RUNNING),
        (("Created", "Suspended"), JobClass.SUSPENDED),
        (("Created", "Succeeded"), JobClass.DONE),
        (("Created", "Failed"), JobClass.FAILED),
    ],
)
def test_a_job_of_v1_has_the_class_of_its_conditions(true: tuple[str, ...], expected: JobClass) -> None:
    conditions = [{"type": type_, "status": "True", "reason": "x", "message": ""} for type_ in true]
    body = {
        **v1_manifest("PyTorchJob", {"Master": 1}, "a"),
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "status": {"conditions": conditions},
    }
    (kind,) = (kind for kind in KINDS if kind.word == "pytorchjob")
    assert class_of(kind.resource.decode(json.dumps(body).encode())) is expected


def test_a_trainjob_that_is_invalid_has_failed() -> None:
    failed = {"type": "Failed", "status": "True", "reason": "JobsBuildFailed", "message": "", "lastTransitionTime": ""}
    body = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "spec": {},
        "status": {"phase": "Failed", "summary": "Failed", "conditions": [failed]},
    }
    assert class_of(TRAINJOB.resource.decode(json.dumps(body).encode())) is JobClass.FAILED


def test_an_init_container_that_fails_again_and_again_needs_somebody() -> None:
    cluster = world(master())
    cluster.settle()
    failed = terminated(Terminated(137, "Error"), 3, name="init")
    cluster.pod(
        "master-0", phase="Pending", init_container_statuses=(failed,), container_statuses=(waiting("PodInitializing"),)
    )
    assert of_world(cluster) is NEEDS_YOU, cluster.job.status.reason


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("worker-0: ImagePullBackOff: failed to pull", "ImagePullBackOff"),
        ("launcher: CreateContainerError", "CreateContainerError"),
        ("node-12: FailedMount (and 3 more wait)", "FailedMount"),
        ("worker-0: cannot start: exec", "cannot start"),
        ("worker-0: init: exit code 1; restarted with back-off", ""),
        ("waits for capacity: needs 3", ""),
        ("", ""),
    ],
)
def test_the_code_in_a_reason_follows_the_replica(reason: str, code: str) -> None:
    assert code_of(reason) == code


def test_each_class_has_a_word_for_addresses() -> None:
    assert [*BY_SLUG] == ["needs-you", "queued", "starting", "running", "suspended", "failed", "done"]
