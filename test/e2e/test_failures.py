"""Failures on real nodes and their effects on jobs: killed workers, too little memory, a lost node."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from helpers import machine
from helpers.cluster import Cluster, pod_path
from helpers.controller import Jobs
from helpers.errand import ERRAND, preferring, template
from helpers.gangscheduler import extender_url, running_gang_scheduler
from helpers.kubectl import Kubectl
from helpers.manifests import master, tfjob, workers
from helpers.plainpods import SERVER, condition, create_pod, phase, pod
from helpers.poll import eventually
from localcluster import nodes, stack
from localcluster.gangscheduler import GangScheduler

pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("own_nodes")]

# Generous: the machine may be busy. A kubelet restarts at once, the Job controller after 10 s.
PATIENCE_SECONDS = 600.0

Object = dict[str, Any]

NOT_ON_NODE_2 = 'import os, time\ntime.sleep(1000 if os.environ["NODE"] == "node-2" else 0)'


def pods_of(jobs: Jobs, job_type: str) -> list[Object]:
    return [pod for pod in jobs.children("pods").values() if pod["metadata"]["labels"]["job_type"] == job_type]


def log_of(kubectl: Kubectl, job_type: str) -> str:
    """Of example-job's; empty as long as there is no container; fails if kubectl does for another reason.

    "Is not available" says a kubelet that has not yet written any status of the pod.
    """
    answer = kubectl.run("logs", "-l", f"tf_job_name=example-job,job_type={job_type}", "--tail=-1")
    is_early = any(words in answer.error for words in ("waiting to start", "is not available"))
    assert answer.code == 0 or is_early, answer.error
    return answer.out


def kill(pod: Object) -> None:
    """SIGKILL for all that runs in it, from outside: no process can do that to the first of its own container."""
    pids = machine.of_pod(pod["metadata"]["uid"])
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def await_success(jobs: Jobs, name: str = "example-job") -> Object:
    status = jobs.await_phase("Done", name, PATIENCE_SECONDS)
    assert (status["state"], status["reason"]) == ("Succeeded", "master-0 succeeded")
    return status


@pytest.mark.parametrize("restart_policy", ["OnFailure", "Never"])
def test_a_worker_that_is_killed_starts_again_and_the_job_succeeds(
    jobs: Jobs, kubectl: Kubectl, restart_policy: str
) -> None:
    worker = template(ERRAND, env={"TROUBLE": "wait"}, restartPolicy=restart_policy)
    jobs.submit(tfjob(master(template=template(ERRAND)), workers(1, template=worker)))
    eventually(lambda: "in trouble" in log_of(kubectl, "WORKER"), PATIENCE_SECONDS)
    (first,) = pods_of(jobs, "WORKER")
    kill(first)
    status = await_success(jobs)
    assert status["restarts"] == 1
    assert "start worker-0 2" in log_of(kubectl, "MASTER")
    # The kubelet restarts in place, which its Job does not even notice; another pod takes another Job.
    (child,) = [job for job in jobs.children("jobs").values() if job["metadata"]["labels"]["job_type"] == "WORKER"]
    is_replaced = restart_policy == "Never"
    assert child["metadata"]["labels"].get("kubeflow.org/restarts") == ("1" if is_replaced else None)
    (note,) = notes(jobs, "Restarted")
    assert note.startswith("Restarted worker-0: worker-0 failed: exit code 137")
    assert note.endswith("(1 restarts so far)")


def notes(jobs: Jobs, reason: str) -> list[str]:
    return eventually(lambda: [event["note"] for event in jobs.events() if event["reason"] == reason])


def test_a_worker_that_takes_too_much_memory_starts_again_and_the_job_succeeds(jobs: Jobs, kubectl: Kubectl) -> None:
    limit = {"limits": {"memory": "64Mi"}}
    worker = template(ERRAND, env={"TROUBLE": "memory"}, resources=limit, restartPolicy="OnFailure")
    # Otherwise its pod is deleted if it runs longer than the chief's.
    jobs.submit(tfjob(master(template=template(ERRAND)), workers(1, template=worker), cleanPodPolicy="None"))
    assert await_success(jobs)["restarts"] == 1
    (pod,) = pods_of(jobs, "WORKER")
    (told,) = pod["status"]["containerStatuses"]
    assert told["restartCount"] == 1
    assert told["lastState"]["terminated"]["reason"] == "OOMKilled"


def test_a_node_dies_in_silence_its_replicas_start_again_elsewhere_and_it_comes_back_with_its_name(
    own_nodes: Cluster, space: str, jobs: Jobs, kubectl: Kubectl, gang_scheduler: None
) -> None:
    """NotReady in time, its pods given up, and after its start it takes pods again.

    One job loses a worker, another one its chief, whose Job makes no new pod as long as nobody knows of the old one.
    The third one is a gang, whose member gets another node although its old pod stays until the node is back.
    """
    gang_of_node_2(own_nodes, jobs)
    create_pod(own_nodes, space, pod("victim", SERVER, "node-2"))
    submit_to_node_2(jobs)
    eventually(lambda: "in trouble" in log_of(kubectl, "WORKER"), PATIENCE_SECONDS)
    eventually(lambda: jobs.phase("lonely") == "Running", PATIENCE_SECONDS)
    eventually(lambda: phase(own_nodes, space, "victim") == "Running", PATIENCE_SECONDS)
    connection = eventually(lambda: connect(own_nodes, space, "victim"), PATIENCE_SECONDS)
    stack.node_kill(own_nodes.folder, 2)
    try:
        with connection, pytest.raises(TimeoutError):  # neither an end nor a reset: a dead machine sends nothing
            connection.recv(1)
        assert [one["condition"] for one in nodes.status(own_nodes.folder)] == ["running", "dead"]
        eventually(lambda: condition(own_nodes, "node-2") == "Unknown", PATIENCE_SECONDS)
        eventually(lambda: own_nodes.api.find(pod_path(space, "victim")) is None, PATIENCE_SECONDS)
        for name in ("example-job", "lonely", "together"):
            jobs.await_phase("Done", name, PATIENCE_SECONDS)
    finally:
        stack.node_start(own_nodes.folder, 2)
    assert await_success(jobs)["restarts"] == 1
    for name in ("lonely", "together"):
        assert await_success(jobs, name)["restarts"] == 1
    assert "start worker-0 2" in log_of(kubectl, "MASTER")
    assert condition(own_nodes, "node-2") == "True"
    create_pod(own_nodes, space, pod("next", ["true"], "node-2"))
    eventually(lambda: phase(own_nodes, space, "next") == "Succeeded", PATIENCE_SECONDS)


@pytest.fixture
def gang_scheduler(own_nodes: Cluster) -> Iterator[None]:
    with (
        running_gang_scheduler(own_nodes.kubeconfig) as scheduler,
        GangScheduler(own_nodes.own, extender_url(scheduler)),
    ):
        yield


def gang_of_node_2(cluster: Cluster, jobs: Jobs) -> None:
    """A gang that got a node while there was no other one."""
    other = "/api/v1/nodes/node-1"
    cluster.api.patch(other, {"spec": {"unschedulable": True}})
    try:
        jobs.submit(tfjob(master(template=template(NOT_ON_NODE_2)), name="together", gang={"enabled": True}))
        jobs.await_phase("Running", "together", PATIENCE_SECONDS)
    finally:
        cluster.api.patch(other, {"spec": {"unschedulable": False}})


def submit_to_node_2(jobs: Jobs) -> None:
    """A job whose worker is there, and one whose chief is."""
    there = preferring("node-2")
    worker = template(ERRAND, env={"TROUBLE": "wait"}, affinity=there)
    leader = template(ERRAND, nodeSelector={"kubernetes.io/hostname": "node-1"})
    jobs.submit(tfjob(master(template=leader), workers(1, template=worker)))
    jobs.submit(tfjob(master(template=template(NOT_ON_NODE_2, affinity=there)), name="lonely"))


def connect(cluster: Cluster, space: str, name: str) -> socket.socket | None:
    """A connection from this machine to a pod's server; its reads wait for a second."""
    address = cluster.api.get(pod_path(space, name))["status"]["podIP"]
    try:
        return socket.create_connection((address, 8000), 1)
    except OSError:
        return None
