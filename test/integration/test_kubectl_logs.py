"""`kubectl tfjob logs` against a real API server, and kubelets that have logs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.cluster import Cluster, Outcome, pod_path, set_pod_running, set_pod_terminated
from helpers.logkubelet import Kubelet
from helpers.manifests import container, master, pod_template, workers
from helpers.playground import Trial
from helpers.plugin import Run, program
from localcluster import podstatus

pytestmark = pytest.mark.cluster


def on(node: Kubelet) -> dict[str, Any]:
    return pod_template(container(), nodeName=node.name)


def start(trial: Trial, *replicas: str) -> dict[str, str]:
    """Report their pods as running; the pods' names."""
    pods = {replica: trial.await_pod(replica)["metadata"]["name"] for replica in replicas}
    for pod in pods.values():
        set_pod_running(trial.jobs.api, trial.namespace, pod)
    return pods


def test_logs_are_the_chiefs_by_default(plugin: Run, trial: Trial, logging_node: Kubelet) -> None:
    trial.submit(master(template=on(logging_node)), workers(1, template=on(logging_node)))
    pods = start(trial, "master-0", "worker-0")
    assert plugin("logs", trial.name, "--tail", "7") == (0, f"step 1 of {pods['master-0']}\nstep 2\n", "")
    assert logging_node.requests[-1].path.endswith("/tensorflow")
    assert logging_node.requests[-1].query["tailLines"] == "7"
    assert plugin("logs", trial.name, "--replica", "worker-0")[1].startswith(f"step 1 of {pods['worker-0']}\n")


def test_logs_of_all_replicas_say_whose_each_line_is(plugin: Run, trial: Trial, logging_node: Kubelet) -> None:
    trial.submit(master(template=on(logging_node)), workers(2, template=on(logging_node)))
    pods = start(trial, "master-0", "worker-0", "worker-1")
    every = {f"[{replica}] step 1 of {pod}" for replica, pod in pods.items()} | {f"[{each}] step 2" for each in pods}
    code, out, error = plugin("logs", trial.name, "--replica", "all")
    assert (code, set(out.splitlines()), error) == (0, every, "")
    code, out, _ = plugin("logs", trial.name, "--replica", "worker", "--tail", "1")
    assert {line.split()[0] for line in out.splitlines()} == {"[worker-0]", "[worker-1]"}


def follow(control_plane: Cluster, trial: Trial, *arguments: str) -> Any:
    flags = ["-n", trial.namespace, "--kubeconfig", str(control_plane.kubeconfig)]
    return program("logs", "-f", trial.name, *arguments, *flags)


def test_followed_logs_wait_for_the_program_and_come_line_by_line(
    control_plane: Cluster, trial: Trial, logging_node: Kubelet
) -> None:
    may_end = threading.Event()

    def lines() -> Iterator[bytes]:
        yield b"early\n"
        may_end.wait(60.0)
        yield b"late\n"

    logging_node.chunks = lines()
    trial.submit(master(template=on(logging_node)))
    trial.await_pod("master-0")
    with follow(control_plane, trial) as following:
        assert following.stderr.readline() == "waiting for master-0: it has not started yet\n"
        pods = start(trial, "master-0")
        assert following.stdout.readline() == "early\n"
        set_pod_terminated(trial.jobs.api, trial.namespace, pods["master-0"])
        trial.await_phase("Done")
        may_end.set()
        assert following.stdout.readline() == "late\n"
        assert following.wait(60) == 0


def test_a_previous_run_is_shown_only_where_there_was_one(plugin: Run, trial: Trial, logging_node: Kubelet) -> None:
    api = trial.jobs.api
    trial.submit(master(template=on(logging_node)))
    pod = start(trial, "master-0")["master-0"]
    words = "master-0 has no previous run: its program was not restarted in the present pod"
    assert plugin("logs", trial.name, "-p") == (1, "", f"kubectl tfjob: {words}\n")
    assert not logging_node.requests
    path = pod_path(trial.namespace, pod)
    restarted = podstatus.running(api.get(path), "10.99.0.1", restarts=1, last=Outcome(exit_code=137))
    api.patch(f"{path}/status", {"status": restarted})
    assert plugin("logs", trial.name, "-p") == (0, f"step 1 of {pod}\nstep 2\n", "")
    assert logging_node.requests[-1].query["previous"] == "true"
