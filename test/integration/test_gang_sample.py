"""The sample that any owner of pods can start from, run as it is shipped, on a real kube-scheduler."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster
from helpers.gangowner import GANGS, Owner
from helpers.gangscheduler import extender_url, running_gang_scheduler
from helpers.kubectl import MANIFESTS
from helpers.poll import eventually
from localcluster import binaries
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet
from localcluster.gangscheduler import GangScheduler
from localcluster.podstatus import Outcome

pytestmark = pytest.mark.cluster

SCRIPT = MANIFESTS / "samples" / "gang_of_pods.py"
NAMESPACE = "gangs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
# As the fixture makes them: two nodes of four CPUs each.
NODES = ("node-a", "node-b")
ROOM = {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "8Gi", "pods": "20"}

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
        eventually(lambda: started.poll() is not None or self._api.find(f"{GANGS.format(NAMESPACE)}/{name}"), 30)
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


def ends_after(seconds: float) -> Any:
    """What the containers do; those of the gang `broken` end with an error."""

    def behaviour(pod: Object, attempt: int) -> Outcome:
        return Outcome(after_seconds=seconds, exit_code=int(pod["metadata"]["name"].startswith("broken")))

    return behaviour


def scheduling(cluster: Cluster, stack: ExitStack, seconds: float = 1.0, **options: Any) -> Owner:
    """The gang scheduler, its kube-scheduler and kubelets, until the stack is closed."""
    api = Api.from_kubeconfig(cluster.kubeconfig)
    kubelet = FakeKubelet(api, namespace=NAMESPACE, nodes=NODES, resources=ROOM, behaviour=ends_after(seconds))
    stack.enter_context(kubelet)
    scheduler = stack.enter_context(running_gang_scheduler(cluster.kubeconfig, **options))
    stack.enter_context(GangScheduler(cluster.own, extender_url(scheduler)))
    return Owner(cluster.api, NAMESPACE)


def test_the_script_is_short_and_needs_nothing_but_python_and_kubectl() -> None:
    text = SCRIPT.read_text()
    imports = {line.split()[1] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert imports <= sys.stdlib_module_names
    assert len(text.splitlines()) < 80


def test_its_pods_are_all_bound_where_they_were_placed_and_it_ends_with_them(
    gang_cluster: Cluster, terminal: Terminal
) -> None:
    with ExitStack() as stack:
        # Long enough for the script to look at its Gang while the pods run.
        owner = scheduling(gang_cluster, stack, seconds=5.0)
        script = terminal.run("mine", 6, "--cpu", "1")
        status = owner.await_phase("mine", "Bound")
        placed = {member: place["node"] for place in status["placement"] for member in place["members"]}
        assert owner.nodes("mine") == placed
        assert len(placed) == 6
        assert script.wait(30) == 0
        assert "Bound: 6 pods" in terminal.said("mine")
        # Started again it finds that all is done.
        assert terminal.run("mine", 6, "--cpu", "1").wait(30) == 0


def test_two_that_do_not_fit_together_run_one_after_the_other(gang_cluster: Cluster, terminal: Terminal) -> None:
    with ExitStack() as stack:
        owner = scheduling(gang_cluster, stack)
        scripts = [terminal.run(name, 8, "--cpu", "1") for name in ("left", "right")]
        waiting = eventually(
            lambda: [name for name in ("left", "right") if owner.status(name).get("phase") == "Waiting"], 20, 0.05
        )
        assert owner.nodes(waiting[0]) == {}
        assert [script.wait(40) for script in scripts] == [0, 0]
        assert "no node has room" in terminal.said(waiting[0])


def test_it_says_when_a_pod_has_failed(gang_cluster: Cluster, terminal: Terminal) -> None:
    with ExitStack() as stack:
        scheduling(gang_cluster, stack, 0.1)
        # Released only after the time in which failed pods might have been made anew.
        assert terminal.run("broken", 1).wait(60) == 1


def test_an_attempt_that_comes_to_nothing_is_cleared_away_and_tried_again(
    gang_cluster: Cluster, terminal: Terminal
) -> None:
    """No kube-scheduler brings the pods of the first attempt."""
    with ExitStack() as stack:
        kubelet = FakeKubelet(
            gang_cluster.api, namespace=NAMESPACE, nodes=NODES, resources=ROOM, behaviour=ends_after(0.5)
        )
        stack.enter_context(kubelet)
        scheduler = stack.enter_context(running_gang_scheduler(gang_cluster.kubeconfig, bind_timeout=1.0))
        owner = Owner(gang_cluster.api, NAMESPACE)
        script = terminal.run("again", 2)
        eventually(lambda: owner.status("again").get("attempt", 0) >= 2, 40, 0.05)
        stack.enter_context(GangScheduler(gang_cluster.own, extender_url(scheduler)))
        assert script.wait(60) == 0
        attempts = {pod["metadata"]["labels"]["scheduling.kubeflow.org/attempt"] for pod in gang_cluster.api.list(PODS)}
        assert attempts == {str(owner.status("again")["attempt"])}


def test_the_pods_go_with_the_gang(gang_cluster: Cluster, terminal: Terminal) -> None:
    with ExitStack() as stack:
        owner = scheduling(gang_cluster, stack, 100.0)
        terminal.run("gone", 2)
        owner.await_phase("gone", "Bound")
        # The garbage collector looks for kinds that are new every 30 s.
        gang_cluster.api.delete(f"{GANGS.format(NAMESPACE)}/gone")
        eventually(lambda: owner.nodes("gone") == {}, 60, 0.1)
