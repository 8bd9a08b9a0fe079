"""The plugin's commands that read, against a real API server, with a real controller's jobs."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.cluster import (
    Cluster,
    delete_service_account,
    new_service_account,
    set_pod_waiting,
    write_kubeconfig,
)
from helpers.manifests import master, parameter_servers, tfjob, workers
from helpers.playground import Playground, Trial, alone
from helpers.plugin import Run, program
from helpers.trainmanifests import trainjob
from localcluster import binaries
from localcluster.api import Api
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.util.exitcodes import EXIT_INTERRUPTED

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


def test_the_kinds_of_v1_cost_a_cluster_without_them_one_request(plugin: Run) -> None:
    code, _, requests = plugin("list", "-v")
    assert code == 0
    found = re.findall(r"^GET \S+?(/apis/kubeflow.org/v[^ ?]*)\S* ([0-9]+) ", requests, re.MULTILINE)
    assert found[0] == ("/apis/kubeflow.org/v1", "404")
    assert [path.rpartition("/")[2] for path, _ in found[1:]] == ["tfjobs", "trainjobs"]


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


def test_describe_of_a_job_that_no_controller_sees_says_so(plugin: Run, api: Api, namespace: str) -> None:
    api.create(f"/apis/kubeflow.org/v1alpha1/namespaces/{namespace}/tfjobs", tfjob(master()))
    code, out, _ = plugin("describe", "example-job", "-n", namespace)
    assert code == 0
    assert "No controller has processed the job yet" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(
            ["describe", "nobody", "-n", "default"],
            'no TFJob and no TrainJob with the name "nobody" found in namespace "default": `kubectl tfjob list --',
            id="job",
        ),
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert trial.name in done.stdout


# Both kinds


@pytest.fixture
def pair_of(playground: Playground, api: Api, namespace: str) -> str:
    """A namespace that no controller looks at, with a job of each kind, both called twin, and one of its own."""
    labelled = tfjob(master(), name="twin")
    labelled["metadata"]["labels"] = {"team": "vision"}
    api.create(TFJOBS.path(namespace), labelled)
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


def names_of(out: str) -> list[str]:
    return [line.split()[1] for line in out.splitlines()]


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["only-tf", "twin"], ["only-tf", "twin", "twin"]),
        (["tfjob/twin", "only-train"], ["twin", "only-train"]),
        (["--field-selector", "metadata.name!=twin"], ["only-tf", "only-train"]),
        (["--sort-by", "name"], ["only-tf", "only-train", "twin", "twin"]),
        (["--sort-by", ".spec.numNodes"], ["only-train", "twin", "only-tf", "twin"]),
        (["--sort-by", "{.metadata.labels.team}"], ["twin", "only-tf", "only-train", "twin"]),
        (["--sort-by=.metadata.name", "-o", "wide"], ["only-tf", "only-train", "twin", "twin"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_a_list_is_narrowed_and_sorted(plugin: Run, pair_of: str, flags: list[str], names: list[str]) -> None:
    code, out, error = plugin("list", "-n", pair_of, "--no-headers", *flags)
    assert (code, names_of(out), error) == (0, names, "")


def test_objects_are_sorted_by_a_field_and_not_by_a_column(plugin: Run, pair_of: str) -> None:
    code, out, _ = plugin("list", "-n", pair_of, "--sort-by=.metadata.name", "-o", "json")
    assert code == 0
    listed = [item["metadata"]["name"] for item in json.loads(out)["items"]]
    assert listed == ["only-tf", "only-train", "twin", "twin"]
    for flags, words in (
        (["--sort-by=age", "-o", "json"], "--sort-by age: objects have no columns: name a field such as .metadata"),
        (["--sort-by=ag"], "--sort-by: there is no column 'ag': name one of name, phase"),
        (["--sort-by=.spec.nothing"], "--sort-by: no job has the field .spec.nothing"),
        (["--sort-by={.items[0].a}"], "--sort-by: '{.items[0].a}' is not supported: name a field such as .metadata"),
    ):
        code, out, error = plugin("list", "-n", pair_of, *flags)
        assert (code, out, error.count("\n")) == (2, "", 1)
        assert words in error


def test_labels_are_a_column_and_a_missing_name_is_an_error_beside_the_others(plugin: Run, pair_of: str) -> None:
    code, out, error = plugin("list", "-n", pair_of, "twin", "nobody", "--show-labels")
    header, first, second = out.splitlines()
    assert (header.split()[-1], first.split()[-1], second.split()[-1]) == ("LABELS", "team=vision", "-")
    assert code == 1
    assert error.startswith(f"kubectl tfjob: there is no job nobody in namespace {pair_of}: `kubectl tfjob list --kube")


@pytest.mark.parametrize(
    ("flags", "out"),
    [
        (["-o", "jsonpath={.items[*].metadata.name}", "-l", "team"], "twin"),
        (
            ["--kind=tfjob", "-o=custom-columns=N:.metadata.name", "--no-headers", "--sort-by=.metadata.name"],
            "only-tf\ntwin",
        ),
        (["twin", "--kind=trainjob", "-o", "go-template={{.spec.numNodes}}"], "2"),
    ],
)
def test_for_formats_of_kubectl_the_message_has_the_command_that_prints_them(
    plugin: Run, pair_of: str, flags: list[str], out: str
) -> None:
    code, nothing, error = plugin("list", "-n", pair_of, *flags)
    assert (code, nothing) == (2, "")
    command = re.search(r"is a format of kubectl get: run `kubectl (.*)`$", error)
    assert command is not None, error
    kubectl = [str(binaries.ensure("kubectl")), *shlex.split(command[1])]
    printed = subprocess.run(kubectl, capture_output=True, text=True, timeout=300, check=True).stdout
    assert printed.strip() == out


def test_a_user_and_its_groups_are_impersonated(plugin: Run, pair_of: str) -> None:
    """The second group is the one that has the right: each group is a line of its own."""
    code, _, error = plugin("list", "-n", pair_of, "--as", "bob", "--as-uid", "7", "--as-group=one")
    assert code == 1
    assert 'User "bob" cannot list resource "tfjobs"' in error
    code, out, error = plugin("list", "-n", pair_of, "--as", "bob", "--as-group=one", "--as-group=system:masters")
    assert (code, len(out.splitlines()), error) == (0, 5, "")


def test_a_name_that_two_jobs_have_needs_its_kind(plugin: Run, pair_of: str) -> None:
    code, out, error = plugin("delete", "twin", "-n", pair_of)
    assert (code, out) == (2, "")
    assert error == "kubectl tfjob: twin is a TFJob and a TrainJob: use tfjob/twin or trainjob/twin\n"


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
        out, error = watching.communicate(timeout=300)
    assert (watching.returncode, out, error) == (EXIT_INTERRUPTED, "", "")
