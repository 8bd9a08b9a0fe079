"""Optional policies of a TFJob on a real API server: clean-up, time limits, suspension, scale."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from helpers.cluster import pod_path, set_pod_running, set_pod_terminated
from helpers.manifests import container, master, parameter_servers, pod_template, workers
from helpers.playground import FOREVER, Trial, alone, condition, ends
from helpers.poll import eventually
from localcluster import podstatus

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

NEVER = pod_template(container(), restartPolicy="Never")


def roles_of(pods: dict[str, Object]) -> list[str]:
    """`worker-1` of each pod, those that are on their way out apart."""
    alive = [pod["metadata"]["labels"] for pod in pods.values() if "deletionTimestamp" not in pod["metadata"]]
    return sorted(f"{labels['job_type'].lower()}-{labels['task_index']}" for labels in alive)


def await_pods(trial: Trial, *replicas: str) -> None:
    eventually(lambda: roles_of(trial.children("pods")) == sorted(replicas))


# cleanPodPolicy


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


# Time


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


def everything(trial: Trial, runtime_id: str) -> list[str]:
    return [
        name
        for plural in ("jobs", "services", "configmaps", "pods")
        for name, each in trial.jobs.children(plural).items()
        if each["metadata"]["labels"]["runtime_id"] == runtime_id
    ]


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


def test_time_in_suspension_is_no_time(trial: Trial) -> None:
    trial.submit(master())
    first = trial.await_phase("Running")
    trial.change(suspend=True)
    suspended = trial.await_status(lambda status: condition(status, "Suspended")["status"] == "True")
    assert "startTime" not in suspended
    # Times are whole seconds on the wire.
    eventually(lambda: podstatus.now() > first["startTime"])
    trial.change(suspend=False)
    resumed = trial.await_phase("Running")["startTime"]
    assert resumed > first["startTime"]
    seconds = seconds_since(resumed) + 1
    trial.change(activeDeadlineSeconds=seconds)
    ended = trial.await_end()
    assert ended["reason"] == f"DeadlineExceeded: not done after {seconds} s"
    lasted = datetime.fromisoformat(ended["completionTime"]) - datetime.fromisoformat(resumed)
    assert lasted >= timedelta(seconds=seconds)


def test_the_backoff_limit_counts_restarts_of_all_replicas(trial: Trial) -> None:
    trial.plays("worker-0", ends(1), ends(143), FOREVER)
    trial.plays("ps-0", ends(1), FOREVER)
    trial.submit(master(), workers(1), parameter_servers(1), backoffLimit=2)
    status = trial.await_end()
    assert (status["phase"], status["restarts"]) == ("Failed", 3)
    limit, _, why = status["reason"].partition("; ")
    assert limit == "BackoffLimitExceeded: 3 restarts of replicas, backoffLimit is 2"
    assert why in ("worker-0 failed: exit code 143", "ps-0 failed: exit code 1")
    assert condition(status, "Failed")["reason"] == "BackoffLimitExceeded"
    await_pods(trial)


# Suspension


def test_a_job_that_is_created_suspended_has_no_children_until_it_is_resumed(trial: Trial) -> None:
    trial.submit(master(), workers(1), suspend=True)
    status = trial.await_reason("Suspended: spec.suspend is true")
    assert (status["phase"], status["state"], condition(status, "Suspended")["status"]) == (
        "Creating",
        "Unknown",
        "True",
    )
    assert "startTime" not in status
    assert everything(trial, trial.runtime_id) == []
    trial.change(suspend=False)
    status = trial.await_phase("Running")
    assert (condition(status, "Suspended")["status"], status.get("reason", "")) == ("False", "")
    assert len(trial.children("jobs")) == 2


def test_a_program_that_ends_with_0_because_it_is_suspended_runs_again_when_it_is_resumed(trial: Trial) -> None:
    """As many do that are told to end."""
    trial.submit(master(template=alone()))
    api, pod = trial.jobs.api, trial.await_pod("master-0")
    name = pod["metadata"]["name"]
    set_pod_running(api, trial.namespace, name)
    trial.await_phase("Running")
    trial.change(suspend=True)
    path = pod_path(trial.namespace, name)
    eventually(lambda: "deletionTimestamp" in api.get(path)["metadata"])
    set_pod_terminated(api, trial.namespace, name, 0)
    trial.remove_pod(pod)
    trial.await_status(lambda status: condition(status, "Suspended")["status"] == "True")
    eventually(lambda: not trial.pods("master-0"))
    trial.change(suspend=False)
    trial.await_pod("master-0", but=name)
    status = trial.status()
    assert (status["phase"], status.get("restarts", 0), status.get("succeededIndexes")) == ("Creating", 0, None)


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


def test_a_suspended_job_can_be_resumed_and_end_and_being_stopped_was_no_failure(trial: Trial) -> None:
    trial.plays("master-0", FOREVER, ends(0))
    trial.submit(master(template=NEVER), workers(1, template=NEVER), failurePolicy="AnyReplica")
    trial.await_status(lambda status: status.get("ready") == {"master": "1/1", "worker": "1/1"})
    trial.change(suspend=True)
    await_pods(trial)
    trial.change(suspend=False)
    status = trial.await_phase("Done")
    assert (status["state"], status.get("restarts", 0)) == ("Succeeded", 0)


# Scale


def test_after_several_scalings_the_job_has_the_last_number_of_workers(trial: Trial) -> None:
    """A worker's Job goes and comes under the same name, while pods of the old one still end."""
    trial.submit(master(), workers(3))
    trial.await_status(lambda status: status.get("ready") == {"master": "1/1", "worker": "3/3"})
    for replicas in (1, 3, 0, 2):
        trial.change(workerReplicas=replicas)
    trial.await_status(lambda status: status["ready"] == {"master": "1/1", "worker": "2/2"})
    await_pods(trial, "master-0", "worker-0", "worker-1")
    names = {trial.child(replica) for replica in ("master-0", "worker-0", "worker-1")}
    eventually(lambda: set(trial.children("jobs")) == set(trial.children("services")) == names)
    status = trial.status()
    assert (status["state"], status.get("restarts", 0), status.get("succeededIndexes")) == ("Running", 0, None)
