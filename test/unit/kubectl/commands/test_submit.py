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
        pytest.param(TFJOB, "--ps-image requires --ps, the number of parameter servers", id="none"),
        pytest.param(TRAINJOB, "--ps-image makes a TFJob and --nodes a TrainJob: leave one of them out", id="TrainJob"),
    ],
)
def test_an_image_of_no_parameter_server_is_one_line_and_code_2(
    kind: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*SUBMIT, *kind, "--ps-image", "localhost/tensorflow", *PRINTED]) == 2
    assert capsys.readouterr() == ("", f"kubectl tfjob: {words}\n")


OF_PODS = [
    *("--node-selector", "gpu=a100", "--service-account", "trainer", "--priority", "high"),
    *("--pvc", "data:/data:ro", "--volume", "memory:/dev/shm", "--volume", "secret/keys:/keys"),
    *("--env", "LR=0.1", "--env-from-secret", "TOKEN=hub/token", "--label", "team=vision", "--annotation", "a.b/c=d e"),
]
POD = {
    "nodeSelector": {"gpu": "a100"},
    "serviceAccountName": "trainer",
    "priorityClassName": "high",
    "volumes": [
        {"name": "volume-0", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
        {"name": "volume-1", "emptyDir": {"medium": "Memory"}},
        {"name": "volume-2", "secret": {"secretName": "keys"}},
    ],
}
MOUNTS = [{"name": f"volume-{index}", "mountPath": path} for index, path in enumerate(("/data", "/dev/shm", "/keys"))]
ENV = [
    {"name": "LR", "value": "0.1"},
    {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
]


def test_what_the_pods_of_a_tfjob_need_is_in_each_of_its_templates(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SUBMIT, *TFJOB, "--master", *OF_PODS, *PRINTED]) == 0
    made = yaml.safe_load(capsys.readouterr().out)
    assert made["metadata"] == {"name": "train", "labels": {"team": "vision"}, "annotations": {"a.b/c": "d e"}}
    for replica in made["spec"]["replicaSpecs"]:
        spec = replica["template"]["spec"]
        (container,) = spec.pop("containers")
        assert (container["env"], container["volumeMounts"]) == (ENV, MOUNTS)
        assert spec == {"restartPolicy": "OnFailure", **POD}


@pytest.mark.parametrize(
    ("flags", "steps"),
    [
        pytest.param(["--framework", "torch"], ["node"], id="torch"),
        pytest.param(["--framework", "mpi"], ["node", "launcher"], id="mpi"),
        pytest.param(["--runtime", "mpi-distributed"], ["node", "launcher"], id="runtime"),
        pytest.param(["--", "mpirun", "train"], ["node", "launcher"], id="command"),
    ],
)
def test_what_the_pods_of_a_trainjob_need_is_an_override_of_each_step_that_trains(
    flags: list[str], steps: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*SUBMIT, *TRAINJOB, *OF_PODS, *PRINTED, *flags]) == 0
    made = yaml.safe_load(capsys.readouterr().out)
    assert made["metadata"] == {"name": "train", "labels": {"team": "vision"}, "annotations": {"a.b/c": "d e"}}
    assert made["spec"]["trainer"]["env"] == ENV
    assert made["spec"]["podSpecOverrides"] == [
        {"targetJobs": [{"name": step}], **POD, "containers": [{"name": step, "volumeMounts": MOUNTS}]}
        for step in steps
    ]


def test_a_job_without_these_flags_has_none_of_their_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SUBMIT, *TRAINJOB, *PRINTED]) == 0
    made = yaml.safe_load(capsys.readouterr().out)
    assert (made["metadata"], made["spec"].keys()) == ({"name": "train"}, {"numNodes", "trainer"})


def test_an_elastic_job_has_from_min_nodes_to_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SUBMIT, "--nodes", "4", "--min-nodes", "2", *PRINTED]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["spec"]["elasticPolicy"] == {"minNodes": 2, "maxNodes": 4}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--min-nodes", "2"], "--min-nodes 2 requires --nodes, the maximum number of nodes"),
        (["--min-nodes", "2", "--nodes", "1"], "--min-nodes 2: must not be more than --nodes"),
        (["--min-nodes", "2", "--workers", "1"], "--workers makes a TFJob and --min-nodes a TrainJob: leave one"),
        (["--pvc", "data"], "--pvc: must be CLAIM:PATH or CLAIM:PATH:ro, such as data:/data, not 'data'"),
        (["--pvc", "Data:/data"], "--pvc: 'Data' cannot be the name of an object: it must be of lower-case letters"),
        (["--pvc", "a:/data", "--volume", "emptydir:/data"], "two volumes at /data: give each its own path"),
        (["--volume", "data:/data"], "--volume: must be configmap/NAME:PATH, secret/NAME:PATH, emptydir:PATH or"),
        (["--image", "bad image"], "--image: 'bad image' cannot be the name of an image: it must be [REGISTRY/]REPO"),
        (["--ps", "1", "--ps-image", "Train"], "--ps-image: 'Train' cannot be the name of an image"),
        (["--label", "team"], "--label: must be KEY=VALUE, not 'team'"),
        (["--env-from-secret", "s3cr3t"], "--env-from-secret: must be NAME=SECRET/KEY, such as TOKEN=registry/token"),
    ],
)  # fmt: skip
def test_a_flag_that_cannot_be_meant_so_is_one_line_and_code_2(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*SUBMIT, *flags, *PRINTED]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert "s3cr3t" not in said.err
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
