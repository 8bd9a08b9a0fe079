"""The rules of kinds/trainjob/kind.py: TrainJob as a kind that the reconciler can sync."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import START, World
from helpers.controllerbench import Counted
from helpers.fakeclock import FakeClock
from helpers.trainbench import SEEN_AT, Logs
from helpers.trainmanifests import trainjob
from helpers.trainworld import CONFIG, decoded_train, ends, running_train_world, sidecar, train_world
from tfjob_controller.api.common.core import ContainerState, Running, Terminated
from tfjob_controller.api.common.managedby import MANAGED_HERE
from tfjob_controller.api.common.status import Metric
from tfjob_controller.api.trainjob.runtime import TrainingRuntime
from tfjob_controller.api.trainjob.types import TRAINJOBS, TrainJob, TrainJobStatus
from tfjob_controller.controller.kind import METRICS_DEBOUNCE_SECONDS, WithIdentity
from tfjob_controller.controller.reporter import observe_status
from tfjob_controller.jobs.evaluation.jobstate import evaluate
from tfjob_controller.jobs.naming import runtime_id_of
from tfjob_controller.jobs.plan.model import UnplannableError
from tfjob_controller.jobs.state.observed import ReportedStep, SavedCheckpoint
from tfjob_controller.jobs.status.update import next_status, waiting_status
from tfjob_controller.kinds.runtimes import by_runtime_id
from tfjob_controller.kinds.trainjob.kind import TrainJobAdapter
from tfjob_controller.kinds.trainjob.runtimes import RuntimeResolver
from tfjob_controller.kinds.trainjob.status import to_wire, trainjob_work
from tfjob_controller.kube.cache.store import Store


def kind_with(logs: Logs | None = None) -> TrainJobAdapter:
    none: Store[TrainingRuntime] = Store()
    return TrainJobAdapter(RuntimeResolver(none, none), CONFIG, logs or Logs(), FakeClock(START), restart_rules=True)


def look(cluster: World, logs: Logs) -> bool:
    """Must the job's end wait for its log?"""
    return kind_with(logs).follow_logs(cluster.job, cluster.plan, cluster.observed).is_unread


def patch_of(kind: TrainJobAdapter, job: TrainJob, **changed: Any) -> Any:
    return kind.status_change(job, replace(trainjob_work(job).status, **changed))


# What it is


def test_it_is_known_by_the_id_that_follows_from_its_uid() -> None:
    job = decoded_train(trainjob())
    assert by_runtime_id(job) == (f"ns/{runtime_id_of('uid-job')}",)
    assert not isinstance(kind_with(), WithIdentity)
    assert kind_with().resource is TRAINJOBS
    assert kind_with().status_debounce_seconds == METRICS_DEBOUNCE_SECONDS


@pytest.mark.parametrize(
    ("managed_by", "is_ours"), [("", True), (MANAGED_HERE, True), ("kueue.x-k8s.io/multikueue", False)]
)
def test_a_job_of_another_controller_is_left_alone(managed_by: str, is_ours: bool) -> None:
    assert kind_with().is_managed(decoded_train(trainjob(managedBy=managed_by))) is is_ours


def test_the_trainer_sees_the_jobs_time_to_live_and_its_status_as_a_training_status() -> None:
    cluster = running_train_world(ttlSecondsAfterFinished=7)
    work = kind_with().work_of(cluster.job)
    assert work.ttl_seconds_after_finished == 7
    assert (work.status.phase, work.status.state) == ("Running", "Running")
    assert work.metadata is cluster.job.metadata


def test_a_bad_job_and_a_change_that_is_not_allowed_are_problems() -> None:
    kind = kind_with()
    fresh = decoded_train(trainjob())
    assert kind.problem(fresh, None) is None
    assert "numProcPerNode" in (kind.problem(decoded_train(trainjob(trainer={"numProcPerNode": "many"})), None) or "")
    started = replace(fresh, status=TrainJobStatus(phase="Running"))
    wider = replace(started, spec=replace(started.spec, num_nodes=3))
    assert kind.problem(wider, started) is not None
    assert kind.problem(wider, None) is None


def test_a_job_whose_runtime_is_not_there_has_no_plan_yet() -> None:
    job = decoded_train(trainjob(runtimeRef={"name": "mine", "kind": "TrainingRuntime"}))
    with pytest.raises(UnplannableError, match="there is no TrainingRuntime mine"):
        kind_with().plan(job)
    assert [each.id for each in kind_with().plan(decoded_train(trainjob(nodes=1))).replicas.all] == ["node-0"]


# Its log


def test_the_chiefs_log_is_followed_from_when_it_runs() -> None:
    cluster, logs = train_world(), Logs()
    cluster.settle()
    look(cluster, logs)
    cluster.pod("node-0")
    look(cluster, logs)
    assert logs.followed == []
    cluster.runs("node-0")
    assert not look(cluster, logs)
    (pod,) = cluster.pods[cluster.name("node-0")]
    names = ("loss", "accuracy", "throughput", "step", "epoch")
    assert logs.followed == [("ns/example-train", "uid-job", pod.metadata.name, "node", names)]


