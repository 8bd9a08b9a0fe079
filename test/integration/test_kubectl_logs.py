"""`kubectl tfjob logs` against a real API server, and kubelets that have logs."""

from __future__ import annotations

import threading
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.cluster import Cluster, Outcome, pod_path, set_pod_running, set_pod_terminated
from helpers.logkubelet import Kubelet
from helpers.manifests import container, master, pod_template, workers
from helpers.playground import Trial, ends
from helpers.plugin import Run, program, quiet
from helpers.poll import eventually
from localcluster import podstatus
from tfjob_controller.kubectl.argumenttypes import JobName
from tfjob_controller.kubectl.commands.follow import follow_chief
from tfjob_controller.kubectl.session import Session

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


def test_followed_logs_go_on_over_restarts_until_the_job_ends(
    control_plane: Cluster, trial: Trial, logging_node: Kubelet
) -> None:
    api = trial.jobs.api
    trial.submit(master(template=on(logging_node)))
    pod = start(trial, "master-0")["master-0"]
    path = pod_path(trial.namespace, pod)
    with follow(control_plane, trial, "--tail", "5") as following:
        assert [following.stdout.readline() for _ in range(2)] == [f"step 1 of {pod}\n", "step 2\n"]
        logging_node.logs[pod] = "once more\n"
        restarted = podstatus.running(api.get(path), "10.99.0.1", restarts=1, last=Outcome(exit_code=137))
        api.patch(f"{path}/status", {"status": restarted})
        assert following.stdout.readline() == "once more\n"
        set_pod_terminated(api, trial.namespace, pod)
        trial.await_phase("Done")
        assert following.stdout.read() == ""
        assert following.wait(60) == 0


def test_a_log_that_does_not_end_is_followed_until_the_time_is_over(
    control_plane: Cluster, trial: Trial, logging_node: Kubelet, capfd: pytest.CaptureFixture[str]
) -> None:
    """As `submit -f --timeout` follows it."""
    may_end = threading.Event()

    def lines() -> Iterator[bytes]:
        yield b"early\n"
        may_end.wait(60.0)

    logging_node.chunks = lines()
    trial.submit(master(template=on(logging_node)))
    start(trial, "master-0")
    session = Session(Namespace(namespace=trial.namespace, kubeconfig=str(control_plane.kubeconfig), context=""))
    with quiet():
        capfd.readouterr()
        follow_chief(session, session.job(JobName("", trial.name)), 3.0)
        session.close()
    shown = capfd.readouterr()
    assert not may_end.is_set()
    may_end.set()
    assert (shown.out, shown.err) == ("early\n", "")
    assert trial.status()["phase"] == "Running"


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


def test_the_log_of_a_failed_init_container_is_shown_in_place_of_the_programs(
    plugin: Run, trial: Trial, logging_node: Kubelet
) -> None:
    fetch = {"name": "fetch", "image": "localhost/fetch"}
    trial.submit(master(template=pod_template(container(), nodeName=logging_node.name, initContainers=[fetch])))
    pod = trial.await_pod("master-0")
    name = pod["metadata"]["name"]
    logging_node.logs[name] = "no such dataset\n"
    failed = podstatus.terminated(pod, Outcome(exit_code=1, container="fetch"))
    trial.jobs.api.patch(f"{pod_path(trial.namespace, name)}/status", {"status": failed})
    trial.await_phase("Failed")
    words = "master-0 has not started: its init container fetch failed (exit code 1); its log:\n"
    for flags in ([], ["-f"]):
        code, out, notice = plugin("logs", trial.name, *flags)
        assert (code, out) == (0, "no such dataset\n")
        assert words in notice
        assert logging_node.requests[-1].path.endswith("/fetch")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param([], "master-0 has no log: ", id="no pod"),
        pytest.param(["--replica", "worker-9"], "has no replica worker-9: it has master-0", id="no such replica"),
    ],
)
def test_a_log_that_cannot_be_had_is_explained(plugin: Run, trial: Trial, arguments: list[str], words: str) -> None:
    trial.plays("master-0", ends(0))
    trial.submit(master(), cleanPodPolicy="All")
    trial.await_phase("Done")
    eventually(lambda: not trial.pods("master-0"), 60.0)
    code, _, error = plugin("logs", trial.name, *arguments)
    assert code == 1
    assert words in error
