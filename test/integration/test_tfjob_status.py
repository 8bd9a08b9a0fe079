"""The status of a TFJob on a real API server: fields, conditions, reasons while it waits, columns, events."""

from __future__ import annotations

import re
from typing import Any

import pytest

from helpers.cluster import set_pod_running, set_pod_terminated, set_pod_waiting
from helpers.kubectl import Kubectl
from helpers.manifests import container, master, parameter_servers, pod_template, workers
from helpers.playground import FOREVER, PATIENCE_SECONDS, PERIOD_SECONDS, Trial, alone, condition, ends
from helpers.poll import eventually

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

NEVER = pod_template(container(), restartPolicy="Never")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def truths(status: Object) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


def test_a_running_job_has_these_fields_under_these_names(trial: Trial) -> None:
    trial.submit(master(), workers(1), parameter_servers(2))
    status = trial.await_status(lambda status: status.get("ready") == {"master": "1/1", "worker": "1/1", "ps": "2/2"})
    assert TIME.fullmatch(status.pop("startTime"))
    conditions = status.pop("conditions")
    assert [(each["type"], each["status"], each["reason"]) for each in conditions] == [
        ("Created", "True", "JobCreated"),
        ("Running", "True", "ChiefRunning"),
    ]
    for each in conditions:
        assert TIME.fullmatch(each["lastTransitionTime"])
        assert each["observedGeneration"] == 2
        assert each["message"]
    assert status == {
        "phase": "Running",
        "state": "Running",
        "summary": "Running",
        "controlPaused": False,
        "observedGeneration": 2,
        "replicaStatuses": [
            {"tf_replica_type": "MASTER", "state": "Running", "ReplicasStates": {"Running": 1}},
            {"tf_replica_type": "WORKER", "state": "Running", "ReplicasStates": {"Running": 1}},
            {"tf_replica_type": "PS", "state": "Running", "ReplicasStates": {"Running": 2}},
        ],
        "ready": {"master": "1/1", "worker": "1/1", "ps": "2/2"},
        "scaling": {"workers": 1},
        "workerReplicas": 1,
        "workerSelector": f"job_type=WORKER,kubeflow.org=,runtime_id={trial.runtime_id},tf_job_name={trial.name}",
    }


def test_a_finished_job_has_these_fields_under_these_names(trial: Trial) -> None:
    trial.plays("worker-0", ends(143), ends(0))
    trial.submit(master(), workers(2))
    trial.await_status(
        lambda status: status.get("succeededIndexes") == ["worker-0"] and status["ready"]["worker"] == "2/2"
    )
    trial.end("master-0")
    status = trial.await_phase("Done")
    assert (status["state"], status["reason"], status["restarts"]) == ("Succeeded", "master-0 succeeded", 1)
    assert status["succeededIndexes"] == ["master-0", "worker-0"]
    assert status["startTime"] <= status["completionTime"]
    # A restart that is over before the controller looks again is counted, but never was a state.
    assert truths(status).get("Restarting", "False") == "False"
    shown = {name: value for name, value in truths(status).items() if name != "Restarting"}
    assert shown == {"Created": "True", "Running": "False", "Succeeded": "True"}
    assert condition(status, "Succeeded")["reason"] == "ChiefSucceeded"
    by_type = {each["tf_replica_type"]: (each["state"], each["ReplicasStates"]) for each in status["replicaStatuses"]}
    assert by_type == {
        "MASTER": ("Succeeded", {"Succeeded": 1}),
        "WORKER": ("Running", {"Succeeded": 1, "Running": 1}),
    }


def test_a_failed_job_has_exactly_the_condition_failed(trial: Trial) -> None:
    trial.plays("master-0", ends(2, "no such file"))
    trial.submit(master(template=NEVER))
    status = trial.await_phase("Failed")
    assert status["reason"] == "master-0 failed: exit code 2: no such file"
    assert (truths(status)["Failed"], "Succeeded" in truths(status)) == ("True", False)
    failed = condition(status, "Failed")
    assert (failed["reason"], failed["message"]) == ("ReplicaFailed", status["reason"])