@pytest.mark.parametrize(
    ("command", "container"), [(["train"], "node"), (["mpirun", "train"], "launcher")], ids=["node-0", "launcher"]
)
def test_the_chief_is_node_0_or_the_launcher(command: list[str], container: str) -> None:
    logs = Logs()
    look(running_train_world(command=command), logs)
    assert [each[3] for each in logs.followed] == [container]


def test_a_job_that_names_no_metrics_is_not_read() -> None:
    cluster, logs = running_train_world(metrics={"names": []}), Logs()
    ends(cluster, "node-0", "node-1")
    assert not look(cluster, logs)
    assert logs.followed == []


@pytest.mark.parametrize(("is_read", "waits"), [(False, True), (True, False)])
def test_the_end_of_a_job_waits_until_its_log_is_read(is_read: bool, waits: bool) -> None:
    cluster, logs = running_train_world(), Logs()
    logs.is_read = is_read
    assert not look(cluster, logs)
    ends(cluster, "node-0", "node-1")
    assert look(cluster, logs) is waits


def test_a_job_that_is_gone_is_forgotten() -> None:
    logs = Logs()
    kind_with(logs).forget_logs("ns/example-train")
    assert logs.forgotten == ["ns/example-train"]


# The log of the container that saves its checkpoints

CHECKPOINT = {"storageUri": "s3://b/c"}
SAVED = SavedCheckpoint("checkpoint-7", 7, SEEN_AT, 5, "s3://b/c/data")


@pytest.mark.parametrize("names", [[], ["loss"]], ids=["without metrics", "with metrics"])
def test_the_sidecar_of_node_0_is_followed_whether_or_not_the_job_has_metrics(names: list[str]) -> None:
    cluster, logs = running_train_world(checkpoint=CHECKPOINT, metrics={"names": names}), Logs()
    look(cluster, logs)
    assert logs.savers == []  # it has not started
    for replica in ("node-1", "node-0"):
        sidecar(cluster, replica, ContainerState(running=Running()))
    logs.checkpoint_lines = [SAVED]
    observed = kind_with(logs).follow_logs(cluster.job, cluster.plan, cluster.observed)
    assert logs.savers == [("ns/example-train", cluster.pods_of("node-0")[0].metadata.name, "checkpoint-save")]
    assert observed.checkpoint_lines == [SAVED]


@pytest.mark.parametrize(
    ("recorded", "read", "expected"),
    [
        ("", "", []),
        ("30", "", [ReportedStep(30, SEEN_AT)]),
        ("30", "37", [ReportedStep(30, SEEN_AT), ReportedStep(37, SEEN_AT)]),
        ("3.7e1", "NaN", [ReportedStep(37, SEEN_AT)]),
        ("1e40", "-1", []),
    ],
)
def test_the_steps_that_are_known_are_the_recorded_one_and_what_was_read_since(
    recorded: str, read: str, expected: list[ReportedStep]
) -> None:
    cluster, logs = running_train_world(checkpoint=CHECKPOINT), Logs()
    metrics = (Metric("loss", "5", SEEN_AT), *([Metric("step", recorded, SEEN_AT)] if recorded else []))
    job = replace(cluster.job, status=replace(cluster.job.status, metrics=metrics))
    logs.metrics = {"step": read} if read else {}
    assert kind_with(logs).follow_logs(job, cluster.plan, cluster.observed).reported_steps == expected


def test_of_an_mpi_job_the_sidecar_is_that_of_a_node_and_not_of_the_launcher() -> None:
    cluster, logs = running_train_world(command=["mpirun", "train"], checkpoint=CHECKPOINT), Logs()
    sidecar(cluster, "node-0", ContainerState(running=Running()))
    look(cluster, logs)
    assert [each[1] for each in logs.savers] == [cluster.pods_of("node-0")[0].metadata.name]


def test_a_job_without_checkpoints_has_no_sidecar_to_follow() -> None:
    cluster, logs = running_train_world(), Logs()
    sidecar(cluster, "node-0", ContainerState(running=Running()))
    logs.checkpoint_lines = [SAVED]
    assert kind_with(logs).follow_logs(cluster.job, cluster.plan, cluster.observed).checkpoint_lines == ()
    assert logs.savers == []


@pytest.mark.parametrize(("is_read", "waits"), [(False, True), (True, False)])
def test_the_end_of_a_job_waits_until_the_log_of_an_ended_sidecar_is_read(is_read: bool, waits: bool) -> None:
    cluster, logs = running_train_world(checkpoint=CHECKPOINT), Logs()
    logs.is_read, logs.are_checkpoints_read = True, is_read
    ends(cluster, "node-0", "node-1")
    sidecar(cluster, "node-0", ContainerState(terminated=Terminated(0)))
    assert look(cluster, logs) is waits


