"""`submit`: what its flags make, and what is refused before anything is created."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from helpers.barekubeconfig import kubeconfig_for
from helpers.httpserver import Answer, HttpServer, Request, status_answer
from tfjob_controller.kubectl import cli

SUBMIT = ["submit", "train", "--image", "localhost/base"]
TFJOB, TRAINJOB = ["--workers", "1"], ["--nodes", "1"]
PRINTED = ["--dry-run", "client", "-o", "yaml"]


@pytest.mark.parametrize("policy", ["Always", "IfNotPresent", "Never"])
def test_the_pull_policy_of_a_tfjob_is_that_of_the_flag(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SUBMIT, *TFJOB, "--image-pull-policy", policy, *PRINTED]) == 0
    (worker,) = yaml.safe_load(capsys.readouterr().out)["spec"]["replicaSpecs"]
    assert worker["template"]["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_without_the_flag_no_pull_policy_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SUBMIT, *TFJOB, *PRINTED]) == 0
    assert "imagePullPolicy" not in capsys.readouterr().out


def test_a_trainjob_takes_the_pull_policy_that_it_has_anyway(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SUBMIT, *TRAINJOB, "--image-pull-policy", "IfNotPresent", *PRINTED]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["spec"]["trainer"] == {"image": "localhost/base"}


@pytest.mark.parametrize(
    ("kind", "policy", "words"),
    [
        pytest.param(TFJOB, "Sometimes", "--image-pull-policy: invalid choice: 'Sometimes'", id="no policy"),
        pytest.param(TRAINJOB, "Never", "cannot be Never for a TrainJob", id="no field of TrainJobs"),
    ],
)
def test_a_pull_policy_that_cannot_be_is_one_line_and_code_2(
    kind: list[str], policy: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*SUBMIT, *kind, "--image-pull-policy", policy, *PRINTED]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert said.err.count("\n") == 1


RUNTIMES = b'{"metadata": {}, "items": [{"metadata": {"name": "plain"}}]}'


def without_the_runtime(request: Request) -> Answer:
    """A cluster that has one runtime, called plain."""
    if request.path.endswith("/clustertrainingruntimes/mine"):
        return status_answer(404, "NotFound", 'clustertrainingruntimes.kubeflow.org "mine" not found')
    return Answer(body=RUNTIMES)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param(["--runtime", "mine"], "there is no ClusterTrainingRuntime mine: create it first", id="runtime"),
        pytest.param(["--framework", "pytorch"], "there is no framework pytorch, and no runtime of it", id="framework"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--dry-run", "server"]], ids=["create", "dry run"])
def test_a_job_that_can_only_fail_is_one_line_and_code_1_and_not_created(
    flags: list[str], words: str, more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with HttpServer(without_the_runtime) as server:
        cluster = ["--kubeconfig", str(kubeconfig_for(server.url, tmp_path))]
        assert cli.main([*SUBMIT, *flags, *more, *cluster]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert "(the cluster has plain)" in said.err
    assert said.err.count("\n") == 1
    assert {each.method for each in server.requests} == {"GET"}
