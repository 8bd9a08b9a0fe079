"""`python -m demo`, as `make demo` calls it: on a stack of its own, with KEEP, interrupted, and on an existing cluster.

Each test has a state folder of its own, so that a stack of the user who runs the tests is never changed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo.example import ALL_WORKERS, RIGHT_SUM
from helpers import machine
from helpers.cluster import Cluster
from helpers.demos import ROOT, interrupt_at, start_demo
from helpers.kubectl import Kubectl
from helpers.manifests import tfjob
from helpers.poll import eventually
from localcluster import images, process, stack, state

pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("own_nodes")]

# The promise is 120 s on a machine that does nothing else; here it may.
TIMEOUT_SECONDS = 600
JOBS = "/apis/kubeflow.org/v1alpha1/namespaces/default/tfjobs"

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where stacks live during the test; whatever runs there at its end is ended."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    yield tmp_path / "tfjob-controller"
    for name in (state.DEFAULT_NAME, "demo", "demo-dashboard"):
        stack.down(state.stack_dir(name))


@pytest.fixture
def start(home: Path) -> Iterator[Start]:
    """Starts the demo with these arguments; it does not outlive the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, module: str = "demo", **environment: str) -> subprocess.Popen[str]:
        demo = start_demo(module, *arguments, **environment)
        started.append(demo)
        return demo

    yield start
    for demo in started:
        demo.kill()
        demo.communicate()


def shown(demo: subprocess.Popen[str]) -> str:
    """All that it prints; it must end with 0."""
    output = demo.communicate(timeout=TIMEOUT_SECONDS)[0]
    assert demo.returncode == 0, output
    return output


def controllers(folder: Path) -> list[str]:
    lines = [machine.command_of(each.pid) for each in process.marked(folder)]
    return [line for line in lines if "-m tfjob_controller run" in line]


def test_it_is_kept_used_again_and_ended_by_cluster_down(start: Start, home: Path, tmp_path: Path) -> None:
    """The second demo is that of a TrainJob, which finds the cluster and the controller of the first."""
    before, folder = machine.listing(), home / state.DEFAULT_NAME
    output = shown(start("--keep"))
    for words in (
        "a control plane and 2 nodes\n",
        "master-0: Running on node-",
        f"{RIGHT_SUM}\n",
        f"{ALL_WORKERS}\n",
        " 4 Jobs",
        "✓ the job ended Done/Succeeded: master-0 succeeded",
        "✓ its pods ran on 2 nodes: node-1, node-2",
        f"export KUBECONFIG={folder / 'kubeconfig'}",
        "make cluster-down ",
    ):
        assert words in output, output
    assert re.search(r"^example-job +Done +Succeeded +1/1 +1/1 +2/2 ", output, re.MULTILINE)
    assert len(controllers(folder)) == 1

    output = shown(start("trainjob"))
    for words in (
        "a control plane and 2 nodes, which are running already\n",
        "tfjob-controller run   (replaces that of an earlier demo)",
        "training: loss=",
        'tfjob_training_metric{job="trainjob-torch",kind="TrainJob",metric="loss",namespace="default"} ',
        "✓ the job ended Done/SUCCESS: all 2 nodes succeeded",
        "4 of 4 ranks agree",
        "✓ its pods ran on 2 nodes: node-1, node-2",
        "kubectl describe trainjob trainjob-torch",
    ):
        assert words in output, output
    assert len(controllers(folder)) == 1, "what an earlier demo left running goes on"
    kubectl = Kubectl(folder / "kubeconfig", tmp_path / "kubectl")
    assert kubectl.must("get", "tfjob", "example-job", "-o", "jsonpath={.status.state}") == "Succeeded"

    down = [sys.executable, "-m", "localcluster", "down"]
    subprocess.run(down, cwd=ROOT / "hack", check=True, capture_output=True, timeout=300)
    assert process.marked(folder) == []
    assert machine.listing() == before


# The state of each job of the dashboard's demo, as `kubectl tfjob list` says it.
STATES = {
    "resnet50-imagenet": "Running",
    "mnist": "Running",
    "llama-finetune": "Running",
    "bert-elastic": "Running",
    "vit-baseline": "Succeeded",
    "wide-and-deep": "Succeeded",
    "tokenizer-ablation": "Failed",
    "whisper-small": "Pending",
    "sdxl-lora": "Pending",
    "clip-nightly": "Suspended",
    "mixtral-sft": "Pending",
    "segment-anything": "Pending",
    "llama-405b": "Pending",
}


