"""Optional policies of a TFJob on a real API server: clean-up, time limits, suspension."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from helpers.manifests import container, master, parameter_servers, pod_template, workers
from helpers.playground import Trial, condition, ends
from helpers.poll import eventually

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

NEVER = pod_template(container(), restartPolicy="Never")


def roles_of(pods: dict[str, Object]) -> list[str]:
    """`worker-1` of each pod, those that are on their way out apart."""
    alive = [pod["metadata"]["labels"] for pod in pods.values() if "deletionTimestamp" not in pod["metadata"]]
    return sorted(f"{labels['job_type'].lower()}-{labels['task_index']}" for labels in alive)


def await_pods(trial: Trial, *replicas: str) -> None:
    eventually(lambda: roles_of(trial.children("pods")) == sorted(replicas))


@pytest.mark.parametrize(
    ("policy", "kept", "exit_code", "phase"),
    [
        pytest.param(None, ["master-0", "worker-0"], 0, "Done", id="default"),
        pytest.param("All", [], 7, "Failed", id="All"),
        pytest.param("None", ["master-0", "ps-0", "worker-0", "worker-1"], 0, "Done", id="None"),
    ],
)
def test_after_the_end_these_pods_stay(
    trial: Trial, policy: str | None, kept: list[str], exit_code: int, phase: str
) -> None:
    """worker-0 has ended by then; worker-1 and ps-0 would run on."""
    trial.plays("worker-0", ends(0))
    given = {} if policy is None else {"cleanPodPolicy": policy}
    trial.submit(master(template=NEVER), workers(2), parameter_servers(1), **given)
    trial.await_status(lambda status: status.get("succeededIndexes") == ["worker-0"])
    trial.await_running("worker-1")
    trial.await_running("ps-0")
    trial.end("master-0", exit_code)
    assert trial.await_end()["phase"] == phase
    await_pods(trial, *kept)
    # Jobs and Services stay in any case.
    assert len(trial.children("jobs")) == len(trial.children("services")) == 4
    for replica in ("worker-1", "ps-0"):
        assert trial.child_job(replica)["spec"]["suspend"] is (policy != "None")
        assert trial.starts(replica) == 1


def test_the_time_to_live_deletes_the_job_without_any_other_event(trial: Trial) -> None:
    trial.plays("master-0", ends(0))
    trial.submit(master(), workers(1))
    ended = trial.await_phase("Done")["completionTime"]
    # In two seconds from now, so that its status could be read before.
    seconds = seconds_since(ended) + 2
    trial.change(ttlSecondsAfterFinished=seconds)
    eventually(lambda: trial.status() == {})
    assert datetime.now(UTC) - datetime.fromisoformat(ended) >= timedelta(seconds=seconds)


def seconds_since(moment: str) -> int:
    """Rounded up."""
    return int((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()) + 1


def test_the_deadline_fails_the_job_without_any_other_event(trial: Trial) -> None:
    trial.submit(master(), workers(1))
    running = trial.await_phase("Running")
    seconds = seconds_since(running["startTime"]) + 2
    trial.change(activeDeadlineSeconds=seconds)
    status = trial.await_end()
    assert (status["phase"], status["state"]) == ("Failed", "Failed")
    assert status["reason"] == f"DeadlineExceeded: not done after {seconds} s"
    assert condition(status, "Failed")["reason"] == "DeadlineExceeded"
    await_pods(trial)


def test_suspending_a_running_job_stops_all_pods_and_resuming_starts_them_but_for_those_that_succeeded(
    trial: Trial,
) -> None:
    trial.plays("worker-0", ends(0))
    trial.submit(master(), workers(2), parameter_servers(1))
    trial.await_status(lambda status: status.get("succeededIndexes") == ["worker-0"])
    trial.await_status(lambda status: status["ready"] == {"master": "1/1", "worker": "2/2", "ps": "1/1"})
    services = set(trial.children("services"))
    trial.change(suspend=True)
    await_pods(trial, "worker-0")  # it has ended, and its log stays
    status = trial.await_status(lambda status: condition(status, "Suspended")["status"] == "True")
    assert (status["phase"], condition(status, "Running")["status"]) == ("Creating", "False")
    assert set(trial.children("services")) == services
    assert len(trial.children("jobs")) == 4
    trial.change(suspend=False)
    status = trial.await_phase("Running")
    trial.await_status(lambda status: status["ready"] == {"master": "1/1", "worker": "2/2", "ps": "1/1"})
    assert [trial.starts(replica) for replica in ("master-0", "worker-0", "worker-1", "ps-0")] == [2, 1, 2, 2]
    # Being stopped is no restart.
    assert trial.status().get("restarts", 0) == 0
