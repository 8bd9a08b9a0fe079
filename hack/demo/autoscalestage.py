"""The environment of the autoscaling demo: a control plane, two real nodes, and all programs of this project.

Containers run, so it needs root on Linux, as `make demo` does. To be the same on every machine, the jobs share
simulated GPUs (an extended resource) and not processors.

Everything ends with the block; a guard process ends it if the demo is killed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.crds import apply_crds
from demo.follow import DemoError
from demo.gangstage import SERVING, start_program, stopping
from demo.kubectl import Kubectl
from demo.screen import Screen
from localcluster import binaries, images, nodes, ports, process, stack, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.errors import LocalClusterError
from localcluster.gangscheduler import GangScheduler

NAME = "demo-autoscale"
NAMESPACE = "default"
NODES = 2
GPU = "example.com/gpu"
GPUS_PER_NODE = 2
# The defaults of 30 s and 60 s are too long for a demo.
SCALE_DOWN_AFTER = "5s"
SCALE_UP_AFTER = "4s"


@dataclass(frozen=True, slots=True)
class AutoscaleStage:
    kubectl: Kubectl
    api: Api
    logs: Path


@contextmanager
def open_autoscale_stage(root: Path, screen: Screen) -> Iterator[AutoscaleStage]:
    """Starts everything. Raises `DemoError` in one line if something is missing."""
    folder = state.stack_dir(NAME)
    if state.condition(state.read(folder)) is state.Condition.RUNNING:
        raise DemoError(f"another such demo is running: wait until it ends, or run make cluster-down NAME={NAME}")
    try:
        screen.step(f"a control plane and {NODES} real nodes with {GPUS_PER_NODE} simulated GPUs each")
        # Images are prepared first, so that the nodes start with them.
        nodes.prepare([images.TENSORFLOW], screen.detail, screen.console, tools=["kubectl"])
        with stopping(folder, screen):
            plane = stack.up(folder, NODES, owner=process.myself(), report=screen.detail)
            kubectl = Kubectl(binaries.ensure("kubectl", screen.detail), plane.kubeconfig, NAMESPACE)
            screen.detail(apply_crds(kubectl, root).replace("\n", "  "))
            api = Api.from_kubeconfig(plane.kubeconfig)
            give_gpus(api)
            start_programs(plane, screen)
            yield AutoscaleStage(kubectl, api, plane.logs)
    except LocalClusterError as error:
        raise DemoError(str(error)) from error


def give_gpus(api: Api) -> None:
    """Adds simulated GPUs to the nodes; a kubelet keeps unknown resources in its node's capacity."""
    amounts = {GPU: str(GPUS_PER_NODE)}
    for node in api.list("/api/v1/nodes"):
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        api.patch(f"/api/v1/nodes/{node['metadata']['name']}/status", status)


def start_programs(plane: ControlPlane, screen: Screen) -> None:
    """Starts the controller with autoscaling, and the gang scheduler with its kube-scheduler."""
    with ports.reserve(3) as (controller, extender, health):
        screen.step("tfjob-controller run --autoscaling=on")
        _start(plane, "run", ["--autoscaling=on"], controller)
        delays = [f"--scale-down-after={SCALE_DOWN_AFTER}", f"--scale-up-after={SCALE_UP_AFTER}"]
        screen.step(f"tfjob-controller extender {' '.join(delays)}, and a second, unmodified kube-scheduler beside it")
        screen.detail(f"logs: {plane.logs}")
        address = f"127.0.0.1:{extender}"
        _start(plane, "extender", ["--extender-bind-address", address, *delays], health)
        GangScheduler(plane, f"http://{address}").start()


def _start(plane: ControlPlane, command: str, flags: Sequence[str], port: int) -> None:
    start_program(plane, command, [*flags, *SERVING, f"127.0.0.1:{port}"], port)
