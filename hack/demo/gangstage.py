"""The environment of the gang demo: a control plane with two simulated nodes of four GPUs each, and all programs.

It does not need root, since no container runs: a fake kubelet (localcluster.fakekubelet) reports pods as
running. kube-apiserver, both kube-schedulers, the Job controller, the TFJob controller and the gang scheduler are real.

Everything ends with the block; a guard process ends it if the demo is killed.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.crds import apply_crds
from demo.follow import DemoError
from demo.kubectl import Kubectl
from demo.ready import wait_ready
from demo.screen import Screen
from localcluster import binaries, ports, process, stack, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.errors import LocalClusterError
from localcluster.fakekubelet import FakeKubelet
from localcluster.gangscheduler import GangScheduler

NAME = "demo-gang"
NAMESPACE = "default"
NODES = ("node-1", "node-2")
GPUS_PER_NODE = 4
GPU = "nvidia.com/gpu"
# Flags of both programs; the address for probes follows.
SERVING = ("--metrics-bind-address", "0", "--health-probe-bind-address")


@dataclass(frozen=True, slots=True)
class GangStage:
    kubectl: Kubectl
    api: Api


@contextmanager
def open_gang_stage(root: Path, screen: Screen) -> Iterator[GangStage]:
    """Starts everything. Raises `DemoError` in one line if something is missing."""
    folder = state.stack_dir(NAME)
    found = state.read(folder)
    if state.condition(found) is state.Condition.RUNNING:
        raise DemoError(f"another gang demo is running: wait until it ends, or run make cluster-down NAME={NAME}")
    try:
        screen.step(f"a control plane, and {len(NODES)} simulated nodes with {GPUS_PER_NODE} GPUs each")
        plane = stack.up(folder, owner=process.myself(), report=screen.detail)
        with stopping(folder, screen), _kubelet(plane) as api:
            kubectl = Kubectl(binaries.ensure("kubectl", screen.detail), plane.kubeconfig, NAMESPACE)
            screen.detail(apply_crds(kubectl, root).replace("\n", "  "))
            _start_programs(plane, screen)
            yield GangStage(kubectl, api)
    except LocalClusterError as error:
        raise DemoError(str(error)) from error


@contextmanager
def stopping(folder: Path, screen: Screen) -> Iterator[None]:
    """Stops the stack at the end of the block, also after an error."""
    try:
        yield
    finally:
        # A second Ctrl-C must not interrupt the clean-up.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        screen.step("stopping everything")
        stack.down(folder, lambda _: None)


@contextmanager
def _kubelet(plane: ControlPlane) -> Iterator[Api]:
    api = Api.from_kubeconfig(plane.kubeconfig)
    resources = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "64Gi", "pods": "110", GPU: str(GPUS_PER_NODE)}
    with FakeKubelet(api, nodes=NODES, resources=resources):
        yield api


def _start_programs(plane: ControlPlane, screen: Screen) -> None:
    """Starts the controller, the gang scheduler and its kube-scheduler."""
    with ports.reserve(3) as (controller, extender, health):
        screen.step(
            "tfjob-controller run; tfjob-controller extender, and a second, unmodified kube-scheduler beside it"
        )
        screen.detail(f"logs: {plane.logs}")
        # The limit interleaves the pods of two jobs that are created at the same time: on a real cluster the default
        # limits of the Job controller have this effect.
        slowly = ["--concurrent-writes", "1"]
        start_program(plane, "run", [*slowly, *SERVING, f"127.0.0.1:{controller}"], controller)
        address = f"127.0.0.1:{extender}"
        start_program(plane, "extender", ["--extender-bind-address", address, *SERVING, f"127.0.0.1:{health}"], health)
        GangScheduler(plane, f"http://{address}").start()


def start_program(plane: ControlPlane, command: str, flags: Sequence[str], port: int) -> None:
    """Starts `tfjob-controller <command>` and waits until it is ready; it ends with the stack whose mark it carries."""
    log = plane.logs / f"tfjob-controller-{command}.log"
    argv = [sys.executable, "-m", "tfjob_controller", command, "--kubeconfig", str(plane.kubeconfig), *flags]
    identity = process.spawn(argv, log=log, mark=plane.folder)
    wait_ready(identity, f"127.0.0.1:{port}", f"tfjob-controller {command}", log)
