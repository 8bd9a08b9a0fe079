"""What a user sees, on real nodes, of a job that cannot work as it was written: its reason, its log and its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from helpers import plugin
from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.errand import template
from helpers.manifests import container, master, pod_template, tfjob
from helpers.poll import eventually
from helpers.trainmanifests import trainjob
from localcluster import images
from localcluster import nodes as nodes_module
from tfjob_controller.api.tfjob import TFJOBS
from tfjob_controller.api.trainjob import TRAINJOBS

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(600)]

# Both to standard error: what goes to two pipes is in no order.
FAILS = (
    "import sys, time; time.sleep(1); sys.stderr.write('epoch 1\\n'); sys.exit('the learning rate must be positive')"
)
CANNOT_START = 'cannot start: exec: "pyhton3": executable file not found in $PATH'

Object = dict[str, Any]


@pytest.fixture
def submit(nodes: Cluster, space: str, installed_kinds: Callable[[], None]) -> Iterator[Callable[[Object], Jobs]]:
    """Applies a job whose pods run the image localhost/base, beside a controller."""
    installed_kinds()
    if nodes.plane is not None:
        nodes_module.load_image(nodes.folder, images.BASE)

    def submit(manifest: Object) -> Jobs:
        jobs = Jobs(nodes.api, space, TFJOBS if manifest["kind"] == "TFJob" else TRAINJOBS)
        jobs.submit(manifest)
        return jobs

    with running_controller(nodes.kubeconfig, space):
        yield submit


@pytest.fixture
def run(nodes: Cluster, space: str, capfd: pytest.CaptureFixture[str]) -> Iterator[plugin.Run]:
    """Runs `kubectl tfjob` in the test's namespace."""
    with plugin.quiet():
        yield plugin.runner(capfd, nodes.kubeconfig, space)


def replica_of(pod: Object) -> str:
    labels = pod["metadata"]["labels"]
    return f"{labels['job_type'].lower()}-{labels['task_index']}"


def are_at_rest(jobs: Jobs) -> bool:
    """The Job controller will do nothing more to the pods."""
    conditions = [each.get("status", {}).get("conditions", ()) for each in jobs.children("jobs").values()]
    return all(any(each["type"] in ("Complete", "Failed", "Suspended") for each in some) for some in conditions)


def jobs_that_run(*command: str) -> list[Any]:
    """Jobs whose pods run this command."""
    trainer = {"image": images.BASE}
    of_tfjob = container(image=images.BASE, imagePullPolicy="IfNotPresent", command=list(command))
    return [
        pytest.param(tfjob(master(template=pod_template(of_tfjob)), name="mistake"), id="TFJob"),
        pytest.param(trainjob("mistake", 1, command, trainer=trainer), id="TrainJob of one node"),
        pytest.param(trainjob("mistake", 2, command, trainer=trainer), id="TrainJob of two nodes"),
    ]


@pytest.mark.parametrize("manifest", jobs_that_run("python3", "-c", FAILS))
def test_a_program_that_fails_leaves_its_pod_with_the_log_and_its_last_line_as_reason(
    submit: Callable[[Object], Jobs], run: plugin.Run, manifest: Object
) -> None:
    jobs = submit(manifest)
    reason = jobs.await_phase("Failed", "mistake")["reason"]
    # Two nodes fail in the same second; either may be the one that is named.
    assert reason.split(" ", 1)[1] == "failed: exit code 1: epoch 1 the learning rate must be positive"
    failed = reason.split(" ")[0]
    eventually(lambda: are_at_rest(jobs))
    (pod,) = [each for each in jobs.children("pods").values() if replica_of(each) == failed]
    assert (pod["status"]["phase"], pod["metadata"].get("deletionTimestamp")) == ("Failed", None)
    code, out, _ = run("logs", "mistake", "--replica", failed)
    assert (code, out) == (0, "epoch 1\nthe learning rate must be positive\n")


@pytest.mark.parametrize("manifest", jobs_that_run("pyhton3", "a.py"))
def test_a_typo_in_the_command_fails_the_job_at_once_with_the_runtime_s_words(
    submit: Callable[[Object], Jobs], run: plugin.Run, manifest: Object
) -> None:
    jobs = submit(manifest)
    status = jobs.await_phase("Failed", "mistake")
    assert status["reason"].split(" ", 1)[1] == CANNOT_START
    assert status.get("restarts", 0) == 0
    _, out, _ = run("explain", "mistake")
    assert f"now: it has failed: {status['reason']}" in out
    assert "1970" not in out
    code, out, error = run("logs", "mistake", "--replica", status["reason"].split(" ")[0])
    assert (code, out) == (1, "")
    assert f"has no log: it {CANNOT_START}" in error


def test_a_typo_in_the_command_of_a_chief_that_is_restarted_in_place_fails_the_job_too(
    submit: Callable[[Object], Jobs],
) -> None:
    chief = template("pass", restartPolicy="OnFailure")
    chief["spec"]["containers"][0]["command"] = ["pyhton3"]
    status = submit(tfjob(master(template=chief))).await_phase("Failed")
    assert status["reason"] == f"master-0 {CANNOT_START}"