def test_a_saved_checkpoint_is_in_the_status_counted_and_an_event() -> None:
    cluster, counted = running_train_world(checkpoint=CHECKPOINT), Counted()
    observed = cluster.observed.with_checkpoint_lines([SAVED])
    result = next_status(evaluate(trainjob_work(cluster.job), cluster.plan, observed, cluster.now))
    assert [(each.reason, each.note) for each in result.events] == [
        ("CheckpointSaved", "checkpoint-7 (step 7), 5 B, is saved")
    ]
    kind = kind_with()
    change = kind.status_change(cluster.job, result.status)
    assert change is not None
    assert change["status"]["checkpoint"] == {
        "name": "checkpoint-7",
        "step": 7,
        "time": SEEN_AT,
        "size": 5,
        "uri": "s3://b/c/data",
        "saved": 1,
    }
    observe_status(counted, "TrainJob", trainjob_work(cluster.job), result.status, cluster.now)
    assert counted.said == [("checkpoints saved", 1)]
    again = replace(cluster.job, status=to_wire(result.status, cluster.job.status))
    assert next_status(evaluate(trainjob_work(again), cluster.plan, observed, cluster.now)).events == ()


# Its status


def test_a_status_that_is_the_same_on_the_wire_is_not_written() -> None:
    cluster = running_train_world()
    job = replace(cluster.job, status=replace(cluster.job.status, runtime="plain"))
    assert patch_of(kind_with(), job) is None


def test_only_what_differs_is_written_and_only_over_what_was_read() -> None:
    cluster = running_train_world()
    meta = replace(cluster.job.metadata, resource_version="7")
    job = replace(cluster.job, metadata=meta, status=replace(cluster.job.status, runtime="plain"))
    assert patch_of(kind_with(), job, reason="words") == {
        "metadata": {"resourceVersion": "7"},
        "status": {"reason": "words"},
    }


def test_the_first_status_says_which_runtime_is_used() -> None:
    job = decoded_train(trainjob(command=["torchrun", "x"]))
    change = patch_of(kind_with(), job, phase="Creating")
    assert change["status"]["runtime"] == "torch-distributed"
    kept = replace(job, status=TrainJobStatus(phase="Creating", runtime="as-it-was"))
    assert "runtime" not in patch_of(kind_with(), kept, reason="words")["status"]


def test_a_job_that_waits_for_its_runtime_names_it() -> None:
    job = decoded_train(trainjob(runtimeRef={"name": "mine", "kind": "TrainingRuntime"}))
    change = kind_with().status_change(job, waiting_status(trainjob_work(job), "there is none", START).status)
    assert change is not None
    assert (change["status"]["runtime"], change["status"]["phase"]) == ("mine", "Creating")


def test_what_the_log_says_goes_into_the_status_in_the_order_of_the_names() -> None:
    logs = Logs()
    logs.metrics = {"step": "40", "loss": "0.25", "epoch": "3"}
    status = patch_of(kind_with(logs), running_train_world().job)["status"]
    assert [(each["name"], each["value"], each["logTime"]) for each in status["metrics"]] == [
        ("loss", "0.25", SEEN_AT),
        ("step", "40", SEEN_AT),
        ("epoch", "3", SEEN_AT),
    ]
    assert status["progress"] == "epoch 3, step 40"


@pytest.mark.parametrize(
    ("metrics", "progress"), [({"step": "1"}, "step 1"), ({"epoch": "2"}, "epoch 2"), ({"loss": "1"}, "")]
)
def test_progress_is_what_of_it_there_is(metrics: dict[str, str], progress: str) -> None:
    logs = Logs()
    logs.metrics = metrics
    status = patch_of(kind_with(logs), running_train_world().job)["status"]
    assert status.get("progress", "") == progress


def test_the_last_values_stay_until_new_ones_come_and_are_dropped_when_unused() -> None:
    """A controller that has just started knows nothing of the log yet."""
    cluster = running_train_world(metrics={"names": ["loss", "step"]})
    before = tuple(Metric(name, "1", SEEN_AT) for name in ("loss", "step", "accuracy"))
    job = replace(cluster.job, status=replace(cluster.job.status, runtime="plain", metrics=before))
    logs = Logs()
    assert patch_of(kind_with(logs), job) is None
    logs.metrics = {"step": "2"}
    status = patch_of(kind_with(logs), job)["status"]
    assert [(each["name"], each["value"]) for each in status["metrics"]] == [("loss", "1"), ("step", "2")]


def test_metrics_alone_are_no_change_of_the_trainers_status() -> None:
    """So they may wait: the reconciler compares what the trainer says."""
    logs = Logs()
    logs.metrics = {"loss": "0.5"}
    job = running_train_world().job
    wire = msgspec.convert(patch_of(kind_with(logs), job)["status"], TrainJobStatus)
    assert (
        trainjob_work(replace(job, status=replace(job.status, metrics=wire.metrics))).status
        == trainjob_work(job).status
    )


def test_each_phase_of_a_job_is_counted_once() -> None:
    counted, cluster = Counted(), train_world()
    for each in (lambda: None, cluster.all_run, lambda: ends(cluster, "node-0", "node-1")):
        before = cluster.work
        cluster.settle()
        each()
        cluster.settle()
        observe_status(counted, "TrainJob", before, cluster.status, cluster.now)
    assert [each[0] for each in counted.said] == ["created", "running", "finished"]