@pytest.mark.long
def test_the_dashboards_demo_has_jobs_in_all_states_and_leaves_them(start: Start, home: Path) -> None:
    demo = start("dashboard")
    assert demo.stdout is not None
    address = next(line.strip() for line in demo.stdout if line.startswith("http://127.0.0.1:"))
    with urllib.request.urlopen(address, timeout=60) as page:
        assert "tfjob" in page.read().decode()
    folder = home / "demo-dashboard"
    command = [sys.executable, "-m", "tfjob_controller.kubectl", "list", "-A"]
    environment = {**os.environ, "KUBECONFIG": str(folder / "kubeconfig")}

    def states() -> dict[str, str]:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        rows = [line.split() for line in done.stdout.splitlines()[1:]]
        return {name: state for _, _, name, _, state, *_ in rows}

    # This one changes between two states.
    restarted = {"whisper-small": "Pending"}
    eventually(lambda: states() | restarted == STATES, TIMEOUT_SECONDS)
    demo.send_signal(signal.SIGINT)
    assert demo.wait(60) == 128 + signal.SIGINT
    assert state.condition(state.read(folder)) is state.Condition.RUNNING
    again = start("dashboard")
    assert again.stdout is not None
    assert "which are there already" in next(line for line in again.stdout if line.startswith("==> "))


@pytest.mark.long
def test_the_pictures_of_the_docs_are_taken_from_the_dashboards_demo(start: Start, tmp_path: Path) -> None:
    output = start("--folder", str(tmp_path), module="demo.screenshots").communicate(timeout=2 * TIMEOUT_SECONDS)[0]
    taken = {path.name for path in tmp_path.glob("*.png")}
    shown = set(re.findall(r"\(img/(dashboard-[\w.-]+)\)", (ROOT / "docs" / "dashboard.md").read_text()))
    assert taken == shown, output


@pytest.mark.long
def test_an_elastic_job_is_resized_while_it_trains(start: Start) -> None:
    output = start("elastic").communicate(timeout=2 * TIMEOUT_SECONDS)[0]
    for words in (
        "✓ the job ended Done/SUCCESS: all 2 nodes succeeded",
        "✓ it trained on 2 → ",
        "✓ 4 pods for 4 nodes, and 0 restarts are counted",
    ):
        assert words in output, output
    assert "✗" not in output


# The first phase that is seen is Creating, unless the job runs so soon that it never was.
@pytest.mark.parametrize("moment", ["a control plane and", "phase "])
def test_an_interrupted_demo_leaves_nothing_even_if_it_was_to_be_kept(start: Start, home: Path, moment: str) -> None:
    before, demo = machine.listing(), start("--keep")
    interrupt_at(demo, moment, after_seconds=0.5)
    assert process.marked(home / state.DEFAULT_NAME) == []
    assert machine.listing() == before


@pytest.mark.long
def test_an_existing_cluster_is_used_and_left_as_it_was(
    start: Start, own_nodes: Cluster, installed_kinds: Callable[[], None], home: Path
) -> None:
    """The job of an earlier demo is replaced, if it has ended. The image has no TensorFlow here: the demo says so."""
    installed_kinds()
    earlier = own_nodes.api.create(JOBS, tfjob())
    ended = {"status": {"phase": "Done", "state": "Succeeded"}}
    own_nodes.api.patch(f"{JOBS}/example-job/status", ended)
    demo = start(KUBECONFIG=str(own_nodes.kubeconfig), TF_IMAGE=images.BASE)
    output = demo.communicate(timeout=TIMEOUT_SECONDS)[0]
    assert demo.returncode == 1, output
    for words in (
        "none is started",
        "kubectl delete tfjob example-job   (of an earlier demo)",
        "ModuleNotFoundError: No module named 'tensorflow'",
        "✗ the job ended Failed/Failed: master-0 failed: exit code 1",
        "kubectl delete -f manifests/samples/example-job.yaml",
    ):
        assert words in output, output
    assert own_nodes.api.get(f"{JOBS}/example-job")["metadata"]["uid"] != earlier["metadata"]["uid"]
    assert process.marked(home / "demo") == []
    assert state.condition(state.read(own_nodes.folder)) is state.Condition.RUNNING
    eventually(lambda: own_nodes.api.delete(f"{JOBS}/example-job"))
