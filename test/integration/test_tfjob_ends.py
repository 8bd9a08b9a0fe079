"""Ends of replicas on a real API server and their effects on the job: exit codes, restarts, disruptions, the chief."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.cluster import pod_path, set_pod_running
from helpers.kubernetesversion import running_version
from helpers.manifests import container, master, parameter_servers, pod_template, workers
from helpers.playground import FOREVER, NOBODYS_NODE, Trial, alone, ends
from helpers.poll import eventually, never
from localcluster import podstatus
from localcluster.api import STRATEGIC_MERGE_PATCH
from localcluster.podstatus import Outcome
from tfjob_controller.programs.manager import RESTART_RULES_SINCE

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

NEVER = pod_template(container(), restartPolicy="Never")
ON_FAILURE = pod_template(container(), restartPolicy="OnFailure")
CHIEF_IS_WORKER_1 = {"chief": {"replicaName": "WORKER", "replicaIndex": 1}}


def state_of(status: Object, replica_type: str) -> tuple[str, Object]:
    (found,) = [each for each in status["replicaStatuses"] if each["tf_replica_type"] == replica_type]
    return found["state"], found["ReplicasStates"]


# The chief


@pytest.mark.parametrize(
    ("template", "end", "phase", "state", "reason"),
    [
        pytest.param(ON_FAILURE, ends(0), "Done", "Succeeded", "master-0 succeeded", id="0"),
        pytest.param(NEVER, ends(1, "no data"), "Failed", "Failed", "master-0 failed: exit code 1: no data", id="1"),
        pytest.param(ON_FAILURE, ends(127), "Failed", "Failed", "master-0 failed: exit code 127", id="127"),
    ],
)
def test_these_ends_of_the_chief_are_the_jobs(
    trial: Trial, template: Object, end: Outcome, phase: str, state: str, reason: str
) -> None:
    trial.plays("master-0", end)
    trial.submit(master(template=template), workers(1))
    status = trial.await_end()
    assert (status["phase"], status["state"], status["reason"]) == (phase, state, reason)
    may_restart = template is ON_FAILURE and restarts_until_stopped(end)
    assert status.get("restarts", 0) <= int(may_restart)
    assert trial.starts("master-0") <= 1 + may_restart


def restarts_until_stopped(end: Outcome) -> bool:
    """Reports whether the kubelet restarts a container with OnFailure until the controller has stopped its Job.

    Without restart rules the kubelet does not tell codes apart.
    """
    return end.exit_code != 0 and running_version() < RESTART_RULES_SINCE


def test_a_chief_that_ends_by_a_signal_is_started_again_in_its_pod(trial: Trial) -> None:
    trial.plays("master-0", ends(128), ends(143), FOREVER)
    trial.submit(master(template=ON_FAILURE), workers(1))
    status = trial.await_status(lambda status: status.get("restarts") == 2)
    assert (status["phase"], status["state"]) == ("Running", "Running")
    (pod,) = trial.pods("master-0")
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 2


def test_with_restart_policy_never_the_chief_gets_a_new_pod(trial: Trial) -> None:
    """In a new Job, since each starts one pod."""
    trial.plays("master-0", ends(143), ends(0))
    trial.submit(master(template=NEVER))
    status = trial.await_phase("Done")
    assert (status["state"], status["restarts"], trial.starts("master-0")) == ("Succeeded", 1, 2)
    assert status["restartCounts"] == {"master-0": 1}
    assert trial.child_job("master-0")["status"].get("failed", 0) == 0


def test_a_chief_that_succeeded_after_a_restart_is_judged_by_its_last_end(trial: Trial) -> None:
    trial.plays("master-0", ends(255), ends(3, "in the end"))
    trial.submit(master(template=ON_FAILURE))
    status = trial.await_phase("Failed")
    assert status["reason"] == "master-0 failed: exit code 3: in the end"


def test_the_chief_may_be_named(trial: Trial) -> None:
    trial.plays("worker-1", ends(5))
    trial.plays("master-0", ends(0, after=2.0))
    trial.submit(master(), workers(2), terminationPolicy=CHIEF_IS_WORKER_1)
    assert trial.await_end()["reason"] == "worker-1 failed: exit code 5"


# Workers and parameter servers


@pytest.mark.parametrize(
    ("replica", "end", "state"),
    [
        pytest.param("worker-0", ends(137, reason="OOMKilled"), "Failed", id="permanent"),
        pytest.param("ps-0", ends(143), "Running", id="retryable"),
    ],
)
def test_a_worker_or_ps_is_started_again_whatever_its_error(
    trial: Trial, replica: str, end: Outcome, state: str
) -> None:
    trial.plays(replica, end, FOREVER)
    trial.submit(master(), workers(1), parameter_servers(1))
    status = trial.await_status(lambda status: status.get("restarts") == 1 and status["phase"] == "Running")
    assert trial.starts(replica) == 2
    (pod,) = trial.pods(replica)
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1
    assert state_of(status, replica.partition("-")[0].upper()) == (state, {state: 1})
    assert status["state"] == "Running"


@pytest.mark.parametrize("victims", ["pods", "jobs"])
def test_a_worker_that_succeeded_is_never_run_again_whatever_is_deleted(trial: Trial, victims: str) -> None:
    trial.plays("worker-0", ends(0))
    trial.submit(master(), workers(2))
    trial.await_status(lambda status: status.get("succeededIndexes") == ["worker-0"])
    name = trial.child("worker-0")
    paths = {
        "pods": [pod_path(trial.namespace, each["metadata"]["name"]) for each in trial.pods("worker-0")],
        "jobs": [trial.child_path("jobs", name)],
    }
    for path in paths[victims]:
        trial.jobs.api.delete(path, propagationPolicy="Background")
    # Whatever is to happen has happened once another worker, asked for after it, runs.
    trial.change(workerReplicas=3)
    trial.await_running("worker-2")
    assert trial.starts("worker-0") == 1
    status = trial.status()
    assert status["succeededIndexes"] == ["worker-0"]
    assert state_of(status, "WORKER")[1]["Succeeded"] == 1


def test_a_ps_that_ends_with_0_is_started_again(trial: Trial) -> None:
    trial.plays("ps-0", ends(0), FOREVER)
    trial.submit(master(), parameter_servers(1, template=ON_FAILURE))
    first = eventually(lambda: trial.pods("ps-0"))[0]["metadata"]["name"]
    trial.await_running("ps-0", but=first)
    status = trial.await_status(lambda status: status["ready"]["ps"] == "1/1")
    assert state_of(status, "PS") == ("Running", {"Running": 1})
    assert "ps-0" not in status.get("succeededIndexes", ())
    assert status["restarts"] == 1


@pytest.mark.parametrize("plural", ["jobs", "services", "configmaps"])
def test_a_child_that_is_deleted_comes_back(trial: Trial, plural: str) -> None:
    trial.submit(master(), parameter_servers(1))
    trial.await_phase("Running")
    name = f"cm-ps-{trial.runtime_id}" if plural == "configmaps" else trial.child("ps-0")
    path = trial.child_path(plural, name)
    uid = trial.jobs.api.get(path)["metadata"]["uid"]
    trial.jobs.api.delete(path, propagationPolicy="Background")

    def is_back() -> bool:
        found = trial.jobs.api.find(path)
        return found is not None and found["metadata"]["uid"] != uid

    eventually(is_back)
    trial.await_running("ps-0")
    assert trial.status()["state"] == "Running"


def test_a_child_job_that_somebody_suspends_is_replaced(trial: Trial) -> None:
    trial.submit(master(), workers(1))
    trial.await_phase("Running")
    before = trial.await_running("worker-0")["metadata"]["name"]
    path = trial.child_path("jobs", trial.child("worker-0"))
    uid = trial.jobs.api.patch(path, {"spec": {"suspend": True}})["metadata"]["uid"]
    trial.await_running("worker-0", but=before)
    job = trial.child_job("worker-0")
    assert (job["metadata"]["uid"] != uid, job["spec"]["suspend"]) == (True, False)
    assert trial.status()["state"] == "Running"


# failurePolicy


@pytest.mark.parametrize(("replica", "template"), [("worker-1", ON_FAILURE), ("ps-0", NEVER)], ids=["worker", "ps"])
def test_under_any_replica_a_permanent_error_of_any_is_the_jobs(trial: Trial, replica: str, template: Object) -> None:
    end = ends(4, "cannot go on")
    trial.plays(replica, end)
    trial.submit(
        master(), workers(2, template=template), parameter_servers(1, template=template), failurePolicy="AnyReplica"
    )
    status = trial.await_end()
    assert (status["phase"], status["reason"]) == ("Failed", f"{replica} failed: exit code 4: cannot go on")
    may_restart = template is ON_FAILURE and restarts_until_stopped(end)
    assert trial.starts(replica) <= 1 + may_restart


# Disruptions


def evict(trial: Trial, pod: Object) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"]}}
    trial.jobs.api.create(f"{pod_path(trial.namespace, pod['metadata']['name'])}/eviction", body)


@pytest.mark.parametrize(
    ("replica", "template", "failure_policy"),
    [
        pytest.param("master-0", ON_FAILURE, "Chief", id="chief"),
        pytest.param("worker-0", NEVER, "AnyReplica", id="worker that decides"),
    ],
)
def test_an_evicted_pod_is_replaced_and_the_job_goes_on(
    trial: Trial, replica: str, template: Object, failure_policy: str
) -> None:
    """The eviction API sets DisruptionTarget, as preemption and node loss do."""
    trial.submit(master(template=template), workers(1, template=template), failurePolicy=failure_policy)
    trial.await_phase("Running")
    pod = trial.await_running(replica)
    evict(trial, pod)
    trial.await_running(replica, but=pod["metadata"]["name"])
    status = trial.await_status(lambda status: status["ready"] == {"master": "1/1", "worker": "1/1"})
    assert (status["phase"], status["state"]) == ("Running", "Running")


@pytest.mark.parametrize("exit_code", [0, 1])
def test_what_a_chief_that_its_node_evicted_exits_with_does_not_count(trial: Trial, exit_code: int) -> None:
    """The kubelet's own eviction: the pod stays, Failed, with reason Evicted and the condition."""
    trial.submit(master(template=alone(restartPolicy="Never")))
    pod = trial.await_pod("master-0")
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    ended = {"terminated": {"exitCode": exit_code, "reason": "Error"}}
    statuses = [{"name": "tensorflow", "ready": False, "restartCount": 0, "image": "", "imageID": "", "state": ended}]
    status = {"phase": "Failed", "reason": "Evicted", "conditions": [condition], "containerStatuses": statuses}
    path = f"{pod_path(trial.namespace, pod['metadata']['name'])}/status"
    trial.jobs.api.patch(path, {"status": status})
    trial.await_pod("master-0", but=pod["metadata"]["name"])
    status = trial.await_status(lambda status: status.get("restarts") == 1)
    assert (status["state"], status["disruptions"]) == ("Running", 1)
    assert "completionTime" not in status


