"""Checkpoints of TFJobs on a real API server: the chief's pod saves, and what is restarted restores again."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.manifests import container, pod_template, workers
from helpers.playground import Trial, ends
from helpers.poll import eventually

pytestmark = pytest.mark.cluster

CHECKPOINT: dict[str, Any] = {"storageUri": "s3://bucket/runs"}
# Without a restartPolicy.
OPEN = pod_template(container())


def test_a_worker_that_fails_gets_a_new_pod_which_restores_and_the_chief_stays_in_its_pod(trial: Trial) -> None:
    for replica in ("worker-0", "worker-1"):
        trial.plays(replica, ends(137))
    trial.submit(workers(2, template=OPEN), checkpoint=CHECKPOINT)
    eventually(lambda: trial.starts("worker-0") == trial.starts("worker-1") == 2)
    eventually(lambda: restarts_in_pods(trial, "worker-0") == [1])
    eventually(lambda: restarts_in_pods(trial, "worker-1") == [0])
    assert trial.await_status(lambda status: status.get("restarts") == 2)["restartCounts"] == {
        "worker-0": 1,
        "worker-1": 1,
    }


def restarts_in_pods(trial: Trial, replica: str) -> list[int]:
    """Returns how often the training container was restarted in each pod of the replica."""
    statuses = [each for pod in trial.pods(replica) for each in pod["status"].get("containerStatuses", ())]
    return [each["restartCount"] for each in statuses if each["name"] == "tensorflow"]
