"""Another client suspends the child Jobs of a job again and again: the controller gives way and says who it is."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.adversary import MANAGER, Suspender
from helpers.cluster import Cluster
from helpers.manifests import master, workers
from helpers.playground import Trial, condition
from helpers.plugin import runner
from helpers.poll import eventually

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

# Each Job is created, and resumed twice, before the controller waits a minute; the adversary suspends it each time.
MAX_SUSPENSIONS = 3


def is_reverted(status: Object) -> bool:
    return condition(status, "ChangesReverted").get("status") == "True"


def is_quiet(trial: Trial) -> bool:
    jobs = trial.children("jobs").values()
    return all(job["spec"].get("suspend") for job in jobs) and not trial.children("pods")


def test_a_job_whose_children_a_foreign_queue_suspends_stops_and_names_it(
    trial: Trial, control_plane: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    created = trial.submit(master(), workers(2))
    with Suspender(trial.jobs.api, trial.namespace, created["metadata"]["uid"]) as queue:
        status = trial.await_status(is_reverted)
        words = condition(status, "ChangesReverted")["message"]
        assert words.startswith(f"another client ({MANAGER}) keeps suspending Job {trial.name}")
        assert words in status["reason"]
        eventually(lambda: is_quiet(trial))
        assert queue.suspensions
        assert max(queue.suspensions.values()) <= MAX_SUSPENSIONS
        trial.await_event("ChangeReverted", f"keeps suspending Job {trial.name}")
        assert len(trial.notes("ChangeReverted")) == 1
        explain = runner(capfd, control_plane.kubeconfig, trial.namespace)
        code, output, _ = explain("explain", f"tfjob/{trial.name}")
        assert code == 0
        assert f"({MANAGER}) keeps suspending Job" in " ".join(output.split())
    # A change by the user ends the delay.
    trial.change(ttlSecondsAfterFinished=3600)
    trial.await_status(lambda status: status.get("ready") == {"master": "1/1", "worker": "2/2"})
