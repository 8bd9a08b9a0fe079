"""The status of Kubeflow Trainer's TrainJobs, and their life as the trainer decides it step by step."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import waiting
from helpers.kubeflowmanifests import kubeflow_trainjob, replicated_job
from helpers.kubeflowworld import conditions_in, decoded_kubeflow, job_status_in, kubeflow_world, pod_of
from helpers.trainworld import ends
from tfjob_controller.api.common.core import Terminated
from tfjob_controller.api.common.record import MAX_RECORD, RecordAnnotations
from tfjob_controller.api.common.status import JobCondition
from tfjob_controller.api.common.trainerstatus import TrainerStatus
from tfjob_controller.api.kubeflowtrainer.types import (
    MAX_NODES,
    KubeflowCondition,
    KubeflowTrainJob,
    KubeflowTrainJobStatus,
)
from tfjob_controller.jobs.state.completion import MAX_TRANSFER_ATTEMPTS
from tfjob_controller.jobs.state.restarts import GRACE_SECONDS
from tfjob_controller.jobs.status.update import invalid_status
from tfjob_controller.jobs.trainingjob import RoleStatus, TrainingStatus, is_finished
from tfjob_controller.kinds.kubeflowtrainer.status import record_of, recorded_status, upstream_status
from tfjob_controller.util.timestamps import format_time

COMPLETE = ("True", "AllJobsCompleted", "jobset completed successfully")
AFTER = {"dependsOn": [{"name": "dataset-initializer", "status": "Complete"}]}
TWO: dict[str, Any] = {"trainer": {"numNodes": 2}}


def with_record(job: KubeflowTrainJob, record: str) -> KubeflowTrainJob:
    return replace(job, metadata=replace(job.metadata, annotations=RecordAnnotations(record)))


def running(*jobs: Any, **spec: Any) -> Any:
    world = kubeflow_world(*jobs, **spec)
    world.settle()
    world.all_run()
    world.settle()
    return world


def fails_in_place(world: Any, attempts: int) -> None:
    """The initializer waits for the kubelet's back-off after so many attempts."""
    ended = Terminated(1, "Error", "no connection", finished_at=format_time(world.now))
    name = "dataset-initializer"
    status = waiting("CrashLoopBackOff", name=name, last=ended, restart_count=attempts - 1)
    world.pod(f"{name}-0", phase="Running", container_statuses=(status,))


# Life


def test_a_job_that_runs_has_no_condition_since_the_sdk_reads_any_as_an_end() -> None:
    world = kubeflow_world(**TWO)
    world.settle()
    assert conditions_in(world) == {}
    assert job_status_in(world) == {"active": 1}
    world.all_run()
    world.settle()
    assert (conditions_in(world), job_status_in(world)) == ({}, {"active": 1, "ready": 1})


def test_a_job_whose_nodes_have_all_succeeded_is_complete() -> None:
    world = running(**TWO)
    ends(world, "node-0", "node-1")
    world.settle()
    assert conditions_in(world) == {"Complete": COMPLETE}
    assert job_status_in(world) == {"succeeded": 1}


def test_an_error_fails_a_job_without_restarts_with_upstreams_reason_and_the_cause() -> None:
    world = running(replicated_job(job={"backoffLimit": 0}), **TWO)
    ends(world, "node-1", exit_code=3)
    world.settle()
    world.advance(GRACE_SECONDS)
    world.settle()
    status, reason, message = conditions_in(world)["Failed"]
    assert (status, reason) == ("True", "FailedJobs")
    assert message.startswith("jobset failed due to one or more job failures: node-1 failed: exit code 3")
    assert job_status_in(world) == {"failed": 1}


def test_any_error_restarts_all_nodes_and_is_counted_in_the_record() -> None:
    """Upstream restarts nodes whatever their exit code."""
    world = running(**TWO)
    ends(world, "node-1", exit_code=1)
    world.settle()
    world.reap()
    world.settle()
    assert recorded_status(world.job).restarts == 1
    assert conditions_in(world) == {}
    assert job_status_in(world) == {"active": 1}


def test_a_program_that_exceeds_its_memory_is_not_restarted() -> None:
    world = running(**TWO)
    world.exits("node-1", 137, "OOMKilled")
    world.job_ends("node-1", "Failed")
    world.settle()
    world.advance(GRACE_SECONDS)
    world.settle()
    assert "OOMKilled" in conditions_in(world)["Failed"][2]


