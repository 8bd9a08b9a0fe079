"""Why does it not run? From what was read to what is said."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import World, running_world, terminated, world
from helpers.manifests import master, workers
from helpers.trainmanifests import trainjob
from helpers.trainworld import decoded_train, ends, running_train_world, world_in_steps
from tfjob_controller.api.common.checkpointstatus import CheckpointFailure, CheckpointStatus, RestoredCheckpoint
from tfjob_controller.api.common.core import (
    ContainerState,
    ContainerStatus,
    PodAnnotations,
    Running,
    Terminated,
    Waiting,
)
from tfjob_controller.api.common.status import Metric
from tfjob_controller.api.common.trainerstatus import TrainerStatus
from tfjob_controller.api.tfjob.types import TFJob
from tfjob_controller.api.trainjob.types import TrainJob
from tfjob_controller.client.diagnostics.description import (
    MAX_EVENTS,
    MAX_REPLICAS_WITH_EVENTS,
    Description,
    ReplicaRow,
    describe,
    summary,
)
from tfjob_controller.client.diagnostics.replicas import replica_views
from tfjob_controller.client.reader import Event, EventSeries
from tfjob_controller.jobs.state.observed import ObservedState
from tfjob_controller.kube.meta import ObjectMeta


def no_events(uid: str) -> list[Event]:
    return []


def described(cluster: World) -> Description:
    return describe(cluster.job, replica_views(cluster.job, cluster.observed, cluster.now), no_events)


def row(cluster: World, replica_id: str) -> ReplicaRow:
    return next(row for row in described(cluster).replicas if row.replica == replica_id)


def test_every_replica_has_its_row_the_chief_first() -> None:
    shown = described(running_world(workers(2), master()))
    assert [row.replica for row in shown.replicas] == ["master-0", "worker-0", "worker-1"]
    assert all(row.pod and row.state == "Running" for row in shown.replicas)


def test_a_replica_that_ended_shows_its_exit_code_and_message() -> None:
    cluster = running_world()
    cluster.exits("worker-0", 137, "OOMKilled", "cannot allocate")
    shown = row(cluster, "worker-0")
    assert (shown.state, shown.last_exit, shown.message) == ("Failed", "exit code 137 (OOMKilled)", "cannot allocate")


def test_restarts_are_those_of_each_replica() -> None:
    cluster = running_world()
    cluster.runs("worker-0", restart_count=3)
    assert row(cluster, "worker-0").restarts == 3
    assert row(cluster, "master-0").restarts == 0


def test_restarts_of_an_elastic_node_are_those_of_all_its_pods() -> None:
    cluster = running_train_world(nodes=3, command=["torchrun"], elasticPolicy={"minNodes": 2, "maxNodes": 4})
    counts = {"node-1": 2, "node-1/uid-1": 1, "node-2/uid-2": 1}
    cluster.job = replace(cluster.job, status=replace(cluster.job.status, restart_counts=counts))
    assert [row.restarts for row in described(cluster).replicas] == [0, 3, 1]


def test_a_replica_without_a_pod_says_what_it_waits_for_and_after_a_while_what_to_describe() -> None:
    cluster = world()
    cluster.sync()
    assert row(cluster, "master-0").message == "waiting for its pod"
    assert row(cluster, "master-0").pod == ""
    cluster.advance(60)
    assert "kubectl describe job" in row(cluster, "master-0").message


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("ImagePullBackOff", "ImagePullBackOff"),
        ("CrashLoopBackOff", "CrashLoopBackOff"),
        ("ContainerCreating", "Starting"),
    ],
)
def test_a_replica_whose_program_does_not_run_has_the_state_that_kubectl_shows(reason: str, shown: str) -> None:
    cluster = world()
    cluster.settle()
    assert row(cluster, "master-0").state == "Pending"
    status = ContainerStatus("tensorflow", state=ContainerState(waiting=Waiting(reason)))
    cluster.pod("master-0", phase="Pending", container_statuses=(status,))
    assert row(cluster, "master-0").state == shown


def test_a_crash_loop_of_an_init_container_shows_its_exit_code() -> None:
    cluster = world()
    cluster.settle()
    failed = terminated(Terminated(3, "Error", "no such dataset"), 2, name="fetch")
    cluster.pod("master-0", phase="Pending", init_container_statuses=(failed,))
    shown = row(cluster, "master-0")
    assert (shown.state, shown.last_exit) == ("Restarting", "exit code 3")
    assert shown.message == "fetch: exit code 3: no such dataset; restarted with back-off"


def test_replicas_of_a_suspended_job_are_suspended() -> None:
    cluster = running_world(master(), workers(1))
    cluster.change(suspend=True)
    assert states(cluster) == {"master-0": "Suspended", "worker-0": "Suspended"}


def test_the_replica_that_made_the_job_fail_has_failed_although_its_pod_is_gone() -> None:
    cluster = running_world(master(), workers(1), backoffLimit=0)
    failed = terminated(Terminated(3, "Error", "no such dataset"), 1, name="fetch")
    cluster.pod("worker-0", phase="Pending", container_statuses=(), init_container_statuses=(failed,))
    cluster.settle()
    cluster.pods[cluster.name("worker-0")] = []
    assert states(cluster) == {"master-0": "Stopped", "worker-0": "Failed"}
    assert "worker-0 failed: fetch: exit code 3: no such dataset" in row(cluster, "worker-0").message


def states(cluster: World) -> dict[str, str]:
    cluster.settle()
    return {row.replica: row.state for row in described(cluster).replicas}


def test_nodes_that_were_never_reached_do_not_run_in_a_job_that_an_initializer_has_ended() -> None:
    cluster = world_in_steps()
    cluster.settle()
    cluster.exits("dataset-initializer-0", 1, "Error", "no such dataset")
    assert states(cluster) == {
        "node-0": "NotStarted",
        "node-1": "NotStarted",
        "dataset-initializer-0": "Failed",
        "model-initializer-0": "Stopped",
        "model-exporter-0": "NotStarted",
    }
    assert {row.message for row in described(cluster).replicas} == {"", "no such dataset"}


def test_an_exporter_that_fails_leaves_the_successes_of_the_nodes() -> None:
    cluster = world_in_steps()
    for ids in (("dataset-initializer-0", "model-initializer-0"), ("node-0", "node-1")):
        cluster.settle()
        ends(cluster, *ids)
    cluster.settle()
    cluster.exits("model-exporter-0", 1, "Error")
    assert set(states(cluster).items()) >= {("node-0", "Succeeded"), ("model-exporter-0", "Failed")}


@pytest.mark.parametrize(
    "cluster",
    [running_train_world(activeDeadlineSeconds=30), running_world(master(), workers(1), activeDeadlineSeconds=30)],
)
def test_replicas_that_a_deadline_has_stopped_are_stopped(cluster: World) -> None:
    cluster.advance(60)
    assert set(states(cluster).values()) == {"Stopped"}


def test_the_replica_that_no_restart_is_left_for_has_failed() -> None:
    cluster = running_train_world(maxRestarts=0)
    cluster.exits("node-1", 137, "Error")
    cluster.advance(5)
    assert states(cluster) == {"node-0": "Stopped", "node-1": "Failed"}
    assert row(cluster, "node-1").message == ""


def test_a_replica_that_an_ended_job_keeps_still_runs() -> None:
    cluster = running_world(master(), workers(1), cleanPodPolicy="None")
    cluster.exits("master-0", 0)
    assert states(cluster) == {"master-0": "Succeeded", "worker-0": "Running"}


def unseen(job: TFJob) -> TFJob:
    return replace(job, status=type(job.status)())


def changed(job: TFJob) -> TFJob:
    return replace(job, metadata=replace(job.metadata, generation=job.metadata.generation + 1))


def spoiled(job: TFJob) -> TFJob:
    return replace(job, invalid="spec.replicaSpecs: expected array, got str")


def deleted(job: TFJob) -> TFJob:
    return replace(job, metadata=replace(job.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(unseen, "No controller has processed the job yet", id="no controller"),
        pytest.param(changed, "not processed the last change", id="behind"),
        pytest.param(spoiled, "Its spec cannot be run: spec.replicaSpecs: expected array", id="invalid"),
        pytest.param(deleted, "is being deleted", id="deleted"),
    ],
)
def test_what_the_status_cannot_say_is_a_hint(change: object, words: str) -> None:
    job = running_world().job
    assert callable(change)
    hints = describe(change(job), (), no_events).hints
    assert any(words in hint for hint in hints)
    assert describe(job, (), no_events).hints == []


def test_a_job_that_can_never_run_or_has_not_begun_has_no_replicas() -> None:
    cluster = running_world()
    assert replica_views(spoiled(cluster.job), ObservedState(), cluster.now) == ()
    fresh = replace(cluster.job, spec=replace(cluster.job.spec, runtime_id=""))
    assert replica_views(fresh, ObservedState(), cluster.now) == ()


def test_events_are_asked_for_of_the_job_and_of_a_few_replicas_that_wait() -> None:
    cluster = world(master(), workers(9))
    cluster.settle()
    read: list[str] = []

    def events_of(uid: str) -> list[Event]:
        read.append(uid)
        return [event(reason, 1, "") for reason in ("FailedMount", "Pulled")]

    views = replica_views(cluster.job, cluster.observed, cluster.now)
    described = describe(cluster.job, views, events_of)
    assert cluster.job.metadata.uid in read
    assert 1 < len(read) <= 1 + 2 * MAX_REPLICAS_WITH_EVENTS
    assert sum(row.reason == "Pulled" for row in described.events) == 1, "of children, only warnings are shown"


def event(reason: str, second: int, message: str) -> Event:
    is_normal = reason in ("Pulled", "SuccessfulCreate")
    time = f"2026-01-01T00:00:{second:02}Z"
    return Event(ObjectMeta(), "Normal" if is_normal else "Warning", reason, message, last_timestamp=time)


def test_a_replica_that_does_not_start_says_what_the_newest_warning_says() -> None:
    quota = event("FailedCreate", 1, 'pods "a" is forbidden: exceeded quota')
    mount = event("FailedMount", 2, 'secret "keys" not found')
    cluster = world()
    cluster.settle()
    cluster.advance(60)

    def message(*events: Event) -> str:
        views = replica_views(cluster.job, cluster.observed, cluster.now)
        uids = {child.metadata.uid for view in views for child in (view.pod, view.job) if child is not None}
        return describe(cluster.job, views, lambda uid: events if uid in uids else ()).replicas[0].message

    assert message(quota) == 'FailedCreate: pods "a" is forbidden: exceeded quota'
    assert "kubectl describe job" in message(quota, event("SuccessfulCreate", 2, ""))
    cluster.pod("master-0", phase="Pending")
    assert message(mount) == 'FailedMount: secret "keys" not found'
    assert message(mount, event("Pulled", 3, "")) == "starting"
    fetches = (ContainerStatus("fetch", state=ContainerState(running=Running())),)
    cluster.pod("master-0", phase="Pending", init_container_statuses=fetches)
    assert message() == "init container fetch runs"
    waiting = ContainerState(waiting=Waiting("ImagePullBackOff", "no such image"))
    cluster.pod("master-0", phase="Pending", container_statuses=(ContainerStatus("tensorflow", state=waiting),))
    assert message(mount) == "ImagePullBackOff: no such image", "the pod's own reason comes first"


def test_of_many_events_the_last_are_shown_in_order_of_time() -> None:
    cluster = running_world()
    old = Event(ObjectMeta(), reason="Old", message="m", count=4, last_timestamp="2026-01-01T00:00:01Z")
    series = EventSeries(count=7, last_observed_time="2026-01-01T00:00:09.000000Z")
    new = Event(ObjectMeta(), reason="New", event_time="2026-01-01T00:00:02.000000Z", series=series)
    bare = Event(ObjectMeta(creation_timestamp="2026-01-01T00:00:05Z"), reason="Bare")
    times = [f"2025-01-01T00:00:{second:02}Z" for second in range(MAX_EVENTS)]
    many = [replace(old, reason=f"Old{time}", last_timestamp=time) for time in times]
    events = describe(cluster.job, (), lambda uid: [new, bare, old, *many]).events
    assert len(events) == MAX_EVENTS
    assert [(event.reason, event.count) for event in events[-3:]] == [("Old", 4), ("Bare", 1), ("New", 7)]


def test_events_of_one_cause_are_one_row_with_their_sum() -> None:
    cluster = running_world()
    quota = "Error creating: pods {} is forbidden: exceeded quota: q, used: cpu={}"
    job = ObjectMeta("train-worker-a6no-0")
    events = [
        Event(
            ObjectMeta(),
            "Warning",
            "FailedCreate",
            quota.format(f'"train-worker-a6no-0-{suffix}"', count),
            count=count,
            last_timestamp=f"2026-01-01T00:00:0{count}Z",
            involved_object=job,
        )
        for count, suffix in ((1, "x7k2p"), (2, "bcdfg"))
    ]
    (shown,) = describe(cluster.job, (), lambda uid: events).events
    assert (shown.count, shown.last_seen, "bcdfg" in shown.note) == (3, "2026-01-01T00:00:02Z", True)


def test_the_counts_of_an_ended_job_are_those_of_its_end() -> None:
    cluster = running_world(master(), workers(1))
    assert summary(described(cluster))["Ready"] == "master 1/1, worker 1/1"
    cluster.exits("master-0", 0)
    cluster.settle()
    assert summary(described(cluster))["Ready"] == "master 1/1, worker 1/1, when it ended"


def test_a_job_that_is_resized_shows_its_workers_its_bounds_and_how_far_it_is() -> None:
    cluster = running_world(
        master(), workers(1), workerReplicas=3, autoscaling={"minWorkers": 2, "maxWorkers": 6, "totalSteps": 100}
    )
    pods = cluster.pods[cluster.name("worker-2")]
    pods[-1] = replace(pods[-1], metadata=replace(pods[-1].metadata, annotations=PodAnnotations("40")))
    cluster.settle()
    assert described(cluster).workers == "3 (from 2 to 6, InPlace)"
    assert described(cluster).progress == "40 of 100 steps"
    scaling = replace(cluster.job.status.scaling, target=2, target_reason="capacity for b")  # type: ignore[type-var]  # it has one
    cluster.job = replace(cluster.job, status=replace(cluster.job.status, scaling=scaling))
    assert described(cluster).workers == "3 (from 2 to 6, InPlace), 2 requested: capacity for b"
    assert described(running_world()).workers == described(running_world()).progress == ""


@pytest.mark.parametrize(
    ("percentage", "words"),
    [
        (None, "40 %, about 5m left"),
        (0, "[--------------------] 40 %, about 5m left"),
        (49, "[#########-----------] 40 %, about 5m left"),
    ],
)
def test_what_a_trainjob_has_reported_is_a_bar_and_its_metrics(percentage: int | None, words: str) -> None:
    job = decoded_train(trainjob())
    metrics = (
        Metric("loss", "0.00949336439371109"),
        Metric("step", "1200"),
        Metric("grad_norm", "NaN"),
        Metric("words", "no number"),
    )
    report = TrainerStatus(progress_percentage=percentage)
    status = replace(job.status, progress="40 %, about 5m left", metrics=metrics, trainer_status=report)
    description = describe(replace(job, status=status), (), no_events)
    assert summary(description)["Progress"] == words
    assert summary(description)["Metrics"] == "loss 0.00949336, step 1200, grad_norm nan, words no number"
    assert description.metrics["loss"] == "0.00949336439371109"


def test_workers_that_are_left_after_others_have_gone_are_shown_under_their_own_names() -> None:
    cluster = running_world(workers(1), workerReplicas=4, autoscaling={"maxWorkers": 6})
    cluster.delete_job(cluster.name("worker-1"))
    cluster.change(worker_replicas=3)
    assert [row.replica for row in described(cluster).replicas] == ["worker-0", "worker-2", "worker-3"]


def test_the_last_checkpoint_is_shown_with_what_fails_and_what_was_restored() -> None:
    job = decoded_train(trainjob())
    assert described_checkpoint(job, None) == ""
    saved = CheckpointStatus("checkpoint-500", 500, "2026-01-01T00:00:00Z", 2**20, "s3://b/c")
    assert described_checkpoint(job, saved) == "checkpoint-500 (step 500), 1.0 MiB, saved 2026-01-01T00:00:00Z"
    restored = RestoredCheckpoint("best", None, "2026-01-01T00:01:00Z", repeated_steps=3)
    failure = CheckpointFailure("checkpoint-600", "no rights", "2026-01-01T00:02:00Z")
    assert described_checkpoint(job, CheckpointStatus(restored=restored, failure=failure)) == (
        "checkpoint-600 is not saved: no rights; training continues from best; 3 steps are done again"
    )


def described_checkpoint(job: TrainJob, checkpoint: CheckpointStatus | None) -> str:
    seen = replace(job, status=replace(job.status, checkpoint=checkpoint))
    return summary(describe(seen, (), no_events))["Checkpoint"]
