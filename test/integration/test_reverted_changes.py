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
from helpers.trainjobs import await_ready

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

# Each Job is created, and resumed twice, before the controller waits a minute; the adversary suspends it each time.
MAX_SUSPENSIONS = 3


def is_reverted(status: Object) -> bool:
    return condition(status, "ChangesReverted").get("status") == "True"


def is_quiet(trial: Trial) -> bool:
    jobs = trial.children("jobs").values()
    return all(job["spec"].get("suspend") for job in jobs) and not trial.children("pods")


@pytest.mark.parametrize("kind", ["tfjob", "trainjob"])
def test_a_job_whose_children_a_foreign_queue_suspends_stops_and_names_it(
    trial: Trial, train: Trial, kind: str, control_plane: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    job = trial if kind == "tfjob" else train
    created = job.submit(master(), workers(2)) if kind == "tfjob" else job.train(2)
    with Suspender(job.jobs.api, job.namespace, created["metadata"]["uid"]) as queue:
        status = job.await_status(is_reverted)
        words = condition(status, "ChangesReverted")["message"]
        assert words.startswith(f"another client ({MANAGER}) keeps suspending Job {job.name}")
        assert words in status["reason"]
        eventually(lambda: is_quiet(job))
        assert queue.suspensions
        assert max(queue.suspensions.values()) <= MAX_SUSPENSIONS
        job.await_event("ChangeReverted", f"keeps suspending Job {job.name}")
        assert len(job.notes("ChangeReverted")) == 1
        explain = runner(capfd, control_plane.kubeconfig, job.namespace)
        code, output, _ = explain("explain", f"{kind}/{job.name}")
        assert code == 0
        assert f"({MANAGER}) keeps suspending Job" in " ".join(output.split())
    # A change by the user ends the delay.
    job.change(ttlSecondsAfterFinished=3600)
    if kind == "tfjob":
        job.await_status(lambda status: status.get("ready") == {"master": "1/1", "worker": "2/2"})
    else:
        await_ready(job)


def test_a_service_that_somebody_keeps_deleting_is_not_recreated_for_ever(trial: Trial) -> None:
    trial.submit(master(), workers(1))
    trial.await_running("worker-0")
    path = trial.child_path("services", trial.child("worker-0"))
    uids = set()

    def is_given_up() -> bool:
        found = trial.jobs.api.find(path)
        if found is not None:
            uids.add(found["metadata"]["uid"])
            trial.jobs.api.delete(path)
        return is_reverted(trial.status())

    eventually(is_given_up)
    assert len(uids) == MAX_SUSPENSIONS
    assert "keeps deleting (or relabelling) Service" in trial.status()["reason"]
