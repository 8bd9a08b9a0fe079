"""What a job's status says of its checkpoints, on a real API server: a kubelet of the test serves the logs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from helpers.cluster import pod_path
from helpers.logkubelet import Kubelet
from helpers.playground import Trial
from helpers.trainjobs import await_cached, cluster_runtime
from tfjob_controller.util.timestamps import format_time

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

RUNS: Object = {"running": {}}
RESTORED = {"name": "checkpoint-30", "step": 30, "uri": "s3://b/c/data/checkpoint-30", "uploadId": "0" * 32}


@dataclass
class Saving:
    """The node of a TrainJob that saves checkpoints, whose pod only the test runs."""

    trial: Trial
    kubelet: Kubelet
    pod: str = ""

    def starts(self, restored: Object | None, seconds_ago: int = 0) -> None:
        """Its next pod runs, after its init container has restored this."""
        self.pod = self.trial.await_pod("node-0", but=self.pod)["metadata"]["name"]
        message = json.dumps({"restored": restored})
        self._report("Running", RUNS, RUNS, {"message": message, "finishedAt": text_of(seconds_ago)})

    def program_ends(self, exit_code: int) -> None:
        """The program has ended, and the container that saves checkpoints has not."""
        self._report("Running", ended(exit_code), RUNS)

    def ends(self, exit_code: int) -> None:
        self._report("Failed" if exit_code else "Succeeded", ended(exit_code), ended(0))

    def prints(self, *lines: str) -> None:
        """Logs the lines, a minute ago."""
        before = self.kubelet.logs.get(self.pod, "")
        self.kubelet.logs[self.pod] = before + "".join(f"{text_of(60)} {line}\n" for line in lines)

    def saves(self, step: int, seconds_ago: int) -> None:
        told = {"name": f"checkpoint-{step}", "step": step, "time": text_of(seconds_ago), "bytes": 5, "uri": "s3://b/c"}
        self.prints(json.dumps({"checkpoint": {**told, "uploadId": f"{step:032x}", "seconds": 0.5}}))

    def _report(self, phase: str, program: Object, saver: Object, restored: Object | None = None) -> None:
        path = pod_path(self.trial.namespace, self.pod)
        restorer = {"terminated": {**ended(0)["terminated"], **(restored or {})}}
        status = {
            "phase": phase,
            "initContainerStatuses": [status_of("checkpoint-restore", restorer), status_of("checkpoint-save", saver)],
            "containerStatuses": [status_of("node", program)],
        }
        self.trial.jobs.api.patch(f"{path}/status", {"status": status})


def text_of(seconds_ago: int) -> str:
    return format_time(datetime.now(UTC) - timedelta(seconds=seconds_ago))


def status_of(name: str, state: Object) -> Object:
    is_up = "running" in state
    return {"name": name, "state": state, "ready": is_up, "restartCount": 0, "image": "x", "imageID": "x"}


def ended(exit_code: int) -> Object:
    return {"terminated": {"exitCode": exit_code, "finishedAt": text_of(0), "startedAt": text_of(0)}}


@pytest.fixture
def node(train: Trial, logging_node: Kubelet) -> Iterator[Saving]:
    template = {"spec": {"nodeName": logging_node.name, "containers": [{"name": "node"}]}}
    with cluster_runtime(train.jobs.api, templates={"node": template}) as name:
        await_cached(train, name)
        train.train(1, runtimeRef={"name": name}, checkpoint={"storageUri": "s3://b/c"})
        yield Saving(train, logging_node)


def checkpoint(status: Object) -> Object:
    found: Object = status.get("checkpoint", {})
    return found


def test_the_status_tells_of_saved_and_restored_checkpoints_and_the_end_waits_for_the_last(node: Saving) -> None:
    trial = node.trial
    node.starts(None, seconds_ago=120)
    node.prints("step=37", '{"checkpoint": {"name": "forged"}}')
    node.saves(30, seconds_ago=50)
    status = trial.await_status(lambda status: checkpoint(status).get("name") == "checkpoint-30")
    assert (checkpoint(status)["step"], checkpoint(status)["size"], checkpoint(status)["saved"]) == (30, 5, 1)
    trial.await_event("CheckpointSaved", "checkpoint-30 (step 30), 5 B, is saved")
    node.prints(json.dumps({"checkpointFailed": {"name": "checkpoint-35", "reason": "no rights"}}))
    # This failure is older than the last saved checkpoint.
    trial.await_status(lambda status: any(each["value"] == "37" for each in status.get("metrics", ())))

    node.ends(137)
    trial.await_status(lambda status: status.get("restarts") == 1)
    node.starts(RESTORED)
    status = trial.await_status(lambda status: "restored" in checkpoint(status))
    restored = checkpoint(status)["restored"]
    assert (restored["name"], restored["step"], restored["repeatedSteps"]) == ("checkpoint-30", 30, 7)
    assert "failure" not in checkpoint(status)
    trial.await_event("CheckpointRestored", "continues from checkpoint-30 (step 30); 7 steps are done again")

    node.program_ends(0)
    status = trial.await_status(lambda status: status.get("succeededIndexes") == ["node-0"])
    assert (status["phase"], status["reason"]) == ("Running", "The last checkpoint is being saved: node-0")
    node.saves(40, seconds_ago=0)
    node.ends(0)
    status = trial.await_end()
    assert status["state"] == "SUCCESS"
    assert (checkpoint(status)["name"], checkpoint(status)["saved"]) == ("checkpoint-40", 2)
