"""Output for users on real nodes about jobs with mistakes, and about jobs that are left alone, followed or ended."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from helpers import plugin
from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.errand import template
from helpers.manifests import container, master, pod_template, tfjob, workers
from helpers.poll import eventually
from helpers.trainmanifests import trainjob
from localcluster import images
from localcluster import nodes as nodes_module
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.jobs.naming import replica_id_of
from tfjob_controller.kubectl.command import EXIT_TIMEOUT
from tfjob_controller.util.exitcodes import EXIT_INTERRUPTED

pytestmark = pytest.mark.nodes

# Both to standard error: what goes to two pipes is in no order.
FAILS = (
    "import sys, time; time.sleep(1); sys.stderr.write('epoch 1\\n'); sys.exit('the learning rate must be positive')"
)
CANNOT_START = 'cannot start: exec: "pyhton3": executable file not found in $PATH'

OF_BASE = ("--image", images.BASE, "--image-pull-policy", "IfNotPresent")
NOWHERE = "localhost/nowhere"

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
    return replica_id_of(pod["metadata"]["labels"])


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
        pytest.param(trainjob("mistake", 2, command, trainer=trainer), id="TrainJob"),
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
def test_a_typo_in_the_command_fails_the_job_at_once_with_the_runtimes_message(
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


# The kubelet's events of an image that it cannot pull: it repeats each of them for each pod.
PULL_EVENTS = (
    "Pulling [kubelet]",
    "Failed to pull image",
    "Error: ErrImagePull",
    "BackOff [kubelet]",
    "Error: ImagePullBackOff",
)


def rows(run: plugin.Run) -> dict[str, list[str]]:
    """Phase and state of each job, as `kubectl tfjob list` shows them."""
    lines = run("list")[1].splitlines()[1:]
    return {name: [phase, state] for _, name, phase, state, *_ in map(str.split, lines)}


def test_an_image_that_is_not_there_is_pending_and_its_events_are_one_line_each(
    submit: Callable[[Object], Jobs], run: plugin.Run
) -> None:
    template = pod_template(container(image=NOWHERE, imagePullPolicy="IfNotPresent"))
    submit(tfjob(master(template=template), workers(2, template=template), name="mistake"))
    submit(trainjob("train", 1, ["python3"], trainer={"image": NOWHERE}))
    eventually(lambda: rows(run) == {"mistake": ["Creating", "Pending"], "train": ["-", "Pending"]})

    def pulls() -> list[str]:
        """The lines about such events, once the kubelet has told each of them of all three pods."""
        _, out, _ = run("explain", "mistake", "-v=1")
        lines = [line for line in out.splitlines() if any(each in line for each in PULL_EVENTS)]
        told_of_all = [line for line in lines if "3 pods" in line]
        return lines if all(any(each in line for line in told_of_all) for each in PULL_EVENTS) else []

    lines = eventually(pulls)
    assert len(lines) == len(PULL_EVENTS), lines
    # Each line has the sum of all pods.
    assert [line for line in lines if not re.search(r"\(\d+x until ", line)] == []

    assert run("suspend", "tfjob/mistake", "trainjob/train")[0] == 0
    eventually(lambda: rows(run) == {"mistake": ["Creating", "Suspended"], "train": ["-", "Suspended"]})


def test_a_job_whose_submit_is_interrupted_runs_on_until_the_command_that_it_names(
    submit: Callable[[Object], Jobs], run: plugin.Run, nodes: Cluster, space: str
) -> None:
    jobs = Jobs(nodes.api, space)
    where = ("-n", space, "--kubeconfig", str(nodes.kubeconfig))
    with plugin.program("submit", "stays", *OF_BASE, "--wait", *where, "--", "sleep", "600") as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "tfjob/stays created\n"
        jobs.await_phase("Running", "stays")
        waiting.send_signal(signal.SIGINT)
        out, error = waiting.communicate(timeout=300)
    assert (waiting.returncode, out) == (EXIT_INTERRUPTED, "")
    cluster = f"--kubeconfig={nodes.kubeconfig}"
    assert error == (
        f"kubectl tfjob: interrupted: tfjob/stays stays. `kubectl tfjob wait {cluster} tfjob/stays -n {space}` waits "
        f"for it again, `kubectl tfjob delete {cluster} tfjob/stays -n {space}` stops and deletes it\n"
    )
    assert "deletionTimestamp" not in jobs.get("stays")["metadata"]
    (pod,) = jobs.children("pods").values()
    assert (pod["status"]["phase"], pod["metadata"].get("deletionTimestamp")) == ("Running", None)

    words = "master-0 has no previous run: its program was not restarted in the present pod"
    assert run("logs", "stays", "-p") == (1, "", f"kubectl tfjob: {words}\n")

    (delete,) = [each for each in re.findall("`kubectl tfjob ([^`]*)`", error) if each.startswith("delete ")]
    assert run(*delete.split())[:2] == (0, "tfjob/stays deleted\n")
    assert jobs.all() == []


def test_a_job_that_is_followed_for_longer_than_its_timeout_stays(
    submit: Callable[[Object], Jobs], run: plugin.Run, nodes: Cluster, space: str
) -> None:
    program = "print('begun', flush=True); import time; time.sleep(600)"
    code, out, error = run("submit", "slow", *OF_BASE, "-f", "--timeout", "5s", "--", "python3", "-c", program)
    # Where 5 seconds are too short for the pod to begin, there is no log.
    assert (code, out.removesuffix("begun\n")) == (EXIT_TIMEOUT, "tfjob/slow created\n")
    last = error.splitlines()[-1]
    assert last.startswith("kubectl tfjob: timed out after 5s waiting for Succeeded: tfjob/slow is ")
    assert last.endswith(f"`kubectl tfjob delete --kubeconfig={nodes.kubeconfig} tfjob/slow -n {space}` deletes it")
    jobs = Jobs(nodes.api, space)
    jobs.await_phase("Running", "slow")


def test_explain_says_that_the_namespace_is_being_deleted_while_a_pod_is_still_there(
    submit: Callable[[Object], Jobs], run: plugin.Run, nodes: Cluster, space: str
) -> None:
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    jobs = submit(tfjob(master(template=template(program, terminationGracePeriodSeconds=600)), name="mistake"))
    jobs.await_phase("Running", "mistake")
    nodes.api.delete(f"/api/v1/namespaces/{space}")
    try:
        eventually(lambda: all("deletionTimestamp" in each["metadata"] for each in jobs.children("pods").values()))
        code, out, error = run("explain", "mistake")
    finally:
        nodes.api.delete(f"/api/v1/namespaces/{space}/pods", gracePeriodSeconds=0)
    assert (code, error) == (0, "")
    assert f"now: its namespace {space} is being deleted, and the job with it: nothing can be created in it" in out