def test_a_chief_that_ran_out_of_memory_is_not_started_again_and_again_even_if_nothing_is_cleaned_up(
    trial: Trial,
) -> None:
    """Its exit code is that of a signal, so the kubelet would restart it for ever: the controller stops its Job."""
    trial.plays("master-0", *[ends(137, reason="OOMKilled", after=1.0)] * 900)
    trial.submit(master(template=ON_FAILURE), workers(1), cleanPodPolicy="None")
    assert trial.await_end()["reason"] == "master-0 failed: exit code 137 (OOMKilled)"
    eventually(lambda: trial.pods("master-0") == [])
    assert trial.child_job("master-0")["spec"]["suspend"] is True
    assert trial.child_job("worker-0")["spec"]["suspend"] is False
    assert len(trial.pods("worker-0")) == 1


def test_a_chief_that_ends_with_0_because_it_was_evicted_has_not_succeeded(trial: Trial) -> None:
    """It was asked to go and went in good order; then the pod is gone, and its Job is complete.

    The controller must have seen how the pod ended: of a pod that came and went between two looks nothing is left.
    """
    trial.submit(master(template=alone()), workers(1, template=alone()))
    api = trial.jobs.api
    for each in ("master-0", "worker-0"):
        set_pod_running(api, trial.namespace, trial.await_pod(each)["metadata"]["name"])
    trial.await_phase("Running")
    name = trial.await_pod("master-0")["metadata"]["name"]
    evict(trial, trial.await_pod("master-0"))
    ended = podstatus.terminated(api.get(pod_path(trial.namespace, name)), ends(0))
    path = pod_path(trial.namespace, name)
    api.patch(f"{path}/status", {"status": ended}, STRATEGIC_MERGE_PATCH)
    # Not the condition Restarting: it is over as soon as there is another pod.
    trial.await_status(lambda status: status.get("restarts") == status.get("disruptions") == 1)
    api.delete(path, gracePeriodSeconds=0)
    again = trial.await_pod("master-0", but=name)
    set_pod_running(api, trial.namespace, again["metadata"]["name"])
    status = trial.await_status(lambda status: status["ready"] == {"master": "1/1", "worker": "1/1"})
    assert (status["state"], status.get("succeededIndexes")) == ("Running", None)
    assert (status["restarts"], status["disruptions"]) == (1, 1)


