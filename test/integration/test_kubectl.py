"""The plugin against a real API server, with a real controller's jobs."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from helpers.cluster import (
    Cluster,
    delete_service_account,
    new_service_account,
    set_pod_running,
    set_pod_waiting,
    write_kubeconfig,
)
from helpers.logkubelet import Kubelet
from helpers.manifests import container, master, parameter_servers, pod_template, tfjob, workers
from helpers.playground import FOREVER, Playground, Trial, alone, ends
from helpers.poll import eventually
from localcluster import binaries
from localcluster.api import Api
from tfjob_controller.kubectl import cli

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """The controller's log would mix with what the plugin prints: here they share a process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


# Code, standard output, standard error.
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def plugin(control_plane: Cluster, playground: Playground, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the plugin in this process, in the playground's namespace unless told."""

    def run(*arguments: str, kubeconfig: Path = control_plane.kubeconfig) -> tuple[int, str, str]:
        capfd.readouterr()
        given = [] if {"-n", "-A"} & set(arguments) else ["-n", playground.jobs.namespace]
        code = cli.main([*arguments, *given, "--kubeconfig", str(kubeconfig)])
        shown = capfd.readouterr()
        return code, shown.out, shown.err

    return run


def test_list_shows_what_kubectl_get_shows(plugin: Run, trial: Trial) -> None:
    trial.submit(master(), workers(2))
    trial.await_phase("Running")
    code, out, error = plugin("list")
    assert (code, error) == (0, "")
    header, *rows = out.splitlines()
    assert header.split() == ["NAME", "PHASE", "STATE", "MASTERS", "WORKERS", "PS", "AGE"]
    row = next(row.split() for row in rows if row.startswith(f"{trial.name} "))
    assert row[:4] == [trial.name, "Running", "Running", "1/1"]


def test_list_of_all_namespaces_says_which_and_wide_says_why(plugin: Run, trial: Trial) -> None:
    trial.submit(master(template=pod_template(container(), schedulerName="nobody")))
    trial.await_phase("Creating")
    _, out, _ = plugin("list", "-A", "-o", "wide")
    assert out.split()[:2] == ["NAMESPACE", "NAME"]
    assert "REASON" in out
    assert any(line.split()[:2] == [trial.namespace, trial.name] for line in out.splitlines())


def test_list_as_json_is_the_jobs_themselves(plugin: Run, trial: Trial) -> None:
    trial.submit(master())
    _, out, _ = plugin("list", "-o", "json")
    listed = json.loads(out)
    job = next(each for each in listed["items"] if each["metadata"]["name"] == trial.name)
    assert listed["kind"] == "TFJobList"
    assert job["spec"]["replicaSpecs"][0]["tfReplicaType"] == "MASTER"
    assert "managedFields" not in job["metadata"]


def test_an_empty_namespace_is_no_error(plugin: Run, namespace: str) -> None:
    assert plugin("list", "-n", namespace) == (0, "", f"No TFJobs in namespace {namespace}.\n")


def test_describe_says_which_replica_waits_and_why(plugin: Run, trial: Trial) -> None:
    trial.submit(master(template=alone()), workers(1, template=alone()), parameter_servers(1))
    pod = trial.await_pod("worker-0")
    set_pod_waiting(
        trial.jobs.api, trial.namespace, pod["metadata"]["name"], "ErrImagePull", "no such image: localhost/typo"
    )
    trial.await_reason("worker-0", "ImagePullBackOff")
    code, out, _ = plugin("describe", trial.name)
    line = next(line for line in out.splitlines() if line.startswith("worker-0"))
    assert code == 0
    assert "ImagePullBackOff: no such image: localhost/typo" in line
    assert pod["metadata"]["name"] in line
    assert "nobodys-node" in line
    assert "CHIEF" not in out
    assert {"Replicas", "Conditions", "Events"} <= set(out.splitlines())


def test_describe_shows_the_warnings_about_a_replica_that_waits(plugin: Run, trial: Trial) -> None:
    trial.submit(master(template=pod_template(container(), nodeSelector={"no": "such-node"})))
    trial.await_reason("master-0: Unschedulable")
    pod = trial.pods("master-0")[0]["metadata"]["name"]

    def told() -> bool:
        _, out, _ = plugin("describe", trial.name)
        return any("FailedScheduling" in line and pod in line for line in out.splitlines())

    eventually(told, 20.0, 0.5)


def test_describe_counts_restarts_and_shows_the_last_exit_with_its_words(plugin: Run, trial: Trial) -> None:
    trial.plays("worker-0", ends(3, "no GPU here"), FOREVER)
    trial.submit(master(), workers(1))
    trial.await_status(lambda status: status.get("restarts", 0) >= 1)
    eventually(lambda: trial.status().get("ready", {}).get("worker") == "1/1", 20.0)
    _, out, _ = plugin("describe", trial.name, "-o", "json")
    shown = json.loads(out)
    worker = next(row for row in shown["replicas"] if row["replica"] == "worker-0")
    assert (worker["restarts"], worker["lastExit"], worker["message"]) == (1, "exit code 3", "no GPU here")
    assert worker["ready"] is True
    assert shown["restarts"] == 1


def test_describe_of_a_job_that_no_controller_sees_says_so(plugin: Run, api: Api, namespace: str) -> None:
    api.create(f"/apis/kubeflow.org/v1alpha1/namespaces/{namespace}/tfjobs", tfjob(master()))
    code, out, _ = plugin("describe", "example-job", "-n", namespace)
    assert code == 0
    assert "No controller has seen the job yet" in out


def test_describe_of_a_finished_job_shows_how_it_ended(plugin: Run, trial: Trial) -> None:
    trial.plays("master-0", ends(1, "data set not found"))
    trial.submit(master(template=pod_template(container(), restartPolicy="Never")))
    trial.await_phase("Failed")
    _, out, _ = plugin("describe", trial.name)
    assert "data set not found" in next(line for line in out.splitlines() if line.startswith("Reason"))
    assert "exit code 1" in next(line for line in out.splitlines() if line.startswith("master-0"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["describe", "nobody"], 'tfjobs.kubeflow.org "nobody" not found: `kubectl tfjob list', id="job"),
        pytest.param(["logs", "nobody"], '"nobody" not found', id="log"),
    ],
)
def test_what_does_not_exist_is_one_line_and_code_1(plugin: Run, arguments: list[str], words: str) -> None:
    code, out, error = plugin(*arguments)
    assert (code, out) == (1, "")
    assert words in error
    assert error.count("\n") == 1