def test_an_initializer_is_tried_several_times_whatever_its_exit_code() -> None:
    world = running(replicated_job("dataset-initializer", ancestor="dataset-initializer"), replicated_job(**AFTER))
    fails_in_place(world, MAX_TRANSFER_ATTEMPTS - 1)
    world.settle()
    assert conditions_in(world) == {}
    fails_in_place(world, MAX_TRANSFER_ATTEMPTS)
    world.settle()
    assert "exit code 1" in conditions_in(world)["Failed"][2]
    assert f"tried {MAX_TRANSFER_ATTEMPTS} times" in conditions_in(world)["Failed"][2]


def test_suspension_and_resumption_have_upstreams_conditions() -> None:
    world = running(**TWO)
    running_spec = world.job.spec
    world.job = replace(world.job, spec=replace(running_spec, suspend=True))
    world.settle()
    assert conditions_in(world) == {"Suspended": ("True", "Suspended", "TrainJob is suspended")}
    assert job_status_in(world) == {"suspended": 1}
    world.job = replace(world.job, spec=running_spec)
    world.settle()
    world.reap()
    world.settle()
    assert conditions_in(world) == {"Suspended": ("False", "Resumed", "TrainJob is resumed")}
    assert job_status_in(world) == {"active": 1}


def test_a_suspended_job_is_resumed_with_what_has_changed_meanwhile_and_no_restart_is_counted() -> None:
    """Kueue writes where the pods may run while the job is suspended."""
    world = running(**TWO)
    world.job = replace(world.job, spec=replace(world.job.spec, suspend=True))
    world.settle()
    assert all(job.spec.suspend for job in world.jobs.values())
    pods = {"spec": {"template": {"spec": {"nodeSelector": {"pool": "a"}}}}}
    spec = {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": pods}]}}}
    changed = decoded_kubeflow(
        kubeflow_trainjob(**TWO, runtimePatches=[{"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": spec}])
    )
    world.job = replace(world.job, spec=changed.spec)
    world.settle()
    world.reap()
    world.settle()
    assert pod_of(world.plan)["spec"]["nodeSelector"] == {"pool": "a"}
    assert list(world.jobs) == ["example-node-0"]
    world.all_run()
    world.settle()
    assert recorded_status(world.job).restarts == 0
    assert job_status_in(world) == {"active": 1, "ready": 1}


def test_a_job_that_takes_too_long_fails_with_upstreams_message() -> None:
    world = running(**TWO, activeDeadlineSeconds=60)
    world.advance(61)
    world.settle()
    assert conditions_in(world) == {"Failed": ("True", "DeadlineExceeded", "TrainJob exceeded its active deadline")}
    assert job_status_in(world) == {}


def test_the_last_condition_is_the_one_that_ends_the_job() -> None:
    world = running(suspend=True)
    world.settle()
    world.job = replace(world.job, spec=replace(world.job.spec, suspend=False))
    world.settle()
    world.all_run()
    world.settle()
    ends(world, "node-0")
    world.settle()
    assert list(conditions_in(world)) == ["Suspended", "Complete"]


def test_each_step_has_its_numbers_and_one_that_has_succeeded_is_not_suspended() -> None:
    dataset = replicated_job("dataset-initializer", ancestor="dataset-initializer")
    world = kubeflow_world(dataset, replicated_job(**AFTER))
    world.settle()
    assert job_status_in(world, "dataset-initializer") == {"active": 1}
    assert job_status_in(world) == {}
    world.all_run()
    ends(world, "dataset-initializer-0")
    world.settle()
    assert job_status_in(world, "dataset-initializer") == {"succeeded": 1}
    assert job_status_in(world) == {"active": 1}
    world.job = replace(world.job, spec=replace(world.job.spec, suspend=True))
    world.settle()
    assert job_status_in(world, "dataset-initializer") == {"succeeded": 1}
    assert job_status_in(world) == {"suspended": 1}


# The record

JOB = decoded_kubeflow(kubeflow_trainjob())


def recorded(job: KubeflowTrainJob) -> KubeflowTrainJob:
    return with_record(job, record_of(job, TrainingStatus(phase="Running", restarts=4)))


def test_the_record_survives_and_belongs_to_one_job() -> None:
    job = decoded_kubeflow(kubeflow_trainjob())
    assert recorded_status(job) == TrainingStatus()
    assert recorded_status(recorded(job)).restarts == 4
    # The manifest was copied with its annotations.
    other = replace(recorded(job), metadata=replace(recorded(job).metadata, uid="another"))
    assert recorded_status(other) == TrainingStatus()


def test_the_record_has_the_names_of_a_tfjobs_status() -> None:
    condition = JobCondition("Running", "True", "ChiefRunning", "node-0 runs", "2026-01-01T00:00:00Z", 1)
    status = TrainingStatus(
        phase="Running",
        state="Running",
        roles=(RoleStatus("node", {"Running": 2}, 1),),
        conditions=(condition,),
        observed_generation=1,
        start_time="2026-01-01T00:00:00Z",
        restart_counts={"node-1": 2},
        succeeded_indexes=("dataset-initializer-0",),
        summary="Pending",
    )
    assert record_of(JOB, status) == (
        '{"uid":"uid-job","status":{"phase":"Running","state":"Running","replicaStatuses":[{"tf_replica_type":"node",'
        '"state":"Running","ReplicasStates":{"Running":2}}],"conditions":[{"type":"Running","status":"True","reason":'
        '"ChiefRunning","message":"node-0 runs","lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":1}],'
        '"observedGeneration":1,"startTime":"2026-01-01T00:00:00Z","restartCounts":{"node-1":2},"succeededIndexes":'
        '["dataset-initializer-0"],"ready":{"node":"1/2"},"summary":"Pending"}}'
    )
    assert recorded_status(with_record(JOB, record_of(JOB, status))) == status


def test_the_record_of_the_largest_job_survives() -> None:
    nodes = [f"node-{index}" for index in range(MAX_NODES)]
    status = TrainingStatus(phase="Running", succeeded_indexes=tuple(nodes), restart_counts=dict.fromkeys(nodes, 1000))
    assert recorded_status(with_record(JOB, record_of(JOB, status))) == status


@pytest.mark.parametrize(
    "record",
    [
        pytest.param("", id="nothing"),
        pytest.param('{"uid": "uid-job"}', id="no status"),
        pytest.param('{"uid": "uid-job", "status": {"restarts": "x"}}', id="a text for a number"),
        pytest.param(record_of(JOB, TrainingStatus(phase="Running", start_time="yesterday")), id="no time"),
        pytest.param(record_of(JOB, TrainingStatus(phase="Running", reason="x" * MAX_RECORD)), id="too long"),
    ],
)
def test_what_is_no_record_is_ignored(record: str) -> None:
    assert recorded_status(with_record(JOB, record)) == TrainingStatus()


@pytest.mark.parametrize("type_", ["Complete", "Failed"])
def test_a_job_that_upstreams_controller_has_finished_stays_as_it_is(type_: str) -> None:
    condition = KubeflowCondition(type_, "True", "X", "y", "2026-01-01T00:00:00Z")
    job = replace(decoded_kubeflow(kubeflow_trainjob()), status=KubeflowTrainJobStatus((condition,)))
    status = recorded_status(job)
    assert is_finished(status)
    assert upstream_status(job, status) == job.status


def test_what_programs_report_is_kept() -> None:
    world = running(**TWO)
    world.job = replace(world.job, status=replace(world.job.status, trainer_status=TrainerStatus(7)))
    ends(world, "node-0", "node-1")
    world.settle()
    assert world.job.status.trainer_status == TrainerStatus(7)


# Invalid jobs


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        ({"kind": "ConfigMap"}, "TrainingRuntimeNotSupported", "unsupported runtime: ConfigMap.trainer.kubeflow.org"),
        ({}, "JobsBuildFailed", "invalid job spec: why"),
    ],
)
def test_an_invalid_job_has_failed(spec: Any, reason: str, message: str) -> None:
    world = kubeflow_world()
    job = decoded_kubeflow(kubeflow_trainjob(**spec))
    status = invalid_status(world.kind.work(job), "why", world.now).status
    (failed,) = upstream_status(job, status).conditions
    assert (failed.type, failed.status, failed.reason, failed.message) == ("Failed", "True", reason, message)


def test_records_that_users_write_again_and_again_fill_no_cache() -> None:
    job = decoded_kubeflow(kubeflow_trainjob())
    tracemalloc.start()
    try:
        for number in range(1000):
            message = f"{number}{'m' * 30_000}"
            record = f'{{"uid": "{job.metadata.uid}", "status": {{"reason": "{message}"}}}}'
            recorded_status(with_record(job, record))
        assert tracemalloc.get_traced_memory()[0] < 10_000_000
    finally:
        tracemalloc.stop()
