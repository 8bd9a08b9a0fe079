"""`submit`: what its flags make, and what is refused before anything is created."""

from __future__ import annotations

import pytest
import yaml

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
