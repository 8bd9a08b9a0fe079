"""An elastic TrainJob on real nodes: an unmodified torchrun script whose nodes come, go and are killed as it trains."""

from __future__ import annotations

import itertools
import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers import machine
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.poll import eventually
from helpers.realtrainjobs import TrainJobs
from localcluster import images
from tfjob_controller.api.gang import COMPLETION_INDEX_LABEL

NAME = "trainjob-elastic"
STEPS, SAVE_STEPS = 1500, 20
MIN_NODES, MAX_NODES = 1, 4
RESIZES, KILLS = 20, 5
# Several interpreters import PyTorch for each change, on two processors that may be busy.
PATIENCE_SECONDS = 600.0

pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("own_nodes"), pytest.mark.timeout(7200)]

Object = dict[str, Any]


def elastic_job(claim: str) -> str:
    """The sample, with checkpoints on a claim and steps that are too many for the job to end before the last change."""
    objects = list(yaml.safe_load_all((MANIFESTS / "samples" / f"{NAME}.yaml").read_text()))
    spec = objects[-1]["spec"]
    spec["elasticPolicy"] = {"minNodes": MIN_NODES, "maxNodes": MAX_NODES}
    spec["maxRestarts"] = 2 * KILLS
    settings = {"STEPS": STEPS, "STEP_SECONDS": 0.1, "SAVE_STEPS": SAVE_STEPS}
    spec["trainer"]["env"] = [{"name": name, "value": str(value)} for name, value in settings.items()]
    (override,) = spec["podSpecOverrides"]
    override["volumes"] = [each for each in override["volumes"] if "hostPath" not in each]
    override["volumes"].append({"name": "checkpoints", "persistentVolumeClaim": {"claimName": claim}})
    return yaml.safe_dump_all(objects, sort_keys=False)


class Training:
    """The job as its owner sees it, and the file in which rank 0 records each step that it has done."""

    def __init__(self, trainjobs: TrainJobs, folder: Path) -> None:
        self._trainjobs = trainjobs
        self._folder = folder

    def steps(self) -> list[int]:
        return [int(line) for path in self._folder.glob("*/steps") for line in path.read_text().split()]

    def await_steps(self, count: int) -> None:
        """Waits until rank 0 has done so many more steps."""
        wanted = len(self.steps()) + count
        eventually(lambda: len(self.steps()) >= wanted, PATIENCE_SECONDS)

    def pods(self) -> dict[int, Object]:
        """The running pods by index."""
        path = f"/api/v1/namespaces/{self._trainjobs.namespace}/pods"
        found = self._trainjobs.cluster.api.list(path, f"train_job_name={NAME}")
        return {
            int(pod["metadata"]["labels"][COMPLETION_INDEX_LABEL]): pod
            for pod in found
            if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        }

    def kill(self, index: int) -> None:
        """Kills all processes of a node, once it runs."""
        pids = eventually(
            lambda: (pod := self.pods().get(index)) is not None and machine.of_pod(pod["metadata"]["uid"]),
            PATIENCE_SECONDS,
            0.2,
        )
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # it was the child of one that is dead already
                continue


def segments(steps: Sequence[int]) -> list[list[int]]:
    """Divides the recorded steps where one does not follow the one before it."""
    divided: list[list[int]] = []
    for before, step in itertools.pairwise([-1, *steps]):
        if step != before + 1:
            divided.append([])
        divided[-1].append(step)
    return divided


def may_continue_after(last: int) -> set[int]:
    """The checkpoints after which training may continue once it ended with the step `last`.

    If that is a step with a checkpoint, rank 0 may have been killed after it had recorded the step and before it saved.
    """
    saved = last // SAVE_STEPS * SAVE_STEPS
    return {saved, saved - SAVE_STEPS} if saved == last else {saved}


@pytest.mark.long
def test_resizes_and_killed_nodes_cost_the_steps_since_the_last_checkpoint_and_no_others(
    trainjobs: TrainJobs, kubectl: Kubectl, shared_claim: str, tmp_path: Path
) -> None:
    trainjobs.give(images.TORCH)
    rng = random.Random(18)
    kubectl.must("apply", "-f", "-", manifest=elastic_job(shared_claim))
    training = Training(trainjobs, tmp_path / "shared")
    training.await_steps(1)
    # Node 0 holds torchrun's store, so that its end restarts the set; one kill is certainly of this kind.
    changes = ["resize"] * RESIZES + ["kill"] * (KILLS - 1) + ["kill node 0"]
    rng.shuffle(changes)
    nodes = 2
    for number, change in enumerate(changes):
        print(f"change {number}: {change}, {nodes} nodes, {len(training.steps())} steps", flush=True)
        if change == "resize":
            nodes = rng.choice([count for count in range(MIN_NODES, MAX_NODES + 1) if count != nodes])
            kubectl.must("scale", f"trainjob/{NAME}", f"--replicas={nodes}")
        else:
            training.kill(0 if change == "kill node 0" else rng.randrange(nodes))
        # Some changes come while torchrun is still busy with the one before.
        if rng.random() < 0.75:
            training.await_steps(rng.randint(1, 2 * SAVE_STEPS))
    status = trainjobs.await_success(NAME)
    divided = segments(training.steps())
    print(f"{len(training.steps())} steps, {len(divided)} segments, {status['restarts']} restarts")
    assert divided[0][0] == 1
    assert divided[-1][-1] == STEPS
    for before, after in itertools.pairwise(divided):
        assert after[0] - 1 in may_continue_after(before[-1]), divided
    assert len(divided) - 1 <= RESIZES + 2 * KILLS
    assert 1 <= status["restarts"] <= KILLS