def ends_beside_a_running_container(trial: Trial, replica: str, exit_code: int) -> None:
    """The program has ended, and a container beside it keeps the pod alive."""
    pod = trial.await_pod(replica)
    status = podstatus.running(pod, "10.99.0.1")
    (trained,) = [each for each in status["containerStatuses"] if each["name"] == "tensorflow"]
    moment = podstatus.now()
    ended = {"exitCode": exit_code, "reason": "Error", "startedAt": moment, "finishedAt": moment}
    trained.update(ready=False, started=False, state={"terminated": ended})
    path = f"{pod_path(trial.namespace, pod['metadata']['name'])}/status"
    trial.jobs.api.patch(path, {"status": status}, STRATEGIC_MERGE_PATCH)


def test_the_program_decides_even_if_a_container_beside_it_runs_on(trial: Trial) -> None:
    # What runs on is stopped after its grace period.
    spec = {"nodeName": NOBODYS_NODE, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    beside = pod_template(container("side"), container(), **spec)
    trial.submit(master(template=beside), workers(1, template=beside))
    ends_beside_a_running_container(trial, "worker-0", 0)
    status = trial.await_status(lambda status: status.get("succeededIndexes") == ["worker-0"])
    assert (status["phase"], state_of(status, "WORKER")) == ("Creating", ("Succeeded", {"Succeeded": 1}))
    ends_beside_a_running_container(trial, "master-0", 6)
    assert trial.await_status(lambda status: status.get("completionTime"))["state"] == "Failed"
    # What runs beside is stopped, as cleanPodPolicy says; no kubelet confirms it here.
    for replica in ("master-0", "worker-0"):
        eventually(lambda: trial.child_job(replica)["spec"]["suspend"])  # noqa: B023
    assert trial.await_end()["state"] == "Failed"


def test_a_job_of_another_controller_is_never_touched(trial: Trial) -> None:
    """Neither now, nor when it changes, nor when it is deleted."""
    trial.submit(master(), managedBy="kueue.x-k8s.io/multikueue")
    trial.change(suspend=True)

    def touched() -> object:
        children = [name for name in trial.jobs.children("jobs") if name.startswith(f"{trial.name}-master-")]
        return trial.status() or children or trial.events()

    never(touched, 3, 0.2)
    trial.delete()
