"""`submit`: what its flags make, what is refused before anything is created, and how it ends if it waits in vain."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import yaml

from helpers.barekubeconfig import kubeconfig_for
from helpers.httpserver import Answer, HttpServer, Request, status_answer
from helpers.jobserver import NAMESPACE, flags_of, plugin_of
from helpers.memoryapi import MemoryApi
from helpers.plugin import program
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.kubectl import cli
from tfjob_controller.kubectl.command import EXIT_TIMEOUT
from tfjob_controller.util.exitcodes import EXIT_INTERRUPTED

SUBMIT = ["submit", "train", "--image", "localhost/base"]
TFJOB, TRAINJOB = ["--workers", "1"], ["--nodes", "1"]
PRINTED = ["--dry-run", "client", "-o", "yaml"]


def test_the_pull_policy_of_a_tfjob_is_that_of_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SUBMIT, *TFJOB, "--image-pull-policy", "Never", *PRINTED]) == 0
    (worker,) = yaml.safe_load(capsys.readouterr().out)["spec"]["replicaSpecs"]
    assert worker["template"]["spec"]["containers"][0]["imagePullPolicy"] == "Never"


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


def test_parameter_servers_have_the_image_of_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SUBMIT, *TFJOB, "--ps", "1", "--ps-image", "localhost/tensorflow", *PRINTED]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["spec"]["tfImage"] == "localhost/tensorflow"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        pytest.param(TFJOB, "--ps-image is the image of the parameter servers: say how many with --ps", id="none"),
        pytest.param(TRAINJOB, "--ps-image makes a TFJob and --nodes a TrainJob: leave one of them out", id="TrainJob"),
    ],
)
def test_an_image_of_no_parameter_server_is_one_line_and_code_2(
    kind: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*SUBMIT, *kind, "--ps-image", "localhost/tensorflow", *PRINTED]) == 2
    assert capsys.readouterr() == ("", f"kubectl tfjob: {words}\n")


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
        pytest.param(
            ["--framework", "pytorch", "--dry-run", "server"],
            "there is no framework pytorch, and no runtime of it",
            id="framework, dry run",
        ),
    ],
)
def test_a_job_that_can_only_fail_is_one_line_and_code_1_and_not_created(
    flags: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with HttpServer(without_the_runtime) as server:
        cluster = ["--kubeconfig", str(kubeconfig_for(server.url, tmp_path))]
        assert cli.main([*SUBMIT, *flags, *cluster]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert "(the cluster has plain)" in said.err
    assert said.err.count("\n") == 1
    assert all("dryRun" in request.query for request in server.requests if request.method == "POST")


def test_following_ends_when_the_time_is_over_and_the_job_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api = MemoryApi()
    with plugin_of(api, tmp_path, capsys) as plugin:
        code, out, error = plugin("submit", "train", "--image", "i", "-f", "--timeout", "0.2s")
    waits, over = error.splitlines(keepends=True)
    assert (code, out) == (EXIT_TIMEOUT, "tfjob/train created\n")
    assert waits == "waiting for train: it has not started yet\n"
    assert over.startswith("kubectl tfjob: timed out after 0.2s waiting for Succeeded: tfjob/train is ")
    cluster = f"--kubeconfig={tmp_path}/kubeconfig"
    again, end = (f"`kubectl tfjob {command} {cluster} tfjob/train -n team`" for command in ("wait", "delete"))
    assert over.endswith(f"The job stays: {again} waits again, {end} deletes it\n")
    assert TFJOBS.path(NAMESPACE, "train") in api.objects


@pytest.mark.parametrize("flag", ["--wait", "--follow"])
def test_ctrl_c_says_that_the_job_stays_and_how_to_stop_it(flag: str, tmp_path: Path) -> None:
    with (
        flags_of(MemoryApi(), tmp_path) as flags,
        program("submit", "train", "--image", "i", flag, *flags) as running,
    ):
        assert running.stdout is not None
        assert running.stdout.readline() == "tfjob/train created\n"
        running.send_signal(signal.SIGINT)
        out, error = running.communicate(timeout=300)
    assert (running.returncode, out) == (EXIT_INTERRUPTED, "")
    cluster = f"--kubeconfig={tmp_path}/kubeconfig"
    assert error.splitlines()[-1] == (
        f"kubectl tfjob: interrupted: tfjob/train stays. `kubectl tfjob wait {cluster} tfjob/train -n team` waits for "
        f"it again, `kubectl tfjob delete {cluster} tfjob/train -n team` stops and deletes it"
    )
