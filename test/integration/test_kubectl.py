"""The plugin's commands that read, against a real API server, with a real controller's jobs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from helpers.cluster import (
    Cluster,
    delete_namespace,
    delete_service_account,
    new_namespace,
    new_service_account,
    set_pod_waiting,
    write_kubeconfig,
)
from helpers.manifests import container, master, parameter_servers, pod_template, tfjob, workers
from helpers.playground import FOREVER, Playground, Trial, alone, ends
from helpers.plugin import Run, program
from helpers.poll import eventually
from helpers.trainmanifests import trainjob
from localcluster import binaries
from localcluster.api import Api
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.kubectl import cli

pytestmark = pytest.mark.cluster


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
    # Other tests have TrainJobs, and would have a column for the kind.
    _, out, _ = plugin("list", "-A", "-o", "wide", "--kind", "tfjob")
    assert out.split()[:2] == ["NAMESPACE", "NAME"]
    assert "REASON" in out
    assert any(line.split()[:2] == [trial.namespace, trial.name] for line in out.splitlines())


def test_list_as_json_is_the_jobs_themselves(plugin: Run, trial: Trial) -> None:
    trial.submit(master())
    _, out, _ = plugin("list", "-o", "json")
    listed = json.loads(out)
    job = next(each for each in listed["items"] if each["metadata"]["name"] == trial.name)
    assert (listed["kind"], job["kind"]) == ("List", "TFJob")
    assert job["spec"]["replicaSpecs"][0]["tfReplicaType"] == "MASTER"
    assert "managedFields" not in job["metadata"]


def test_an_empty_namespace_is_no_error(plugin: Run, namespace: str) -> None:
    assert plugin("list", "-n", namespace) == (0, "", f"No jobs in namespace {namespace}.\n")


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

    eventually(told)


def test_describe_counts_restarts_and_shows_the_last_exit_with_its_message(plugin: Run, trial: Trial) -> None:
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
        pytest.param(
            ["describe", "nobody", "-n", "default"],
            'no TFJob and no TrainJob with the name "nobody" found in namespace "default": `kubectl tfjob list -A`',
            id="job",
        ),
        pytest.param(["describe", "trainjob/nobody"], 'trainjobs.kubeflow.org "nobody" not found', id="train job"),
        pytest.param(["delete", "nobody"], 'with the name "nobody" found in', id="delete"),
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


def test_kubectl_finds_it_as_a_plugin(control_plane: Cluster, trial: Trial) -> None:
    trial.submit(master())
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    command = [str(binaries.ensure("kubectl")), "tfjob", "list", "-n", trial.namespace]
    environment["KUBECONFIG"] = str(control_plane.kubeconfig)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert trial.name in done.stdout


def test_explain_says_that_the_namespace_is_being_deleted(plugin: Run, api: Api) -> None:
    where = new_namespace(api)
    path = TFJOBS.path(where, "example-job")
    manifest = tfjob(master())
    manifest["metadata"]["finalizers"] = ["example.com/hold"]
    api.create(TFJOBS.path(where), manifest)
    assert "is being deleted" not in plugin("explain", "example-job", "-n", where)[1]
    delete_namespace(api, where)
    try:
        code, out, error = plugin("explain", "example-job", "-n", where)
    finally:
        api.patch(path, {"metadata": {"finalizers": None}})
    assert (code, error) == (0, "")
    assert f"now: its namespace {where} is being deleted, and the job with it: nothing can be created in it" in out


# Both kinds


@pytest.fixture
def pair_of(playground: Playground, api: Api, namespace: str) -> str:
    """A namespace that no controller looks at, with a job of each kind, both called twin, and one of its own."""
    api.create(TFJOBS.path(namespace), tfjob(master(), name="twin"))
    api.create(TFJOBS.path(namespace), tfjob(master(), name="only-tf"))
    api.create(TRAINJOBS.path(namespace), trainjob("twin", 2))
    api.create(TRAINJOBS.path(namespace), trainjob("only-train", 2))
    return namespace


def test_a_list_shows_both_kinds_and_says_which_is_which(plugin: Run, pair_of: str) -> None:
    code, out, error = plugin("list", "-n", pair_of)
    assert (code, error) == (0, "")
    header, *rows = out.splitlines()
    columns = ["KIND", "NAME", "PHASE", "STATE", "MASTERS", "WORKERS", "PS", "NODES", "RUNTIME", "AGE"]
    assert header.split() == columns
    assert [row.split()[:2] for row in rows] == [
        ["TFJob", "only-tf"],
        ["TFJob", "twin"],
        ["TrainJob", "only-train"],
        ["TrainJob", "twin"],
    ]


def test_a_list_may_be_of_one_kind_and_of_names_alone(plugin: Run, pair_of: str) -> None:
    assert plugin("list", "-n", pair_of, "--kind", "trainjob", "-o", "name") == (
        0,
        "trainjob.kubeflow.org/only-train\ntrainjob.kubeflow.org/twin\n",
        "",
    )
    _, out, _ = plugin("list", "-n", pair_of, "--kind", "trainjob")
    assert out.split()[:2] == ["NAME", "STATE"]
    _, out, _ = plugin("list", "-n", pair_of, "-o", "yaml")
    assert [each["kind"] for each in yaml.safe_load(out)["items"]] == ["TFJob", "TFJob", "TrainJob", "TrainJob"]


@pytest.mark.parametrize("command", ["describe", "delete"])
def test_a_name_that_two_jobs_have_needs_its_kind(plugin: Run, pair_of: str, command: str) -> None:
    code, out, error = plugin(command, "twin", "-n", pair_of)
    assert (code, out) == (2, "")
    assert error == "kubectl tfjob: twin is a TFJob and a TrainJob: say tfjob/twin or trainjob/twin\n"


def test_a_kind_is_named_as_for_kubectl(plugin: Run, pair_of: str) -> None:
    code, out, _ = plugin("describe", "trj/twin", "-n", pair_of, "-o", "json")
    assert (code, json.loads(out)["kind"]) == (0, "TrainJob")


def test_describe_shows_each_node_of_a_train_job(plugin: Run, train: Trial) -> None:
    train.train(2)
    train.await_phase("Running")
    code, out, _ = plugin("describe", train.name)
    assert code == 0
    rows = [line.split()[:2] for line in out.splitlines() if line.startswith("node-")]
    assert rows == [["node-0", "Running"], ["node-1", "Running"]]
    assert "TrainJob" in out


def test_a_list_may_have_a_label_selector(plugin: Run, pair_of: str, api: Api) -> None:
    api.patch(TRAINJOBS.path(pair_of, "twin"), {"metadata": {"labels": {"team": "vision"}}})
    assert plugin("list", "-n", pair_of, "-l", "team=vision", "-o", "name")[1] == "trainjob.kubeflow.org/twin\n"
    _, out, _ = plugin("list", "-n", pair_of, "--selector", "team!=vision", "-o", "json")
    assert [each["metadata"]["name"] for each in json.loads(out)["items"]] == ["only-tf", "twin", "only-train"]
    nothing = (0, "", f"No jobs with these labels in namespace {pair_of}.\n")
    assert plugin("list", "-n", pair_of, "-l", "team=audio") == nothing
    code, out, error = plugin("list", "-n", pair_of, "-l", "team in (")
    assert (code, out, error.count("\n")) == (1, "", 1)


def test_a_watched_list_prints_a_row_for_every_change_until_ctrl_c(
    control_plane: Cluster, pair_of: str, api: Api
) -> None:
    label = {"metadata": {"labels": {"team": "vision"}}}
    api.patch(TFJOBS.path(pair_of, "twin"), label)
    flags = ["-n", pair_of, "--kubeconfig", str(control_plane.kubeconfig)]
    with program("list", "-w", "-l", "team=vision", *flags) as watching:
        assert watching.stdout is not None
        header, first = watching.stdout.readline(), watching.stdout.readline()
        assert header.split()[:2] == ["KIND", "NAME"]
        assert first.split()[:2] == ["TFJob", "twin"]
        new = trainjob("new", 2)
        new["metadata"]["labels"] = {"team": "vision"}
        api.create(TRAINJOBS.path(pair_of), new)
        assert watching.stdout.readline().split()[:2] == ["TrainJob", "new"]
        api.patch(TFJOBS.path(pair_of, "twin") + "/status", {"status": {"phase": "Running"}})
        row = watching.stdout.readline()
        assert row.split()[:3] == ["TFJob", "twin", "Running"]
        assert row.index("Running") == header.index("PHASE")
        api.delete(TRAINJOBS.path(pair_of, "new"))
        assert watching.stdout.readline().split()[:2] == ["TrainJob", "new"]
        watching.send_signal(signal.SIGINT)
        out, error = watching.communicate(timeout=60)
    assert (watching.returncode, out, error) == (cli.EXIT_INTERRUPTED, "", "")


# How it ends


def test_ctrl_c_ends_what_waits_without_a_word(control_plane: Cluster, trial: Trial) -> None:
    trial.submit(master())
    trial.await_phase("Running")
    flags = ["-n", trial.namespace, "--kubeconfig", str(control_plane.kubeconfig)]
    with program("wait", trial.name, *flags) as waiting:
        eventually(lambda: _has_connection(waiting.pid), 60.0)
        waiting.send_signal(signal.SIGINT)
        out, error = waiting.communicate(timeout=60)
    assert (waiting.returncode, out, error) == (cli.EXIT_INTERRUPTED, "", "")


def _has_connection(pid: int) -> bool:
    """Whether that process has a TCP connection, so that it is in the middle of its work."""
    with open(f"/proc/{pid}/net/tcp") as file:
        inodes = {line.split()[9] for line in file.readlines()[1:] if line.split()[3] == "01"}
    found: set[str] = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.add(os.readlink(link).removeprefix("socket:[").removesuffix("]"))
    return bool(found & inodes)