def test_a_worker_that_failed_and_waits_for_its_new_pod_shows_it_until_it_runs(trial: Trial) -> None:
    """The first restart is immediate, and the second one waits for 10 s, in which the ended pod can be read."""
    api = trial.jobs.api
    trial.submit(master(), workers(1, template=alone(restartPolicy="Never")))
    last = ""
    for _ in range(2):
        last = trial.await_pod("worker-0", but=last)["metadata"]["name"]
        set_pod_running(api, trial.namespace, last)
        trial.await_status(lambda status: status.get("ready") == {"master": "1/1", "worker": "1/1"})
        set_pod_terminated(api, trial.namespace, last, 1)
    status = trial.await_status(lambda status: status.get("restarts") == 2)
    assert (condition(status, "Restarting")["status"], status["phase"]) == ("True", "Running")
    assert "worker-0" in condition(status, "Restarting")["message"]
    assert workers_of(status) == ("Failed", {"Failed": 1})
    assert [pod["metadata"]["name"] for pod in trial.pods("worker-0")] == [last]
    set_pod_running(api, trial.namespace, trial.await_pod("worker-0", but=last)["metadata"]["name"])
    status = trial.await_status(lambda status: condition(status, "Restarting")["status"] == "False")
    assert (workers_of(status), status["restarts"]) == (("Running", {"Running": 1}), 2)
    assert len(trial.pods("worker-0")) == 1


def workers_of(status: Object) -> tuple[str, Object]:
    (found,) = [each for each in status["replicaStatuses"] if each["tf_replica_type"] == "WORKER"]
    return found["state"], found["ReplicasStates"]


def test_the_observed_generation_follows_the_spec(trial: Trial) -> None:
    trial.submit(master())
    trial.await_phase("Running")
    changed = trial.change(backoffLimit=7)["metadata"]["generation"]
    trial.await_status(lambda status: status["observedGeneration"] == changed)


# Reasons while pending


def test_a_pod_that_cannot_be_scheduled_shows_the_schedulers_message(trial: Trial) -> None:
    nowhere = pod_template(container(), nodeSelector={"kubernetes.io/hostname": "nowhere"})
    trial.submit(master(template=nowhere))
    status = trial.await_reason("master-0: Unschedulable: 0/", "nodes are available")
    assert (status["phase"], status["state"]) == ("Creating", "Running")


@pytest.mark.parametrize(
    ("word", "message", "reason"),
    [
        pytest.param(
            "ErrImagePull",
            "rpc error: not found",
            "worker-0: ImagePullBackOff: rpc error: not found",
            id="image pull",
        ),
        pytest.param(
            "CreateContainerConfigError",
            'configmap "settings" not found',
            'worker-0: CreateContainerConfigError: configmap "settings" not found',
            id="config error",
        ),
        pytest.param("InvalidImageName", "", "worker-0: InvalidImageName", id="image name"),
    ],
)
def test_a_container_that_does_not_start_shows_why_and_the_reason_goes_with_the_obstacle(
    trial: Trial, word: str, message: str, reason: str
) -> None:
    trial.submit(master(), workers(1, template=alone()))
    pod = trial.await_pod("worker-0")["metadata"]["name"]
    trial.await_phase("Running")
    set_pod_waiting(trial.jobs.api, trial.namespace, pod, word, message)
    assert trial.await_reason(reason)["reason"] == reason
    set_pod_running(trial.jobs.api, trial.namespace, pod)
    status = trial.await_status(lambda status: "reason" not in status)
    assert status["ready"]["worker"] == "1/1"


