"""The sample that any owner of pods can start from, run as it is shipped, on a real kube-scheduler."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster, set_pod_terminated
from helpers.gangowner import GANGS, Owner
from helpers.gangscheduler import running_gang_scheduler, running_schedulers
from helpers.kubectl import MANIFESTS
from helpers.poll import eventually
from localcluster import binaries
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet
from localcluster.podstatus import Outcome

pytestmark = pytest.mark.cluster

SCRIPT = MANIFESTS / "samples" / "gang_of_pods.py"
NAMESPACE = "gangs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
# As the fixture makes them: two nodes of four CPUs each.
NODES = ("node-a", "node-b")
ROOM = {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "8Gi", "pods": "20"}

# No attempt comes to nothing by this, however busy the machine.
PATIENT_SECONDS = 600.0
# Ends what hangs, and says nothing of speed.
WAIT_SECONDS = 120.0

Object = dict[str, Any]


class Terminal:
    """Runs the script as a user would, with kubectl on the path."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._api = cluster.api
        self._folder = folder
        config = folder / "kubeconfig"
        config.touch(mode=0o600)
        config.write_text(cluster.kubeconfig.read_text())
        path = f"{binaries.ensure('kubectl').parent}:{os.environ['PATH']}"
        self._environment = {"PATH": path, "KUBECONFIG": str(config), "HOME": str(folder)}
        to_namespace = ["kubectl", "config", "set-context", "--current", f"--namespace={NAMESPACE}"]
        subprocess.run(to_namespace, env=self._environment, check=True, capture_output=True)
        self.started: list[subprocess.Popen[str]] = []

    def run(self, name: str, count: int, *options: str) -> subprocess.Popen[str]:
        """Returns when its Gang is there."""
        argv = [sys.executable, str(SCRIPT), name, str(count), *options, "--", "train"]
        with (self._folder / f"{name}.out").open("w") as out:
            started = subprocess.Popen(argv, env=self._environment, stdout=out, stderr=subprocess.STDOUT, text=True)
        self.started.append(started)
        eventually(lambda: started.poll() is not None or self._api.find(f"{GANGS.format(NAMESPACE)}/{name}"))
        return started

    def said(self, name: str) -> str:
        return (self._folder / f"{name}.out").read_text()


@pytest.fixture
def terminal(gang_cluster: Cluster, tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(gang_cluster, tmp_path)
    yield terminal
    for each in terminal.started:
        each.kill()
        each.wait(10)


class Pods:
    """What the containers do: they run until the test lets them end; then each ends at once, those of the gang
    `broken` with an error. A `localcluster.fakekubelet.Behaviour`.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._may_end = threading.Event()

    def __call__(self, pod: Object, attempt: int) -> Outcome:
        exit_code = int(pod["metadata"]["name"].startswith("broken"))
        return Outcome(after_seconds=0.1 if self._may_end.is_set() else None, exit_code=exit_code)

    def may_end(self) -> None:
        self._may_end.set()
        # The kubelet has reported a pod as running before it asked how the pod ends.
        for pod in self._api.list(PODS):
            if pod.get("status", {}).get("phase") == "Running":
                set_pod_terminated(self._api, NAMESPACE, pod["metadata"]["name"])


def scheduling(cluster: Cluster, stack: ExitStack) -> tuple[Owner, Pods]:
    """The gang scheduler, its kube-scheduler and kubelets, until the stack is closed.

    No attempt comes to nothing because the machine is slow.
    """
    api, pods = Api.from_kubeconfig(cluster.kubeconfig), Pods(cluster.api)
    stack.enter_context(FakeKubelet(api, namespace=NAMESPACE, nodes=NODES, resources=ROOM, behaviour=pods))
    stack.enter_context(running_schedulers(cluster, bind_timeout=PATIENT_SECONDS))
    return Owner(cluster.api, NAMESPACE), pods


def test_the_script_is_short_and_needs_nothing_but_python_and_kubectl() -> None:
    text = SCRIPT.read_text()
    imports = {line.split()[1] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert imports <= sys.stdlib_module_names
    assert len(text.splitlines()) < 80


def test_its_pods_are_all_bound_where_they_were_placed_and_it_ends_with_them(
    gang_cluster: Cluster, terminal: Terminal
) -> None:
    with ExitStack() as stack:
        owner, pods = scheduling(gang_cluster, stack)
        script = terminal.run("mine", 6, "--cpu", "1")
        status = owner.await_phase("mine", "Bound")
        placed = {member: place["node"] for place in status["placement"] for member in place["members"]}
        assert owner.nodes("mine") == placed
        assert len(placed) == 6
        owners = [pod["metadata"]["ownerReferences"][0]["kind"] for pod in gang_cluster.api.list(PODS)]
        assert owners == ["Gang"] * 6, "the garbage collector deletes them with it"
        eventually(lambda: "Bound: 6 pods" in terminal.said("mine"))
        pods.may_end()
        assert script.wait(WAIT_SECONDS) == 0
        # Started again it finds that all is done.
        assert terminal.run("mine", 6, "--cpu", "1").wait(WAIT_SECONDS) == 0


def test_it_says_when_a_pod_has_failed(gang_cluster: Cluster, terminal: Terminal) -> None:
    with ExitStack() as stack:
        _, pods = scheduling(gang_cluster, stack)
        pods.may_end()
        # Released only after the time in which failed pods might have been made anew.
        assert terminal.run("broken", 1).wait(WAIT_SECONDS) == 1


@pytest.mark.long
def test_an_attempt_that_comes_to_nothing_is_cleared_away_and_tried_again(
    gang_cluster: Cluster, terminal: Terminal
) -> None:
    """No kube-scheduler binds the pods of the first attempt. The gang scheduler of the next attempts is patient, since
    a busy machine may take longer for an attempt than the first one's deadline."""
    owner = Owner(gang_cluster.api, NAMESPACE)
    with running_gang_scheduler(gang_cluster.kubeconfig, bind_timeout=1.0):
        script = terminal.run("again", 2)
        eventually(lambda: owner.status("again").get("attempt", 0) >= 2)
    with ExitStack() as stack:
        _, pods = scheduling(gang_cluster, stack)
        pods.may_end()
        assert script.wait(WAIT_SECONDS) == 0
        attempts = {pod["metadata"]["labels"]["scheduling.kubeflow.org/attempt"] for pod in gang_cluster.api.list(PODS)}
        assert attempts == {str(owner.status("again")["attempt"])}