def test_missing_rights_are_named_with_their_remedy(
    plugin: Run, control_plane: Cluster, namespace: str, tmp_path: Path
) -> None:
    token = new_service_account(control_plane.api, namespace, "nobody", [])
    mine = write_kubeconfig(control_plane, token, tmp_path / "kubeconfig")
    try:
        code, _, error = plugin("list", "-n", namespace, kubeconfig=mine)
    finally:
        delete_service_account(control_plane.api, namespace, "nobody")
    assert code == 1
    assert "cannot list resource" in error
    assert error.endswith("ask for the role `view` in that namespace\n")
    assert token not in error


def test_the_role_view_is_enough(
    plugin: Run, control_plane: Cluster, trial: Trial, namespace: str, tmp_path: Path
) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/view"
    rules = [*control_plane.api.get(path)["rules"]]
    rules.append({"apiGroups": ["kubeflow.org"], "resources": ["tfjobs"], "verbs": ["get", "list", "watch"]})
    token = new_service_account(control_plane.api, namespace, "viewer", rules)
    mine = write_kubeconfig(control_plane, token, tmp_path / "kubeconfig")
    trial.submit(master())
    trial.await_phase("Running")
    try:
        codes = [plugin("list", kubeconfig=mine)[0], plugin("describe", trial.name, kubeconfig=mine)[0]]
    finally:
        delete_service_account(control_plane.api, namespace, "viewer")
    assert codes == [0, 0]


def test_kubectl_finds_it_as_a_plugin(control_plane: Cluster, trial: Trial) -> None:
    trial.submit(master())
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    command = [str(binaries.ensure("kubectl")), "tfjob", "list", "-n", trial.namespace]
    environment["KUBECONFIG"] = str(control_plane.kubeconfig)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert trial.name in done.stdout


def on(node: Kubelet) -> dict[str, Any]:
    return pod_template(container(), nodeName=node.name)


def start(trial: Trial, *replicas: str) -> dict[str, str]:
    """Report their pods as running; the pods' names."""
    pods = {replica: trial.await_pod(replica)["metadata"]["name"] for replica in replicas}
    for pod in pods.values():
        set_pod_running(trial.jobs.api, trial.namespace, pod)
    return pods


def test_logs_are_the_chiefs_unless_told(plugin: Run, trial: Trial, logging_node: Kubelet) -> None:
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
    for arguments in (["--replica", "all"], ["--replica", "all", "-f"]):
        code, out, _ = plugin("logs", trial.name, *arguments)
        assert (code, set(out.splitlines())) == (0, every)


def test_followed_logs_wait_for_the_program_and_come_line_by_line(
    control_plane: Cluster, trial: Trial, logging_node: Kubelet
) -> None:
    may_end = threading.Event()

    def lines() -> Iterator[bytes]:
        yield b"early\n"
        may_end.wait(30.0)
        yield b"late\n"

    logging_node.chunks = lines()
    trial.submit(master(template=on(logging_node)))
    trial.await_pod("master-0")
    command = [sys.executable, "-c", "from tfjob_controller.kubectl.cli import main; raise SystemExit(main())"]
    command += ["logs", "-f", trial.name, "-n", trial.namespace, "--kubeconfig", str(control_plane.kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert following.stderr is not None
        assert following.stderr.readline() == "waiting for master-0: it has not started yet\n"
        start(trial, "master-0")
        assert following.stdout.readline() == "early\n"
        may_end.set()
        assert following.stdout.readline() == "late\n"
        assert following.wait(10) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param([], "master-0 has no pod: ", id="no pod"),
        pytest.param(["--replica", "worker-9"], "has no replica worker-9: it has master-0", id="no such replica"),
    ],
)
def test_a_log_that_cannot_be_had_is_explained(plugin: Run, trial: Trial, arguments: list[str], words: str) -> None:
    trial.plays("master-0", ends(0))
    trial.submit(master(), cleanPodPolicy="All")
    trial.await_phase("Done")
    eventually(lambda: not trial.pods("master-0"), 20.0)
    code, _, error = plugin("logs", trial.name, *arguments)
    assert code == 1
    assert words in error
