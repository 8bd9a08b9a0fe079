"""What jobs/status/checkpoints.py reads from pods, and what statuses make of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helpers.clusterinmemory import START, World
from helpers.controllerbench import Counted
from helpers.trainworld import ends, restored, running_train_world, sidecar
from tfjob_controller.api.common.checkpointstatus import RestoredCheckpoint, SkippedCheckpoint
from tfjob_controller.api.common.core import ContainerState, Running, Terminated
from tfjob_controller.api.trainjob.types import TrainJobStatus
from tfjob_controller.controller.reporter import observe_status
from tfjob_controller.jobs.evaluation.jobstate import evaluate
from tfjob_controller.jobs.podtemplate.checkpoint import GRACE_SECONDS
from tfjob_controller.jobs.state.observed import ReportedStep
from tfjob_controller.jobs.status.checkpoints import restored_in
from tfjob_controller.jobs.status.update import next_status
from tfjob_controller.kinds.trainjob.status import from_wire, to_wire
from tfjob_controller.storage.checkpoints import commands
from tfjob_controller.storage.checkpoints.manifest import CheckpointFile, CheckpointManifest
from tfjob_controller.storage.checkpoints.restorer import Restored, Skipped
from tfjob_controller.util.timestamps import format_time

CHECKPOINT = {"storageUri": "s3://b/c"}
RUNS = ContainerState(running=Running())
ENDED = ContainerState(terminated=Terminated(0))
# A kubelet may report the end of a pod some seconds late.
BOUND_SECONDS = GRACE_SECONDS + 5


def ended_world(**job: Any) -> World:
    """Both programs have ended well, and the container of node 0 that saves checkpoints still runs."""
    cluster = running_train_world(checkpoint=CHECKPOINT, **job)
    cluster.exits("node-1", 0)
    cluster.exits("node-0", 0, phase="Running")
    sidecar(cluster, "node-0", RUNS)
    return cluster


def has_ended(cluster: World) -> bool:
    return cluster.status.phase in ("CleanUp", "Done")


def test_a_job_has_not_ended_while_its_last_checkpoint_is_saved() -> None:
    cluster = ended_world()
    result = cluster.settle()
    assert (cluster.status.phase, cluster.status.state, cluster.status.summary) == ("Running", "Running", "Running")
    assert cluster.status.reason == "The last checkpoint is being saved: node-0"
    assert cluster.status.completion_time is None
    assert result.wake_after_seconds == BOUND_SECONDS
    assert not cluster.actions()
    sidecar(cluster, "node-0", ENDED)
    cluster.settle()
    assert has_ended(cluster)
    assert cluster.status.reason == "all 2 nodes succeeded"


def test_the_wait_is_bounded_by_the_grace_period_of_the_pod() -> None:
    cluster = ended_world()
    cluster.settle()
    cluster.advance(BOUND_SECONDS - 1)
    assert cluster.settle().wake_after_seconds == 1
    assert not has_ended(cluster)
    cluster.advance(1)
    cluster.settle()
    assert has_ended(cluster)


def test_the_successes_are_recorded_at_once() -> None:
    cluster = ended_world()
    result = cluster.sync()
    assert result.is_urgent
    assert cluster.status.succeeded_indexes == ("node-0", "node-1")
    assert not cluster.sync().is_urgent


def test_a_node_that_is_lost_meanwhile_takes_no_success_back() -> None:
    cluster = ended_world()
    cluster.settle()
    name = cluster.name("node-0")
    cluster.pods[name] = []
    cluster.settle()
    assert has_ended(cluster)
    assert cluster.status.state == "Succeeded"
    assert cluster.status.restarts == 0


def test_a_pod_that_is_deleted_meanwhile_has_its_grace_period() -> None:
    cluster = ended_world()
    cluster.advance(1)
    cluster.pod_deleted("node-0")
    cluster.settle()
    assert not has_ended(cluster)
    cluster.advance(BOUND_SECONDS)
    cluster.settle()
    assert (has_ended(cluster), cluster.status.state) == (True, "Succeeded")


@pytest.mark.parametrize("state", [ContainerState(), ENDED], ids=["waiting", "ended"])
def test_a_container_that_saves_nothing_is_not_waited_for(state: ContainerState) -> None:
    cluster = ended_world()
    sidecar(cluster, "node-0", state)
    cluster.settle()
    assert has_ended(cluster)


def test_nor_is_one_of_a_job_without_checkpoints() -> None:
    cluster = running_train_world()
    cluster.exits("node-1", 0)
    cluster.exits("node-0", 0, phase="Running")
    sidecar(cluster, "node-0", RUNS)
    cluster.settle()
    assert has_ended(cluster)


def test_with_checkpoints_of_each_node_all_are_waited_for() -> None:
    cluster = running_train_world(checkpoint={**CHECKPOINT, "perNode": True})
    for node in ("node-0", "node-1"):
        cluster.exits(node, 0, phase="Running")
        sidecar(cluster, node, RUNS)
    cluster.settle()
    assert cluster.status.reason == "The last checkpoint is being saved: node-0, node-1"
    sidecar(cluster, "node-0", ENDED)
    cluster.settle()
    assert cluster.status.reason == "The last checkpoint is being saved: node-1"


def test_a_failed_job_waits_for_nothing() -> None:
    cluster = running_train_world(checkpoint=CHECKPOINT)
    ends(cluster, "node-0", exit_code=1)
    sidecar(cluster, "node-0", RUNS)
    cluster.advance(10)
    cluster.settle()
    assert cluster.status.state == "Failed"


# What was restored

FOUND = {
    "name": "checkpoint-30",
    "step": 30,
    "uri": "s3://b/c/data/checkpoint-30/x",
    "uploadId": "0" * 32,
    "skipped": [],
}


def read(message: str, exit_code: int = 0) -> RestoredCheckpoint | None:
    cluster = running_train_world(checkpoint=CHECKPOINT)
    restored(cluster, "node-0", message, exit_code=exit_code)
    return restored_in(cluster.pods_of("node-0")[-1])


def test_the_message_of_the_command_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    skipped = (Skipped("checkpoint-40", "it\nis broken"),)
    files = (CheckpointFile("a", 1, "0" * 64),)
    manifest = CheckpointManifest(
        name="ä-30", upload_id="0" * 32, node=0, kind="folder", files=files, byte_count=1, time="", step=30
    )
    commands._tell(Restored(manifest, skipped), "s3://b/c")
    commands._tell(Restored(None, skipped), "s3://b/c")
    commands._tell(Restored(None), "s3://b/c")
    found, broken, none = map(read, capsys.readouterr().out.splitlines())
    at = format_time(START)
    said = (SkippedCheckpoint("checkpoint-40", "it is broken"),)
    uri = f"s3://b/c/data/%C3%A4-30/{'0' * 32}"
    assert found == RestoredCheckpoint("ä-30", 30, at, uri, skipped=said)
    assert broken == RestoredCheckpoint(time=at, skipped=said)
    assert none == RestoredCheckpoint(time=at)


@pytest.mark.parametrize(
    "changed",
    [
        {"name": ""},
        {"name": "a" * 254},
        {"step": -1},
        {"step": 2**63},
        {"uri": "x" * 1001},
        {"uploadId": "x"},
        {"skipped": [{"name": "a", "reason": "b"}] * 6},
        {"more": 1},
    ],
    ids=str,
)
def test_a_message_with_anything_else_is_ignored(changed: dict[str, Any]) -> None:
    assert read(json.dumps({"restored": FOUND})) is not None
    assert read(json.dumps({"restored": FOUND | changed})) is None


@pytest.mark.parametrize("message", ["", "[" * 4000, " " * 4097 + '{"restored": null}', '{"restored": 1}'])
def test_what_is_no_message_is_ignored(message: str) -> None:
    assert read(message) is None


def test_a_restore_that_fails_has_restored_nothing() -> None:
    assert read(json.dumps({"restored": FOUND}), exit_code=1) is None


def test_the_status_says_what_the_job_went_on_from_and_how_many_steps_are_done_again() -> None:
    cluster = running_train_world(checkpoint=CHECKPOINT)
    restored(cluster, "node-0", '{"restored": null}')
    cluster.settle()
    assert cluster.status.checkpoint is None
    cluster.advance(60)
    steps = [ReportedStep(37, format_time(cluster.now))]
    cluster.advance(60)
    cluster.exits("node-0", 137)
    cluster.settle()
    cluster.reap()
    cluster.advance(60)
    cluster.settle()
    cluster.all_run()
    restored(cluster, "node-0", json.dumps({"restored": FOUND}))
    restored(cluster, "node-1", '{"restored": null}')
    state = evaluate(cluster.work, cluster.plan, cluster.observed.with_reported_steps(steps), cluster.now)
    result = next_status(state)
    assert result.status.checkpoint is not None
    assert result.status.checkpoint.restored == RestoredCheckpoint(
        "checkpoint-30", 30, format_time(cluster.now), FOUND["uri"], repeated_steps=7
    )
    assert "Training continues from checkpoint-30 (step 30); 7 steps are done again" in [
        each.note for each in result.events
    ]
    assert from_wire(to_wire(result.status, TrainJobStatus())).checkpoint == result.status.checkpoint
    counted = Counted()
    observe_status(counted, "TrainJob", cluster.work, result.status, cluster.now)
    assert ("steps repeated", 7) in counted.said