def test_of_many_that_wait_one_speaks_for_all(trial: Trial) -> None:
    nowhere = pod_template(container(), nodeSelector={"kubernetes.io/hostname": "nowhere"})
    trial.submit(master(), workers(3, template=nowhere))
    trial.await_reason("worker-0: Unschedulable", "(and 2 more wait)")


# Columns


def rows(administrator: Kubectl, trial: Trial, *more: str) -> list[list[str]]:
    out = administrator.must("get", "tfj", trial.name, f"--namespace={trial.namespace}", *more)
    return [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]


def test_kubectl_get_shows_phase_state_and_ready_replicas(trial: Trial, administrator: Kubectl) -> None:
    trial.plays("worker-0", ends(0))
    trial.submit(master(), workers(2), parameter_servers(1))
    trial.await_status(lambda status: status.get("ready") == {"master": "1/1", "worker": "2/2", "ps": "1/1"})
    head, row = rows(administrator, trial)
    assert head == ["NAME", "PHASE", "STATE", "MASTERS", "WORKERS", "PS", "AGE"]
    assert row[:-1] == [trial.name, "Running", "Running", "1/1", "2/2", "1/1"]


def test_kubectl_get_shows_a_job_without_a_running_chief_as_pending_and_a_suspended_one_as_suspended(
    trial: Trial, administrator: Kubectl
) -> None:
    trial.submit(master(template=alone()), workers(1, template=alone()))
    trial.await_pod("master-0")
    trial.await_status(lambda status: status.get("phase") == "Creating")
    assert rows(administrator, trial)[1][1:3] == ["Creating", "Pending"]
    trial.change(suspend=True)
    trial.await_status(lambda status: status.get("summary") == "Suspended")
    assert rows(administrator, trial)[1][1:3] == ["Creating", "Suspended"]


def test_kubectl_get_wide_shows_the_runtime_id_and_why_it_failed(trial: Trial, administrator: Kubectl) -> None:
    trial.plays("master-0", ends(1, "out of data"))
    trial.submit(master(template=NEVER))
    trial.await_phase("Failed")
    _, row = rows(administrator, trial, "-o", "wide")
    shown = (row[1], row[2], row[3], row[-3], row[-2])
    assert shown == ("Failed", "Failed", "0/1", trial.runtime_id, "master-0 failed: exit code 1: out of data")


# Events


PHASES = ("Creating", "Running", "CleanUp", "Done", "Failed")


def of_phases(trial: Trial) -> list[tuple[str, str, str]]:
    return [(each["reason"], each["type"], each["note"]) for each in trial.events() if each["reason"] in PHASES]


def test_each_change_of_phase_is_reported_once_and_in_order(trial: Trial) -> None:
    trial.submit(master(), workers(2))
    trial.await_phase("Running")
    trial.end("master-0")
    trial.await_phase("Done")
    trial.await_event("Done")
    told = of_phases(trial)
    assert told == [
        ("Running", "Normal", "Job is in phase Running"),
        ("CleanUp", "Normal", "Job is in phase CleanUp: master-0 succeeded"),
        ("Done", "Normal", "Job is in phase Done: master-0 succeeded"),
    ]
    assert all(each.get("series") is None for each in trial.events())


def test_a_failure_is_reported_as_a_warning_with_its_reason(trial: Trial) -> None:
    trial.plays("master-0", ends(3, "bad input"))
    trial.submit(master(template=NEVER))
    trial.await_phase("Failed")
    told = trial.await_event("Failed")
    assert (told["type"], told["note"]) == (
        "Warning",
        "Job is in phase Failed: master-0 failed: exit code 3: bad input",
    )


