"""TrainJobs that are suspended while they run."""

from __future__ import annotations

import pytest

from helpers.playground import Trial, condition
from helpers.poll import eventually
from helpers.trainjobs import await_ready, nodes, step_of
from localcluster import podstatus

pytestmark = pytest.mark.cluster


def is_suspended(status: dict[str, object]) -> bool:
    return condition(status, "Suspended")["status"] == "True"


def suspended_jobs(train: Trial) -> list[str]:
    return [name for name, job in train.children("jobs").items() if job["spec"].get("suspend")]


def test_a_suspended_job_has_no_pods_and_a_resumed_one_has_all_and_no_restart_is_counted(train: Trial) -> None:
    train.train(2, command=("torchrun", "train.py"))
    await_ready(train)
    before = train.status()["startTime"]
    old = {name: job["metadata"]["uid"] for name, job in train.children("jobs").items()}
    train.change(suspend=True)
    status = train.await_status(is_suspended)
    assert (status.get("state", ""), "startTime" in status) == ("", False)
    eventually(lambda: not train.children("pods"))
    status = train.await_status(lambda status: step_of(status).get("suspended") == 2)
    assert (step_of(status)["active"], status["nodes"]) == (0, "0/2")
    assert len(train.children("jobs")) == len(train.children("services")) == 1
    train.change(suspend=False)
    status = await_ready(train)
    suspended = condition(status, "Suspended")
    assert (suspended["status"], suspended["reason"]) == ("False", "Resumed")
    assert (status.get("restarts", 0), status["startTime"] >= before) == (0, True)
    new = {name: job["metadata"]["uid"] for name, job in train.children("jobs").items()}
    assert (new.keys(), new != old) == (old.keys(), True)
    assert train.notes("Restarted") == []
    for reason in ("Suspended", "Resumed"):
        train.await_event(reason)
        assert len(train.notes(reason)) == 1


def test_a_job_resumed_before_its_pods_are_gone_starts_all_of_them_together(train: Trial) -> None:
    train.train(2)
    await_ready(train)
    pods = set(train.children("pods"))
    train.change(suspend=True)
    generation = train.change(suspend=False)["metadata"]["generation"]
    # Before that a status may be of before the suspension, and pods be about to go.
    train.await_status(lambda status: status.get("observedGeneration") == generation)
    eventually(lambda: not suspended_jobs(train))
    left = pods & {pod for pod, each in train.children("pods").items() if "deletionTimestamp" not in each["metadata"]}
    assert left in (set(), pods), "one node went on without the other"
    for node in nodes(2):
        train.await_running(node)
    assert train.status().get("restarts", 0) == 0


def test_if_only_one_job_was_stopped_all_are_before_they_go_on_together(train: Trial) -> None:
    """As by a controller that was killed between two writes, with the job resumed before the next one came.

    The launcher has a Job beside that of the nodes.
    """
    replicas = ("launcher-0", *nodes(2))
    train.train(2, command=("mpirun", "train"))
    for replica in replicas:
        train.await_running(replica)
    await_ready(train)
    pods = train.children("pods")
    begun = max(pod["metadata"]["creationTimestamp"] for pod in pods.values())
    eventually(lambda: podstatus.now() > begun)  # times are whole seconds on the wire
    train.jobs.api.patch(train.child_path("jobs", train.child("node-0")), {"spec": {"suspend": True}})
    eventually(lambda: not pods.keys() & train.children("pods").keys())
    eventually(lambda: not suspended_jobs(train))
    for replica in replicas:
        train.await_running(replica)
    status = train.status()
    assert status.get("restarts", 0) == status.get("disruptions", 0)