def test_the_children_that_a_sync_creates_have_one_event(trial: Trial) -> None:
    trial.submit(master(), workers(1), parameter_servers(1))
    trial.await_phase("Running")
    names = [trial.child(replica) for replica in ("master-0", "worker-0", "ps-0")]
    told = trial.await_event("SuccessfulCreate", "3 Jobs", "3 Services", "1 ConfigMap", *names)
    assert f"cm-ps-{trial.runtime_id}" in told["note"]
    assert len(trial.notes("SuccessfulCreate")) == 1
    assert (told["type"], told["action"], told["reportingController"]) == ("Normal", "Create", "tfjob-controller")
    regarding = told["regarding"]
    assert (regarding["kind"], regarding["apiVersion"], regarding["name"]) == (
        "TFJob",
        "kubeflow.org/v1alpha1",
        trial.name,
    )


def test_many_created_children_have_one_event_with_ten_names(trial: Trial) -> None:
    trial.submit(master(), workers(11))
    trial.await_status(lambda status: status.get("ready", {}).get("worker") == "11/11")
    trial.await_event("SuccessfulCreate", "12 Jobs", "12 Services", ", and 2 more")
    assert len(trial.notes("SuccessfulCreate")) == 1


def test_a_restart_is_reported_once(trial: Trial) -> None:
    trial.plays("worker-0", ends(143), FOREVER)
    trial.submit(master(), workers(1))
    trial.await_status(lambda status: status.get("restarts") == 1)
    told = trial.await_event("Restarted")
    assert (told["type"], told["note"]) == ("Warning", "Restarted worker-0 (1 restarts so far)")
    assert len(trial.notes("Restarted")) == 1


def test_the_deletion_of_a_child_is_reported(trial: Trial) -> None:
    trial.submit(master(), workers(1))
    trial.await_phase("Running")
    name = trial.child("worker-0")
    trial.change(workerReplicas=0)
    trial.await_event("SuccessfulDelete", "1 Job", "1 Service", name)


def test_suspension_and_resumption_have_events(trial: Trial) -> None:
    trial.submit(master())
    trial.await_phase("Running")
    trial.change(suspend=True)
    trial.await_event("Suspended")
    trial.change(suspend=False)
    trial.await_event("Resumed")


def test_kubectl_describe_shows_the_events(trial: Trial, administrator: Kubectl) -> None:
    trial.submit(master())
    trial.await_phase("Running")
    trial.await_event("Running")
    shown = administrator.must("describe", "tfj", trial.name, f"--namespace={trial.namespace}")
    assert re.search(r"Normal\s+SuccessfulCreate\s+\S+\s+tfjob-controller\s+Created 1 Job and 1 Service: trial-", shown)


# Metrics


def metric(trial: Trial, name: str, **labels: str) -> float:
    registry = trial.playground.manager.metrics.registry
    return registry.get_sample_value(name, labels) or 0.0


def test_starts_restarts_and_ends_are_counted_and_no_series_carries_a_jobs_name(trial: Trial) -> None:
    where = {"namespace": trial.namespace}
    before = {
        name: metric(trial, name)
        for name in ("tfjob_created_total", "tfjob_restarts_total", "tfjob_duration_seconds_count")
    }
    succeeded = metric(trial, "tfjob_finished_total", state="Succeeded")
    done = metric(trial, "tfjob_jobs", **where, phase="Done", state="Succeeded")
    trial.plays("worker-0", ends(143), FOREVER)
    trial.submit(master(), workers(1))
    trial.await_status(lambda status: status.get("restarts") == 1 and status["phase"] == "Running")
    running = {**where, "phase": "Running", "state": "Running"}
    eventually(lambda: metric(trial, "tfjob_jobs", **running) >= 1, PATIENCE_SECONDS, PERIOD_SECONDS)
    trial.end("master-0")
    trial.await_phase("Done")
    eventually(
        lambda: metric(trial, "tfjob_finished_total", state="Succeeded") == succeeded + 1,
        PATIENCE_SECONDS,
        PERIOD_SECONDS,
    )
    for name, value in before.items():
        assert metric(trial, name) == value + 1, name
    assert metric(trial, "tfjob_jobs", **where, phase="Done", state="Succeeded") == done + 1
    assert "trial-" not in trial.playground.manager.metrics.exposition()[1].decode()
